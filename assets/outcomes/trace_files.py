"""Trace files of agents, read as sessions: Claude Code, Codex, and OpenTelemetry's GenAI spans.

    Claude Code     ~/.claude/projects/*/*.jsonl      one message a line
    Codex           ~/.codex/sessions/**/*.jsonl      one item a line, in an envelope since 2025
    OpenTelemetry   OTLP as JSON, one document or one a line: spans with `gen_ai.*` attributes
    Toolmill        what `serve` and `proxy` keep under the names of tokens with `traces = true`

Nothing here is trusted: a file is capped, and what has another shape than expected is passed over.
"""

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from assets.marketplaces.server_json.inputs import list_objects
from assets.servers.calls.log import TRACE_FORMAT
from warehouse.errors import UnusableInput
from warehouse.json_types import JsonObject
from warehouse.storage.untrusted_files import UnreadableFile, read_file

MOST_BYTES = 128 << 20
USER, ASSISTANT, CALL, RESULT = "user", "assistant", "call", "result"
_EXPECTED = (
    "expected a session of Claude Code or Codex (JSONL), OpenTelemetry's GenAI spans (OTLP JSON),"
    " or a file of `toolmill serve` (traces/*.jsonl)"
)
_CODEX = ("session_meta", "response_item", "function_call", "function_call_output")


@dataclass(frozen=True)
class TraceEvent:
    """One thing that was said or done. kind: of the four above. call: joins a call to its result.
    at: epoch seconds."""

    kind: str
    text: str = ""
    call: str = ""
    name: str = ""
    arguments: JsonObject = field(default_factory=dict)
    failed: bool = False
    at: float | None = None


@dataclass(frozen=True)
class TraceSession:
    """A session in order. definitions: the tools that it offered, by name, where it says so.
    digests: contract digest by tool name, where Toolmill wrote it."""

    id: str
    format: str
    events: tuple[TraceEvent, ...]
    definitions: Mapping[str, JsonObject] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None  # the token of a trace that Toolmill wrote


def find_results(events: Iterable[TraceEvent]) -> dict[int, TraceEvent]:
    """Place of a call -> its result. Clients may restart their ids each turn: a result is that of
    the first call of its id that has none yet."""
    waiting: dict[str, deque[int]] = defaultdict(deque)
    results = dict[int, TraceEvent]()
    for at, event in enumerate(events):
        if event.kind == CALL:
            waiting[event.call].append(at)
        elif event.kind == RESULT and waiting[event.call]:
            results[waiting[event.call].popleft()] = event
    return results


@dataclass(frozen=True)
class TraceFile:
    """cut: how many lines are no whole JSON, as where a file ends in the middle of one."""

    sessions: list[TraceSession]
    cut: int


def read_traces(path: Path) -> TraceFile:
    """The sessions of a file. Raises UnusableInput for one that cannot be read, is too large or of
    an unknown format."""
    try:
        data = read_file(path.parent, path.name, MOST_BYTES)
    except UnreadableFile as error:
        raise UnusableInput(f"{path.name}: {error.strerror}; give the path of a trace") from None
    lines, cut = _read_lines(data.decode("utf-8", "replace"))
    name = _find_format(lines)
    if name is None:
        problem = "it is cut or damaged" if cut and not lines else "its format is not known"
        raise UnusableInput(f"{path.name}: {problem}; {_EXPECTED}")
    return TraceFile(_READERS[name](lines, path.stem), cut)


def _read_lines(text: str) -> tuple[list[JsonObject], int]:
    """The JSON objects of a file, and how many lines are none; one document may be many lines."""
    with suppress(ValueError, RecursionError):
        whole = json.loads(text)
        items = whole if isinstance(whole, list) else [whole]
        return [item for item in items if isinstance(item, dict)], 0
    lines, cut = [], 0
    for line in text.splitlines():
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except (ValueError, RecursionError):
            cut += 1
            continue
        if isinstance(item, dict):
            lines.append(item)
    return lines, cut


def _find_format(lines: Iterable[JsonObject]) -> str | None:
    for line in lines:
        if "resourceSpans" in line:
            return "opentelemetry"
        if line.get("format") == TRACE_FORMAT:
            return "toolmill"
        if line.get("type") in _CODEX:
            return "codex"
        if "sessionId" in line and isinstance(line.get("message"), dict):
            return "claude-code"
    return None


