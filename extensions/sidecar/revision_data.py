"""The good calls of a training set, each in its conversation and among the tools on offer, and the
questions that are right in place of a call."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from assets.contracts.match.match import match_call
from assets.contracts.rename_history import ContractHistory, ContractMove
from assets.contracts.repair.problems import find_problems
from assets.synthesis.tables import TRAJECTORY
from extensions.sidecar.flaws import WEIGHTS, FlawedDraft, GoodCall, make_flawed
from extensions.sidecar.prompt import (
    LEFT,
    RIGHT,
    UNTOUCHED,
    WRONG,
    RevisionRow,
    assign_row_id,
    rank_candidates,
)
from serving.repair.evidence import ConversationEvidence
from serving.repair.ladder import repair_draft
from serving.repair.rungs import ABSTAINED, RepairReport
from serving.repair.tools import RepairToolset, RevisionRequest, ToolCandidate, write_problem
from training.prompts.render import (
    ChatTurn,
    is_learnt,
    list_turns,
    read_calls,
    read_json_list,
    read_message_calls,
    read_messages,
)
from training.sets.pool import BadOffer, ToolPool, draw_candidates, select_split_pool
from warehouse.json_types import Contract, Row

Messages = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class RefusedCall:
    name: str
    arguments: Any
    error: str


@dataclass(frozen=True)
class PlacedCall:
    """A call in its place. conversation: before it and a refused call. tools: on offer, its own
    among them. question: asked in its place; the call then holds what is said so far."""

    row: Row
    good: GoodCall
    conversation: Messages
    tools: tuple[Contract, ...]
    refused: RefusedCall | None = None
    question: str = ""


def place_calls(
    rows: Sequence[Row], entries: Mapping[str, Mapping[str, Any]], *, candidates: int
) -> list[PlacedCall]:
    """The calls of training-set rows of one split, in their order. entries: of the set's pool."""
    if not rows:
        return []
    pool = select_split_pool(entries, rows[0]["split"])
    found = [item for row in rows for item in _place_row(row, pool, candidates)]
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for one in found:
        if not one.question:
            groups[one.good.server, one.good.name].append(one.good.arguments)
    return [_add_sibling(item, groups[item.good.server, item.good.name]) for item in found]


def _place_row(row: Row, pool: ToolPool, candidates: int) -> Iterator[PlacedCall]:
    try:
        tools = tuple(draw_candidates(row, pool, candidates))
    except BadOffer:  # its tool may not be shown on this side of the split
        return
    digests = {call["name"]: call["contract_digest"] for call in read_json_list(row["calls"])}
    digests.setdefault(row["tool"], row["contract_digest"])
    for turn in list_turns(row):
        name = turn.calls[0]["name"] if turn.calls else row["tool"]
        if digests.get(name) not in pool or not (len(turn.calls) == 1 or turn.asks):
            continue
        contract, server = pool[digests[name]], pool.get_server(digests[name])
        conversation, refused, words = _read_around(row, turn)
        arguments = turn.calls[0]["arguments"] if turn.calls else _list_stated(row, conversation)
        beside = tuple(tool["name"] for tool in tools if tool["name"] != name)
        good = GoodCall(server or row["server_id"], contract, arguments, beside=beside)
        yield PlacedCall(row, good, conversation, tools, refused, words if turn.asks else "")


def _read_around(row: Row, turn: ChatTurn) -> tuple[Messages, RefusedCall | None, str]:
    """(the conversation before a turn, the refused call that it ended with, the turn's words)."""
    spoken, at = read_messages(row), len(turn.before)
    if not spoken:
        return ({"role": "user", "content": row["instruction"]},), None, ""
    before = tuple({k: v for k, v in item.items() if k != "weight"} for item in spoken[:at])
    words = str(spoken[at].get("content") or "")
    wrong = spoken[at - 2] if at > 1 and spoken[at - 1]["role"] == "tool" else None
    if wrong is None or wrong["role"] != "assistant" or is_learnt(wrong):
        return before, None, words
    [call, *_] = read_message_calls(wrong)
    error = str(spoken[at - 1].get("content") or "")
    return before[:-2], RefusedCall(call["name"], call["arguments"], error), words


