"""Test cases for the judge: known-good rows, and mutants of them with one flaw each."""

import json
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path

from assets.contracts.canonical import canonicalize_contract as canonical
from assets.contracts.canonical import contract_digest
from assets.contracts.validate import validate_call
from assets.synthesis.contract_reading import get_required, read_purpose
from assets.synthesis.tables import (
    ONE_CALL,
    GoldenCall,
    dump_text,
    make_call_message,
    make_pair_id,
    make_single_row,
    make_user_message,
    reaches_judge,
    read_goldens,
)
from assets.synthesis.verify.rules import find_call_flaws, verify, verify_row
from assets.synthesis.wrong_calls import make_wrong_call
from assets.vectors.lexicon import split_identifier
from warehouse.json_types import Contract, Json, JsonObject
from warehouse.storage.digest import sha256

Pair = dict[str, Json]


@dataclass(frozen=True)
class MutantSource:
    """The good row of one call that a mutant is made of, and where its chances come from."""

    text: str
    call: dict[str, Json]
    contract: Contract
    rng: random.Random

    def draw_stated(self) -> str | None:
        """One of the required arguments whose value stands once in the text."""
        stated = [
            name
            for name in get_required(self.contract)
            if isinstance(value := self.call.get(name), (str, int, float))
            and not isinstance(value, bool)
            and len(str(value)) > 2
            and self.text.count(str(value)) == 1
        ]
        return self.rng.choice(stated) if stated else None


def make_mutants(
    row: Pair, contract: Contract, contracts: Mapping[str, Contract], rng: random.Random
) -> list[dict[str, Json]]:
    """[{flaw, pair}]: one mutant per flaw kind that this row of one call allows."""
    good = MutantSource(row["instruction"], json.loads(row["arguments"]), contract, rng)
    mutants: list[dict[str, Json]] = []
    for flaw, mutate in _MUTATIONS.items():
        changed = mutate(good)
        if changed is not None and changed != (good.text, good.call):
            mutants.append({"flaw": flaw, "pair": rewrite_row(row, *changed)})
    other = _find_other_tool(row, contracts, rng)
    if other is not None:
        mutants.append({"flaw": "wrong_tool", "pair": redirect_call(row, other, contracts[other])})
    return mutants


def rewrite_row(row: Pair, text: str, arguments: JsonObject) -> Pair:
    """The row of one call with another request and arguments, in every column that holds them."""
    calls = [vars(golden) for golden in read_goldens(row)] if row.get("calls") else []
    calls = [{**call, "arguments": dict(arguments)} for call in calls]
    changed = {"instruction": text, "arguments": dump_text(arguments), "calls": dump_text(calls)}
    return {**row, **changed, "messages": _make_conversation(row, text, calls)}


def redirect_call(row: Pair, digest: str, contract: Contract) -> Pair:
    """The row of one call with its call sent to another tool, which is offered beside its own."""
    offered = {row["contract_digest"], digest, *json.loads(row.get("offered") or "[]")}
    call = GoldenCall(
        row["server_id"], str(contract.get("name")), digest, json.loads(row["arguments"])
    )
    calls = [vars(call)]
    return {
        **row,
        "tool": call.tool,
        "contract_digest": digest,
        "calls": dump_text(calls),
        "offered": dump_text(sorted(offered)),
        "messages": _make_conversation(row, row["instruction"], calls),
    }


def _make_conversation(row: Pair, text: str, calls: list[dict[str, Json]]) -> str | None:
    """The conversation of one call, without what followed: that answered another call."""
    if not row.get("messages"):
        return row.get("messages")
    call_message = make_call_message(1, [(call["tool"], call["arguments"]) for call in calls])
    return dump_text([make_user_message(text), call_message])


Changed = tuple[str, dict[str, Json]] | None


def _break_call(kind: str, good: MutantSource) -> Changed:
    wrong = make_wrong_call(good.contract, good.call, good.rng, (kind,))
    return None if wrong is None else (good.text, wrong.arguments)


