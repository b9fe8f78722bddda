"""Places: what a text leaves to its user to fill in, and paths of somebody's own machine."""

import re

from warehouse.sanitize.redact import MARK, redact

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
    """(name, format) where a text is, or holds in braces, a place the user must fill in, else None.

    Formats: string, number, boolean, filepath.
    """
    found = _PLACE.fullmatch(text) or _BRACED.search(text)
    if not found:
        return None
    groups = {name: value for name, value in found.groupdict().items() if value}
    kind = groups.pop("format", None)
    name = next(iter(groups.values()))
    looks_like_path = "path" in groups or re.search(r"(?i)path|dir|folder|file|root", name)
    return name.strip(), kind or ("filepath" if looks_like_path else "string")


def is_unfilled(text: str) -> bool:
    """Whether a text holds a place for its user to fill in, anywhere. What was redacted was filled
    in by its author, so it is none."""
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
    text = _QUERY.sub(lambda found: f"{found[1]}{{{make_slug(found[2])}}}", redact(text))
    return text.replace(MARK, "{secret}")


def make_slug(name: str) -> str:
    """The name of an option, parameter or header as a place's name."""
    return re.sub(r"\W+", "_", name.strip("-")).strip("_").lower() or "secret"