def _list_stated(row: Row, conversation: Messages) -> dict[str, Any]:
    """The arguments of the call that follows in the end, as far as they are said by now."""
    evidence = ConversationEvidence(conversation)
    calls = [call for call in read_calls(row) if call["name"] == row["tool"]][:1]
    given = [pair for call in calls for pair in call["arguments"].items()]
    return {name: value for name, value in given if evidence.states(value, {}, name)}


def _add_sibling(one: PlacedCall, group: Sequence[Mapping[str, Any]]) -> PlacedCall:
    own = one.good.arguments
    after = group[(group.index(own) + 1) % len(group)] if own in group else own
    return one if after == own else replace(one, good=replace(one.good, sibling=after))


Call = Mapping[str, Any]


@dataclass(frozen=True)
class LadderOutcome:
    """report: of the ladder alone. request: what a model is asked. asks: whether it is."""

    report: RepairReport
    request: RevisionRequest
    asks: bool


def try_ladder(
    name: str,
    arguments: Any,
    tools: RepairToolset,
    conversation: Sequence[Mapping[str, Any]],
    history: ContractHistory | None = None,
) -> LadderOutcome:
    """Climbs with a model that keeps what it is asked and leaves the draft."""
    asked: list[RevisionRequest] = []

    def keep_request(request: RevisionRequest) -> None:
        asked.append(request)

    draft = {"name": name, "arguments": arguments}
    given: dict[str, Any] = {"conversation": conversation, "history": history}
    report = repair_draft(draft, tools, revise=keep_request, **given)
    request = asked[0] if asked else make_draft_request(name, arguments, tools, conversation)
    return LadderOutcome(report, rank_candidates(request), bool(asked))


def make_draft_request(
    name: str, arguments: Any, tools: RepairToolset, conversation: Sequence[Mapping[str, Any]]
) -> RevisionRequest:
    meant = tools.by_name.get(name, [])
    problems = find_problems(meant[0].contract, arguments) if len(meant) == 1 else []
    return RevisionRequest(conversation, tools.candidates, name, arguments, problems)


def judge_report(report: RepairReport, right: Sequence[Call], schema: Mapping[str, Any]) -> str:
    """RIGHT, WRONG, or LEFT: abstained, which is right where asking is. schema: of the tool."""
    if report.outcome == ABSTAINED:
        return LEFT if right else RIGHT
    called = {"name": report.name, "arguments": report.arguments}
    return RIGHT if right and is_right(called, right[0], schema) else WRONG


def is_right(called: Call, right: Call, schema: Mapping[str, Any]) -> bool:
    return match_call(schema, right, called).match


TO_ASK, REFUSED = "value to ask for", "refused"
_DRAFTS = 4  # flawed drafts of a call
_TRIES = 16
_UNTOUCHED = 0.25  # of the calls are there as they are, too
# Of what is learned and measured: mainly what the ladder leaves, or gets wrong.
_SHARES = {LEFT: 0.55, RIGHT: 0.2, UNTOUCHED: 0.15, TO_ASK: 0.1}


@dataclass(frozen=True)
class KnownContracts:
    """worlds: pair -> the task of a world that it is. kinds: of flaws that are made."""

    moves: Sequence[ContractMove] = ()
    worlds: Mapping[str, str] = field(default_factory=dict)
    kinds: Collection[str] = tuple(WEIGHTS)


@dataclass(frozen=True)
class DraftedCall:
    """A draft of a placed call. problems: a server's words, where it was sent; () else."""

    call: PlacedCall
    name: str
    arguments: Any
    kind: str
    source: str
    problems: tuple[str, ...] = ()


def build_rows(calls: Iterable[PlacedCall], known: KnownContracts) -> list[RevisionRow]:
    """Every row of the calls, each once, in their order. The same calls give the same rows."""
    history = ContractHistory(tuple(known.moves))
    found = [
        make_row(draft, known, history)
        for at, call in enumerate(calls)
        for draft in _list_drafts(call, known, Random(f"0|{call.row['pair_id']}|{at}"))
    ]
    return list({row.row_id: row for row in found}.values())


