"""Worked examples: the same prompt with another row and its right answer before it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from extensions.sidecar.prompt import RevisionRow, fit_request, make_revision_request
from extensions.sidecar.rewards import (
    ASKED,
    COPIED,
    HARMFUL,
    RIGHT,
    UNREAD,
    RevisionScore,
    ScoreCall,
    score_revision,
)
from extensions.sidecar.settings import PARTS, RewardWeights
from serving.repair.tools import RevisionRequest, make_revision_messages
from training.prompts.render import build_call_message, render_tool_schema
from training.prompts.templates import render_prompt_text
from warehouse.statistics import wilson_interval


class WorkedExamples:
    """The rows of a training as examples for one another. lengths: of their prompts."""

    def __init__(self, rows: Sequence[RevisionRow], lengths: Sequence[int]) -> None:
        order = sorted(range(len(rows)), key=lambda at: (lengths[at], rows[at].row_id))
        self._rows = [rows[at] for at in order]

    def pick_example(self, row: RevisionRow) -> RevisionRow | None:
        """The shortest row of the same kind that another server has, else of any kind that is
        answered alike (a call, a question); None where there is none."""
        others = [item for item in self._rows if item.server_id != row.server_id]
        alike = (other for other in others if bool(other.right) == bool(row.right))
        return next((other for other in others if other.kind == row.kind), next(alike, None))


def render_example_prompt(tokenizer: Any, row: RevisionRow, example: RevisionRow) -> str:
    """The row's own prompt, with the example and its right answer as a turn before it; the tools
    are the row's, and the one that the example calls. Raises BadTemplate."""
    request, shown = make_revision_request(row), make_revision_request(example)
    [system, asked] = make_revision_messages(request)
    [_, before] = make_revision_messages(shown)
    answer = build_call_message(example.right, example.question)
    tools = _list_tools(request, example)
    return render_prompt_text(tokenizer, [system, before, answer, asked], tools)


def _list_tools(request: RevisionRequest, example: RevisionRow) -> list[dict[str, Any]]:
    contracts: dict[str, Mapping[str, Any]] = {
        candidate.name: candidate.contract for candidate in request.candidates
    }
    called = {str(item["name"]) for item in example.right}
    for contract in example.contracts:
        if contract["name"] in called:
            contracts.setdefault(str(contract["name"]), contract)
    return [render_tool_schema(dict(item)) for item in contracts.values()]


_VERDICTS = (RIGHT, COPIED, HARMFUL, ASKED, UNREAD)


@dataclass
class RewardTally:
    """curve: a point for each update. groups: all that were written; failed: those whose
    completions were all worth the same and none right, as they were written first; replaced: those
    of them written again with a worked example; differing: those that then are worth different."""

    curve: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add_update(self, scores: Sequence[RevisionScore]) -> None:
        self.curve.append({"update": len(self.curve) + 1, **summarise_scores(scores)})

    def get_figures(self) -> dict[str, Any]:
        """As the card holds them."""
        groups, failed = self.counts["groups"], self.counts["failed"]
        known = {name: self.counts[name] for name in ("groups", "failed", "replaced", "differing")}
        return {**known, "failed_share": make_rate(failed, groups), "curve": self.curve}


def is_failed(scores: Sequence[RevisionScore]) -> bool:
    """Whether a group teaches nothing: all are worth the same, and none of them is right."""
    return len({score.total for score in scores}) == 1 and scores[0].verdict != RIGHT


def summarise_scores(scores: Sequence[RevisionScore]) -> dict[str, Any]:
    """{reward, a mean for each part that was measured, a share for each verdict}; n 0: {}."""
    if not scores:
        return {}
    parts = {
        name: fmean(held) for name in (*PARTS, "asked")
        if (held := [score.parts[name] for score in scores if name in score.parts])
    }  # fmt: skip
    shares = {f"is_{name}": fmean(score.verdict == name for score in scores) for name in _VERDICTS}
    found = {"reward": fmean(score.total for score in scores), **parts, **shares}
    return {name: round(value, 4) for name, value in found.items()}


