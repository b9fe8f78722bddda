"""Named: secrets that a text shows by the name beside them.

What is found never crosses a quote, so that JSON stays JSON.
"""

import base64
import re
from collections.abc import Iterator

from warehouse.sanitize.credential_patterns import Span
from warehouse.sanitize.secret_names import (
    is_credible,
    is_firm,
    is_place,
    is_secret_name,
    split_words,
)

ONLY_IN_QUERIES = frozenset(("profile", "config"))  # secrets there, plain words elsewhere
_WHITE = (" ", "\t", "\n", "\r", "\\")
_REACH = 8192  # characters in which a quoted value must end
_NAME = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_STEMS = (  # what every secret's name holds, in lower case; `_GLUED` and `is_secret_name` judge
    *("key", "token", "secret", "passw", "passphrase", "passcode", "pwd", "_pass", "credential"),
    *("creds", "auth", "dsn", "cookie", "pat", "jwt", "bearer", "conn_str"),
    *("connection", "sig", "profile", "config=", "basic"),
)
_TAIL = re.compile(r"[\w.\-]{0,80}+", re.ASCII)
_QUOTE = (
    r"(?:\\{0,15}[\"'`]|&(?:amp;)?(?:quot|apos|#0{0,4}3[49]|#[xX]0{0,4}2[27]);"
    r"|%(?:25){0,3}2[27]|\\{1,15}u002[27])"
)
_GAP = r"(?:[ \t\r\n]|%20|\\{1,15}[nrt]|&nbsp;){0,20}+"
_AFTER = re.compile(
    rf"(?P<close>{_QUOTE})?{_GAP}"
    r"(?:(?P<colon>:|=>|%3[Aa]|&#58;|\\{1,15}u003a)"
    r"|(?P<equals>=|%3[Dd]|&#61;|&#x3[dD];|\\{1,15}u003d)"
    rf"|(?P<comma>,|%2[Cc])(?:{_GAP}{_QUOTE}(?:value|default){_QUOTE}(?P<pair>{_GAP}:))?"
    rf"|(?P<value>value=))?+{_GAP}(?P<open>{_QUOTE})?"
)
# A bare value up to where it is judged; `=` ends it but for the padding of base64.
_WORD = re.compile(r"[^\s\"'`<>&,;(){}\\|=\x00]{1,256}+={0,3}+")
_REST = re.compile(r"[^\s\"'`<>&,;(){}\\|\x00]*+")
_PLACE_FIRST = re.compile(
    r"<[^<>\"\x00]{0,80}>|&lt;[^&\"\x00]{0,80}&gt;|\$?\{{1,3}[^{}\"\x00]{0,80}\}{1,3}"
)
_MEMBER = re.compile(rf"{_QUOTE}{_GAP}(?::|%3[Aa])")
SCHEME = re.compile(
    r"(?:bearer|basic|token|api-?key|apikey|bot|key|ssws|digest|oauth)(?:[ +]|%20){1,4}",
    re.IGNORECASE,
)


def find_labelled_secrets(text: str) -> Iterator[Span]:
    """Spans of values that stand beside the name of a secret."""
    lowered = (text if text.isascii() else text.replace("İ", "I")).lower()
    spots = sorted({spot for stem in _STEMS for spot in _find_all(lowered, stem)})
    done = 0
    for spot in spots:
        if spot < done:
            continue
        start, end = _find_name_around(text, spot)
        done = max(end, spot + 1)
        after = _AFTER.match(text, end)
        span = _find_value(text, start, end, after) if after else None
        if span:
            yield span
            done = span[1]


def _find_all(text: str, stem: str) -> Iterator[int]:
    spot = text.find(stem)
    while spot >= 0:
        yield spot
        spot = text.find(stem, spot + len(stem))


def _find_name_around(text: str, spot: int) -> Span:
    """Start and end of the name that holds `spot`; the end of an escape is no part of it."""
    head = text[max(0, spot - 80) : spot]
    start = spot - (len(head) - len(head.rstrip(_NAME)))
    before = text[start - 1 : start]
    if before == "%":
        start = min(start + 2, spot)
    elif before == "\\":
        start = min(start + (5 if text[start] == "u" else 1), spot)
    tail = _TAIL.match(text, spot)
    end = tail.end() if tail else spot
    return start, start + len(text[start:end].rstrip(".-"))


