"""A completion, read as it will be when it is served: by the same reader, after the JSON fixer."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from assets.contracts.canonical import contract_digest
from assets.contracts.match.match import MatchResult, compute_f1, match_call
from assets.contracts.validate import validate_call
from assets.outcomes.outcome import USEFUL
from assets.outcomes.recording import ReplayRecording, make_key
from assets.outcomes.replay_environment import ReplayEnvironment
from extensions.sidecar.prompt import UNTOUCHED, RevisionRow, read_revision
from extensions.sidecar.settings import PARTS, WEIGHTS, RewardWeights
from serving.repair.drafts import DEEPEST, measure_depth, parse_arguments
from serving.repair.evidence import ConversationEvidence, list_invented
from training.prompts.call_text import MAX_CHARS
from warehouse.sanitize.untrusted_text import fold_words

# One call as templates write it: JSON alone, in tags, or after a mark as [TOOL_CALLS].
_WRAPPED = re.compile(
    r"(?:<(\w{1,40})>|\[[A-Z_]{1,40}\])?\s*([\[{].*[\]}])\s*(?:</\1>)?", re.DOTALL
)
_THOUGHT = re.compile(r"\A\s*<(think\w*)>\s*</\1>\s*")
_ARGUMENTS = ("arguments", "parameters")


@dataclass(frozen=True)
class ReadAnswer:
    """name, arguments: of the call, name None where it is none. question: "" where it asks
    nothing. strict: whether the text is a call that any JSON reader takes."""

    name: str | None = None
    arguments: Any = None
    question: str = ""
    strict: bool = False


def read_answer(text: str, contracts: Iterable[Mapping[str, Any]]) -> ReadAnswer:
    """What a completion says; of a long one the first MAX_CHARS. What is nested deeper than the
    ladder takes, and what is neither call nor question, is neither. Never raises."""
    text = text[:MAX_CHARS]
    proposed = read_revision(text, contracts)
    if proposed is None:
        return ReadAnswer()
    if proposed.question:
        return ReadAnswer(question=proposed.question)
    if measure_depth(proposed.arguments) > DEEPEST:
        return ReadAnswer()
    return ReadAnswer(proposed.name, proposed.arguments, strict=_is_strict(text))


def _is_strict(text: str) -> bool:
    """One JSON object {name, arguments} (or a list of it), and nothing that is not its wrapper."""
    match = _WRAPPED.fullmatch(_THOUGHT.sub("", text).strip())
    if match is None:
        return False
    try:
        value = json.loads(match[2], parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return False
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return False
    return any(isinstance(value.get(name), dict) for name in _ARGUMENTS)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


class ScoreCall(Protocol):
    """What a call is worth in the world that a row names, 0 to 1; None where nobody knows."""

    def __call__(
        self, reference: str, contract: Mapping[str, Any], call: Mapping[str, Any]
    ) -> float | None: ...


@dataclass(frozen=True)
class WorldScorer:
    """Scores calls in the worlds of a recording by whether their answer is useful. reference: a
    task's id, or `id#n` where n of the task's own calls come before. None for a call that was never
    recorded, or by a contract that was not: nothing is made up."""

    recording: ReplayRecording

    def __call__(
        self, reference: str, contract: Mapping[str, Any], call: Mapping[str, Any]
    ) -> float | None:
        name, _, before = reference.partition("#")
        task = self.recording.tasks.get(name)
        if task is None or (before and not before.isdigit()):
            return None
        environment = ReplayEnvironment(self.recording)
        environment.reset(name)
        for earlier in task.calls[: int(before or 0)]:
            environment.step(earlier.tool, earlier.arguments, earlier.contract_digest)
        made = environment.step(str(call["name"]), call["arguments"], contract_digest(contract))
        return None if made.missed else float(made.outcome == USEFUL)


def find_worlds(recording: ReplayRecording, rows: Iterable[RevisionRow]) -> list[RevisionRow]:
    """The rows, each with the reference `id#n` of the first recorded task whose call n is its right
    call, by the same contract; "" for one whose right call no task makes."""
    places: dict[str, str] = {}
    for name, task in sorted(recording.tasks.items()):
        for at, call in enumerate(task.calls):
            places.setdefault(make_key(call.contract_digest, call.arguments, ""), f"{name}#{at}")
    places.pop("", None)  # arguments without a canonical form
    return [replace(row, world=places.get(_make_right_key(row), "")) for row in rows]


def _make_right_key(row: RevisionRow) -> str:
    for call in row.right:
        contract = next(
            (contract for contract in row.contracts if contract["name"] == call["name"]), None
        )
        if contract is not None and isinstance(call["arguments"], Mapping):
            return make_key(contract_digest(contract), call["arguments"], "")
    return ""


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
    scored = [_ScoredCall(row, wanted, call, read) for wanted in row.right]
    best = max(scored, key=lambda item: (item.is_right, item.match.value_f1))
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


class _ScoredCall:
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
        self.unusable = self.contract is None or any(item.kind == "bad_schema" for item in found)
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
        result = {
            "parsed": 1.0 if self.read.strict else weights.fixed,
            "tool": 1.0 if match.tool or self.is_right else 0.5 * known,
            "schema": self._measure_schema(),
            "values": (match.name_f1 + match.value_f1) / 2,
            "grounded": self._measure_grounded(),
        }
        if (kept := self._measure_kept()) is not None:
            result["kept"] = kept
        if (executed := self._measure_executed(world)) is not None:
            result["executed"] = executed
        return result

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
