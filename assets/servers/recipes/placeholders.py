"""Typed placeholders: plausible values for what a listing leaves to its user."""

import base64
import json
import re
from pathlib import Path

from assets.servers.sandbox.spec import HOME
from warehouse.patterns import compile_pattern

_WORD = "placeholder"
UUID = "00000000-0000-4000-8000-000000000000"  # version 4, all else zero


def repeat_word(length: int) -> str:
    """`placeholder0placeholder0…`: letters and digits."""
    return (f"{_WORD}0" * (length // 12 + 1))[:length]


def encode_base64(length: int) -> str:
    """Base64 of `length` bytes that spell the word."""
    return base64.b64encode(repeat_word(length).encode()).decode()


def make_jwt() -> str:
    """Three base64url parts; header and payload decode to JSON, the signature spells the word."""
    header = {"alg": "HS256", "typ": "JWT"}
    payload = {"sub": _WORD, "role": _WORD, "iss": _WORD, "iat": 0, "exp": 4102444800}
    encoded = [json.dumps(part, separators=(",", ":")).encode() for part in (header, payload)]
    coded = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in encoded]
    return ".".join([*coded, repeat_word(43)])


def make_pem(kind: str) -> str:
    """A PEM block whose body is no key: it decodes to the word."""
    body = encode_base64(144)
    lines = "\n".join(body[at : at + 64] for at in range(0, len(body), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"


def make_service_account() -> str:
    """A service account's file, in one line."""
    facts = {
        "type": "service_account",
        "project_id": _WORD,
        "private_key_id": "0" * 40,
        "private_key": make_pem("PRIVATE KEY"),
        "client_email": f"{_WORD}@{_WORD}.iam.gserviceaccount.com",
        "client_id": "0" * 21,
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    return json.dumps(facts)


# (words that name the provider and, where it has several kinds, the kind; its key). First match.
FORMATS: list[tuple[str, str]] = json.loads(
    Path(__file__).with_name("key_formats.json").read_text(encoding="utf-8")
)
_PART = compile_pattern(r"\{(letters|capitals|zeros):(\d+)\}")
_BODIES = {
    "letters": repeat_word,
    "capitals": lambda length: repeat_word(length).upper(),
    "zeros": lambda length: "0" * length,
}


def write_key(form: str) -> str:
    """The key of a format: `ghp_{letters:36}`, `{uuid}`, `{jwt}`."""
    if form == "{jwt}":
        return make_jwt()
    filled = _PART.sub(lambda part: _BODIES[part[1]](int(part[2])), form)
    return filled.replace("{uuid}", UUID)


def find_key(words: str) -> str | None:
    """A made-up key of the provider that the words name, None where they name none."""
    form = next((form for pattern, form in FORMATS if compile_pattern(pattern).search(words)), None)
    return write_key(form) if form else None


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
        if compile_pattern(pattern).search(words):
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
    return (
        compile_pattern(_SECRET).search(words) is not None
        and compile_pattern(_NO_SECRET).search(words) is None
    )


def split_words(name: str) -> str:
    """`NOTION_API_TOKEN`, `notionApiToken` -> "notion api token"."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.sub(r"[^a-z0-9]+", " ", split.lower()).strip()


def _make_secret(words: str, about: str, context: str) -> str:
    for pattern, value in _NAMED_SECRETS:
        if compile_pattern(pattern).search(words):
            return value
    if re.search(r"password|passwd|passphrase|\bpwd\b|\bpass\b", words):
        return "placeholder-Passw0rd!"
    for text in (words, f"{about} {words}", f"{context} {words}"):
        if provider_key := find_key(text):
            return provider_key
    if starts := re.search(r"start(?:s|ing)? with [`'\"]?([a-z][\w\-]{1,11}[_\-])", about):
        return starts[1] + repeat_word(40)
    if digits := compile_pattern(r"\b(32|40|64)[ -]?(?:char\w*[ -])?hex").search(
        f"{about} {words}"
    ):
        return "0" * int(digits[1])
    return repeat_word(40)


def _find_stated_value(description: str) -> str | None:
    """The first of the choices, the default or the example that a description spells out, where it
    is one plain word or number."""
    match = compile_pattern(
        r"(?i)\b(?:one of|options?|choices|(?:allowed|valid|possible) values?|either)\b\W{0,4}"
        r"([a-z0-9][\w.\-]{0,30})\W{0,3}(?:[,|/]|\bor\b)"
        r"|\bdefaults?(?: value| is| to|:)*[\s:=]+[`'\"]?([a-z0-9][\w.\-]{0,60})(?:[^\w.\-/:@]|$)"
        r"|^(localhost|\d{1,5}|true|false)$"
    ).search(description.strip())
    value = next((text for text in match.groups() if text), None) if match else None
    empty = ("none", "null", "to", "is", "value", "empty", "the", "a", "an", "your", "not", "no")
    return None if value is None or value.lower() in empty else value.rstrip(".")