def _read_claude_code(lines: Sequence[JsonObject], stem: str) -> list[TraceSession]:
    events: dict[str, list[TraceEvent]] = {}
    for line in lines:
        message = line.get("message")
        if line.get("isMeta") or line.get("isSidechain") or not isinstance(message, dict):
            continue
        session = events.setdefault(str(line.get("sessionId") or stem), [])
        at, role = _read_time(line.get("timestamp")), str(message.get("role"))
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in list_objects(blocks):
            kind = block.get("type")
            if kind == "text" and role in (USER, ASSISTANT):
                session.append(TraceEvent(role, _read_text(block.get("text")), at=at))
            elif kind == "tool_use":
                session.append(
                    _make_call(block.get("id"), block.get("name"), block.get("input"), at)
                )
            elif kind == "tool_result":
                failed, text = bool(block.get("is_error")), _read_text(block.get("content"))
                session.append(_make_result(block.get("tool_use_id"), text, failed, at))
    return [TraceSession(name, "claude-code", tuple(found)) for name, found in events.items()]


def _read_codex(lines: list[JsonObject], stem: str) -> list[TraceSession]:
    session, events = stem, list[TraceEvent]()
    for line in lines:
        at = _read_time(line.get("timestamp"))
        payload = line.get("payload")
        item = payload if isinstance(payload, dict) else line
        if line.get("type") == "session_meta":
            session = str(item.get("id") or stem)
        elif item.get("type", "message") == "message" and item.get("role") in (USER, ASSISTANT):
            text = _read_text(item.get("content"))
            if not text.startswith("<"):  # what the client says of its surroundings
                events.append(TraceEvent(str(item["role"]), text, at=at))
        elif item.get("type") == "function_call":
            facts = item.get("call_id"), item.get("name"), item.get("arguments")
            events.append(_make_call(*facts, at))
        elif item.get("type") == "function_call_output":
            output = _parse(item.get("output"))
            about = output if isinstance(output, dict) else {}
            failed = about.get("success") is False or bool(about.get("isError"))
            text = _read_text(about["content"] if "content" in about else item.get("output"))
            events.append(_make_result(item.get("call_id"), text, failed, at))
    return [TraceSession(session, "codex", tuple(events))]


def read_request(body: JsonObject) -> TraceSession:
    """The conversation that a request to a model brings along: Chat Completions, Responses or
    Anthropic's Messages."""
    if items := list_objects(body.get("input")):
        [session] = _read_codex([{"type": "response_item", "payload": item} for item in items], "")
    else:
        lines = [{"message": _convert_chat(item)} for item in list_objects(body.get("messages"))]
        session = next(iter(_read_claude_code(lines, "")), TraceSession("", "", ()))
    tools = list_objects([t.get("function", t) for t in list_objects(body.get("tools"))])
    schemas = [tool.get("parameters") or tool.get("input_schema") for tool in tools]
    definitions = {
        str(tool.get("name")): {"description": tool.get("description"), "inputSchema": schema}
        for tool, schema in zip(tools, schemas, strict=True)
    }
    return replace(session, definitions=definitions)


def _convert_chat(message: JsonObject) -> JsonObject:
    """A message of Chat Completions in the blocks of Messages, whose own stay as they are."""
    if message.get("role") == "tool":
        call = {"type": "tool_result", "tool_use_id": message.get("tool_call_id")}
        return {"role": USER, "content": [{**call, "content": message.get("content")}]}
    calls = []
    for call in list_objects(message.get("tool_calls")):
        function = next(iter(list_objects([call.get("function")])), {})
        named = {"name": function.get("name"), "input": function.get("arguments")}
        calls.append({"type": "tool_use", "id": call.get("id"), **named})
    return {"role": message.get("role"), "content": calls} if calls else message


def _read_opentelemetry(lines: list[JsonObject], stem: str) -> list[TraceSession]:
    """One session a trace: the longest input messages of its spans with their output, results of
    `execute_tool` spans put to the calls of their ids."""
    spans: dict[str, list[tuple[JsonObject, dict[str, Any]]]] = {}
    for line in lines:
        for span in _walk_spans(line):
            spans.setdefault(str(span.get("traceId") or stem), []).append((span, _flatten(span)))
    return [_read_trace(name, found) for name, found in spans.items()]


