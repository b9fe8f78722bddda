"""What third parties wrote, made fit to be stored, shown and compared.

A joiner (U+200C, U+200D) stays where a script or an emoji needs it (Persian, Indic, families), a
variation selector behind the character it selects; everything else that shows nothing goes, tag
characters too: they can hide a whole sentence, which is worth more than the flag of Scotland.
"""

import hashlib
import unicodedata
from typing import Any

import regex

from assets.marketplaces.launch.runners import read_launch
from assets.marketplaces.listing import EnvVar, Listing
from warehouse.sanitize.redact import redact

NAME_CAP = 200  # characters
DESCRIPTION_CAP = 4_000
ID_CAP = 512
# Of launch facts, which are never cut and launched: one beyond its cap is not launched.
ADDRESS_CAP, ARGUMENT_CAP, MOST_ARGUMENTS = 2_048, 4_096, 64
VARIABLE_CAP, MOST_VARIABLES, FOLDER_CAP, DATE_CAP = 128, 100, 512, 64
_LOOK = 4  # times the cap: how much of a text is read at all

# Cf without the visible signs of Arabic, Syriac and Kaithi; fillers that are letters by category.
_HIDDEN_SET = (
    r"\p{Cc}\p{Cs}\p{Zl}\p{Zp}\u115f\u1160\u3164\uffa0\u034f\u17b4\u17b5\u180b-\u180f"
    r"\ufe00-\ufe0f\U000e0000-\U000e0fff\ufffe\uffff"
)
_SIGNS = r"\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
_HIDDEN = regex.compile(rf"[{_HIDDEN_SET}]|(?![{_SIGNS}])\p{{Cf}}")
_JOINING = (
    r"\p{Arabic}\p{Syriac}\p{Nko}\p{Mandaic}\p{Mongolian}\p{Devanagari}\p{Bengali}\p{Gurmukhi}"
    r"\p{Gujarati}\p{Oriya}\p{Tamil}\p{Telugu}\p{Kannada}\p{Malayalam}\p{Sinhala}\p{Tibetan}"
    r"\p{Myanmar}\p{Khmer}\p{Thaana}"
)
_PICTURE = r"\p{Extended_Pictographic}"
_NEEDED = regex.compile(
    rf"(?<=[{_JOINING}])[\u200c\u200d](?=[{_JOINING}])"
    rf"|(?<=[{_PICTURE}\p{{Emoji_Modifier}}]\ufe0f?)\u200d(?={_PICTURE})"
    rf"|(?<={_PICTURE})[\ufe0e\ufe0f]|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    r"|(?<=\p{Han})[\ufe00-\ufe02\U000e0100-\U000e01ef]|(?<=\p{Mongolian})[\u180b-\u180d\u180f]"
)
_BREAKS = regex.compile(r"\r\n|[\r\v\f\u0085\u2028\u2029]")
_SPACES = regex.compile(r"\s+")
_LINES = "\n\t"  # control characters that a description may hold
# Besides what is hidden: spaces that look like another, which would make two ids look the same.
_ODD_IN_ID = regex.compile(rf"{_HIDDEN.pattern}|(?! )\p{{Zs}}")


def clean(listing: Listing) -> Listing:
    """The listing with texts without secrets and fit to show, ids whose every character is visible,
    and `runnable: False` with a reason where a launch fact holds a hidden character; `launch` is
    read where nobody has. Idempotent, never raises."""
    name, hid_name = clean_text(_redact_head(listing.name, NAME_CAP), NAME_CAP, lines=False)
    about = _redact_head(listing.description, DESCRIPTION_CAP)
    description, hid_text = clean_text(about, DESCRIPTION_CAP)
    native_id = _make_visible_id(listing.native_id)
    facts: dict[str, Any] = {
        "native_id": native_id,
        "name": name or clean_text(native_id, NAME_CAP, lines=False)[0],
        "description": description,
        "repository": escape_hidden(_redact(listing.repository)),
        "subfolder": _redact(listing.subfolder),
        "updated_at": escape_hidden(listing.updated_at),
        "evidence": escape_hidden(_redact(listing.evidence)),
        "reason": listing.reason and clean_text(redact(listing.reason), 1_000, lines=False)[0],
    }
    hidden = hid_name or hid_text or native_id != listing.native_id
    launch, where = _clean_launch(listing)
    if where:
        hidden = True
        reason = f"a hidden or control character in {where}; shown as %XX, never launched"
        launch |= {"runnable": False, "reason": facts["reason"] or reason}
    if hidden and "hidden_text" not in listing.flags:
        facts["flags"] = tuple(sorted({*listing.flags, "hidden_text"}))
    if where:
        launch["launch"] = None  # it was read from other words
    cleaned = _cap_launch(listing.model_copy(update=facts | launch))
    if cleaned.launch or (cleaned.command is None and not cleaned.args):
        return cleaned
    return cleaned.model_copy(update={"launch": read_launch(cleaned)})


def _redact_head(text: str, cap: int) -> str:
    return redact(text[: cap * _LOOK + 1])  # one more says that it goes on


