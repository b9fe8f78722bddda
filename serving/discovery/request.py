"""A model asks for a tool: `<tool_assistant>` blocks in any text, and the prompt that teaches them.

    <tool_assistant>
    server: the platform or field it belongs to
    tool: what it should do, and to what
    </tool_assistant>

The text is a model's: tags are misspelt, escaped, quoted, left open, cut off at the token limit;
fields are bold, bulleted, quoted, JSON, inner tags, or both on one line. Whatever can be read
without a guess is read; what had to be supposed is a problem of the block. Nothing here raises,
and the work is linear in the text (1 MB of opening tags takes no more than 1 MB of prose).
"""

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from warehouse.json_types import Json
from warehouse.llm.roles import drop_thinking

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
MOST = 20  # requests of one text: more is a loop, not a question
_LOOKED_AT = 5 * MOST  # blocks looked at, doubles and empty ones included
_LT, _GT = r"(?:<|＜|&lt;|&#60;|&amp;lt;)", r"(?:>|＞|&gt;|&#62;|&amp;gt;)"
_WORD = (
    r"tool[\s_-]{0,2}as+i\w{0,12}"  # tool_assistant, tool-assistant, ToolAssitant, tool_asistant
)
_OPEN = re.compile(rf"{_LT}\s{{0,4}}{_WORD}", re.IGNORECASE)
_REST = re.compile(rf"([^<>＜＞\n]{{0,600}}?)(/?)\s{{0,4}}{_GT}", re.IGNORECASE)
_CLOSE = re.compile(rf"{_LT}\s{{0,4}}[/\\]\s{{0,4}}{_WORD}\s{{0,4}}{_GT}?", re.IGNORECASE)
# `</tool>` and `</assistant>` close a block too, but only where nothing closes it by its name: a
# field may be written `<tool>…</tool>`.
_CLOSE_LIKE = re.compile(
    rf"{_LT}\s{{0,4}}[/\\]\s{{0,4}}(?:tool|assist|toll)[\w\s-]{{0,16}}{_GT}", re.IGNORECASE
)
_TOOL_TAG = re.compile(rf"{_LT}\s{{0,4}}(?:tool|task)\s{{0,4}}{_GT}", re.IGNORECASE)
_CUT_TAG = re.compile(rf"{_LT}\s{{0,4}}[/\\]?[\s\w-]{{0,16}}$")
_PARAGRAPH = re.compile(r"\n[ \t>]*\n|\n[ \t>]*(?:```|~~~)")
_WORD_CHARACTER = re.compile(r"\w")
_ATTRIBUTE = re.compile(r"(server|tool|task)\s{0,4}=\s{0,4}(\"[^\"]*\"|'[^']*')", re.IGNORECASE)
_FIELD = re.compile(r"\W{0,24}(?:mcp|server|tool|task|platform)", re.IGNORECASE)
_QUOTES = "`'\"”’»"


class RequestFields(NamedTuple):
    server: str | None
    tool: str | None
    problems: tuple[str, ...]


def parse_fields(body: str) -> list[RequestFields]:
    """What a block asks for, in order; one Field without server and tool for nothing. A server and
    tool after a complete pair, or a tool alone, are one more request."""
    problems: list[str] = []
    if len(body) > LONGEST_BODY:
        problems.append(f"the block has {len(body):,} characters; the first {LONGEST_BODY:,} count")
        body = body[:LONGEST_BODY]
    body = _drop_markup(body)
    if not re.search(r"\w", body):
        return [RequestFields(None, None, (EMPTY, *problems))]
    labelled = _read_json_fields(body) or list(_iter_labelled(body))
    if not labelled:
        return [_read_bare(body, problems)]
    requests = _pair_fields(labelled)
    return [item._replace(problems=(*problems, *item.problems)) for item in requests]


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
    labels = [(m.start(), m.end(), _normalise_label(m[1])) for m in lines]
    starts = {m.start(1) for m in lines}
    lacking = {SERVER, TOOL} - {name for _, _, name in labels}
    for m in islice(_INLINE.finditer(body), _LABELS_READ) if lacking else ():
        if m.start(1) not in starts and (not labels or _normalise_label(m[1]) in lacking):
            labels.append((m.start(), m.end(), _normalise_label(m[1])))
    labels.sort()
    ends = [start for start, _, _ in labels[1:]] + [len(body)]
    for (_, start, name), end in zip(labels, ends, strict=False):
        yield name, body[start:end]


