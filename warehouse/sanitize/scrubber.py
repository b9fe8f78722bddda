"""Taking secrets out of third-party text."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from warehouse.sanitize.redact import MARK, redact
from warehouse.sanitize.untrusted_text import drop_unseen, rebuild

SHORTEST = 6  # of a secret; shorter ones stand in texts by chance
_PIECE = 128  # a private key of 2,000 characters is looked for piece by piece
_EITHER64 = {"+": r"(?:[+\-]|%2[bB])", "/": r"(?:\\?+/|_|%2[fF])"}
_HTML = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_SHORT = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_SLASH = r"(?:\\|%(?:25)*+5[cC])"


class Scrubber:
    """Replaces every occurrence of any secret by `[secret NAME]`; false where there is none."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        names = dict(_split_secrets(secrets))  # value -> name
        values = sorted(names, key=lambda value: (-len(value), value))
        self._names = [names[value] for value in values]
        groups = (f"({'|'.join(_make_forms(value))})" for value in values)
        self._pattern = re.compile("|".join(groups)) if values else None
        self._labels = [self._choose_label(name) for name in self._names]

    def __bool__(self) -> bool:
        return self._pattern is not None

    def __call__(self, value: Any) -> Any:
        return rebuild(value, self._scrub_shallow)

    def _scrub_shallow(self, value: Any, _under: str) -> Any:
        if self._pattern is None or value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.scrub_text(value)
        if isinstance(value, int | float):
            text = repr(value)
            return self.scrub_text(text) if self._pattern.search(text) else value
        if isinstance(value, Mapping):
            scrubbed: dict[Any, Any] = {}
            for key, member in value.items():
                clean = self.scrub_text(key) if isinstance(key, str) else key
                while clean in scrubbed:
                    clean += "'"
                scrubbed[clean] = member
            return scrubbed
        return list(value) if isinstance(value, list | tuple) else self.scrub_text(str(value))

    def scrub_text(self, text: str) -> str:
        """A text without the secrets and, where one hides, without unseen characters."""
        clean = self._scrub_seen(text)
        bare = drop_unseen(clean)
        scrubbed = clean if bare == clean else self._scrub_seen(bare)
        return clean if scrubbed in (clean, bare) else scrubbed

    def _scrub_seen(self, text: str) -> str:
        if self._pattern is None:
            return text
        for _ in range(4):  # a label and what stood beside it may spell a secret again
            new = self._pattern.sub(lambda match: self._labels[(match.lastindex or 1) - 1], text)
            if new == text:
                return text
            text = new
        return "[…]" if self._pattern.search(text) else text

    def _choose_label(self, name: str) -> str:
        assert self._pattern is not None
        tries = (f"[secret {name[:60]}]", "[redacted]", "[***]")
        return next((label for label in tries if not self._pattern.search(label)), "[…]")


