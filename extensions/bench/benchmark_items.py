"""What a benchmark is: items, the tools that each offers, and who judges an answer."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import numpy as np

from assets.contracts.canonical import tool_text
from assets.contracts.tool_id import ToolId
from assets.servers.deploy.policy import DeployPolicy
from assets.vectors.lexical import BM25
from training.evaluation.caller_items import CallerItem
from training.evaluation.caller_score import score_answer
from training.evaluation.predictor import PredictionAnswer
from warehouse.errors import UnusableInput
from warehouse.json_types import Contract, Row
from warehouse.progress import Progress, SilentProgress
from warehouse.storage.digest import digest
from warehouse.storage.files import hash_file
from warehouse.store import Warehouse

Item = TypeVar("Item")
Judge = Callable[[CallerItem, PredictionAnswer], Row]
Ask = Callable[[list[dict[str, Any]]], Awaitable[PredictionAnswer]]  # of a conversation
Play = Callable[[CallerItem, Ask], Awaitable[Row]]


@dataclass(frozen=True)
class BenchmarkPlan:
    """data: folder or file of the benchmark. candidates: tools offered with a request, the right
    ones and the nearest others by BM25; 0: all. seed: of items, orders and endpoints. options: the
    benchmark's own, by name. warehouse: for a benchmark of the home's own data; policy, progress:
    for one that launches servers."""

    data: Path | None = None
    candidates: int = 10
    seed: int = 0
    options: Mapping[str, str] = field(default_factory=dict)
    warehouse: Warehouse | None = field(default=None, repr=False)
    policy: DeployPolicy | None = field(default=None, repr=False)
    progress: Progress = field(default_factory=SilentProgress, repr=False)

    def require_folder(self) -> Path:
        """Raises UnusableInput."""
        if self.data is None or not self.data.is_dir():
            found = "no --data" if self.data is None else f"{self.data} is no folder"
            raise UnusableInput(f"{found}; expected --data DIR, the benchmark's own folder")
        return self.data

    def read_number(self, name: str, default: int) -> int:
        """An option from 1 to 1,000. Raises UnusableInput."""
        text = self.options.get(name, str(default))
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 1_000):
            raise UnusableInput(f"option {name}={text[:40]}: expected a number from 1 to 1000")
        return int(text)


@dataclass(frozen=True)
class BenchmarkSet:
    """The items of a benchmark. An item's `split` is its category and its row's `server_id` the
    group that an interval draws whole; `tools` are all that could be offered.

    judge: the columns of an answer, `measures` (0 or 1, the headline first) and `error_kind` among
    them. files: those it was read from. left_out: reason -> items. narrows: whether `candidates`
    applies; else every tool is offered, in the item's order. servers: facts of servers by id, for a
    router. play: takes the place of one question and `judge`, where an item is a conversation.
    """

    name: str
    items: Sequence[CallerItem]
    judge: Judge | None
    measures: tuple[str, ...]
    files: Sequence[Path]
    left_out: Mapping[str, int] = field(default_factory=dict)
    narrows: bool = True
    servers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    play: Play | None = None

    def hash_files(self) -> str:
        """Names the version of the data. Raises OSError."""
        return digest([[path.name, hash_file(path)] for path in self.files])


def make_item(
    name: str,
    category: str,
    group: str,
    text: str,
    tools: Sequence[Contract],
    calls: list[dict[str, Any]],
    before: tuple[Any, ...] = (),
    **row: Any,
) -> CallerItem:
    """calls: the right ones. before: the whole conversation, where it is more than `text`."""
    facts = {"server_id": group, "kind": category, "instruction": text, **row}
    facts |= {"tool": calls[0]["name"] if calls else ""}
    tool_list: list[Any] = list(tools)
    return CallerItem(
        name, category, "single", len(tools), "hard", 0, facts, tool_list, calls, before=before
    )


def choose_items(held: BenchmarkSet, plan: BenchmarkPlan, limit: int | None) -> list[CallerItem]:
    """At most `limit` items, drawn by the seed from each category in turn, with the tools that they
    are asked among. Raises UnusableInput where there is none."""
    if not held.items:
        counts = ", ".join(f"{reason} {n}" for reason, n in held.left_out.items()) or "no item"
        raise UnusableInput(f"{held.name}: no item in {plan.data} ({counts})")
    drawn = Random(plan.seed).sample(list(held.items), len(held.items))
    chosen = take_turns(drawn, lambda item: item.split)[:limit]
    if not held.narrows:
        return chosen
    ranks: dict[int, BM25] = {}
    return [_narrow_tools(item, plan, ranks) for item in chosen]


def take_turns(items: Sequence[Item], name_group: Callable[[Item], str]) -> list[Item]:
    """One item of each group, then a second of each, and so on."""
    counts, turns = Counter[str](), []
    for item in items:
        turns.append(counts[name_group(item)])
        counts[name_group(item)] += 1
    return [items[at] for at in sorted(range(len(items)), key=turns.__getitem__)]


def _narrow_tools(item: CallerItem, plan: BenchmarkPlan, ranks: dict[int, BM25]) -> CallerItem:
    """ranks: by the identity of a list of tools, which many items share."""
    tools, names = item.tools, {call["name"] for call in item.expected}
    if 0 < plan.candidates < len(tools):
        key = id(tools[0])
        if key not in ranks:
            ranks[key] = BM25.build([tool_text(tool) for tool in tools])
        nearest = np.argsort(-ranks[key].score(item.instruction), kind="stable")
        right = [tool for tool in tools if tool["name"] in names]
        others = [tools[at] for at in nearest if tools[at]["name"] not in names]
        tools = [*right, *others[: max(plan.candidates - len(right), 0)]]
    shuffled = Random(f"{plan.seed}/{item.item_id}").sample(tools, len(tools))
    return replace(item, tools=shuffled, candidates=len(shuffled))


def judge_calls(item: CallerItem, answer: PredictionAnswer) -> Row:
    """Columns of CALLER_EVALUATION."""
    row = score_answer(item, answer, "", "")
    names = ("ast_ok", "tool_ok", "valid", "parsed", "name_f1", "value_f1", "error_kind")
    return {name: row[name] for name in names}


def judge_first_tool(item: CallerItem, answer: PredictionAnswer) -> Row:
    """Whether the first call names a right tool, or one that says the same. Of a router's hits,
    whether one of the first five does; of a model that asks, whether the first hit for its first
    request does (MCP-Zero's measure)."""
    right = {call["name"] for call in item.expected}
    texts = {_digest_nameless(tool) for tool in item.tools if tool["name"] in right}
    right |= {tool["name"] for tool in item.tools if _digest_nameless(tool) in texts}
    name = answer.calls[0]["name"] if answer.calls else None
    is_right = name in right
    is_offered = name in {tool["name"] for tool in item.tools}
    wrong = answer.kind if name is None else "wrong_tool" if is_offered else "unknown_tool"
    row: Row = {"tool_ok": is_right, "error_kind": None if is_right else wrong}
    if hits := answer.facts.get("hits"):
        row["among_5"] = any(hit in right for hit in hits)
    if "first" in answer.facts:
        row["first_ok"] = answer.facts["first"] in right
    return row


def _digest_nameless(tool: Contract) -> str:
    """A tool without the server in its name."""
    name = str(tool["name"])
    short = ToolId.parse(name).tool if "::" in name else name
    return digest([short, tool.get("description"), tool.get("inputSchema")])