def _normalise_label(label: str) -> str:
    name = re.sub(r"[ _-]+", " ", label.lower())
    return _NAMES.get(name, SERVER if "server" in name else TOOL)


def _pair_fields(labelled: Sequence[tuple[str, str]]) -> list[RequestFields]:
    pairs: list[dict[str, str]] = [{}]
    notes: list[list[str]] = [[]]
    for name, written in labelled:
        value, note = _read_value(written)
        if value is None:
            continue
        now = pairs[-1]
        if name in now and len(now) == 2:
            # The pair is whole: this opens the next one, of the same server where only a tool came.
            pairs.append({SERVER: now[SERVER]} if name == TOOL else {})
            notes.append([])
        elif name in now:
            if value.casefold() != now[name].casefold():
                notes[-1].append(f"`{name}` is given twice; the first counts")
            continue
        pairs[-1][name] = value
        notes[-1] += note
    return [
        _make_field(pair, note)
        for pair, note in zip(pairs, notes, strict=True)
        if pair or len(pairs) == 1
    ]


def _make_field(pair: Mapping[str, str], notes: Sequence[str]) -> RequestFields:
    server, tool = pair.get(SERVER), pair.get(TOOL)
    if server is None and tool is None:
        return RequestFields(
            None, None, ("both fields are empty; expected what the tool should do", *notes)
        )
    lacking = [
        f"no `{name}:` line" for name, value in ((SERVER, server), (TOOL, tool)) if not value
    ]
    return RequestFields(server, tool, (*lacking, *notes))


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


def _read_bare(body: str, problems: Sequence[str]) -> RequestFields:
    """A block without any label: a short text is what the tool should do."""
    value, _ = _read_value(body)
    short = value is not None and len(value) <= LONGEST_BARE and "{" not in body
    if not short:
        problem = f"no `server:` and no `tool:` line in {len(body.strip()):,} characters"
        return RequestFields(None, None, (f"{problem}; expected one of each", *problems))
    return RequestFields(
        None, value, ("no `server:` or `tool:` line; its text counts as the tool", *problems)
    )


def _read_json_fields(body: str) -> list[tuple[str, str]]:
    """Label and value pairs of a block that holds JSON; [] where it does not."""
    text = body.strip()
    if text[:1] not in ("{", "["):
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []  # broken JSON still has its labels: they are read as lines
    items = value if isinstance(value, list) else [value]
    return [pair for item in items[:20] for pair in _iter_members(item)]


def _iter_members(members: Json) -> Iterator[tuple[str, str]]:
    if not isinstance(members, Mapping):
        return
    if len(members) == 1 and isinstance(inner := next(iter(members.values())), Mapping):
        members = inner  # {"tool_assistant": {...}}
    pairs: dict[str | None, Json] = {}
    for key, value in members.items():
        pairs.setdefault(_NAMES.get(re.sub(r"[ _-]+", " ", str(key).strip().lower())), value)
    for name in (SERVER, TOOL):
        value = pairs.get(name)
        if isinstance(value, str | int | float):
            yield name, str(value)


@dataclass(frozen=True)
class ToolRequest:
    """One request. `server` or `tool` is None where the model left it out; both are None in a block
    that asks for nothing. `problems` says what had to be supposed."""

    server: str | None
    tool: str | None
    raw: str = ""
    problems: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        return bool(self.server or self.tool)


def parse(text: str) -> list[ToolRequest]:
    """The requests in a model's text, in order, each once, at most MOST; the last says so if there
    were more. Thoughts (`<think>`) hold none. Never raises."""
    if not isinstance(text, str):
        return []
    requests: dict[tuple[str | None, ...], ToolRequest] = {}
    for request in _iter_requests(drop_thinking(text)):
        raw = () if request.usable else (request.raw,)
        key = (_fold_text(request.server), _fold_text(request.tool), *raw)
        if key not in requests and len(requests) == MOST:
            last, prior = requests.popitem()
            note = f"the text holds more than {MOST} requests; the first {MOST} count"
            requests[last] = replace(prior, problems=(*prior.problems, note))
            break
        requests.setdefault(key, request)
    return list(requests.values())


