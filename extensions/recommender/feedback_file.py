"""ToolFlix's released files: judged executions, and the tools of servers.

A row of feedback: `query` or `task` (words), `selected` {server_id, tool_name}, `rating`
{success}, `retriever_candidates` [{server_id, tool_name}, …] in the retriever's order. A row of
tools: a server's `id` and `tools` [{name, description, inputSchema}, …]. Both are a JSON list, an
object that holds one list, or JSON Lines. Rows that are not judged, or not as said here, are left
out and counted, until they are more than one in ten: then the file is of another shape.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assets.contracts.canonical import tool_text
from assets.vectors.encoders.embedder import embed_queries
from extensions.recommender.rerank_method import OutcomeExample
from extensions.recommender.tool_pool import ToolFacts, ToolPool
from serving.ranking.strategies import RerankQuestion
from warehouse.errors import UnusableInput

if TYPE_CHECKING:
    from assets.vectors.encoders.embedder import Embedder

_MOST_FLAWED = 0.1
_MOST_BYTES = 1 << 30
_SHOWN = 60  # characters of what was found


class BadFeedback(UnusableInput):
    """A file that is not of the released format; the message is one line that says where."""


@dataclass(frozen=True)
class JudgedRow:
    """One judged execution: the words, the tool that was called, whether it did what was asked, and
    what the retriever had offered."""

    task: str
    query: str
    tool_id: str
    success: bool
    candidates: tuple[str, ...] = ()


@dataclass
class FeedbackRows:
    """The rows of a file, and how many were left out by reason, with the first of them."""

    rows: list[JudgedRow] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    first_flaw: str = ""


class _RowFlaw(ValueError):
    """What is wrong with one row: (kind, message)."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def read_feedback(path: Path) -> FeedbackRows:
    """The judged rows of a file. Raises BadFeedback where it is of another shape, or has none."""
    rows = _read_list(path, "query", "feedback")
    feedback = FeedbackRows()
    for number, row in enumerate(rows, 1):
        try:
            feedback.rows.append(_read_row(row))
        except _RowFlaw as flaw:
            feedback.left_out[flaw.kind] += 1
            feedback.first_flaw = feedback.first_flaw or f"row {number}: {flaw}"
    flawed = feedback.left_out.total() - feedback.left_out["not judged"]
    if flawed > _MOST_FLAWED * len(rows) or not feedback.rows:
        raise BadFeedback(
            f"{path}: {feedback.first_flaw or 'it has no rows'} ({feedback.left_out.total():,} of"
            f" {len(rows):,} rows are unusable); expected rows of `query` or `task`, `selected`"
            " {server_id, tool_name}, `rating` {success}, `retriever_candidates` [...]"
        )
    return feedback


def read_tools(path: Path) -> list[ToolFacts]:
    """The tools of a file, each once, in its order. Raises BadFeedback."""
    tools: dict[str, ToolFacts] = {}
    for number, row in enumerate(_read_list(path, "id", "tools"), 1):
        try:
            for tool in _read_server(row):
                tools.setdefault(tool.tool_id, tool)
        except _RowFlaw as flaw:
            raise BadFeedback(
                f"{path}: row {number}: {flaw}; expected a server's `id` and `tools` [{{name,"
                " description, inputSchema}, ...]"
            ) from None
    if not tools:
        raise BadFeedback(f"{path}: it has no tools; expected servers with `id` and `tools` [...]")
    return list(tools.values())


def make_tool_id(server: str, tool: str) -> str:
    """`<server>::<tool>`, as everywhere."""
    return f"{server}::{tool}"


