"""What the ladder alone makes of a draft, and what it would ask a model: the very request that a
row is of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assets.contracts.match.match import match_call
from assets.contracts.rename_history import ContractHistory
from assets.contracts.repair.problems import find_problems
from extensions.sidecar.rows import LEFT, RIGHT, WRONG
from extensions.sidecar.select import rank_candidates
from serving.repair.ladder import repair_draft
from serving.repair.report import ABSTAINED, RepairReport
from serving.repair.revision import RevisionRequest
from serving.repair.tools import Toolset

Call = Mapping[str, Any]


@dataclass(frozen=True)
class Climbed:
    """report: of the ladder alone. request: as it asks a model; where it does not, of the draft as
    it was sent. asks: whether it does."""

    report: RepairReport
    request: RevisionRequest
    asks: bool


def try_ladder(
    name: str,
    arguments: Any,
    tools: Toolset,
    conversation: Sequence[Mapping[str, Any]],
    history: ContractHistory | None = None,
) -> Climbed:
    """Climbs with a model that keeps what it is asked and leaves the draft."""
    asked: list[RevisionRequest] = []

    def keep_request(request: RevisionRequest) -> None:
        asked.append(request)

    draft = {"name": name, "arguments": arguments}
    given: dict[str, Any] = {"conversation": conversation, "history": history}
    report = repair_draft(draft, tools, revise=keep_request, **given)
    request = asked[0] if asked else make_draft_request(name, arguments, tools, conversation)
    return Climbed(report, rank_candidates(request), bool(asked))


def make_draft_request(
    name: str, arguments: Any, tools: Toolset, conversation: Sequence[Mapping[str, Any]]
) -> RevisionRequest:
    """What a model is asked where there is no ladder before it."""
    meant = tools.by_name.get(name, [])
    problems = find_problems(meant[0].contract, arguments) if len(meant) == 1 else []
    return RevisionRequest(conversation, tools.candidates, name, arguments, problems)


def judge_report(report: RepairReport, right: Sequence[Call], schema: Mapping[str, Any]) -> str:
    """RIGHT, WRONG, or LEFT: abstained. Where asking is right, to abstain is right. schema: of the
    right call's tool."""
    if report.outcome == ABSTAINED:
        return LEFT if right else RIGHT
    called = {"name": report.name, "arguments": report.arguments}
    return RIGHT if right and is_right(called, right[0], schema) else WRONG


def is_right(called: Call, right: Call, schema: Mapping[str, Any]) -> bool:
    """Whether a call is the one that was meant, by `match_call`."""
    return match_call(schema, right, called).match
