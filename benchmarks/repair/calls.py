"""Good calls with what was said before them and the tools of their server."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from assets.contracts.canonical import ContractError, canonicalize_contract
from assets.contracts.validate import validate_call
from benchmarks.shared_data import SHARED, read_corpus
from extensions.bench.active_cases import read_api_bank
from extensions.sidecar.flaws import GoodCall
from training.sets.split import split_of


@dataclass(frozen=True)
class AskedCall:
    """conversation: the messages before the call. beside: contracts of the same server."""

    good: GoodCall
    conversation: list[dict[str, str]]
    beside: list[dict[str, Any]]


def read_calls(name: str, side: str) -> list[AskedCall]:
    """The good calls of `corpus`, of one side of the split, or of `api-bank`."""
    found = list(_read_corpus_calls(side) if name == "corpus" else _read_bank_calls())
    groups: dict[tuple[str, str], list[AskedCall]] = defaultdict(list)
    for one in found:
        groups[one.good.server, one.good.name].append(one)
    return [_add_sibling(item, groups[item.good.server, item.good.name]) for item in found]


def _add_sibling(one: AskedCall, group: list[AskedCall]) -> AskedCall:
    other = group[(group.index(one) + 1) % len(group)].good.arguments
    if other == one.good.arguments:
        return one
    return replace(one, good=replace(one.good, sibling=other))


def _read_corpus_calls(side: str) -> Iterator[AskedCall]:
    servers = [json.loads(line) for line in (SHARED / "smithery" / "servers.jsonl").open()]
    listed = {server["qualified_name"]: server["tools"] for server in servers}
    for row in read_corpus():
        server, _, tool = row["tool_id"].partition("::")
        if split_of(server) != side:
            continue
        beside = [one for raw in listed.get(server, ()) if (one := _read_contract(raw))]
        contract = next((item for item in beside if item["name"] == tool), None)
        if contract is not None and not validate_call(contract, row["arguments"]):
            conversation = [{"role": "user", "content": row["instruction"]}]
            yield AskedCall(GoodCall(server, contract, row["arguments"]), conversation, beside)


def _read_contract(raw: Any) -> Any:
    try:
        return canonicalize_contract(raw)
    except ContractError:
        return None


def _read_bank_calls() -> Iterator[AskedCall]:
    """API-Bank names no parameter as required: those are that all calls of the API give."""
    folder = SHARED / "api-bank"
    bank = read_api_bank(folder)
    contracts = {row["tool"]: json.loads(row["contract"]) for row in bank.source.rows}
    made = []
    for case in bank.cases:
        if not case.case_id.endswith(":Full"):
            continue
        path = folder / "lv1-lv2-samples" / "level-1-given-desc" / f"{case.group}.jsonl"
        turn = json.loads(path.read_text().splitlines()[int(case.case_id.split(":")[1]) - 1])
        made.append((turn["api_name"], turn["param_dict"], list(case.messages)))
    for name, contract in contracts.items():
        given = [set(arguments) for one, arguments, _ in made if one == name]
        schema = contract["inputSchema"]
        always = set.intersection(*given) & set(schema.get("properties", {})) if given else set()
        contract["inputSchema"] = {**schema, "required": sorted(always)}
    for name, arguments, conversation in made:
        if not validate_call(contracts[name], arguments):
            good = GoodCall(name, contracts[name], arguments)
            yield AskedCall(good, conversation, [contracts[name]])