def _invent_value(good: MutantSource) -> Changed:
    name = good.draw_stated()
    if name is None:
        return None
    value = good.call[name]
    if isinstance(value, (int, float)):
        others = [value * 3 + 17]
    else:  # a shifted value is of the same shape, for patterns and lengths
        others = [good.rng.choice(_OTHER), value.translate(_SHIFT)]
    changed = ({**good.call, name: other} for other in others)
    valid = next((call for call in changed if not validate_call(good.contract, call)), None)
    return None if valid is None else (good.text, valid)


_SHIFT = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    "nopqrstuvwxyzabcdefghijklmNOPQRSTUVWXYZABCDEFGHIJKLM3456789012",
)
_OTHER = ("quillfeather", "zanzibar-0417", "mossgrove", "/opt/umber/kelp.dat")


def _drop_value(good: MutantSource) -> Changed:
    name = good.draw_stated()
    if name is None:
        return None
    spoken = str(good.call[name])
    vague = good.rng.choice(["it", "that one", "the usual one", "the one we talked about"])
    return re.sub(rf"['\"]?{re.escape(spoken)}['\"]?", vague, good.text), good.call


def _name_tool(good: MutantSource) -> Changed:
    name = good.contract["name"]
    if len(split_identifier(name)) < 2:
        return f"Use the {name} tool: {good.text}", good.call
    forms = [f"Use the {name} tool. {good.text}", f"Call {name}: {good.text}"]
    return good.rng.choice(forms), good.call


def _add_meta_talk(good: MutantSource) -> Changed:
    turns = (
        "Sure! Here is a request for that: {t}",
        "The user wants the following: {t} The arguments should be set accordingly.",
        "I'm sorry, but I can't do that without more information.",
        "As an AI language model, I would suggest: {t}",
        "{t} Let me know if you need anything else!",
    )
    return good.rng.choice(turns).replace("{t}", good.text), good.call


def _copy_description(good: MutantSource) -> Changed:
    described = str(good.contract.get("description") or "").strip()
    first = re.split(r"(?<=[.!?])\s|\n", described)[0]
    if len(first.split()) < 7:
        return None
    values = ", ".join(str(v) for v in good.call.values() if isinstance(v, (str, int, float)))
    return f"{first.rstrip('.')}: {values}" if values else first, good.call


def _repeat_words(good: MutantSource) -> Changed:
    words = good.text.split()
    if len(words) < 6:
        return None
    verb = read_purpose(good.contract).verb
    return " ".join([*words[:3], *words[:3], verb, verb, *words[3:]]), good.call


_MUTATIONS: dict[str, Callable[[MutantSource], Changed]] = {
    "missing_required_argument": partial(_break_call, "missing_required"),
    "unknown_argument": partial(_break_call, "unknown_argument"),
    "wrong_type": partial(_break_call, "wrong_type"),
    "ungrounded_value": _invent_value,
    "missing_required_value": _drop_value,
    "names_the_tool": _name_tool,
    "not_an_instruction": _add_meta_talk,
    "copies_description": _copy_description,
    "unrealistic": _repeat_words,
}
# All that the corpus of labelled flaws knows; the last three only sense can tell.
FLAWS = (*_MUTATIONS, "wrong_tool")


def _find_other_tool(
    row: Pair, contracts: Mapping[str, Contract], rng: random.Random
) -> str | None:
    """The digest of another tool that would take the same arguments, or None. One tool more or less
    leaves the order of the others as it is."""
    call, token = json.loads(row["arguments"]), rng.random()
    others = [contract for contract in contracts if contract != row["contract_digest"]]
    others.sort(key=lambda name: sha256(f"{token}:{name}".encode()))
    for digest in others[:40]:
        # Its schema refuses nearly all: the other rules are asked of the rest alone.
        if any(find_call_flaws(contracts[digest], call)):
            continue
        if verify(contracts[digest], row["instruction"], call).verdict != "reject":
            return digest
    return None


