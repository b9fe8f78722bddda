"""Key formats: what a made-up key of each known provider looks like."""

import base64
import json
import re
from pathlib import Path

_WORD = "placeholder"


def letters(length: int) -> str:
    """`placeholder0placeholder0…`: letters and digits."""
    return (f"{_WORD}0" * (length // 12 + 1))[:length]


def capitals(length: int) -> str:
    return letters(length).upper()


def zeros(length: int) -> str:
    """Zeros: digits, and hexadecimal too."""
    return "0" * length


def base64_of(length: int) -> str:
    """Base64 of `length` bytes that spell the word."""
    return base64.b64encode(letters(length).encode()).decode()


def jwt() -> str:
    """Three base64url parts; header and payload decode to JSON, the signature spells the word."""
    header = {"alg": "HS256", "typ": "JWT"}
    payload = {"sub": _WORD, "role": _WORD, "iss": _WORD, "iat": 0, "exp": 4102444800}
    parts = [json.dumps(part, separators=(",", ":")).encode() for part in (header, payload)]
    coded = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts]
    return ".".join([*coded, letters(43)])


def pem(kind: str) -> str:
    """A PEM block whose body is no key: it decodes to the word."""
    body = base64_of(144)
    lines = "\n".join(body[at : at + 64] for at in range(0, len(body), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"


def service_account() -> str:
    """A service account's file, in one line."""
    facts = {
        "type": "service_account",
        "project_id": _WORD,
        "private_key_id": zeros(40),
        "private_key": pem("PRIVATE KEY"),
        "client_email": f"{_WORD}@{_WORD}.iam.gserviceaccount.com",
        "client_id": zeros(21),
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    return json.dumps(facts)


def uuid() -> str:
    """`00000000-0000-4000-8000-000000000000`: version 4, all else zero."""
    return "00000000-0000-4000-8000-000000000000"


# (words that name the provider and, where it has several kinds, the kind; its key). First match.
FORMATS: list[tuple[str, str]] = json.loads(
    Path(__file__).with_name("key_formats.json").read_text(encoding="utf-8")
)
_PART = re.compile(r"\{(letters|capitals|zeros):(\d+)\}")
_BODIES = {"letters": letters, "capitals": capitals, "zeros": zeros}


def write_key(form: str) -> str:
    """The key of a format: `ghp_{letters:36}`, `{uuid}`, `{jwt}`."""
    if form == "{jwt}":
        return jwt()
    filled = _PART.sub(lambda part: _BODIES[part[1]](int(part[2])), form)
    return filled.replace("{uuid}", uuid())


def key_of(words: str) -> str | None:
    """A made-up key of the provider that the words name, None where they name none."""
    form = next((form for pattern, form in FORMATS if re.search(pattern, words)), None)
    return write_key(form) if form else None
