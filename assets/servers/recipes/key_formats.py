"""Key formats: what a made-up key of each known provider looks like."""

import base64
import json
import re
from pathlib import Path

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
    parts = [json.dumps(part, separators=(",", ":")).encode() for part in (header, payload)]
    coded = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts]
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
_PART = re.compile(r"\{(letters|capitals|zeros):(\d+)\}")
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
    form = next((form for pattern, form in FORMATS if re.search(pattern, words)), None)
    return write_key(form) if form else None