def _find_value(text: str, start: int, end: int, after: re.Match[str]) -> Span | None:
    """The span of the secret value that follows a name, or None where there is none."""
    name = text[start:end].lstrip("-.")
    doubt = _judge_doubt(text, start, name, after)
    if doubt is None:
        return None
    at = after.end()
    if after["open"]:
        stop = _close(text, at, after["open"])
        if after["comma"] and _MEMBER.match(text, stop):
            return None  # the next text is itself a name
        if not after["close"] and text[at:stop].lstrip()[:1] in (",", ":", "]", "}"):
            return None  # the quote ended a text that named the secret
    else:
        scheme = SCHEME.match(text, at)
        stop = scheme.end() if scheme else at
        for part in (_PLACE_FIRST, _WORD, _PLACE_FIRST):
            found = part.match(text, stop)
            stop = found.end() if found else stop
    value = text[at:stop]
    scheme = SCHEME.match(value)
    rest = value[scheme.end() :] if scheme else value
    if is_place(rest) or not is_convincing(rest, doubt, plain=name.upper() == name):
        return None
    if name.lower() == "basic" and not _holds_user_and_password(rest):
        return None
    begin = stop - len(rest)
    if not after["open"] and (more := _REST.match(text, stop)):
        stop = more.end()
    return begin, stop


def _judge_doubt(text: str, start: int, name: str, after: re.Match[str]) -> int | None:
    """How long a run of letters and digits makes the value that follows a name a secret: 0 where
    the way it is written leaves no doubt; None where nothing here is the name's value."""
    option = text.startswith("--", start) or text.startswith("--", start - 2)
    before = text[max(0, start - 6) : start]
    query = before[-1:] in ("?", "&", ";") or before.endswith(("%3F", "%26", "u0026", "u003f"))
    known = is_secret_name(name)
    if not known and not (name.lower() in ONLY_IN_QUERIES and (option or query)):
        return 8 if name.lower() == "basic" and after[0] and after.lastgroup is None else None
    if after.start() == len(text):
        return None
    if after["close"] and after["open"] not in (None, after["close"]) and not after["value"]:
        return None  # the end of one text and the start of another
    firm = is_firm(name)
    gap = after[0].removeprefix(after["close"] or "")[:1] in _WHITE or "%20" in after[0]
    if after["comma"]:
        if after["pair"]:
            return (0 if firm else 8) if after["open"] else None
        return 0 if option and after["open"] else None
    if after["equals"]:
        if query:
            return 8 if name.lower() == "config" else 0
        if option or (known and name.upper() == name):
            return 0
        return (0 if firm else 8) if after["open"] else 16
    if after["colon"] or after["value"]:
        if after["close"] and not after["open"]:
            return None
        bare = split_words(name) in (["key"], ["keys"])
        if after["open"]:
            return 0 if firm else 16 if bare else 8
        return 8 if firm or "-" in name or name.lower() == "bearer" else 16
    if option and gap:
        return 0 if after["open"] else 6
    return 8 if name.lower() == "bearer" and gap and not after["close"] else None


def _holds_user_and_password(value: str) -> bool:
    """Whether a value is what the Basic scheme sends (RFC 7617), and no word of a sentence."""
    try:
        return b":" in base64.b64decode(value.rstrip("=") + "=" * (-len(value.rstrip("=")) % 4))
    except ValueError:
        return False


def is_convincing(value: str, doubt: int, *, plain: bool) -> bool:
    """Whether a value is a secret under so much doubt; prose is none unless the name is that of an
    environment variable (`plain`)."""
    if doubt == 6 and len(value) >= 6 and not value.isalpha():
        return not value.startswith("-")
    if doubt or (not plain and any(char.isspace() for char in value.strip())):
        return any(is_credible(word, doubt or 8) for word in value[:1_000].split())
    return True


def _close(text: str, at: int, opened: str) -> int:
    """Where a quoted value ends: at the same form of quote, at the quote of whatever it stands in,
    or, unclosed, at the end of its first word."""
    reach = text[at : at + _REACH]
    for hard in ("\x00", "\n"):
        reach = reach.partition(hard)[0]
    quote = opened[-1]
    if quote not in "\"'`":
        stops = [reach.find(sign) for sign in (opened, '"', "<")]
        stop = min((stop for stop in stops if stop >= 0), default=_measure_first_word(reach))
        return at + len(reach[:stop].rstrip("\\"))
    depth = len(opened) - 1  # backslashes before the quote: how deep the JSON stands in strings
    found = reach.find(quote)
    while found >= 0:
        slashes = found - len(reach[:found].rstrip("\\"))
        if slashes < depth or slashes % (2 * depth + 2) == depth:
            break
        found = reach.find(quote, found + 1)
    stop = _measure_first_word(reach) if found < 0 else found - min(slashes, depth)
    if quote != '"' and 0 <= (outer := reach.find('"')) < stop:
        stop = len(reach[:outer].rstrip("\\"))
    return at + stop


def _measure_first_word(reach: str) -> int:
    word = _WORD.match(reach)
    return word.end() if word else 0
