"""The repair ladder on drafts with one flaw: what each rung gains, and what it harms.

    python -m benchmarks.bench_repair [--set corpus|api-bank] [--side test|train] [--seed 7]

Good calls of the corpus (written by a language model) on servers of one side of the frozen split,
or of API-Bank's dialogues, each given every flaw of `extensions.sidecar.flaws` that can be
made of it, and left untouched once. Ten tools are offered: the right one, those of its server and
others.
Arms: the draft as it is; json-repair alone; the ladder with the contract alone, with history, with
the conversation too. The ladder was repaired on the side `train`.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import json_repair
import numpy as np

from assets.contracts.canonical import ContractError, canonicalize_contract
from assets.contracts.match.match import match_call
from assets.contracts.rename_history import ContractHistory
from assets.contracts.validate import validate_call
from benchmarks.shared_data import SHARED, read_corpus, require_paths
from extensions.bench.api_bank import APIS, iterate_calls, list_dialogues, read_apis
from extensions.sidecar.flaws import FLAWS, HOPELESS, UNTOUCHED, FlawedDraft, GoodCall, make_drafts
from serving.repair.evidence import ConversationEvidence
from serving.repair.ladder import repair_drafts
from serving.repair.rungs import ABSTAINED, VALID, RepairReport
from serving.repair.tools import RepairToolset, read_toolset
from training.evaluation.metrics import MetricFigure, bootstrap_mean, measure_share
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
    contracts, _ = read_apis(folder / APIS)
    made = [
        (name, arguments, messages)
        for path in list_dialogues(folder)
        for _, messages, name, arguments in iterate_calls(path)
        if name in contracts and any(message["role"] == "user" for message in messages)
    ]
    for name, contract in contracts.items():
        given = [set(arguments) for one, arguments, _ in made if one == name]
        schema = contract["inputSchema"]
        always = set.intersection(*given) & set(schema.get("properties", {})) if given else set()
        contract["inputSchema"] = {**schema, "required": sorted(always)}
    for name, arguments, conversation in made:
        if not validate_call(contracts[name], arguments):
            good = GoodCall(name, contracts[name], arguments)
            yield AskedCall(good, conversation, [dict(contracts[name])])


OFFERED = 10  # tools of a request
LADDER = ("contract", "+ history", "+ conversation")


@dataclass(frozen=True)
class DraftCase:
    """One draft, what was meant, what is offered and what was said. stated: the conversation holds
    every required value."""

    draft: FlawedDraft
    good: GoodCall
    tools: RepairToolset
    conversation: list[dict[str, str]]
    stated: bool


@dataclass(frozen=True)
class Answer:
    """calls: (tool, arguments) of each call. intact: as the draft has it, byte for byte. rungs:
    those that changed something -> ms."""

    calls: list[tuple[str, Any]]
    abstained: bool = False
    intact: bool = True
    ms: float = 0.0
    rungs: dict[str, float] = field(default_factory=dict)


Arm = Callable[[DraftCase], Answer]


def list_asked(calls: Sequence[AskedCall], draw: Random) -> Iterator[DraftCase]:
    """Every draft of every call, ten tools offered: the right one, its server's, others'."""
    pool = [(call.good.server, call.good.contract) for call in calls]
    for call in calls:
        good, evidence = call.good, ConversationEvidence(call.conversation)
        own = [(good.server, item) for item in call.beside if item["name"] != good.name]
        more = [
            item for item in draw.sample(pool, min(len(pool), 30)) if item[1]["name"] != good.name
        ]
        listed: dict[str, Any] = {}
        for server, one in ((good.server, good.contract), *own[: OFFERED // 2], *more):
            listed.setdefault(one["name"], {**one, "server": server})
        tools = read_toolset(list(listed.values())[:OFFERED])
        stated = all(
            evidence.states(good.arguments[name], good.declared.get(name, {}), name)
            for name in good.root.get("required") or ()
            if name in good.arguments
        )
        for draft in make_drafts(good, draw):
            yield DraftCase(draft, good, tools, call.conversation, stated)


def build_arms(asked: Sequence[DraftCase]) -> dict[str, Arm]:
    """Name -> arm. History: of all drafts together, those of other servers too."""
    history = ContractHistory(tuple(item.draft.move for item in asked if item.draft.move))
    ladder = (_climb_with(None, False), _climb_with(history, False), _climb_with(history, True))
    return {
        "draft": _take_draft,
        "json-repair": _take_repaired_json,
        **dict(zip(LADDER, ladder, strict=True)),
    }


def _take_draft(asked: DraftCase) -> Answer:
    """The draft as it is, read as a strict client reads it."""
    value = asked.draft.arguments
    if isinstance(value, str):
        try:
            value = json.loads(value, parse_constant=_refuse_constant)
        except ValueError:
            value = None
    return Answer([(asked.draft.name, value)])


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _take_repaired_json(asked: DraftCase) -> Answer:
    """What json-repair makes of the arguments' text, and nothing else."""
    given, began = asked.draft.arguments, time.perf_counter()
    value = json_repair.loads(given) if isinstance(given, str) else given
    ms = (time.perf_counter() - began) * 1000
    return Answer([(asked.draft.name, value)], ms=ms)


