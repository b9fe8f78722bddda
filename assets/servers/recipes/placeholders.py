"""Typed placeholders: plausible values for what a listing leaves to its user."""

import json
import re
from pathlib import Path

from assets.servers.recipes.key_formats import (
    UUID,
    encode_base64,
    find_key,
    make_jwt,
    make_pem,
    make_service_account,
    repeat_word,
)
from assets.servers.sandbox.spec import HOME

DATA = f"{HOME}/data"
_HEX_KEY = f"{'0' * 63}1"  # the smallest valid secp256k1 key; all zeros is none
_MNEMONIC = f"{'abandon ' * 11}about"  # BIP 39 of all-zero entropy
_SECRET = (
    r"key|token|secret|password|passwd|passphrase|pwd|credential|bearer|auth|\bpat\b|\bpass\b"
    r"|signature|cookie|mnemonic|seed phrase"
)
# A name that speaks of a secret without holding one: TOKEN_URL, AUTH_TYPE, MAX_TOKENS, KEY_PATH.
_NO_SECRET = (
    r"\bur[il]s?\b|path|file|\bdir|type|method|mode|enabled?|disabled?|header|prefix|name"
    r"|application credentials|\bmax\b|limit|timeout|ttl|expir|port|host|scope|region|issuer"
    r"|audience|domain|endpoint"
    r"|^(use|skip|allow|require|is|has|no) "
)
_FORMATS = {
    "number": "1", "integer": "1", "boolean": "true", "filepath": DATA, "directory": DATA,
    "file": f"{DATA}/placeholder.txt", "uri": "https://placeholder.example.com",
    "url": "https://placeholder.example.com", "email": "placeholder@example.com",
    "hostname": "placeholder.example.com", "ipv4": "127.0.0.1", "uuid": UUID,
    "date": "2026-01-01", "date-time": "2026-01-01T00:00:00Z", "json": "{}",
}  # fmt: skip
# (words of the name, value) for names that hold no secret. The first match counts.
_RULES: list[tuple[str, str]] = json.loads(
    Path(__file__).with_name("values.json").read_text(encoding="utf-8").replace("{DATA}", DATA)
)
_NAMED_SECRETS = (
    (r"mnemonic|seed phrase|recovery phrase", _MNEMONIC),
    (r"\bjwt\b|json web token", make_jwt()),
    (r"service ?account.*(json|key|info|credential)|credentials? json", make_service_account()),
    (r"\b(ssh|rsa|app|github app|pem|signing|jwt) private key|private key pem|\bpem\b",
     make_pem("RSA PRIVATE KEY")),
    (r"(wallet|eth\w*|evm|deployer|account|signer|agent) private key", f"0x{_HEX_KEY}"),
    (r"^private key$|private key", f"0x{_HEX_KEY}"),
    (r"certificate|\bcert\b", make_pem("CERTIFICATE")),
    (r"encrypt\w* key|fernet|base64|secret key base", encode_base64(32)),
    (r"client ?id|\buuid\b|\bguid\b", UUID),
)  # fmt: skip


def make_value(
    name: str,
    description: str | None = None,
    format: str | None = None,
    *,
    choices: tuple[str, ...] = (),
    context: str = "",
) -> str:
    """A plausible value, the first of `choices` where there are any. format: string, number,
    boolean, filepath, directory, file, or a format of JSON Schema. context: what else names the
    provider, such as the package."""
    if choices:
        return choices[0]
    if format in _FORMATS:
        return _FORMATS[format]
    words, about = split_words(name), (description or "").lower()
    if holds_secret(name):
        return _make_secret(words, about, split_words(context))
    if stated := _find_stated_value(description or ""):
        return stated
    for pattern, value in _RULES:
        if re.search(pattern, words):
            return value
    if re.search(r"https?://|\burl\b", about):
        return "https://placeholder.example.com"
    if re.search(r"\b(path|directory|folder)\b", about):
        return DATA
    if re.search(r"\be-?mail\b", about):
        return "placeholder@example.com"
    if re.search(r"\b(api[ -]?key|access token|personal token|secret)\b", about):
        return _make_secret(words, about, split_words(context))
    return "placeholder"


def holds_secret(name: str) -> bool:
    """Whether a name says that its value is a secret."""
    words = split_words(name)
    return re.search(_SECRET, words) is not None and re.search(_NO_SECRET, words) is None


def split_words(name: str) -> str:
    """`NOTION_API_TOKEN`, `notionApiToken` -> "notion api token"."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.sub(r"[^a-z0-9]+", " ", split.lower()).strip()


def _make_secret(words: str, about: str, context: str) -> str:
    for pattern, value in _NAMED_SECRETS:
        if re.search(pattern, words):
            return value
    if re.search(r"password|passwd|passphrase|\bpwd\b|\bpass\b", words):
        return "placeholder-Passw0rd!"
    for text in (words, f"{about} {words}", f"{context} {words}"):
        if found := find_key(text):
            return found
    if starts := re.search(r"start(?:s|ing)? with [`'\"]?([a-z][\w\-]{1,11}[_\-])", about):
        return starts[1] + repeat_word(40)
    if digits := re.search(r"\b(32|40|64)[ -]?(?:char\w*[ -])?hex", f"{about} {words}"):
        return "0" * int(digits[1])
    return repeat_word(40)


def _find_stated_value(description: str) -> str | None:
    """The first of the choices, the default or the example that a description spells out, where it
    is one plain word or number."""
    found = re.search(
        r"(?i)\b(?:one of|options?|choices|(?:allowed|valid|possible) values?|either)\b\W{0,4}"
        r"([a-z0-9][\w.\-]{0,30})\W{0,3}(?:[,|/]|\bor\b)"
        r"|\bdefaults?(?: value| is| to|:)*[\s:=]+[`'\"]?([a-z0-9][\w.\-]{0,60})(?![\w.\-/:@])"
        r"|^(localhost|\d{1,5}|true|false)$",
        description.strip(),
    )
    value = next((text for text in found.groups() if text), None) if found else None
    known = ("none", "null", "to", "is", "value", "empty", "the", "a", "an", "your", "not", "no")
    return None if value is None or value.lower() in known else value.rstrip(".")
