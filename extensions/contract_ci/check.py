"""Contract check: what a pull request does to a server's contracts, with a call that breaks."""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from assets.contracts.canonical import contract_digest, index_contracts, tool_text
from assets.contracts.findings import find_misshapen
from assets.contracts.scan import HIGH, ScanFinding, find_rug_pulls, scan_list
from assets.contracts.schema_shapes import TooMuchWork, limit_steps
from assets.contracts.tool_diff import ToolChange, compare_tools
from assets.contracts.validate import validate_call
from assets.synthesis.contract_reading import ParameterSlot, get_input_schema, read_slots
from assets.synthesis.offline.values import draw_value
from assets.vectors.confusable_table import CONFUSABLE, find_confusables
from assets.vectors.encoders.embedder import Embedder
from serving.ranking.query import BadQuery, ToolQuery
from serving.router import Router
from warehouse.json_types import Contract, JsonObject

_NEAREST = 30  # tools of the index that each own tool is compared with


@dataclass(frozen=True)
class LookAlike:
    """tool: of the server itself. other: "<server_id>::<tool>". cosine: of their texts."""

    tool: str
    other: str
    cosine: float


def find_lookalikes(
    server_id: str, contracts: Mapping[str, Contract], router: Router, base: Embedder
) -> list[LookAlike]:
    """Tools of other servers in the router's index that `confusables` would call look-alikes of
    these contracts, without twins. `base` is MiniLM, on whose scale likeness is read."""
    rows = [make_row(server_id, contract) for contract in contracts.values()]
    others: dict[str, dict[str, Any]] = {}
    for contract in contracts.values():
        others |= find_neighbours(tool_text(contract), router, server_id)
    rows += others.values()
    if not rows:
        return []
    matrix = base.embed([tool_text(json.loads(row["contract"])) for row in rows])
    lookalikes = []
    for pair in find_confusables(rows, matrix):
        sides = [(pair["server_id"], pair["tool"]), (pair["other_server_id"], pair["other_tool"])]
        own_sides = [side for side in sides if side[0] == server_id]
        if pair["kind"] == CONFUSABLE and len(own_sides) == 1:
            (other,) = (side for side in sides if side[0] != server_id)
            name = "::".join(other)
            lookalikes.append(LookAlike(own_sides[0][1], name, pair["cosine"]))
    return sorted(
        lookalikes, key=lambda lookalike: (lookalike.tool, -lookalike.cosine, lookalike.other)
    )


def find_neighbours(text: str, router: Router, server_id: str) -> dict[str, dict[str, Any]]:
    """Tool id -> snapshot row of the tools that a search shows, without the server's own."""
    try:
        hits = router.find(ToolQuery(text, k=_NEAREST)).hits
    except BadQuery:
        return {}
    index = router.index
    return {
        hit.tool_id: make_row(hit.server_id, index.contract(index.places[hit.tool_id]))
        for hit in hits
        if hit.server_id != server_id
    }


def make_row(server_id: str, contract: Contract) -> dict[str, Any]:
    return {
        "server_id": server_id,
        "tool": contract["name"],
        "contract_digest": contract_digest(contract),
        "contract": json.dumps(contract, ensure_ascii=False),
        "marketplace": "contract ci",
    }


_DRAWS = 8  # values of each parameter besides its choices and limits
_STEPS = 200_000  # some 4 s of one tool
_SHOWN = 50  # choices of one parameter that are tried


@dataclass(frozen=True)
class BrokenCall:
    """arguments: right before. why: what is wrong with them now, in one line."""

    arguments: dict[str, Any]
    why: str


def find_broken_call(old: Contract, new: Contract) -> BrokenCall | None:
    """The first of the calls tried that was right by the old contract and is wrong by the new one,
    or None: required values, then each other one with its choices, limits and drawn values."""
    with suppress(TooMuchWork, RecursionError), limit_steps(_STEPS):
        for arguments in _draw_calls(old):
            if not validate_call(old, arguments) and (flaws := validate_call(new, arguments)):
                return BrokenCall(arguments, f"{flaws[0].path}: {flaws[0].message}"[:300])
    return None