def write_block(server: str | None, tool: str | None) -> str:
    lines = [f"server: {server}"] * bool(server) + [f"tool: {tool}"] * bool(tool)
    return "\n".join(["<tool_assistant>", *lines, "</tool_assistant>"])


@cache
def write_system_prompt(example: bool = False) -> str:
    """What a model is told that does not know the tools; with one worked example or without."""
    folder = Path(__file__).with_name("prompts")
    names = ("active", "active_example") if example else ("active",)
    return "\n\n".join(
        (folder / f"{name}.md").read_text(encoding="utf-8").strip() for name in names
    )


def _iter_requests(text: str) -> Iterator[ToolRequest]:
    for raw, body, note in _iter_blocks(text):
        if "&" in raw[:6]:
            body = html.unescape(body)
        for field in parse_fields(body):
            problems = (note, *field.problems) if note else field.problems
            # A block that asks for nothing has one problem: the one that explains it best.
            problems = problems if field.server or field.tool else problems[:1]
            yield ToolRequest(field.server, field.tool, raw, problems)


def _iter_blocks(text: str) -> Iterator[tuple[str, str, str | None]]:
    at, looked = 0, 0
    while looked < _LOOKED_AT and (start := _OPEN.search(text, at)):
        looked += 1
        match = _REST.match(text, start.end())
        inner = _find_tag_end(text, start)
        attributes = "\n".join(
            f"{m[1]}: {m[2]}" for m in _ATTRIBUTE.finditer(match[1] if match else "")
        )
        if match and match[2] and attributes:
            at = inner
            yield text[start.start() : inner], attributes, None
            continue
        end, at, note = _find_end(text, inner)
        body = text[inner:end]
        if _is_mention(text, start.start(), inner):
            at = inner
            continue
        yield text[start.start() : at], f"{attributes}\n{body}" if attributes else body, note


def _find_end(text: str, inner: int) -> tuple[int, int, str | None]:
    """Where a block's body ends, where the text goes on, and what is wrong with its end."""
    following = _OPEN.search(text, inner, inner + LONGEST_BODY)
    most = following.start() if following else min(len(text), inner + LONGEST_BODY)
    if close := _CLOSE.search(text, inner, most):
        return close.start(), close.end(), None
    tags = 0 if not _TOOL_TAG.search(text, inner, most) else 1
    for close in _CLOSE_LIKE.finditer(text, inner, most):
        if tags:
            tags -= 1  # it closes the field
            continue
        return close.start(), close.end(), f"closed by {close[0][:30]!r}, not `</tool_assistant>`"
    if following is None and most == len(text):
        cut = _CUT_TAG.search(text, max(inner, most - 40), most)
        end = cut.start() if cut else most
        if not (gap := _find_paragraph_end(text, inner, end)):
            return end, most, "cut off before `</tool_assistant>`"
        return gap, gap, "no `</tool_assistant>`; it counts up to the next empty line"
    end = _find_paragraph_end(text, inner, most) or most
    if (
        following
        and end == most
        and not _FIELD.match(text, (tag := _find_tag_end(text, following)), tag + 300)
    ):
        return end, tag, "closed by another `<tool_assistant>`, not `</tool_assistant>`"
    return end, end, "no `</tool_assistant>`; it counts up to the next empty line or block"


def _find_tag_end(text: str, tag: re.Match[str]) -> int:
    match = _REST.match(text, tag.end())
    return match.end() if match else tag.end()


def _find_paragraph_end(text: str, inner: int, most: int) -> int | None:
    match = _WORD_CHARACTER.search(text, inner, most)
    gap = _PARAGRAPH.search(text, match.end(), most) if match else None
    return gap.start() if gap else None


def _is_mention(text: str, start: int, inner: int) -> bool:
    """A tag that is spoken of (`<tool_assistant>`), not used."""
    return text[inner : inner + 1] in tuple(_QUOTES) and text[start - 1 : start] in tuple(_QUOTES)


def _fold_text(value: str | None) -> str | None:
    return " ".join(value.casefold().split()) if value else None