def _read_list(path: Path, key: str, what: str) -> list[Any]:
    """The rows of a file of JSON or JSON Lines. Raises BadFeedback."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise BadFeedback(f"{path}: is larger than 1 GiB; split it")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadFeedback(f"{path}: {type(error).__name__}; expected a file of {what}") from None
    try:
        return _parse_rows(text, key)
    except (ValueError, RecursionError) as error:
        why = " ".join(str(error).split())[:120] or type(error).__name__
        raise BadFeedback(f"{path}: {why}; expected {what} as a JSON list or JSON Lines") from None


def _parse_rows(text: str, key: str) -> list[Any]:
    try:
        result = json.loads(text)
    except json.JSONDecodeError:
        lines = text.splitlines()
        return [_parse_line(line, number) for number, line in enumerate(lines, 1) if line.strip()]
    if isinstance(result, Mapping) and key not in result:
        lists = [value for value in result.values() if isinstance(value, list)]
        if len(lists) != 1:
            raise ValueError(f"found an object with {len(lists)} lists")
        return lists[0]
    if isinstance(result, Mapping):
        return [result]
    if not isinstance(result, list):
        raise ValueError(f"found {_show(result)}")
    return result


def _parse_line(line: str, number: int) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {number}: {error.msg}") from None


def _read_row(row: Any) -> JudgedRow:
    if not isinstance(row, Mapping):
        raise _RowFlaw("no object", f"found {_show(row)}, expected an object")
    query = row.get("query") or row.get("task")
    if not isinstance(query, str) or not query.strip():
        raise _RowFlaw("no query", f"`query` or `task` is {_show(query)}, expected words")
    task = row.get("task") if isinstance(row.get("task"), str) else None
    tool_id = _read_choice(row.get("selected"), "selected")
    success = _read_success(row.get("rating"))
    offered = row.get("retriever_candidates")
    if offered is not None and not isinstance(offered, list):
        raise _RowFlaw("candidates", f"`retriever_candidates` is {_show(offered)}, expected a list")
    names = [_read_choice(item, "retriever_candidates") for item in offered or ()]
    return JudgedRow(
        " ".join((task or query).split()), query, tool_id, success, tuple(dict.fromkeys(names))
    )


def _read_success(rating: Any) -> bool:
    if rating is None:
        raise _RowFlaw("not judged", "`rating` is absent: nobody judged it")
    if not isinstance(rating, Mapping):
        raise _RowFlaw("rating", f"`rating` is {_show(rating)}, expected {{success}}")
    success = rating.get("success")
    if success is None:
        raise _RowFlaw("not judged", "`rating.success` is absent: nobody judged it")
    if isinstance(success, bool) or (isinstance(success, int | float) and success in (0, 1)):
        return bool(success)
    raise _RowFlaw("rating", f"`rating.success` is {_show(success)}, expected true or false")


def _read_choice(value: Any, name: str) -> str:
    """The id of a tool that is named by server and name, or by both in one text."""
    if isinstance(value, str) and "::" in value:
        return value
    if not isinstance(value, Mapping):
        raise _RowFlaw(name, f"`{name}` is {_show(value)}, expected {{server_id, tool_name}}")
    server, tool = value.get("server_id"), value.get("tool_name")
    for key, part in (("server_id", server), ("tool_name", tool)):
        if not isinstance(part, str) or not part.strip():
            raise _RowFlaw(name, f"`{name}.{key}` is {_show(part)}, expected a text")
    return make_tool_id(str(server), str(tool))


def _read_server(row: Any) -> list[ToolFacts]:
    if not isinstance(row, Mapping):
        raise _RowFlaw("no object", f"found {_show(row)}, expected an object")
    server, tools = row.get("id"), row.get("tools")
    if not isinstance(server, str) or not server.strip():
        raise _RowFlaw("id", f"`id` is {_show(server)}, expected a text")
    if not isinstance(tools, list):
        raise _RowFlaw("tools", f"`tools` is {_show(tools)}, expected a list")
    return [_read_tool(server, tool) for tool in tools]


def _read_tool(server: str, tool: Any) -> ToolFacts:
    body = {"name": tool} if isinstance(tool, str) else tool
    if not isinstance(body, Mapping):
        raise _RowFlaw("tools", f"`tools` holds {_show(tool)}, expected objects")
    name = body.get("name") or body.get("tool_name")
    if not isinstance(name, str) or not name.strip():
        raise _RowFlaw("tools", f"`tools[].name` is {_show(name)}, expected a text")
    schema = next(
        (body[key] for key in ("inputSchema", "input_schema", "parameters") if body.get(key)), None
    )
    contract: dict[str, Any] = {"name": name}
    if isinstance(body.get("description"), str):
        contract["description"] = body["description"]
    contract["inputSchema"] = schema if isinstance(schema, Mapping) else {"type": "object"}
    return ToolFacts(make_tool_id(server, name), server, contract)


def _show(value: Any) -> str:
    return "absent" if value is None else repr(value)[:_SHOWN]


@dataclass(frozen=True)
class JudgedPool:
    """Examples in the order of the file, the tools that they name, and those of them that no file
    of tools describes: known by their name only."""

    examples: list[OutcomeExample]
    pool: ToolPool
    unknown: list[str]


def embed_judged(
    rows: Sequence[JudgedRow], tools: Sequence[ToolFacts], embedder: "Embedder"
) -> JudgedPool:
    """Each row as an example; its place in time is its place in the file."""
    known = {tool.tool_id for tool in tools}
    named = dict.fromkeys(name for row in rows for name in (row.tool_id, *row.candidates))
    unknown = [name for name in named if name not in known]
    facts = [*tools, *map(_describe_unknown, unknown)]
    vectors = embedder.embed([tool_text(tool.contract) or "-" for tool in facts])
    pool = ToolPool(facts, vectors)
    asked = list(dict.fromkeys(row.query for row in rows))
    vector_of = dict(zip(asked, embed_queries(embedder, asked), strict=True))
    examples = [
        _make_example(row, float(at), vector_of[row.query], pool) for at, row in enumerate(rows)
    ]
    return JudgedPool(examples, pool, unknown)


def _make_example(row: JudgedRow, at: float, vector: np.ndarray, pool: ToolPool) -> OutcomeExample:
    candidates = np.array([pool.places[name] for name in row.candidates], int)
    question = RerankQuestion(row.query, vector, candidates, at)
    return OutcomeExample(question, pool.places[row.tool_id], row.success, task=row.task)


def _describe_unknown(tool_id: str) -> ToolFacts:
    server, _, name = tool_id.partition("::")
    contract = {"name": name or tool_id, "inputSchema": {"type": "object"}}
    return ToolFacts(tool_id, server, contract)