def make_row(draft: DraftedCall, known: KnownContracts, history: ContractHistory) -> RevisionRow:
    """The row of a draft: as the ladder asks a model, with what the ladder alone makes of it."""
    call, good = draft.call, draft.call.good
    toolset = RepairToolset(tuple(ToolCandidate(tool["name"], tool) for tool in call.tools))
    climbed = try_ladder(draft.name, draft.arguments, toolset, call.conversation, history)
    right = [] if call.question else [{"name": good.name, "arguments": dict(good.arguments)}]
    request = climbed.request
    return assign_row_id(
        RevisionRow(
            row_id="",
            split=call.row["split"],
            server_id=good.server,
            conversation=call.conversation,
            contracts=tuple(candidate.contract for candidate in request.candidates),
            draft_name=request.name,
            draft_arguments=request.arguments,
            problems=draft.problems or tuple(map(write_problem, request.problems)),
            right=tuple(right),
            question=call.question,
            kind=draft.kind,
            source=draft.source,
            world=known.worlds.get(call.row["pair_id"], ""),
            ladder=judge_report(climbed.report, right, good.root),
        )
    )


def choose_rows(rows: Sequence[RevisionRow], most: int) -> list[RevisionRow]:
    """At most `most` rows in random order, of each sort its share of _SHARES, gaps filled from
    others. Sorts: what the ladder gets wrong, right, calls right before, questions."""
    sorts: dict[str, list[RevisionRow]] = {name: [] for name in _SHARES}
    for row in sorted(rows, key=lambda row: row.row_id):
        sorts[_sort_row(row)].append(row)
    total = min(most, len(rows))
    if sorts[LEFT]:
        total = min(total, round(len(sorts[LEFT]) / _SHARES[LEFT]))
    taken = [row for name, share in _SHARES.items() for row in sorts[name][: round(share * total)]]
    spare = [row for name, share in _SHARES.items() for row in sorts[name][round(share * total) :]]
    return sorted([*taken, *spare][:total], key=lambda row: row.row_id)


def _sort_row(row: RevisionRow) -> str:
    if not row.right:
        return TO_ASK
    if row.kind == UNTOUCHED:
        return UNTOUCHED
    return RIGHT if row.ladder == RIGHT else LEFT


def _list_drafts(call: PlacedCall, known: KnownContracts, draw: Random) -> Iterator[DraftedCall]:
    good = call.good
    if call.refused is not None:
        real = call.row["task"] == TRAJECTORY
        made = call.refused.name, call.refused.arguments, REFUSED
        yield DraftedCall(call, *made, "execution" if real else "corrupted", (call.refused.error,))
    if call.question:
        yield DraftedCall(call, good.name, dict(good.arguments), TO_ASK, "corrupted")
        return
    if draw.random() < _UNTOUCHED:
        yield DraftedCall(call, good.name, dict(good.arguments), UNTOUCHED, UNTOUCHED)
    for item in _damage_call(call, known.kinds, draw):
        yield DraftedCall(call, item.name, item.arguments, item.kind, "corrupted")
    for move in known.moves:
        if (move.server_id, move.tool) == (good.server, good.name):
            # The call under the names of before a change of its contract
            old = {new: was for was, new in move.renamed.items()}
            arguments = {old.get(name, name): value for name, value in call.good.arguments.items()}
            kind = "parameter renamed since" if move.was == move.tool else "tool renamed since"
            yield DraftedCall(call, move.was, arguments, kind, "drift")


def _damage_call(call: PlacedCall, kinds: Collection[str], draw: Random) -> Iterator[FlawedDraft]:
    left = {kind: WEIGHTS[kind] for kind in WEIGHTS if kind in kinds}
    made = 0
    for _ in range(_TRIES):
        if made == _DRAFTS or not left:
            return
        [kind] = draw.choices(list(left), list(left.values()))
        del left[kind]
        flawed = make_flawed(call.good, kind, draw)
        if flawed is not None and (flawed.name, flawed.arguments) != (
            call.good.name,
            call.good.arguments,
        ):
            made += 1
            yield flawed
