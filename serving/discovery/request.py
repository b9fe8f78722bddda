"""A model asks for a tool: `<tool_assistant>` blocks in any text, and the prompt that teaches them.

    <tool_assistant>
    server: the platform or field it belongs to
    tool: what it should do, and to what
    </tool_assistant>

Read are misspelt and escaped tags, a block that is cut off at the token limit, fields as lines
(bold, bulleted, quoted), on one line, as JSON or inner tags, and a short text without labels, which
is what the tool should do. What had to be supposed is a problem of the block. Nothing here raises,
and the work is linear in the text.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path

from warehouse.json_types import Json
from warehouse.llm.roles import drop_thinking

SERVER, TOOL = "server", "tool"
LONGEST_BODY = 4_000  # characters of one block that are read
LONGEST_VALUE = 600  # of one field: the encoder reads the first 128 word pieces anyway
LONGEST_BARE = 300  # of a text without labels that can still be one request
MOST = 20  # requests of one text: more is a loop, not a question
_LOOKED_AT = 5 * MOST  # blocks looked at, doubles and empty ones included
_LABELS_READ = 40  # of one block
_EMPTY = "the block is empty; expected a line `server: ...` and a line `tool: ...`"
_LABELS = (
    r"(?:mcp[ _-]?)?servers?(?:[ _-]?name)?|platform"
    r"|(?:mcp[ _-]?)?tools?(?:[ _-]?(?:name|task))?|task"
)
_BEFORE = r"[ \t>*_#\"'`\-+•·\d.,{(\[|]{0,12}"  # bullets, quotes, emphasis, numbers
_AFTER = r"[\"'`*_ \t)\]]{0,6}"
_LINE = re.compile(rf"^{_BEFORE}({_LABELS}){_AFTER}[:=：|]", re.IGNORECASE | re.MULTILINE)
_INLINE = re.compile(rf"(?<![^\s,;|\"'`*{{])({_LABELS}){_AFTER}[:=：]", re.IGNORECASE)
_INNER_TAG = re.compile(rf"<(/?)\s{{0,4}}({_LABELS})\s{{0,4}}>", re.IGNORECASE)
_FENCE = re.compile(
    r"^[ \t>]{0,12}(?:```|~~~)[^\n`]{0,40}$|^(?:[ \t]{0,4}>){1,8}[ \t]?", re.MULTILINE
)
_NOTHING = {"", "none", "null", "n/a", "na", "unknown", "undefined", "-", "...", "…", "?"}
_LT, _GT = r"(?:<|＜|&lt;|&#60;|&amp;lt;)", r"(?:>|＞|&gt;|&#62;|&amp;gt;)"
_WORD = (
    r"tool[\s_-]{0,2}as+i\w{0,12}"  # tool_assistant, tool-assistant, ToolAssitant, tool_asistant
)
_OPEN = re.compile(rf"{_LT}\s{{0,4}}{_WORD}\s{{0,4}}{_GT}", re.IGNORECASE)
_CLOSE = re.compile(rf"{_LT}\s{{0,4}}[/\\]\s{{0,4}}{_WORD}\s{{0,4}}{_GT}?", re.IGNORECASE)
_CUT_TAG = re.compile(rf"{_LT}\s{{0,4}}[/\\]?[\s\w-]{{0,16}}$")
_QUOTES = "`'\"”’»"


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
    at = 0
    for _ in range(_LOOKED_AT):
        start = _OPEN.search(text, at)
        if start is None:
            return
        begin, at = start.span()
        if text[at : at + 1] in tuple(_QUOTES) and text[begin - 1 : begin] in tuple(_QUOTES):
            continue  # the tag is spoken of, not used
        inner, (end, at, note) = at, _find_end(text, at)
        body = html.unescape(text[inner:end]) if "&" in start[0] else text[inner:end]
        for request in _read_body(body):
            problems = (note, *request.problems) if note else request.problems
            # A block that asks for nothing has one problem: the one that explains it best.
            problems = problems if request.usable else problems[:1]
            yield replace(request, raw=text[begin:at], problems=problems)


def _find_end(text: str, inner: int) -> tuple[int, int, str | None]:
    """Where a block's body ends, where the text goes on, and what is wrong with its end."""
    following = _OPEN.search(text, inner, inner + LONGEST_BODY)
    most = following.start() if following else min(len(text), inner + LONGEST_BODY)
    if close := _CLOSE.search(text, inner, most):
        return close.start(), close.end(), None
    cut = _CUT_TAG.search(text, max(inner, most - 40), most)
    return cut.start() if cut else most, most, "cut off before `</tool_assistant>`"


