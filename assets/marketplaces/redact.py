"""Redact: takes secrets out of text and JSON before anything is returned or stored.

What belongs here: the patterns and the walk over JSON.
What does not: which variables a server needs (`command.py` keeps a secret's *name*).

`redact` is idempotent and leaves JSON text parseable: the mark holds no quote and no backslash.
"""

import re
from typing import Any

MARK = "[redacted]"

_WORD = r"[A-Za-z0-9_\-]"
_QUOTE = r"(?:\\?[\"']|&quot;|&#34;|&#39;)"  # plain, inside a script's string, inside HTML
_OPEN = r"(?!\[redacted\]|[<{$]|&lt;)"  # what follows is a value, not a place to fill in
# Each pattern keeps group 1 (what introduces the secret) and replaces the rest.
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"((?i:\bbearer)\s+)(?!\[redacted\])(?![<{$])[A-Za-z0-9._~+/=\-]{8,}",
        r"((?i:\bbasic)\s+)(?!\[redacted\])[A-Za-z0-9+/]{12,}={0,2}",
        rf"()\beyJ{_WORD}{{8,}}\.{_WORD}{{8,}}(?:\.{_WORD}*)?",  # JWT
        r"()\bsk-[A-Za-z0-9_\-]{16,}",
        r"()\b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,}",
        r"()\bgithub_pat_[A-Za-z0-9_]{20,}",
        r"()\bglpat-[A-Za-z0-9_\-]{16,}",
        r"()\bxox[abeoprs]-[A-Za-z0-9\-]{10,}",
        r"()\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"()\bAIza[0-9A-Za-z_\-]{30,}",
        r"()\b(?:ntn_|secret_)[A-Za-z0-9]{30,}",
        r"()\bhf_[A-Za-z0-9]{30,}",
        r"()\bnpm_[A-Za-z0-9]{30,}",
        r"()\bSG\.[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}",
        r"()-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----"
        r"[\s\S]*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)",
        r"(\b[a-z][a-z0-9+.\-]{0,20}://[^\s/:@\"'\\]{1,200}:)(?!\[redacted\])[^\s/@\"'\\]{1,500}(?=@)",
        r"([?&](?i:api[_-]?key|key|token|access_token|secret|password|profile|sig|signature)=)"
        r"(?!\[redacted\])(?![<{$])[^&\s\"'\\<>#]+",
        # --key VALUE, on a command line and as two neighbours of a JSON list
        r"(--(?i:api-?key|key|token|access-token|secret|password|profile)"
        rf"(?:=|\s+|{_QUOTE}\s*,\s*{_QUOTE})){_OPEN}(?!-)[^\s\"'\\<>,&]+",
        # "SOME_API_KEY": "value" of an env object
        rf"({_QUOTE}[A-Z][A-Z0-9_]{{0,80}}(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?){_QUOTE}"
        rf"\s*:\s*{_QUOTE}){_OPEN}[^\"'\\&]+",
        rf"({_QUOTE}(?:apiKey|api_key|access_token|accessToken|client_secret|clientSecret|password)"
        rf"{_QUOTE}\s*:\s*{_QUOTE}){_OPEN}[^\"'\\&]+",
        # a user's UUID in the path of a hosted gateway
        r"(://\w[^\s\"'\\]{0,150}?/)[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    )
)

_SECRET_NAME = re.compile(
    r"(?i)(?:^|[_\-.])(?:api[_\-]?key|key|token|secret|passw(?:or)?d|passwd|pwd|credentials?|"
    r"authorization|auth|private[_\-]?key|connection[_\-]?string|dsn|cookie|pat)(?:$|[_\-.])"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def redact(text: str) -> str:
    """The text with every known form of secret replaced by "[redacted]"; half of a surrogate pair,
    which no file can hold, becomes U+FFFD."""
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for pattern in _PATTERNS:
        text = pattern.sub(lambda found: found.group(1) + MARK, text)
    return text


def is_secret_name(name: str) -> bool:
    """Whether a variable, header or parameter of this name carries a secret."""
    return bool(_SECRET_NAME.search(_CAMEL.sub("_", name)))


def redact_json(value: Any) -> Any:
    """A copy of a JSON value: texts redacted, and values of inputs marked secret blanked.

    An input is marked secret by a sibling `isSecret` / `is_secret` of its `value` or `default`, or
    by being a text under a key that names a secret.
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [redact_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    secret = value.get("isSecret") is True or value.get("is_secret") is True
    return {redact(name): _redact_member(name, item, marked=secret) for name, item in value.items()}


def _redact_member(name: str, item: Any, *, marked: bool) -> Any:
    literal = isinstance(item, str) and item and not _is_template(item)
    if literal and marked and name in ("value", "default"):
        return MARK
    if literal and is_secret_name(name):
        return MARK
    return redact_json(item)


def _is_template(text: str) -> bool:
    """`{token}`, `<YOUR_KEY>`, `${KEY}`, "Bearer {token}": a place to fill in, not a secret."""
    return bool(re.fullmatch(r"(?:[A-Za-z]+\s+)?(?:\{[^{}]*\}|<[^<>]*>|\$\{?\w+\}?)", text.strip()))