def _climb_with(history: ContractHistory | None, shown: bool) -> Arm:
    def climb_ladder(asked: DraftCase) -> Answer:
        draft = {"name": asked.draft.name, "arguments": asked.draft.arguments}
        conversation, began = asked.conversation if shown else (), time.perf_counter()
        found = repair_drafts(draft, asked.tools, conversation=conversation, history=history)
        return _read_reports(asked, found, (time.perf_counter() - began) * 1000)

    return climb_ladder


def _read_reports(asked: DraftCase, found: Sequence[RepairReport], ms: float) -> Answer:
    given = asked.draft.arguments
    [first], rest = found[:1], found[1:]
    same = not isinstance(given, str) or first.text == given
    intact = first.outcome == VALID and not rest and same
    left = any(item.outcome == ABSTAINED for item in found)
    calls = [] if left else [(item.name, json.loads(item.text)) for item in found]
    rungs = {step.rung: step.ms for item in found for step in item.rungs if step.what}
    return Answer(calls, left, intact, ms, rungs)


@dataclass(frozen=True)
class Judged:
    """An answer, judged; an abstained one is neither valid nor right. invented: a required value
    that is not the one meant and that neither draft nor conversation holds."""

    answer: Answer
    valid: bool
    right: bool
    invented: bool

    @property
    def wrong(self) -> bool:
        return self.valid and not self.right

    @property
    def left(self) -> bool:
        return self.answer.abstained


def judge_answer(asked: DraftCase, answer: Answer) -> Judged:
    """valid: every call fits the tool it names, one of those offered. right: they are those meant,
    in number and order, by `match_call`."""
    if answer.abstained:
        return Judged(answer, False, False, False)
    named = {candidate.name: candidate.contract for candidate in asked.tools.candidates}
    valid = all(name in named and not validate_call(named[name], v) for name, v in answer.calls)
    meant = asked.draft.meant
    right = valid and len(answer.calls) == len(meant)
    right = right and all(
        _is_meant(asked, one, call) for one, call in zip(meant, answer.calls, strict=True)
    )
    invented = valid and not right and any(_is_invented(asked, one) for _, one in answer.calls)
    return Judged(answer, valid, right, invented)


def _is_meant(asked: DraftCase, meant: Any, call: tuple[str, Any]) -> bool:
    expected = {"name": asked.good.name, "arguments": meant}
    return match_call(asked.good.root, expected, {"name": call[0], "arguments": call[1]}).match


def _is_invented(asked: DraftCase, given: dict[str, Any]) -> bool:
    sent = asked.draft.arguments
    text = sent if isinstance(sent, str) else json.dumps(sent, ensure_ascii=False)
    text, evidence = text.replace("\\", ""), ConversationEvidence(asked.conversation)
    return any(
        name in given
        and all(given[name] != meant.get(name) for meant in asked.draft.meant)
        and any(
            str(leaf).replace("\\", "") not in text
            and not evidence.states(leaf, asked.good.declared.get(name, {}), name)
            for leaf in _list_leaves(given[name])
        )
        for name in asked.good.root.get("required") or ()
    )


def _list_leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _list_leaves(item)
    else:
        yield value


@dataclass(frozen=True)
class ArmResults:
    """Every draft, and what each arm made of it, in the same order."""

    asked: Sequence[DraftCase]
    arms: dict[str, list[Judged]]

    def pick(self, arm: str, kind: str | None = None) -> list[tuple[DraftCase, Judged]]:
        """The drafts of one kind; None: of every flaw."""
        pairs = zip(self.asked, self.arms[arm], strict=True)
        return [
            (asked, judged)
            for asked, judged in pairs
            if asked.draft.kind == kind or (kind is None and asked.draft.kind != UNTOUCHED)
        ]


