"""Rollouts: the prompts as they are served, what completions are worth, which groups fail."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from extensions.sidecar.grpo.examples import WorkedExamples, render_example_prompt
from extensions.sidecar.grpo.tally import Tally, is_failed
from extensions.sidecar.prompt import make_revision_request
from extensions.sidecar.rewards.score import RevisionScore, score_revision
from extensions.sidecar.rewards.weights import RewardWeights
from extensions.sidecar.rewards.world import ScoreCall
from extensions.sidecar.rows import RevisionRow
from extensions.sidecar.select import fit_request


def tokenise_prompt(tokenizer: Any, prompt: str) -> list[int]:
    """The prompt's tokens. The template writes its own first token: TRL, left alone, would let
    the tokenizer put a second one before it (Llama's), and a rollout would be asked otherwise."""
    return list(tokenizer(prompt, add_special_tokens=False)["input_ids"])


@dataclass
class Rollouts:
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
    tally: Tally = field(default_factory=Tally)
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
            self._examples = WorkedExamples(self.rows, [len(one) for one in self.prompts])
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
        right = {str(one["name"]) for one in row.right}
        fitted = fit_request(tokenizer, make_revision_request(row), limit, right)
        if fitted is not None:
            kept.append(row)
            prompts.append(fitted.prompt)
    return kept, prompts, {"rows": len(rows), "too_long": len(rows) - len(kept)}