def make_rate(k: int, n: int) -> dict[str, float | int]:
    """{value, low, high, n}: a share with Wilson's 95% interval."""
    low, high = wilson_interval(k, n) if n else (0.0, 1.0)
    return {"value": round(k / n, 4) if n else 0.0, "low": round(low, 4), "high": round(high, 4),
            "n": n}  # fmt: skip


def tokenise_prompt(tokenizer: Any, prompt: str) -> list[int]:
    """The prompt's tokens. The template writes its own first token: TRL, left alone, would let
    the tokenizer put a second one before it (Llama's), and a rollout would be asked otherwise."""
    return list(tokenizer(prompt, add_special_tokens=False)["input_ids"])


@dataclass
class RolloutBatch:
    """rows and prompts: place by place. limit: tokens that a prompt may have, max_new: that a
    completion may have."""

    tokenizer: Any
    rows: Sequence[RevisionRow]
    prompts: Sequence[str]
    weights: RewardWeights
    limit: int
    group: int
    max_new: int
    world: ScoreCall | None = None
    tally: RewardTally = field(default_factory=RewardTally)
    _known: dict[tuple[int, str], RevisionScore] = field(default_factory=dict)
    _examples: WorkedExamples | None = None

    def score(self, at: int, text: str) -> RevisionScore:
        """What a completion of the row at a place is worth."""
        key = (at, text)
        if key not in self._known:
            self._known[key] = score_revision(self.rows[at], text, self.weights, self.world)
        return self._known[key]

    def find_failed(self, asked: Sequence[int], texts: Sequence[str]) -> list[int]:
        """Where the groups begin that teach nothing; counts all groups. asked: place of the row of
        each completion, group after group."""
        starts = range(0, len(asked), self.group)
        failed = [at for at in starts if self._is_failed(asked, texts, at)]
        self.tally.counts.update(groups=len(starts), failed=len(failed))
        return failed

    def write_again(self, at: int) -> str | None:
        """The prompt of the row at a place with a worked example; None where none fits."""
        if self._examples is None:
            self._examples = WorkedExamples(self.rows, [len(prompt) for prompt in self.prompts])
        example = self._examples.pick_example(self.rows[at])
        if example is None:
            return None
        prompt = render_example_prompt(self.tokenizer, self.rows[at], example)
        return prompt if len(tokenise_prompt(self.tokenizer, prompt)) <= self.limit else None

    def count_replaced(self, asked: Sequence[int], texts: Sequence[str], starts: Sequence[int]):
        """Counts the groups that were written again, and those of them that teach now."""
        differing = sum(not self._is_failed(asked, texts, at) for at in starts)
        self.tally.counts.update(replaced=len(starts), differing=differing)

    def take_rewards(self, asked: Sequence[int], texts: Sequence[str]) -> list[float]:
        """What the completions of an update are worth; the tally has a point more."""
        scores = [self.score(at, text) for at, text in zip(asked, texts, strict=True)]
        self.tally.add_update(scores)
        self._known.clear()
        return [score.total for score in scores]

    def _is_failed(self, asked: Sequence[int], texts: Sequence[str], start: int) -> bool:
        places = range(start, start + self.group)
        return is_failed([self.score(asked[at], texts[at]) for at in places])


def prepare_prompts(
    tokenizer: Any, rows: Sequence[RevisionRow], limit: int
) -> tuple[list[RevisionRow], list[str], Mapping[str, int]]:
    """(rows, their prompts as SFT and serving write them, counts). A row that `limit` tokens do
    not hold loses what a lesson of it loses; one whose right tool alone is too long is left out and
    counted. Raises BadTemplate."""
    kept, prompts = [], []
    for row in rows:
        right = {str(item["name"]) for item in row.right}
        fitted = fit_request(tokenizer, make_revision_request(row), limit, right)
        if fitted is not None:
            kept.append(row)
            prompts.append(fitted.prompt)
    return kept, prompts, {"rows": len(rows), "too_long": len(rows) - len(kept)}