Contracts = Mapping[str, JsonObject]
GOOD = "good"  # written and read by a person: refusing one is a false alarm
OF_THE_RUN = "of_the_run"  # accepted by the rules in this run: presumed good, and counted apart


@dataclass(frozen=True)
class TrialCase:
    """One row of the trial and its flaw, GOOD or OF_THE_RUN. by_rules: the rules' verdict if
    fixed."""

    kind: str
    row: Pair
    by_rules: str = ""


@cache
def read_known_good() -> tuple[tuple[Pair, ...], dict[str, dict[str, Json]]]:
    """The known-good rows as rows of PAIRS, and their contracts by digest."""
    document = json.loads(Path(__file__).with_name("known_good.json").read_text(encoding="utf-8"))
    contracts: dict[str, dict[str, Json]] = {}
    digests: dict[tuple[str, str], str] = {}
    for entry in document["tools"]:
        contract = canonical(entry["contract"])
        digest = contract_digest(entry["contract"])
        contracts[digest] = contract
        digests[entry["server_id"], contract["name"]] = digest
    rows = [_make_row(entry, digests) for entry in document["rows"]]
    return tuple(rows), contracts


def _make_row(facts: JsonObject, digests: Mapping[tuple[str, str], str]) -> Pair:
    server, tool = facts["server_id"], facts["tool"]
    digest = digests[server, tool]
    offered = sorted(name for (of, _), name in digests.items() if of == server)
    call = GoldenCall(server, tool, digest, facts["arguments"])
    row = make_single_row(call, facts["instruction"], offered) | {
        "marketplace": "known_good",
        "plan_digest": "known_good",
        "index": 0,
        "kind": facts["kind"],
        "profile": dump_text({"language": facts["language"]}),
        "contracts": dump_text(offered),
    }
    row = rewrite_row(row, facts["instruction"], facts["arguments"])
    return {**row, "pair_id": make_pair_id(row), "_mutants": facts["mutants"]}


def make_cases(
    written: Iterable[Pair], contracts: Contracts, *, seed: int, good: int
) -> tuple[list[TrialCase], dict[str, JsonObject]]:
    """Every case of one trial, and its contracts; the same for the same seed. written: rows of
    PAIRS, of which up to `good` that the rules accepted are drawn. Each row is drawn and mutated by
    itself, so that a changed row leaves what was paid for the others."""
    cases = [*_make_known_cases(seed)]
    candidates = [
        row
        for row in written
        if row["task"] in ONE_CALL
        and row["verdict"] == "accept"
        and reaches_judge(row)
        and row["contract_digest"] in contracts
    ]
    candidates.sort(key=lambda row: sha256(f"{seed}:{row['pair_id']}".encode()))
    for row in candidates[:good]:
        cases.append(TrialCase(OF_THE_RUN, row))
        cases += _make_mechanical(row, contracts, seed, without=set())
    return cases, {**contracts, **read_known_good()[1]}


@lru_cache(maxsize=4)
def _make_known_cases(seed: int) -> tuple[TrialCase, ...]:
    rows, known_contracts = read_known_good()
    cases: list[TrialCase] = []
    for row in rows:
        by_sense = row["_mutants"]
        plain = {name: value for name, value in row.items() if name != "_mutants"}
        cases.append(TrialCase(GOOD, plain))
        cases += _make_mechanical(plain, known_contracts, seed, without=set(by_sense))
        arguments = json.loads(row["arguments"])
        cases += [
            TrialCase(kind, rewrite_row(plain, text, arguments)) for kind, text in by_sense.items()
        ]
    return tuple(
        replace(case, by_rules=verify_row(case.row, known_contracts).verdict) for case in cases
    )


def _make_mechanical(
    row: Pair, contracts: Contracts, seed: int, without: set[str]
) -> Sequence[TrialCase]:
    rng = random.Random(f"{seed}:{row['pair_id']}")
    mutants = make_mutants(row, contracts[row["contract_digest"]], contracts, rng)
    return [
        TrialCase(mutant["flaw"], mutant["pair"])
        for mutant in mutants
        if mutant["flaw"] not in without
    ]
