"""What one completion is worth as the revision of a row's draft.

| part | 1 where |
| --- | --- |
| parsed | a plain JSON reader takes it (`fixed` where our fixer was needed) |
| tool | it calls the right tool; 0.5: another of those that were shown |
| schema | its arguments fit; 1 / (1 + flaws) |
| values | they are the right ones: mean of the F1 of names and of values, by `match_call` |
| grounded | no required value is invented: neither conversation, draft nor contract holds it |
| kept | what was right in the draft is as it was; of an untouched draft: everything |
| executed | the replayed world that the row names answers it with something useful |

The fixer comes before every rule, so that nothing is won by how a text is written.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assets.contracts.match.match import MatchResult, compute_f1, match_call
from assets.contracts.validate import validate_call
from extensions.sidecar.rewards.reading import ReadAnswer, read_answer
from extensions.sidecar.rewards.weights import PARTS, WEIGHTS, RewardWeights
from extensions.sidecar.rewards.world import ScoreCall
from extensions.sidecar.rows import UNTOUCHED, RevisionRow
from serving.repair.drafts import parse_arguments
from serving.repair.evidence import ConversationEvidence, list_invented
from warehouse.sanitize.untrusted_text import fold_words

# Verdicts. Copied: a flawed draft came back as it was. Harmful: it would be sent, and does
# something else. Wrong: anything else that is no right answer. Unread: neither call nor question.
RIGHT, COPIED, HARMFUL, WRONG, ASKED, UNREAD = (
    *("right", "copied", "harmful", "wrong", "asked", "unread"),
)
_MATCHED = ("match", "default")


@dataclass(frozen=True)
class RevisionScore:
    """total: 0 to 1. verdict: one of those above. parts: those that could be measured, by name;
    `asked` where asking is right."""

    total: float
    verdict: str
    parts: dict[str, float] = field(default_factory=dict)


def score_revision(
    row: RevisionRow,
    completion: str,
    weights: RewardWeights = WEIGHTS,
    world: ScoreCall | None = None,
) -> RevisionScore:
    """Scores a completion. Deterministic, and bounded for whatever the text is; never raises."""
    read = read_answer(completion, row.contracts)
    if read.question:
        return _score_question(row, read.question, weights)
    if read.name is None:
        return RevisionScore(0.0, UNREAD, {"parsed": 0.0})
    call = {"name": read.name, "arguments": read.arguments}
    if not row.right:
        return _score_unwanted(row, call, weights)
    scored = [_Scored(row, wanted, call, read) for wanted in row.right]
    best = max(scored, key=lambda one: (one.is_right, one.match.value_f1))
    return best.weigh(weights, world)


def _score_question(row: RevisionRow, question: str, weights: RewardWeights) -> RevisionScore:
    if row.right:
        return RevisionScore(weights.asked_in_vain, ASKED)
    asked, wanted = set(fold_words(question)), set(fold_words(row.question))
    shared = len(asked & wanted)
    likeness = compute_f1((shared, len(wanted) - shared, len(asked) - shared))
    total = weights.asked + (1 - weights.asked) * likeness
    return RevisionScore(round(total, 6), RIGHT, {"asked": round(total, 6)})


def _score_unwanted(
    row: RevisionRow, call: Mapping[str, Any], weights: RewardWeights
) -> RevisionScore:
    """A call where asking is right."""
    contract = _find_contract(row, call["name"])
    if contract is not None and not validate_call(contract, call["arguments"]):
        return RevisionScore(0.0, HARMFUL, {"asked": 0.0})
    verdict = COPIED if _is_same(call, read_draft(row)) else WRONG
    return RevisionScore(weights.called_in_vain, verdict, {"asked": 0.0})


class _Scored:
    """One call, held against one right call of its row."""

    def __init__(
        self, row: RevisionRow, wanted: Mapping[str, Any], call: Mapping[str, Any], read: ReadAnswer
    ) -> None:
        self.row, self.wanted, self.call, self.read = row, wanted, call, read
        self.contract = _find_contract(row, call["name"])
        self.schema = (_find_contract(row, wanted["name"]) or {}).get("inputSchema") or {}
        self.match: MatchResult = match_call(self.schema, wanted, call)
        self.draft = read_draft(row)
        found = validate_call(self.contract, call["arguments"]) if self.contract else []
        self.unusable = self.contract is None or any(one.kind == "bad_schema" for one in found)
        self.flaws = None if self.contract is None else len(found)
        exact = _is_same(call, wanted)
        self.is_right = exact or (self.match.match and not self.flaws)
        self.is_copy = not self.is_right and _is_same(call, self.draft)

    def weigh(self, weights: RewardWeights, world: ScoreCall | None) -> RevisionScore:
        parts = self._measure_parts(weights, world)
        whole = sum(getattr(weights, name) for name in parts)
        mean = sum(getattr(weights, name) * parts[name] for name in parts) / whole if whole else 0.0
        verdict = self._decide_verdict(parts)
        most = {RIGHT: 1.0, COPIED: weights.copy, HARMFUL: weights.harmful}
        total = mean * most.get(verdict, weights.wrong)
        rounded = {name: round(parts[name], 6) for name in PARTS if name in parts}
        return RevisionScore(round(total, 6), verdict, rounded)

    def _measure_parts(self, weights: RewardWeights, world: ScoreCall | None) -> dict[str, float]:
        match, known = self.match, self.contract is not None
        parts = {
            "parsed": 1.0 if self.read.strict else weights.fixed,
            "tool": 1.0 if match.tool or self.is_right else 0.5 * known,
            "schema": self._measure_schema(),
            "values": (match.name_f1 + match.value_f1) / 2,
            "grounded": self._measure_grounded(),
        }
        if (kept := self._measure_kept()) is not None:
            parts["kept"] = kept
        if (executed := self._measure_executed(world)) is not None:
            parts["executed"] = executed
        return parts

    def _decide_verdict(self, parts: Mapping[str, float]) -> str:
        if self.is_right:
            return RIGHT
        if self.is_copy:
            return COPIED
        turned = self.row.kind == UNTOUCHED or not self.match.tool or parts["grounded"] < 1
        fails = parts.get("executed") == 0.0
        return HARMFUL if self.flaws == 0 and (turned or fails) else WRONG

    def _measure_schema(self) -> float:
        if self.is_right:
            return 1.0
        return 0.0 if self.flaws is None else 1 / (1 + self.flaws)

    def _measure_grounded(self) -> float:
        """The share of the required arguments that are given and not invented; a right value is
        not."""
        arguments = self.call["arguments"]
        if self.is_right:
            return 1.0
        if self.contract is None or self.unusable or not isinstance(arguments, Mapping):
            return 0.0
        root = self.contract.get("inputSchema") or {}
        required = set(root.get("required") or ())
        drafted = self.draft["arguments"] if self.draft else None
        held = drafted if isinstance(drafted, Mapping) else {}
        evidence = ConversationEvidence(self.row.conversation)
        right = {name for name, one in self.match.per_parameter.items() if one in _MATCHED}
        invented = set(list_invented(self.contract, arguments, held, evidence)) - right
        held_well = required.intersection(arguments) - invented
        return len(held_well) / len(required) if required else 1.0

    def _measure_kept(self) -> float | None:
        """None where nothing in the draft was right."""
        if self.row.kind == UNTOUCHED:
            return float(_is_same(self.call, self.draft))
        drafted = self.draft["arguments"] if self.draft else None
        before = match_call(self.schema, self.wanted, {**self.wanted, "arguments": drafted})
        good = [name for name, one in before.per_parameter.items() if one == "match"]
        if not good:
            return None
        found = self.match.per_parameter
        return sum(found.get(name) in _MATCHED for name in good) / len(good)

    def _measure_executed(self, world: ScoreCall | None) -> float | None:
        """None also where the world does not know what the right call comes to, or refuses it."""
        if not self.row.world or world is None or self.contract is None:
            return None
        right = _find_contract(self.row, self.wanted["name"])
        if right is None or world(self.row.world, right, self.wanted) != 1.0:
            return None
        return world(self.row.world, self.contract, self.call)


def read_draft(row: RevisionRow) -> dict[str, Any]:
    """The draft as a call; arguments that are text are read where they can be."""
    arguments = row.draft_arguments
    if isinstance(arguments, str):
        values = parse_arguments(arguments).values
        arguments = values[0] if len(values) == 1 else arguments
    return {"name": row.draft_name, "arguments": arguments}


def _find_contract(row: RevisionRow, name: Any) -> Mapping[str, Any] | None:
    return next((contract for contract in row.contracts if contract.get("name") == name), None)


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """The same name and arguments to the letter, the order of members aside."""
    try:
        return _write_sorted(one) == _write_sorted(other)
    except (ValueError, TypeError, RecursionError):
        return False


def _write_sorted(call: Mapping[str, Any]) -> str:
    return json.dumps({name: call[name] for name in ("name", "arguments")}, sort_keys=True)