def _read_body(body: str) -> list[ToolRequest]:
    """What a block asks for, in order; one request without server and tool for nothing. A field
    that is given again begins one more request, a tool alone for the same server."""
    if "\n" not in body.strip() and "\\n" in body:
        body = body.replace("\\n", "\n")
    body = _FENCE.sub("", body.replace("\r\n", "\n").replace("\r", "\n"))
    body = _INNER_TAG.sub(lambda tag: "\n" if tag[1] else f"\n{tag[2]}: ", body)
    if not re.search(r"\w", body):
        return [ToolRequest(None, None, problems=(_EMPTY,))]
    labelled = _read_json_fields(body) or list(_iter_labelled(body))
    if not labelled:
        return [_read_bare(body)]
    pairs: list[dict[str, str]] = [{}]
    notes: list[list[str]] = [[]]
    for name, written in labelled:
        value, note = _read_value(written)
        if value is None or value == pairs[-1].get(name):
            continue
        if name in pairs[-1]:
            keep = name == TOOL and SERVER in pairs[-1]
            pairs.append({SERVER: pairs[-1][SERVER]} if keep else {})
            notes.append([])
        pairs[-1][name] = value
        notes[-1] += note
    return [_make_request(pair, note) for pair, note in zip(pairs, notes, strict=True)]


def _iter_labelled(body: str) -> Iterator[tuple[str, str]]:
    """(label, value) pairs. Labels count at the start of a line; within one only where no line
    starts with that label, because prose says "the tool: " too."""
    labels = list(islice(_LINE.finditer(body), _LABELS_READ))
    starts = {label.start(1) for label in labels}
    lacking = {SERVER, TOOL} - {_normalise_label(label[1]) for label in labels}
    inline = islice(_INLINE.finditer(body), _LABELS_READ) if lacking else ()
    labels += [
        label
        for label in inline
        if label.start(1) not in starts and _normalise_label(label[1]) in lacking
    ]
    labels.sort(key=lambda label: label.start())
    ends = [label.start() for label in labels[1:]] + [len(body)]
    for label, end in zip(labels, ends, strict=False):
        yield _normalise_label(label[1]), body[label.end() : end]


def _normalise_label(label: str) -> str:
    return SERVER if re.search("server|platform", label, re.IGNORECASE) else TOOL


def _make_request(pair: Mapping[str, str], notes: Sequence[str]) -> ToolRequest:
    if not pair:
        problem = "both fields are empty; expected what the tool should do"
        return ToolRequest(None, None, problems=(problem, *notes))
    lacking = [f"no `{name}:` line" for name in (SERVER, TOOL) if name not in pair]
    return ToolRequest(pair.get(SERVER), pair.get(TOOL), problems=(*lacking, *notes))


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


def _read_bare(body: str) -> ToolRequest:
    """A block without any label: a short text is what the tool should do."""
    value, _ = _read_value(body)
    if value is None or len(value) > LONGEST_BARE or "{" in body:
        problem = f"no `server:` and no `tool:` line in {len(body.strip()):,} characters"
        return ToolRequest(None, None, problems=(f"{problem}; expected one of each",))
    return ToolRequest(
        None, value, problems=("no `server:` or `tool:` line; its text counts as the tool",)
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
    return [pair for item in items[:MOST] for pair in _iter_members(item)]


def _iter_members(members: Json) -> Iterator[tuple[str, str]]:
    if not isinstance(members, Mapping):
        return
    if len(members) == 1 and isinstance(inner := next(iter(members.values())), Mapping):
        members = inner  # {"tool_assistant": {...}}
    for key, value in members.items():
        if re.fullmatch(_LABELS, str(key).strip(), re.IGNORECASE) and isinstance(
            value, str | int | float
        ):
            yield _normalise_label(str(key)), str(value)


def _fold_text(value: str | None) -> str | None:
    return " ".join(value.casefold().split()) if value else None
