"""ToolFlix's two rerankers: two heads in three phases (write-up), one head (released code)."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from serving.reranking.features import Question
from serving.reranking.pool import Pool
from training.reranker.examples import Example, Fitted
from training.reranker.methods.toolflix_net import build_net
from training.reranker.wide import WIDE, Tally

MARGIN, RATE, BATCH = 0.2, 2e-3, 64
ALPHA_FIRST, ALPHA_LAST, ALPHA_AFTER = 0.80, 0.35, 1_000  # weight of relevance; outcomes
UCB = 0.3
_EPOCHS = (12, 12, 8)  # of relevance, quality and both together
_PAIRS = 4_000  # of a success and a failure that are drawn at most


class _Data:
    """Tensors of examples, and pairs of them of which the first should stand above the second."""

    def __init__(self, examples: Sequence[Example], tally: Tally, seed: int) -> None:
        import torch

        self.rng = np.random.default_rng(seed)
        self.examples, self.tally = examples, tally
        self.asked = torch.from_numpy(
            np.array([one.question.vector for one in examples], np.float32)
        )
        self.places = torch.tensor([one.place for one in examples])
        wide = np.array([tally.measure_without(one) for one in examples], np.float32)
        self.wide = torch.from_numpy(wide.reshape(len(examples), WIDE))
        self.success = np.array([one.success for one in examples], bool)

    def pair_judged(self) -> np.ndarray:
        """[pairs, 2] rows: a success above a failure, of one task where it has both, otherwise of
        one category of requests."""
        groups: dict[Any, list[int]] = defaultdict(list)
        for row, one in enumerate(self.examples):
            groups["task", one.task or one.question.text].append(row)
            groups["category", self.tally.find_category(one.question)].append(row)
        pairs = []
        for (kind, _), rows in groups.items():
            won = [row for row in rows if self.success[row]]
            lost = [row for row in rows if not self.success[row]]
            if won and lost:
                count = len(won) * len(lost) if kind == "task" else 2 * min(len(won), len(lost))
                firsts, seconds = self.rng.choice(won, count), self.rng.choice(lost, count)
                pairs += zip(firsts.tolist(), seconds.tolist(), strict=True)
        found = np.array(pairs, int).reshape(len(pairs), 2)
        return found[self.rng.permutation(len(found))[:_PAIRS]]

    def pair_with_candidates(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows of successes, a candidate of each that was not called): for relevance."""
        rows = np.flatnonzero(self.success)
        others = []
        for row in rows.tolist():
            candidates = self.examples[row].question.candidates
            pool = candidates if len(candidates) > 1 else np.arange(len(self.tally.pool))
            others.append(int(self.rng.choice(pool)))
        return rows, np.array(others, int)


class ToolFlix(Fitted):
    """Two heads: alpha x relevance + (1 - alpha) x quality, alpha falling with the feedback."""

    name = "toolflix"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def fit(self, examples: Sequence[Example], pool: Pool) -> None:
        self._tally = Tally(examples, pool)
        self._net = build_net(pool.vectors, self._seed, heads=2)
        share = min(len(examples) / ALPHA_AFTER, 1.0)
        self._alpha = ALPHA_FIRST + share * (ALPHA_LAST - ALPHA_FIRST)
        if examples:
            data = _Data(examples, self._tally, self._seed)
            steps = (self._make_relevance(data), self._make_quality(data))
            _train(self._net, _EPOCHS[0], [steps[0]])
            _train(self._net, _EPOCHS[1], [steps[1]])
            _train(self._net, _EPOCHS[2], list(steps))

    def score(self, question: Question, places: np.ndarray) -> np.ndarray:
        heads = _run_net(self._net, self._tally, question, places)
        return self._alpha * heads[:, 0] + (1 - self._alpha) * heads[:, 1]

    def update(self, example: Example) -> None:
        self._tally.add(example)

    def _make_relevance(self, data: _Data) -> Callable[[], Any]:
        """The margin loss of successes above candidates that were not called; no wide features."""
        import torch

        rows, others = data.pair_with_candidates()

        def step(part: np.ndarray) -> Any:
            asked, blank = data.asked[rows[part]], torch.zeros(len(part), WIDE)
            above = self._net(asked, data.places[rows[part]], blank)[:, 0]
            below = self._net(asked, torch.from_numpy(others[part]), blank)[:, 0]
            return torch.relu(MARGIN - above + below).mean()

        return _make_steps(step, len(rows), data.rng)

    def _make_quality(self, data: _Data) -> Callable[[], Any]:
        import torch

        pairs = data.pair_judged()

        def step(part: np.ndarray) -> Any:
            above, below = (
                self._net(data.asked[rows], data.places[rows], data.wide[rows])[:, 1]
                for rows in (pairs[part, 0], pairs[part, 1])
            )
            return torch.relu(MARGIN - above + below).mean()

        return _make_steps(step, len(pairs), data.rng)


class ToolFlixOneHead(Fitted):
    """One head fitted by cross-entropy, one outcome at a time; UCB1 while learning."""

    name = "toolflix_one_head"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def fit(self, examples: Sequence[Example], pool: Pool) -> None:
        import torch

        self._tally = Tally(examples, pool)
        self._net = build_net(pool.vectors, self._seed, heads=1)
        if not examples:
            return
        data = _Data(examples, self._tally, self._seed)
        wanted = torch.from_numpy(data.success.astype(np.float32))

        def step(part: np.ndarray) -> Any:
            found = self._net(data.asked[part], data.places[part], data.wide[part])[:, 0]
            return torch.nn.functional.binary_cross_entropy_with_logits(found, wanted[part])

        _train(self._net, sum(_EPOCHS), [_make_steps(step, len(examples), data.rng)])

    def score(self, question: Question, places: np.ndarray) -> np.ndarray:
        heads = _run_net(self._net, self._tally, question, places)[:, 0]
        return 1 / (1 + np.exp(-np.clip(heads, -30, 30)))

    def explore(
        self, question: Question, places: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        calls = self._tally.calls[places].sum(1)
        total = math.log1p(float(self._tally.calls.sum()))
        return self.score(question, places) + UCB * np.sqrt(total / (1 + calls))

    def update(self, example: Example) -> None:
        self._tally.add(example)


def _make_steps(
    step: Callable[[np.ndarray], Any], rows: int, rng: np.random.Generator
) -> Callable[[], Any]:
    """The losses of one epoch, one a batch, in another order each time."""

    def losses() -> Any:
        order = rng.permutation(rows)
        for start in range(0, rows, BATCH):
            yield step(order[start : start + BATCH])

    return losses


def _train(net: Any, epochs: int, losses: list[Callable[[], Any]]) -> None:
    import torch

    net.train()
    optimizer = torch.optim.Adam(net.parameters(), RATE, weight_decay=1e-4)
    for _ in range(epochs):
        for made in losses:
            for loss in made():
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    net.eval()


def _run_net(net: Any, tally: Tally, question: Question, places: np.ndarray) -> np.ndarray:
    import torch

    with torch.no_grad():
        asked = torch.from_numpy(np.asarray(question.vector, np.float32)).repeat(len(places), 1)
        wide = torch.from_numpy(tally.measure(question, places).astype(np.float32))
        return net(asked, torch.from_numpy(np.asarray(places, np.int64)), wide).numpy()
