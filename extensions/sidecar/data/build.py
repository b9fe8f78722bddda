"""Rows of the sidecar's data out of placed calls: corrupted, drifted, refused, asked for, left."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from assets.contracts.rename_history import ContractHistory, ContractMove
from assets.synthesis.tables import TRAJECTORY
from extensions.sidecar.data.calls import PlacedCall
from extensions.sidecar.data.climb import judge_report, try_ladder
from extensions.sidecar.flaws.drafts import FlawedDraft
from extensions.sidecar.flaws.flaws import make_flawed
from extensions.sidecar.flaws.kinds import WEIGHTS
from extensions.sidecar.rows import LEFT, RIGHT, UNTOUCHED, RevisionRow, assign_row_id
from serving.repair.revision import write_problem
from serving.repair.tools import ToolCandidate, Toolset

TO_ASK, REFUSED = "value to ask for", "refused"
_DRAFTS = 4  # flawed drafts of a call
_TRIES = 16
_UNTOUCHED = 0.25  # of the calls are there as they are, too
# Of what is learned and measured: mainly what the ladder leaves, or gets wrong.
_SHARES = {LEFT: 0.55, RIGHT: 0.2, UNTOUCHED: 0.15, TO_ASK: 0.1}


@dataclass(frozen=True)
class Known:
    """What is known beside the calls. worlds: pair -> the task of a world that it is. kinds: of
    flaws that are made."""

    moves: Sequence[ContractMove] = ()
    worlds: Mapping[str, str] = field(default_factory=dict)
    kinds: Collection[str] = tuple(WEIGHTS)


@dataclass(frozen=True)
class Drafted:
    """A draft of a placed call. problems: a server's words, where it was sent; () else."""

    call: PlacedCall
    name: str
    arguments: Any
    kind: str
    source: str
    problems: tuple[str, ...] = ()


def build_rows(calls: Iterable[PlacedCall], known: Known, seed: int = 0) -> list[RevisionRow]:
    """Every row of the calls, each once, in their order. The same calls give the same rows."""
    history = ContractHistory(tuple(known.moves))
    found = [
        make_row(draft, known, history)
        for at, call in enumerate(calls)
        for draft in _list_drafts(call, known, Random(f"{seed}|{call.row['pair_id']}|{at}"))
    ]
    return list({row.row_id: row for row in found}.values())


def make_row(draft: Drafted, known: Known, history: ContractHistory) -> RevisionRow:
    """The row of a draft: as the ladder asks a model, with what the ladder alone makes of it."""
    call, good = draft.call, draft.call.good
    toolset = Toolset(tuple(ToolCandidate(tool["name"], tool) for tool in call.tools))
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
    """At most `most` rows, in an order that says nothing: as many of each sort as _SHARES has,
    what one lacks from the others. Sorts: what the ladder does not get right, what it does, calls
    that were right before, questions."""
    sorts: dict[str, list[RevisionRow]] = {name: [] for name in _SHARES}
    for row in sorted(rows, key=lambda row: row.row_id):
        sorts[_sort_row(row)].append(row)
    total = min(most, len(rows))
    if sorts[LEFT]:
        total = min(total, round(len(sorts[LEFT]) / _SHARES[LEFT]))
    taken = [row for name, share in _SHARES.items() for row in sorts[name][: round(share * total)]]
    spare = [row for name, share in _SHARES.items() for row in sorts[name][round(share * total) :]]
    chosen = [*taken, *spare][:total]
    return sorted(chosen, key=lambda row: row.row_id)


def _sort_row(row: RevisionRow) -> str:
    if not row.right:
        return TO_ASK
    if row.kind == UNTOUCHED:
        return UNTOUCHED
    return RIGHT if row.ladder == RIGHT else LEFT


def _list_drafts(call: PlacedCall, known: Known, draw: Random) -> Iterator[Drafted]:
    good = call.good
    if call.refused is not None:
        real = call.row["task"] == TRAJECTORY
        made = call.refused.name, call.refused.arguments, REFUSED
        yield Drafted(call, *made, "execution" if real else "corrupted", (call.refused.error,))
    if call.question:
        yield Drafted(call, good.name, dict(good.arguments), TO_ASK, "corrupted")
        return
    if draw.random() < _UNTOUCHED:
        yield Drafted(call, good.name, dict(good.arguments), UNTOUCHED, UNTOUCHED)
    for one in _damage_call(call, known.kinds, draw):
        yield Drafted(call, one.name, one.arguments, one.kind, "corrupted")
    for move in known.moves:
        if (move.server_id, move.tool) == (good.server, good.name):
            yield _write_as_before(call, move)


def _damage_call(call: PlacedCall, kinds: Collection[str], draw: Random) -> Iterator[FlawedDraft]:
    """Some drafts of different kinds, the more frequent kinds more often."""
    left = {kind: WEIGHTS[kind] for kind in WEIGHTS if kind in kinds}
    made = 0
    for _ in range(_TRIES):
        if made == _DRAFTS or not left:
            return
        [kind] = draw.choices(list(left), list(left.values()))
        del left[kind]
        one = make_flawed(call.good, kind, draw)
        if one is not None and (one.name, one.arguments) != (call.good.name, call.good.arguments):
            made += 1
            yield one


def _write_as_before(call: PlacedCall, move: ContractMove) -> Drafted:
    """The call under the names of before a change of its contract."""
    old = {new: was for was, new in move.renamed.items()}
    arguments = {old.get(name, name): value for name, value in call.good.arguments.items()}
    kind = "parameter renamed since" if move.was == move.tool else "tool renamed since"
    return Drafted(call, move.was, arguments, kind, "drift")
