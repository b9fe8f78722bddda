"""A completion, read as it will be when it is served: by the same reader, after the JSON fixer."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assets.contracts.match.match import MatchResult, compute_f1, match_call
from assets.contracts.repair.json_text import refuse_constant
from assets.contracts.validate import validate_call
from extensions.sidecar.prompt import UNTOUCHED, RevisionRow, read_arguments, read_revision
from serving.repair.drafts import DEEPEST, measure_depth
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
        value = json.loads(match[2], parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return False
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return False
    return any(isinstance(value.get(name), dict) for name in _ARGUMENTS)


# Verdicts. Copied: a flawed draft came back as it was. Harmful: it would be sent, and does
# something else. Wrong: anything else that is no right answer. Unread: neither call nor question.
RIGHT, COPIED, HARMFUL, WRONG, ASKED, UNREAD = (
    *("right", "copied", "harmful", "wrong", "asked", "unread"),
)
_MATCHED = ("match", "default")
# Weights of the parts of a call; where one cannot be measured, the others make up the whole.
WEIGHTS = {
    "parsed": 0.1, "tool": 0.1, "schema": 0.15, "values": 0.35, "grounded": 0.1, "kept": 0.1,
}  # fmt: skip
FIXED = 0.8  # of `parsed`, where the JSON fixer was needed
# What the mean of the parts is multiplied by. The least that a right call is worth, with a needless
# change and the fixer, is more than any other call is.
WORTH = {RIGHT: 1.0, WRONG: 0.75, COPIED: 0.1, HARMFUL: 0.05}
ASKED_RIGHTLY = 0.8  # the rest is for the words that the question shares with the right one
ASKED_IN_VAIN, CALLED_IN_VAIN = 0.2, 0.05  # a question for a call; a call, stopped, for a question


@dataclass(frozen=True)
class RevisionScore:
    """total: 0 to 1. verdict: one of the above. parts: measured parts by name (`asked`, …)."""

    total: float
    verdict: str
    parts: dict[str, float] = field(default_factory=dict)


def score_revision(row: RevisionRow, completion: str) -> RevisionScore:
    """Scores a completion. Deterministic, and bounded for whatever the text is; never raises."""
    read = read_answer(completion, row.contracts)
    if read.question:
        if row.right:
            return RevisionScore(ASKED_IN_VAIN, ASKED)
        asked, wanted = set(fold_words(read.question)), set(fold_words(row.question))
        shared = len(asked & wanted)
        likeness = compute_f1((shared, len(wanted) - shared, len(asked) - shared))
        total = ASKED_RIGHTLY + (1 - ASKED_RIGHTLY) * likeness
        return RevisionScore(round(total, 6), RIGHT, {"asked": round(total, 6)})
    if read.name is None:
        return RevisionScore(0.0, UNREAD, {"parsed": 0.0})
    call = {"name": read.name, "arguments": read.arguments}
    if not row.right:
        contract = _find_contract(row, call["name"])
        if contract is not None and not validate_call(contract, call["arguments"]):
            return RevisionScore(0.0, HARMFUL, {"asked": 0.0})
        verdict = COPIED if _is_same(call, read_draft(row)) else WRONG
        return RevisionScore(CALLED_IN_VAIN, verdict, {"asked": 0.0})
    scored = [_ScoredCall(row, wanted, call, read) for wanted in row.right]
    return max(scored, key=lambda item: (item.is_right, item.match.value_f1)).weigh()


class _ScoredCall:
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
        self.is_right = _is_same(call, wanted) or (self.match.match and not self.flaws)
        self.is_copy = not self.is_right and _is_same(call, self.draft)

    def weigh(self) -> RevisionScore:
        match, offered = self.match, self.contract is not None
        parts = {
            "parsed": 1.0 if self.read.strict else FIXED,
            "tool": 1.0 if match.tool or self.is_right else 0.5 * offered,
            "schema": self._measure_schema(),
            "values": (match.name_f1 + match.value_f1) / 2,
            "grounded": self._measure_grounded(),
        }
        if (unchanged := self._measure_unchanged()) is not None:
            parts["kept"] = unchanged
        mean = sum(WEIGHTS[name] * part for name, part in parts.items())
        mean /= sum(WEIGHTS[name] for name in parts)
        verdict = self._decide_verdict(parts)
        rounded = {name: round(part, 6) for name, part in parts.items()}
        return RevisionScore(round(mean * WORTH[verdict], 6), verdict, rounded)

    def _decide_verdict(self, parts: Mapping[str, float]) -> str:
        if self.is_right:
            return RIGHT
        if self.is_copy:
            return COPIED
        turned = self.row.kind == UNTOUCHED or not self.match.tool or parts["grounded"] < 1
        return HARMFUL if self.flaws == 0 and turned else WRONG

    def _measure_schema(self) -> float:
        if self.is_right:
            return 1.0
        return 0.0 if self.flaws is None else 1 / (1 + self.flaws)

    def _measure_grounded(self) -> float:
        """Share of the required arguments that are given and not invented."""
        arguments = self.call["arguments"]
        if self.is_right:
            return 1.0
        if self.contract is None or self.unusable or not isinstance(arguments, Mapping):
            return 0.0
        root = self.contract.get("inputSchema") or {}
        required = set(root.get("required") or ())
        drafted = self.draft["arguments"] if self.draft else None
        before = drafted if isinstance(drafted, Mapping) else {}
        evidence = ConversationEvidence(self.row.conversation)
        right = {name for name, verdict in self.match.per_parameter.items() if verdict in _MATCHED}
        invented = set(list_invented(self.contract, arguments, before, evidence)) - right
        grounded = required.intersection(arguments) - invented
        return len(grounded) / len(required) if required else 1.0

    def _measure_unchanged(self) -> float | None:
        """None where nothing in the draft was right."""
        if self.row.kind == UNTOUCHED:
            return float(_is_same(self.call, self.draft))
        drafted = self.draft["arguments"] if self.draft else None
        before = match_call(self.schema, self.wanted, {**self.wanted, "arguments": drafted})
        good = [name for name, verdict in before.per_parameter.items() if verdict == "match"]
        if not good:
            return None
        verdicts = self.match.per_parameter
        return sum(verdicts.get(name) in _MATCHED for name in good) / len(good)


def read_draft(row: RevisionRow) -> dict[str, Any]:
    """The draft as a call; arguments that are text are read where they can be."""
    return {"name": row.draft_name, "arguments": read_arguments(row.draft_arguments)}


def _find_contract(row: RevisionRow, name: Any) -> Mapping[str, Any] | None:
    return next((contract for contract in row.contracts if contract.get("name") == name), None)


def _is_same(call: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    try:
        return _write_sorted(call) == _write_sorted(other)
    except (ValueError, TypeError, RecursionError):
        return False


def _write_sorted(call: Mapping[str, Any]) -> str:
    return json.dumps({name: call[name] for name in ("name", "arguments")}, sort_keys=True)