def _draw_calls(contract: Contract) -> Iterator[dict[str, Any]]:
    root, slots = get_input_schema(contract), read_slots(contract)
    draw = random.Random(contract["name"])
    needed = {slot.name: draw_value(slot, root, draw) for slot in slots if slot.required}
    yield dict(needed)
    for slot in slots:
        values = [*_list_limits(slot), *(draw_value(slot, root, draw) for _ in range(_DRAWS))]
        yield from ({**needed, slot.name: value} for value in values)


def _list_limits(slot: ParameterSlot) -> Iterator[Any]:
    """The values that a narrower schema loses first."""
    schema = slot.schema
    choices = schema.get("enum")
    yield from choices[:_SHOWN] if isinstance(choices, list) else ()
    yield from (schema[key] for key in ("minimum", "maximum", "default") if key in schema)
    longest = schema.get("maxLength")
    if isinstance(longest, int) and 0 < longest <= 10_000:
        yield "x" * longest
    if slot.type == "string" and not choices:
        yield from ("", "x", "x" * 300)


ALARMING = ("breaking", "suspicious")


def check_contracts(before: Sequence[JsonObject], after: Sequence[JsonObject]) -> dict[str, Any]:
    """Of two tools/list results: {changes: [{tool, class, fields, renamed_from, why, call}], same,
    findings, left_out}. call: one that was right and is wrong now, of a breaking change where one
    was found. findings: of the scan and on tools that nobody can use, those of tools that did not
    have them before."""
    (was, left_before), (now, left_out) = index_contracts(before), index_contracts(after)
    changes = compare_tools(before, after)
    past = {(f.tool, f.rule, f.excerpt) for f in _find_all(before, left_before)}
    findings = [*_find_all(after, left_out), *find_rug_pulls(list(before), list(after))]
    new = [f for f in dict.fromkeys(findings) if (f.tool, f.rule, f.excerpt) not in past]
    touched = {change.tool for change in changes} | {change.renamed_from for change in changes}
    return {
        "changes": [_describe_change(change, was, now) for change in changes],
        "same": len(was.keys() - touched),
        "findings": [finding.as_row() for finding in new],
        "left_out": [f"entry {place}: {why}"[:300] for place, why in left_out.items()],
    }


def _find_all(tools: Sequence[JsonObject], problems: Mapping[int, str]) -> list[ScanFinding]:
    misshapen = (finding for _, finding in find_misshapen(tools, problems))
    return [*scan_list(list(tools)), *misshapen]


def _describe_change(
    change: ToolChange, was: Mapping[str, Contract], now: Mapping[str, Contract]
) -> dict[str, Any]:
    old, new = was.get(change.renamed_from or change.tool), now.get(change.tool)
    call = None
    if change.cls == "breaking" and old is not None and change.fields != ("unusable",):
        call = (
            {"arguments": None, "why": f"calls of {old['name']} find no tool"}
            if new is None or change.renamed_from
            else (broken := find_broken_call(old, new)) and vars(broken)
        )
    return {"tool": change.tool, "class": change.cls, "fields": list(change.fields),
            "renamed_from": change.renamed_from, "why": change.why, "call": call}  # fmt: skip


def add_lookalikes(
    report: dict[str, Any],
    server_id: str,
    lists: tuple[Sequence[JsonObject], Sequence[JsonObject]],
    router: Router,
) -> None:
    from assets.vectors.encoders.minilm import MiniLM

    base = MiniLM()
    was, now = (index_contracts(tools)[0] for tools in lists)
    before, after = (find_lookalikes(server_id, tools, router, base) for tools in (was, now))
    known = {(lookalike.tool, lookalike.other) for lookalike in before}
    new = [lookalike for lookalike in after if (lookalike.tool, lookalike.other) not in known]
    report["lookalikes"] = list(map(vars, new))


def list_failing(fail_on: str) -> tuple[str, ...]:
    """Classes of change that a check fails on: `breaking` and worse, `suspicious`, or `never`."""
    return {"never": (), "breaking": ALARMING, "suspicious": ALARMING[1:]}[fail_on]


def is_alarming(report: Mapping[str, Any], fail_on: str) -> bool:
    failing = list_failing(fail_on)
    changed = any(entry["class"] in failing for entry in report["changes"])
    return changed or any(entry["severity"] == HIGH for entry in report["findings"] if failing)
