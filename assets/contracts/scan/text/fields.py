"""Texts: every string of one tool that a model may read, each with its JSON pointer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assets.contracts.scan.text.normalise import collect_words
from warehouse.sanitize.escape import shorten_text
from warehouse.sanitize.unseen import drop_unseen

TEXT_CAP = 65_536  # characters read of one string
FIELD_CAP = 20_000  # strings read of one tool
TOTAL_CAP = 1_000_000  # characters read of one tool
DEPTH_CAP = 96
POINTER_CAP = 1_000
STRINGS_CAP = 100_000  # strings read of one result
_OVERLAP = 1_024  # characters that two pieces of a long string share: no phrase is longer
_SHORT, _BATCH = (
    200,
    300,
)  # characters of a string read with its neighbours; how many
_PARAGRAPH = "\n\n.\n"  # parts two strings: ends a paragraph, begins no turn of a chat template

# Names that the format itself gives: as member names they say nothing.
_KEYWORDS = collect_words(
    "type properties required description title default enum const examples items anyOf oneOf"
    " allOf format pattern minimum maximum minLength maxLength additionalProperties $schema"
    " $ref $defs definitions name inputSchema outputSchema annotations readOnlyHint"
    " destructiveHint idempotentHint openWorldHint parameters nullable minItems maxItems not"
    " if then else"
)
_PROSE = frozenset(("description", "title", "$comment", "markdownDescription"))


@dataclass(frozen=True)
class Text:
    """One string. role: "name" (of a tool or member), "prose" or "data" (enum, default, …).
    parameter: the nearest property name above it, "" outside of schemas."""

    field: str
    text: str
    role: str
    parameter: str = ""


@dataclass
class Read:
    """What was read of one tool, and which limits cut it short."""

    texts: list[Text]
    capped: list[tuple[str, str]]  # (field, what was cut)


def read_fields(tool: Any) -> Read:
    """All strings of any JSON value; members first to last, parents before children."""
    out = Read([], [])
    total = 0
    for text in _walk_fields(tool, out):
        if len(out.texts) >= FIELD_CAP or total >= TOTAL_CAP:
            out.capped.append((text.field, "more text than is read of one tool"))
            break
        if len(text.text) > TEXT_CAP:
            out.capped.append((text.field, f"{len(text.text)} characters, {TEXT_CAP} read"))
            text = Text(text.field, text.text[:TEXT_CAP], text.role, text.parameter)
        total += len(text.text)
        out.texts.append(text)
    return out


def read_pieces(value: Any, most: int) -> Read:
    """All strings of any JSON value, `most` characters in all: long ones in pieces that overlap,
    short ones joined as paragraphs (a row of a table costs by its length then), none twice."""
    out, seen, short = Read([], []), set(), list[Text]()
    for text in _walk_fields(value, out):
        if text.text in seen:
            continue
        if most <= 0 or len(seen) >= STRINGS_CAP:
            out.capped.append((text.field, "more text than is read of one result"))
            break
        seen.add(text.text)
        kept = text.text[:most]
        if len(kept) < len(text.text):
            out.capped.append((text.field, f"{len(text.text)} characters, {len(kept)} read"))
        most -= len(kept) + len(_PARAGRAPH)
        if text.role == "data" and len(kept) <= _SHORT:
            short.append(text)
            continue
        # Unseen characters may stretch a phrase over more than two pieces share.
        seen_text = drop_unseen(kept) if len(kept) > TEXT_CAP else kept
        for whole in dict.fromkeys((kept, seen_text)):
            for start in range(0, max(1, len(whole) - _OVERLAP), TEXT_CAP - _OVERLAP):
                piece = whole[start : start + TEXT_CAP]
                out.texts.append(Text(text.field, piece, text.role, text.parameter))
    for batch in (short[at : at + _BATCH] for at in range(0, len(short), _BATCH)):
        joined = _PARAGRAPH.join(one.text[:_SHORT] for one in batch)
        out.texts.append(Text(batch[0].field, joined, "data", batch[0].parameter))
    return out


def _walk_fields(tool: Any, out: Read) -> Iterator[Text]:
    # (value, pointer, the member's name, the property it belongs to, depth)
    stack: list[tuple[Any, str, str, str, int]] = [(tool, "", "", "", 0)]
    while stack:
        value, at, key, parameter, depth = stack.pop()
        if isinstance(value, str):
            yield Text(at, value, _choose_role(at, key), parameter)
        elif not isinstance(value, Mapping | list | tuple):
            continue
        elif depth >= DEPTH_CAP:
            out.capped.append((at, f"nested deeper than {DEPTH_CAP} levels"))
        elif isinstance(value, Mapping):
            named = key == "properties"
            below = []
            for name, child in value.items():
                name = str(name)
                field = _format_pointer(at, name)
                if named or name not in _KEYWORDS:
                    yield Text(field + "#", name, "name", name if named else parameter)
                below.append((child, field, name, name if named else parameter, depth + 1))
            stack.extend(reversed(below))
        else:
            stack.extend(
                (value[i], _format_pointer(at, str(i)), key, parameter, depth + 1)
                for i in range(len(value) - 1, -1, -1)
            )


def _format_pointer(at: str, name: str) -> str:
    token = name.replace("~", "~0").replace("/", "~1")
    return shorten_text(f"{at}/{token}", POINTER_CAP)


def _choose_role(at: str, key: str) -> str:
    if at == "/name":
        return "name"
    return "prose" if key in _PROSE else "data"