def _split_secrets(secrets: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(value, name) of secrets and those within: the token of `Bearer`, Basic's password."""
    for name, value in secrets.items():
        scheme, _, token = value.partition(" ")
        whole = [value, value.strip()]
        if token and scheme.lower() in ("bearer", "basic", "token", "apikey", "key"):
            whole.append(token.strip())
            if scheme.lower() == "basic":
                whole += _decode_basic(token)
        for secret in whole:
            if len(secret) > 2 * _PIECE:
                cuts = [secret[at : at + _PIECE] for at in range(0, len(secret) - _PIECE, _PIECE)]
                pieces = [*cuts, secret[-_PIECE:]]
            else:
                pieces = [secret]
            for piece in pieces:
                forms = dict.fromkeys((piece, drop_unseen(piece)))
                yield from ((form, name) for form in forms if len(form) >= SHORTEST)


def _decode_basic(token: str) -> list[str]:
    try:
        user, _, password = base64.b64decode(token, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return []
    return [f"{user}:{password}", password]


def _make_forms(value: str) -> Iterator[str]:
    # A run of backslashes is one piece: its length depends on how often it was escaped.
    runs = ["", *re.findall(r"\\+|.", value, re.DOTALL)]
    yield "".join(_match_character(text, before) for before, text in pairwise(runs))
    data = value.encode("utf-8", "surrogatepass")
    # The characters that hold nothing but the secret, at each of the three places where it may
    # begin within a group; and up to two on either side, which hold a part of it.
    edge, pad = r"[A-Za-z0-9+/_\-]{0,2}", r"(?:=|%3[dD]){0,2}"
    for before in range(3):
        text = base64.b64encode(bytes(before) + data).decode()
        first, last = -(-8 * before // 6), 8 * (before + len(data)) // 6
        yield edge + "".join(_EITHER64.get(char, char) for char in text[first:last]) + edge + pad
    yield "".join(_match_hex(byte) for byte in data)


def _match_character(text: str, before: str) -> str:
    """Matches a character, or a run of backslashes, in any encoding, by possessive and bounded
    quantifiers (three escapes of a quote take seven backslashes): the text is third-party."""
    count, first = len(text), not before
    if text[0] == "\\":
        many = f"{{{count}}}" if first else f"{{{count},{8 * count}}}+"
        return f"(?:{_SLASH}{many}|{_match_html(text)})"
    # A run before it has already taken the slashes that escape this character.
    slashes = _SLASH + ("" if first else "{0,15}+" if before[0] == "\\" else "{1,15}+")
    forms = [_match_percent(text), f"{slashes}u{_match_utf16(text)}", _match_html(text)]
    if text in _SHORT:
        forms.append(slashes + _SHORT[text])
    elif text in "\"/'":
        some = "" if first else _SLASH + "{0,15}+"
        forms += [some + re.escape(text), some + _match_percent(text)]
    forms.append(re.escape(text))
    if text == " ":
        forms.append(r"\+")
    return f"(?:{'|'.join(forms)})"


def _match_percent(text: str) -> str:
    if text == "%":
        return "%(?:25)++"
    data = text.encode("utf-8", "surrogatepass")
    return "".join(f"%(?:25)*+{_match_hex(byte)}" for byte in data)


def _match_utf16(text: str) -> str:
    data = text.encode("utf-16-be", "surrogatepass")
    units = [data[at : at + 2] for at in range(0, len(data), 2)]
    return f"{_SLASH}{{1,15}}+u".join("".join(_match_hex(byte) for byte in unit) for unit in units)


def _match_html(text: str) -> str:
    """text: one character, or a run of one."""
    code = f"{ord(text[0]):x}"
    forms = [f"&#0*+{ord(text[0])};", f"&#[xX]0*+{''.join(map(_match_either, code))};"]
    if text in _HTML:
        forms.append(f"&{_HTML[text]};")
    return f"(?:{'|'.join(forms)}){{{len(text)}}}"


def _match_hex(byte: int) -> str:
    return "".join(_match_either(char) for char in f"{byte:02x}")


def _match_either(char: str) -> str:
    return f"[{char}{char.upper()}]" if char.isalpha() else char


_PLACE = re.compile(
    r"\{(?P<braced>[A-Za-z][\w.\-]*)(?::(?P<format>string|number|boolean|filepath))?\}"
    r"|\$\{?(?P<shell>[A-Za-z_]\w*)\}?"
    r"|<(?P<angled>[A-Za-z][^<>]*)>"
    r"|\[(?P<squared>[A-Za-z][\w \-]*)\]"
    r"|(?P<your>(?:your|my|insert|enter|replace)[_\- ][\w\- ]+)"
    r"|(?P<path>/?(?:absolute/)?path/to/.*|/Users/(?:username|you|yourname)/.*)"
    r"|(?P<crossed>x{3,}|\*{3,}|\.{3,}|…)",
    re.IGNORECASE,
)
_BRACED = re.compile(
    r"\{(?P<braced>[A-Za-z][\w.\-]*)(?::(?P<format>string|number|boolean|filepath))?\}"
)
_UNFILLED = re.compile(
    r"\{\{[^{}]{1,200}\}\}|\{[A-Za-z][\w.\-]{0,100}(?::[a-z]{1,20})?\}|\$\{[^{}]{1,200}\}"
    r"|\$[A-Z_][A-Z0-9_]{2,}|%[A-Za-z_]{3,40}%|<[A-Za-z][^<>]{0,200}>"
    r"|(?i:\[(?:your|my|insert|enter|replace|path|api)[^\[\]]{0,100}\]"
    r"|(?<![a-z])your[._\- ]?[a-z]|(?<![a-z])(?:insert|enter|put|add|paste)[_\- ](?:your|the|api)"
    r"|(?<![a-z])(?:replace|change)[_\-]?(?:me|this|with)(?![a-z])"
    r"|(?:^|[/\\=])(?:absolute[/\\])?path[/\\]to(?:[/\\]|$)"
    r"|[/\\]users[/\\](?:username|you|yourname|user)(?:[/\\]|$)"
    r"|(?<![a-z])x{3,}(?![a-z])"
    r"|^(?:optional|required)[,;:(]"
    r"|://user(?:name)?:(?:pass(?:word)?|pwd)@)|\*{3,}|\.{3,}|…"
)
_LOCAL = re.compile(
    r"(?i)(?:^|=)(?<!dst=)(?<!target=)(?<!destination=)"
    r"(?:/(?:Users|home|root|opt|absolute|path|mnt|var|srv|Volumes|Applications|usr/local)\b"
    r"|~(?:[/\\]|$)|\.{1,2}[/\\]|[A-Z]:[\\/]|\\\\\w|file:|\$\{?HOME\b|%(?:USERPROFILE|APPDATA"
    r"|LOCALAPPDATA|HOME)%)"
)
_PASSWORD = re.compile(r"\s*[A-Za-z][\w+.\-]{0,30}://[^\s/:@]{1,200}:[^\s/@]{1,200}@")
_QUERY = re.compile(r"([?&]([\w\-.]{1,100})=)" + re.escape(MARK))


def find_placeholder(text: str) -> tuple[str, str] | None:
    """(name, string | number | boolean | filepath) of a place to fill in, maybe in braces."""
    match = _PLACE.fullmatch(text) or _BRACED.search(text)
    if not match:
        return None
    groups = {name: value for name, value in match.groupdict().items() if value}
    kind = groups.pop("format", None)
    name = next(iter(groups.values()))
    looks_like_path = "path" in groups or re.search(r"(?i)path|dir|folder|file|root", name)
    return name.strip(), kind or ("filepath" if looks_like_path else "string")


def is_unfilled(text: str) -> bool:
    """Whether a text has a place to fill in. What was redacted was filled in by its author."""
    text = text.replace(MARK, "").strip()
    return bool(text) and (find_placeholder(text) is not None or bool(_UNFILLED.search(text)))


def has_password(text: str) -> bool:
    """Whether a text is an address with a password in it, or with a place for one."""
    return bool(_PASSWORD.match(text))


def is_local(word: str) -> bool:
    """Whether a word, or the value of an option, is a path of somebody's own machine."""
    return bool(_LOCAL.search(word))


def make_template(text: str) -> str:
    """The text with a place to fill in where a secret stood: `?key={key}`, else `{secret}`."""
    text = _QUERY.sub(lambda match: f"{match[1]}{{{make_slug(match[2])}}}", redact(text))
    return text.replace(MARK, "{secret}")


def make_slug(name: str) -> str:
    """The name of an option, parameter or header as a place's name."""
    return re.sub(r"\W+", "_", name.strip("-")).strip("_").lower() or "secret"
