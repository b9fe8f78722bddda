"""ToolFlix's two rerankers: two heads in three phases (write-up), one head (released code)."""

import copy
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from extensions.recommender.reranking.features import Question
from extensions.recommender.reranking.pool import Pool
from extensions.recommender.training.examples import Example, Fitted
from extensions.recommender.training.methods.toolflix_net import build_net
from extensions.recommender.training.metrics import measure_auc
from extensions.recommender.training.wide import WIDE, Tally

MARGIN, RATE, BATCH = 0.2, 2e-3, 64
ALPHA_FIRST, ALPHA_LAST, ALPHA_AFTER = 0.80, 0.35, 1_000  # weight of relevance; outcomes
UCB = 0.3
_EPOCHS = (12, 12, 8)  # of relevance, quality and both together
FEWEST = 50  # outcomes below which the retriever's order stands
_PAIRS = 4_000  # of a success and a failure that are drawn at most


class _Data:
    """Tensors of examples, and pairs of them of which the first should stand above the second."""

    def __init__(
        self, examples: Sequence[Example], tally: Tally, seed: int, *, wide: bool = True
    ) -> None:
        import torch

        self.rng = np.random.default_rng(seed)
        self.examples, self.tally = examples, tally
        self.asked = torch.from_numpy(
            np.array([example.question.vector for example in examples], np.float32)
        )
        self.places = torch.tensor([example.place for example in examples])
        found = [tally.measure_without(example) if wide else np.zeros(WIDE) for example in examples]
        self.wide = torch.from_numpy(np.array(found, np.float32).reshape(len(examples), WIDE))
        self.success = np.array([example.success for example in examples], bool)

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

    def draw_candidates(self, rows: np.ndarray) -> np.ndarray:
        """A candidate of each of these rows that was not called, drawn anew: for relevance."""
        found = []
        for row in rows.tolist():
            one = self.examples[row]
            others = one.question.candidates[one.question.candidates != one.place]
            others = others if len(others) else np.arange(len(self.tally.pool))
            found.append(int(self.rng.choice(others)))
        return np.array(found, int)


class ToolFlix(Fitted):
    """Two heads: alpha x relevance + (1 - alpha) x quality, alpha falling with the feedback. wide:
    whether quality reads the wide features; without them it knows an endpoint by its vector
    alone."""

    name = "toolflix"

    def __init__(self, seed: int = 0, *, wide: bool = True) -> None:
        self._seed, self._wide = seed, wide

    def fit(self, examples: Sequence[Example], pool: Pool) -> None:
        self._tally = Tally(examples, pool)
        self._net = build_net(pool.vectors, self._seed, heads=2).eval()
        share = min(len(examples) / ALPHA_AFTER, 1.0)
        self._alpha = ALPHA_FIRST + share * (ALPHA_LAST - ALPHA_FIRST)
        self._trained = len(examples) >= FEWEST
        if self._trained:
            learned, held = _hold_out(examples)
            data = _Data(learned, self._tally, self._seed, wide=self._wide)
            steps = (self._make_relevance(data), self._make_quality(data))
            best = _Best(self._net, lambda: _measure_held(self, held))
            for epochs, losses in zip(_EPOCHS, ([steps[0]], [steps[1]], [*steps]), strict=True):
                _train(best, epochs, losses)

    def score(self, question: Question, places: np.ndarray) -> np.ndarray:
        if not self._trained:
            return self._tally.pool.vectors[places] @ question.vector
        heads = _run_net(self._net, self._tally, question, places, wide=self._wide)
        return self._alpha * heads[:, 0] + (1 - self._alpha) * heads[:, 1]

    def update(self, example: Example) -> None:
        self._tally.add(example)

    def _make_relevance(self, data: _Data) -> Callable[[], Any]:
        """The margin loss of successes above candidates that were not called; no wide features."""
        import torch

        rows = np.flatnonzero(data.success)

        def step(part: np.ndarray) -> Any:
            asked, blank = data.asked[rows[part]], torch.zeros(len(part), WIDE)
            above = self._net(asked, data.places[rows[part]], blank)[:, 0]
            others = torch.from_numpy(data.draw_candidates(rows[part]))
            below = self._net(asked, others, blank)[:, 0]
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
        self._net = build_net(pool.vectors, self._seed, heads=1).eval()
        self._trained = len(examples) >= FEWEST
        if not self._trained:
            return
        learned, held = _hold_out(examples)
        data = _Data(learned, self._tally, self._seed)
        wanted = torch.from_numpy(data.success.astype(np.float32))

        def step(part: np.ndarray) -> Any:
            found = self._net(data.asked[part], data.places[part], data.wide[part])[:, 0]
            return torch.nn.functional.binary_cross_entropy_with_logits(found, wanted[part])

        best = _Best(self._net, lambda: _measure_held(self, held))
        _train(best, sum(_EPOCHS), [_make_steps(step, len(learned), data.rng)])

    def score(self, question: Question, places: np.ndarray) -> np.ndarray:
        if not self._trained:
            return (1 + self._tally.pool.vectors[places] @ question.vector) / 2
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


class _Best:
    """A network, and the weights with which it ordered outcomes held out best, kept by epoch."""

    def __init__(self, net: Any, check: Callable[[], float]) -> None:
        self.net, self._check = net, check
        self._score, self._kept = check(), copy.deepcopy(net.state_dict())

    def keep_better(self) -> None:
        """Keeps the weights of now where they order better."""
        if (score := self._check()) > self._score:
            self._score, self._kept = score, copy.deepcopy(self.net.state_dict())

    def restore(self) -> None:
        """Back to the best."""
        self.net.load_state_dict(self._kept)


def _hold_out(examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """(what is learnt from, about a seventh of the tasks to stop by)."""
    sides: tuple[list[Example], list[Example]] = [], []
    for example in examples:
        task = example.task or example.question.text
        sides[zlib.crc32(task.encode()) % 7 == 0].append(example)
    return sides


def _measure_held(method: Fitted, held: Sequence[Example]) -> float:
    """AUC of a method over outcomes; a half without both kinds."""
    scores = [float(method.score(one.question, np.array([one.place]))[0]) for one in held]
    found = measure_auc(np.array(scores), np.array([one.success for one in held], bool))
    return 0.5 if found is None else found


def _train(best: _Best, epochs: int, losses: list[Callable[[], Any]]) -> None:
    import torch

    optimizer = torch.optim.Adam(best.net.parameters(), RATE, weight_decay=1e-4)
    for _ in range(epochs):
        best.net.train()
        for made in losses:
            for loss in made():
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        best.net.eval()
        best.keep_better()
    best.restore()


def _run_net(
    net: Any, tally: Tally, question: Question, places: np.ndarray, *, wide: bool = True
) -> np.ndarray:
    import torch

    with torch.no_grad():
        asked = torch.from_numpy(np.asarray(question.vector, np.float32)).repeat(len(places), 1)
        read = tally.measure(question, places) if wide else np.zeros((len(places), WIDE))
        given = torch.from_numpy(read.astype(np.float32))
        return net(asked, torch.from_numpy(np.asarray(places, np.int64)), given).numpy()
