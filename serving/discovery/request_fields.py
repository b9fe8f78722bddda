"""What stands inside one `<tool_assistant>` block: its server and tool, however they are written.

Models write the two lines in many ways: bold, bulleted, quoted, as JSON, as inner tags, `task:` for
`tool:`, both on one line. Whatever can be read without a guess is read, and what had to be supposed
is a problem of the block.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from warehouse.json_types import Json

SERVER, TOOL = "server", "tool"
LONGEST_BODY = 4_000  # characters of one block that are read
LONGEST_VALUE = 600  # of one field: the encoder reads the first 128 word pieces anyway
LONGEST_BARE = 300  # of a text without labels that can still be one request
_LABELS_READ = 40  # of one block
EMPTY = "the block is empty; expected a line `server: ...` and a line `tool: ...`"

_NAMES = {
    "server": SERVER, "server name": SERVER, "mcp server": SERVER, "platform": SERVER,
    "tool": TOOL, "tool name": TOOL, "mcp tool": TOOL, "task": TOOL, "tool task": TOOL,
}  # fmt: skip
_LABELS = (
    r"(?:mcp[ _-]?)?servers?(?:[ _-]?name)?|platform"
    r"|(?:mcp[ _-]?)?tools?(?:[ _-]?(?:name|task))?|task"
)
_BEFORE = r"[ \t>*_#\"'`\-+•·\d.,{(\[|]{0,12}"  # bullets, quotes, emphasis, numbers
_AFTER = r"[\"'`*_ \t)\]]{0,6}"
_LINE = re.compile(rf"^{_BEFORE}({_LABELS}){_AFTER}[:=：|]", re.IGNORECASE | re.MULTILINE)
_INLINE = re.compile(rf"(?<![^\s,;|\"'`*{{])({_LABELS}){_AFTER}[:=：]", re.IGNORECASE)
_OPEN_TAG = re.compile(rf"<\s{{0,4}}({_LABELS})\s{{0,4}}>", re.IGNORECASE)
_CLOSE_TAG = re.compile(rf"</\s{{0,4}}(?:{_LABELS})\s{{0,4}}>", re.IGNORECASE)
_FENCE = re.compile(r"^[ \t>]{0,12}(?:```|~~~)[^\n`]{0,40}$", re.MULTILINE)
_QUOTED = re.compile(r"^(?:[ \t]{0,4}>){1,8}[ \t]?", re.MULTILINE)
_NOTHING = {"", "none", "null", "n/a", "na", "unknown", "undefined", "-", "...", "…", "?"}


class Field(NamedTuple):
    """One thing that was asked for, and what had to be supposed to read it."""

    server: str | None
    tool: str | None
    problems: tuple[str, ...]


def parse_fields(body: str) -> list[Field]:
    """What a block asks for, in order; one Field without server and tool where it asks nothing.

    A block may hold several requests: a server and tool that follow a complete pair are the next
    one, and a second tool alone is one more of the same server.
    """
    problems: list[str] = []
    if len(body) > LONGEST_BODY:
        problems.append(f"the block has {len(body):,} characters; the first {LONGEST_BODY:,} count")
        body = body[:LONGEST_BODY]
    body = _drop_markup(body)
    if not re.search(r"\w", body):
        return [Field(None, None, (EMPTY, *problems))]
    labelled = _read_json_fields(body) or list(_iter_labelled(body))
    if not labelled:
        return [_read_bare(body, problems)]
    found = _pair_fields(labelled)
    return [one._replace(problems=(*problems, *one.problems)) for one in found]


def _drop_markup(body: str) -> str:
    """The block without quote marks and fences; inner tags and written-out newlines as lines."""
    if "\n" not in body.strip() and "\\n" in body:
        body = body.replace("\\n", "\n")
    body = _FENCE.sub("", _QUOTED.sub("", body.replace("\r\n", "\n").replace("\r", "\n")))
    return _CLOSE_TAG.sub("\n", _OPEN_TAG.sub(r"\n\1: ", body))


def _iter_labelled(body: str) -> Iterator[tuple[str, str]]:
    """(label, value) pairs. Labels count at the start of a line; within one only where no line
    starts with that label, because prose says "the tool: " too."""
    lines = list(islice(_LINE.finditer(body), _LABELS_READ))
    found = [(m.start(), m.end(), _normalise_label(m[1])) for m in lines]
    known = {m.start(1) for m in lines}
    lacking = {SERVER, TOOL} - {name for _, _, name in found}
    for m in islice(_INLINE.finditer(body), _LABELS_READ) if lacking else ():
        if m.start(1) not in known and (not found or _normalise_label(m[1]) in lacking):
            found.append((m.start(), m.end(), _normalise_label(m[1])))
    found.sort()
    ends = [start for start, _, _ in found[1:]] + [len(body)]
    for (_, start, name), end in zip(found, ends, strict=False):
        yield name, body[start:end]


def _normalise_label(label: str) -> str:
    name = re.sub(r"[ _-]+", " ", label.lower())
    return _NAMES.get(name, SERVER if "server" in name else TOOL)


def _pair_fields(labelled: Sequence[tuple[str, str]]) -> list[Field]:
    """Label and value pairs as requests."""
    made: list[dict[str, str]] = [{}]
    notes: list[list[str]] = [[]]
    for name, written in labelled:
        value, note = _read_value(written)
        if value is None:
            continue
        now = made[-1]
        if name in now and len(now) == 2:
            # The pair is whole: this opens the next one, of the same server where only a tool came.
            made.append({SERVER: now[SERVER]} if name == TOOL else {})
            notes.append([])
        elif name in now:
            if value.casefold() != now[name].casefold():
                notes[-1].append(f"`{name}` is given twice; the first counts")
            continue
        made[-1][name] = value
        notes[-1] += note
    return [
        _make_field(pair, note)
        for pair, note in zip(made, notes, strict=True)
        if pair or len(made) == 1
    ]


def _make_field(pair: Mapping[str, str], notes: Sequence[str]) -> Field:
    server, tool = pair.get(SERVER), pair.get(TOOL)
    if server is None and tool is None:
        return Field(
            None, None, ("both fields are empty; expected what the tool should do", *notes)
        )
    lacking = [
        f"no `{name}:` line" for name, value in ((SERVER, server), (TOOL, tool)) if not value
    ]
    return Field(server, tool, (*lacking, *notes))


def _read_value(written: str) -> tuple[str | None, list[str]]:
    """A field's value on one line, or None where nothing is asked; and what was cut."""
    value = re.sub(r"[\x00-\x1f\x7f-\x9f\s]+", " ", html.unescape(written))
    value = value.strip(" \t,;\"'`*_{}[]<>|")
    if value.lower() in _NOTHING or not re.search(r"\w", value):
        return None, []
    if len(value) > LONGEST_VALUE:
        note = f"a field has {len(value):,} characters; the first {LONGEST_VALUE} count"
        return value[:LONGEST_VALUE].rstrip(), [note]
    return value, []