def _read_trace(name: str, spans: list[tuple[JsonObject, dict[str, Any]]]) -> TraceSession:
    messages: list[JsonObject] = []
    events: list[TraceEvent] = []
    definitions: dict[str, JsonObject] = {}
    executed: dict[str, TraceEvent] = {}
    first: float | None = None
    for span, about in spans:
        at = _read_nanoseconds(span.get("startTimeUnixNano"))
        first = at if first is None else first
        talk: list[JsonObject] = [
            *list_objects(_parse(about.get("gen_ai.input.messages"))),
            *list_objects(_parse(about.get("gen_ai.output.messages"))),
        ]
        messages = talk if len(talk) > len(messages) else messages
        for tool in list_objects(_parse(about.get("gen_ai.tool.definitions"))):
            function = tool.get("function")
            body = function if isinstance(function, dict) else tool
            definitions[str(body.get("name"))] = body
        if (call := str(about.get("gen_ai.tool.call.id") or "")) and "gen_ai.tool.name" in about:
            status = span.get("status")
            failed = isinstance(status, dict) and status.get("code") in (2, "STATUS_CODE_ERROR")
            text = _read_text(about.get("gen_ai.tool.call.result"))
            executed[call] = _make_result(call, text, failed or "error.type" in about, at)
    answered: set[str] = set()
    for message in messages:
        for part in list_objects(message.get("parts")):
            kind, call = part.get("type"), str(part.get("id") or "")
            if kind == "text" and message.get("role") in (USER, ASSISTANT):
                text = _read_text(part.get("content"))
                events.append(TraceEvent(str(message["role"]), text, at=first))
            elif kind == "tool_call":
                events.append(_make_call(call, part.get("name"), part.get("arguments"), first))
            elif kind == "tool_call_response":
                text = _read_text(part.get("response", part.get("result")))
                events.append(executed.get(call) or _make_result(call, text, False, first))
                answered.add(call)
    events += [result for call, result in executed.items() if call not in answered]
    return TraceSession(name, "opentelemetry", tuple(events), definitions)


def _read_toolmill(lines: list[JsonObject], stem: str) -> list[TraceSession]:
    """A session a token and day: each line is a request in words, a call and its result."""
    events: dict[str, list[TraceEvent]] = {}
    digests, asked = dict[str, str](), dict[str, str]()
    asking: list[tuple[str, JsonObject]] = []
    for line in lines:  # one without words belongs to the last
        token = str(line.get("token"))
        asked[token] = _read_text(line.get("words")) or asked.get(token, "")
        asking.append((asked[token], line))
    asked.clear()
    # Lines of conversations at a time stand among each other: words alone tell their turns apart.
    for number, (query, line) in enumerate(sorted(asking, key=itemgetter(0))):
        session = events.setdefault(str(line.get("token")), [])
        at, call, name = _read_time(line.get("at")), str(number), str(line.get("tool_id"))
        if query and query != asked.get(str(line.get("token"))):
            asked[str(line.get("token"))] = query
            session.append(TraceEvent(USER, query, at=at))
        session.append(_make_call(call, name, line.get("arguments"), at))
        text, failed = _read_text(line.get("text")), line.get("status") != "ok"
        session.append(_make_result(call, text, failed, at))
        digests[name] = str(line.get("contract_digest"))
    return [
        TraceSession(f"{token}/{stem}", "toolmill", tuple(found), digests=digests, user=token)
        for token, found in events.items()
    ]


_READERS = {
    "claude-code": _read_claude_code,
    "codex": _read_codex,
    "opentelemetry": _read_opentelemetry,
    "toolmill": _read_toolmill,
}


def _walk_spans(line: JsonObject) -> Iterator[JsonObject]:
    for resource in list_objects(line.get("resourceSpans")):
        for scope in list_objects(resource.get("scopeSpans")):
            yield from list_objects(scope.get("spans"))


def _flatten(span: JsonObject) -> dict[str, Any]:
    """The attributes of a span by name; those of its events too."""
    listed = [*list_objects(span.get("attributes"))]
    for event in list_objects(span.get("events")):
        listed += list_objects(event.get("attributes"))
    about: dict[str, Any] = {}
    for item in listed:
        value = item.get("value")
        if isinstance(value, dict) and value:
            about[str(item.get("key"))] = next(iter(value.values()))
    return about


def _make_call(call: Any, name: Any, arguments: Any, at: float | None) -> TraceEvent:
    values = _parse(arguments)
    return TraceEvent(
        CALL,
        "",
        str(call or ""),
        str(name or ""),
        values if isinstance(values, dict) else {},
        at=at,
    )


def _make_result(call: Any, text: str, failed: bool, at: float | None) -> TraceEvent:
    return TraceEvent(RESULT, text, str(call or ""), failed=failed, at=at)


def _parse(value: Any) -> Any:
    """JSON text as its value; anything else, and text that is no JSON, as it is."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def _read_text(value: Any) -> str:
    """The text of a string, of content blocks, or of an answer as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(
            str(item["text"]) for item in value if isinstance(item, dict) and "text" in item
        )
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _read_time(value: Any) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(str(value)).timestamp()
    return None


def _read_nanoseconds(value: Any) -> float | None:
    with suppress(ValueError, TypeError, OverflowError):
        return int(value) / 1e9
    return None