def _cap_launch(listing: Listing) -> Listing:
    """The listing with its launch facts cut to their caps; one that was cut is not runnable, says
    so in its reason and has the flag `cut`."""
    changes: dict[str, Any] = {}
    caps = {
        "command": ARGUMENT_CAP,
        "url": ADDRESS_CAP,
        "repository": ADDRESS_CAP,
        "subfolder": FOLDER_CAP,
        "updated_at": DATE_CAP,
    }
    for key, cap in caps.items():
        changes[key] = (text := getattr(listing, key)) and text[:cap]
    changes["args"] = tuple(word[:ARGUMENT_CAP] for word in listing.args[:MOST_ARGUMENTS])
    for key in ("env", "headers"):
        changes[key] = tuple(
            variable.model_copy(
                update={"default": variable.default and variable.default[:ARGUMENT_CAP]}
            )
            for variable in getattr(listing, key)[:MOST_VARIABLES]
            if len(variable.name) <= VARIABLE_CAP
        )
    if package := listing.package:
        version = package.version and package.version[:VARIABLE_CAP]
        update = {"identifier": package.identifier[:ADDRESS_CAP], "version": version}
        changes["package"] = package.model_copy(update=update)
    cut = [key for key, value in changes.items() if value != getattr(listing, key)]
    if not cut:
        return listing
    facts = {"runnable": False, "flags": tuple(sorted({*listing.flags, "cut"})), "launch": None}
    reason = listing.reason or f"too long, so cut and never launched: {', '.join(cut)}"
    return listing.model_copy(update=changes | facts | {"reason": reason})


def _redact(text: str | None) -> str | None:
    return text and redact(text)


def clean_text(text: str, cap: int, *, lines: bool = True) -> tuple[str, bool]:
    """(a text without what shows nothing, in NFC, at most `cap` characters; whether something was
    hidden). `lines`: newlines and tabs stay; else all white space is one space."""
    head = text[: cap * _LOOK]
    hidden = False
    if not (head.isascii() and head.isprintable()):
        bare = _strip_hidden(_BREAKS.sub("\n", head))
        hidden = bare is not None
        # Taking a character away may bring a letter and its accent together.
        head = _settle_text(head if bare is None else bare)
    head = head.strip() if lines else _SPACES.sub(" ", head).strip()
    return _cut(head, cap, more=len(text) > cap * _LOOK), hidden


def escape_hidden(text: str | None) -> str | None:
    """A text whose hidden and control characters stand as %XX of their UTF-8 bytes."""
    if text is None or (text.isascii() and text.isprintable()):
        return text
    return _HIDDEN.sub(_escape, text)


def _settle_text(text: str) -> str:
    """NFC without hidden characters; each step may make work for the other, rarely twice."""
    for _ in range(4):
        text = unicodedata.normalize("NFC", _BREAKS.sub("\n", text))
        bare = _strip_hidden(text)
        if bare is None:
            break
        text = bare
    return text


def _strip_hidden(text: str) -> str | None:
    """The text without hidden characters that nothing needs, or None where there is none."""
    needed = {match.start() for match in _NEEDED.finditer(text)}
    gone = [
        match.start()
        for match in _HIDDEN.finditer(text)
        if match.start() not in needed and match[0] not in _LINES
    ]
    if not gone:
        return None
    starts, ends = [0, *(at + 1 for at in gone)], [*gone, len(text)]
    return "".join(text[start:end] for start, end in zip(starts, ends, strict=True))


def _cut(text: str, cap: int, *, more: bool) -> str:
    """At most `cap` characters, cut between words or at least between letters, with "…"."""
    if len(text) <= cap and not more:
        return text
    end = min(cap - 1, len(text))
    word = max(text.rfind(sign, max(0, end - 80), end) for sign in (" ", "\n"))
    if word > 0:
        end = word
    while end > 0 and (end < len(text) and _is_continuation(text, end)):
        end -= 1
    return text[:end].rstrip() + "…"


def _is_continuation(text: str, at: int) -> bool:
    """Whether the character belongs to the letter or picture before it."""
    joined = text[at - 1] in "\u200c\u200d"
    return joined or unicodedata.category(text[at])[0] == "M" or text[at] in "\u200c\u200d"


def _make_visible_id(native_id: str) -> str:
    text = native_id
    if not (text.isascii() and text.isprintable()):
        text = _ODD_IN_ID.sub(_escape, text)
    if len(text) <= ID_CAP:
        return text
    name = hashlib.sha256(text.encode()).hexdigest()
    return f"{text[: ID_CAP - 33]}~{name[:32]}"


def _clean_launch(listing: Listing) -> tuple[dict[str, Any], str | None]:
    """(changed launch facts, where the first hidden character stands)."""
    facts: dict[str, Any] = {
        "command": escape_hidden(listing.command),
        "url": escape_hidden(listing.url),
        "args": tuple(escape_hidden(arg) for arg in listing.args),
    }
    if listing.package:
        changes = {
            key: escape_hidden(getattr(listing.package, key)) for key in ("identifier", "version")
        }
        facts["package"] = listing.package.model_copy(update=changes)
    facts["env"] = tuple(_clean_input(item) for item in listing.env)
    facts["headers"] = tuple(_clean_input(header) for header in listing.headers)
    where = next(
        (key for key, value in facts.items() if _is_changed(value, getattr(listing, key))), None
    )
    return facts, where


def _clean_input(variable: EnvVar) -> EnvVar:
    default = variable.default and _HIDDEN.sub(
        lambda match: match[0] if match[0] in _LINES else _escape(match), variable.default
    )
    description = (
        variable.description
        and clean_text(_redact_head(variable.description, DESCRIPTION_CAP), DESCRIPTION_CAP)[0]
    )
    changes = {"name": escape_hidden(variable.name), "default": default, "description": description}
    return variable.model_copy(update=changes)


def _is_changed(cleaned: Any, stated: Any) -> bool:
    """Whether a launch fact was changed; the description of a variable is none."""
    if isinstance(stated, tuple):
        return any(_is_changed(new, old) for new, old in zip(cleaned, stated, strict=True))
    if isinstance(stated, EnvVar):
        return (cleaned.name, cleaned.default) != (stated.name, stated.default)
    return cleaned != stated


def _escape(match: Any) -> str:
    data = match[0].encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in data)