def _read_bare(body: str, problems: Sequence[str]) -> Field:
    """A block without any label: a short text is what the tool should do."""
    value, _ = _read_value(body)
    short = value is not None and len(value) <= LONGEST_BARE and "{" not in body
    if not short:
        found = f"no `server:` and no `tool:` line in {len(body.strip()):,} characters"
        return Field(None, None, (f"{found}; expected one of each", *problems))
    return Field(
        None, value, ("no `server:` or `tool:` line; its text counts as the tool", *problems)
    )


def _read_json_fields(body: str) -> list[tuple[str, str]]:
    """Label and value pairs of a block that holds JSON; [] where it does not."""
    text = body.strip()
    if text[:1] not in ("{", "["):
        return []
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        return []  # broken JSON still has its labels: they are read as lines
    listed = held if isinstance(held, list) else [held]
    return [pair for one in listed[:20] for pair in _iter_members(one)]


def _iter_members(one: Json) -> Iterator[tuple[str, str]]:
    if not isinstance(one, Mapping):
        return
    if len(one) == 1 and isinstance(inner := next(iter(one.values())), Mapping):
        one = inner  # {"tool_assistant": {...}}
    pairs: dict[str | None, Json] = {}
    for key, value in one.items():
        pairs.setdefault(_NAMES.get(re.sub(r"[ _-]+", " ", str(key).strip().lower())), value)
    for name in (SERVER, TOOL):
        value = pairs.get(name)
        if isinstance(value, str | int | float):
            yield name, str(value)