def print_arms(found: ArmResults) -> None:
    """Shares of all flawed drafts, with intervals by server."""
    print("| arm | valid | right | valid and wrong | left with a reason | ms p50 / p99 |")
    print("| --- | --- | --- | --- | --- | --- |")
    for arm in found.arms:
        own = found.pick(arm)
        ms = np.percentile([one.answer.ms for _, one in own], (50, 99))
        shares = (
            _measure_by_server((asked, getattr(one, name)) for asked, one in own)
            for name in ("valid", "right", "wrong", "left")
        )
        cells = " | ".join(f"{share:}" for share in shares)
        print(f"| {arm} | {cells} | {ms[0]:.2f} / {ms[1]:.2f} |")


def print_targets(found: ArmResults) -> None:
    """What the ladder must not do, and how often it asks."""
    coerced, last = found.pick("contract"), found.pick("+ conversation")
    before = found.arms["draft"]
    untouched = [one for _, one in found.pick("+ conversation", UNTOUCHED)]
    both = list(zip(before, found.arms["+ conversation"], strict=True))
    harmed = sum(old.right and not new.right for old, new in both)
    spoilt = sum(old.valid and not new.valid for old, new in both)
    held = [(asked, one.left) for asked, one in last if asked.stated]
    able = [(asked, left) for asked, left in held if asked.draft.kind not in HOPELESS]
    kind = "required value missing"
    missing = [(asked, left) for asked, left in held if asked.draft.kind == kind]
    sure = _measure_by_server((asked, one.valid or one.left) for asked, one in coerced)
    lost = sum(not item.answer.intact for item in untouched)
    print(f"\nvalid or left with a reason, contract alone: {sure} (n = {sure.n:,})")
    print(f"untouched calls not byte for byte the same: {_show_count(lost, len(untouched))}")
    print(f"right before, not after: {harmed} of {sum(item.right for item in before)}")
    print(f"valid before, not after: {spoilt} of {sum(item.valid for item in before)}")
    invented = sum(one.invented for _, one in last)
    print(f"required values invented: {_show_count(invented, len(last))}")
    for name, pairs in (
        ("every flaw", held),
        (f"without `{HOPELESS[0]}`", able),
        (f"`{kind}` alone", missing),
    ):
        share = _measure_by_server(pairs)
        print(f"left though the conversation holds all, {name}: {share} (n = {share.n:,})")


def print_kinds(found: ArmResults) -> None:
    """Each kind of flaw, before and after the whole ladder."""
    print("\n| flaw | n | valid before | right before | valid | right | wrong | left |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for kind in (UNTOUCHED, *FLAWS):
        before = [one for _, one in found.pick("draft", kind)]
        after = [one for _, one in found.pick("+ conversation", kind)]
        counts = [sum(getattr(item, name) for item in before) for name in ("valid", "right")]
        names = ("valid", "right", "wrong", "left")
        counts += [sum(getattr(item, name) for item in after) for name in names]
        print(f"| {kind} | {len(after)} | {' | '.join(map(str, counts))} |")


def _measure_by_server(pairs: Iterable[tuple[DraftCase, bool]]) -> MetricFigure:
    """A share with an interval that draws whole servers; Wilson's where all are alike."""
    own = list(pairs)
    hits = sum(held for _, held in own)
    if hits in (0, len(own)):
        return measure_share(hits, len(own))
    return bootstrap_mean([float(held) for _, held in own], [asked.good.server for asked, _ in own])


def _show_count(hits: int, n: int) -> str:
    return f"{hits} of {n:,}, {measure_share(hits, n):}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--set", choices=("corpus", "api-bank"), default="corpus")
    parser.add_argument("--side", choices=("test", "train"), default="test")
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    require_paths(SHARED / "corpus", SHARED / "smithery" / "servers.jsonl", SHARED / "api-bank")
    calls = read_calls(args.set, args.side)
    asked = list(list_asked(calls, Random(args.seed)))
    arms = build_arms(asked)
    found = ArmResults(asked, {arm: [judge_answer(item, run(item)) for item in asked]
                          for arm, run in arms.items()})  # fmt: skip
    servers = {item.good.server for item in asked}
    print(f"{len(asked):,} drafts of {len(calls):,} calls, {len(servers)} servers\n")
    for show in (print_arms, print_targets, print_kinds):
        show(found)


if __name__ == "__main__":
    main()
