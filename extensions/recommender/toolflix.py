"""ToolFlix's reranker by its write-up: two heads in three phases. Its code is not released: layer
sizes, epochs and rates are ours, with about 68,000 parameters at 163 endpoints of 384 dimensions.
Both networks start from the descriptions' leading directions."""

import copy
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from extensions.recommender.rerank_method import OutcomeExample, RerankMethod, measure_auc
from extensions.recommender.tool_pool import ToolPool
from serving.ranking.strategies import RerankQuestion

if TYPE_CHECKING:
    import torch

CATEGORIES = 8  # clusters of requests
WIDE = 6  # features that count the past
MARGIN, RATE, BATCH = 0.2, 2e-3, 64
ALPHA_FIRST, ALPHA_LAST, ALPHA_AFTER = 0.80, 0.35, 1_000  # weight of relevance; outcomes
FEWEST = 50  # outcomes below which the retriever's order stays
ENDPOINT = 64  # dimensions of an endpoint's learnt vector
_TRUNK = (96, 48)
_EPOCHS = (12, 12, 8)  # of relevance, of quality, of both together
_PAIRS = 4_000  # most pairs of a success and a failure
_ROUNDS = 12


class CallTally:
    """Calls and successes of each tool, in total and by category of request (k-means clusters)."""

    def __init__(self, examples: Sequence[OutcomeExample], pool: ToolPool, seed: int = 0) -> None:
        self.pool = pool
        vectors = {example.question.text: example.question.vector for example in examples}
        self._centres = _group_vectors(list(vectors.values()), pool.vectors.shape[1], seed)
        self.calls = np.zeros((len(pool), len(self._centres)))
        self.wins = np.zeros((len(pool), len(self._centres)))
        for example in examples:
            self.add(example)

    def add(self, example: OutcomeExample, sign: float = 1.0) -> None:
        """Counts an outcome; with sign -1 takes it back."""
        category = self.find_category(example.question)
        self.calls[example.place, category] += sign * example.weight
        self.wins[example.place, category] += sign * example.weight * example.success

    def find_category(self, question: RerankQuestion) -> int:
        return int(np.argmax(self._centres @ question.vector))

    def measure(self, question: RerankQuestion, places: np.ndarray) -> np.ndarray:
        """[places, WIDE]: success rate, usage, both in this category, similarity, rank."""
        category = self.find_category(question)
        calls, wins = self.calls[places].sum(1), self.wins[places].sum(1)
        here, won = self.calls[places, category], self.wins[places, category]
        overall = (self.wins.sum() + 1) / (self.calls.sum() + 2)
        rate = (wins + 2 * overall) / (calls + 2)
        order = {int(place): rank for rank, place in enumerate(question.candidates.tolist())}
        ranks = [order.get(int(place), len(order)) for place in places]
        cosines = self.pool.vectors[places] @ question.vector
        columns = [
            rate, np.log1p(calls), (won + 2 * rate) / (here + 2), np.log1p(here), cosines,
            np.log1p(ranks),
        ]  # fmt: skip
        return np.stack(columns, 1)

    def measure_without(self, example: OutcomeExample) -> np.ndarray:
        """[WIDE] of a counted example as if it had not been counted."""
        self.add(example, -1.0)
        features = self.measure(example.question, np.array([example.place]))[0]
        self.add(example)
        return features


def _group_vectors(vectors: list[np.ndarray], dim: int, seed: int) -> np.ndarray:
    """Unit centres of up to CATEGORIES clusters (k-means by cosine)."""
    if not vectors:
        return np.zeros((1, dim))
    rows = np.array(vectors, float)
    centres = rows[np.random.default_rng(seed).permutation(len(rows))[:CATEGORIES]]
    for _ in range(_ROUNDS):
        nearest = np.argmax(rows @ centres.T, 1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, rows)
        centres = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    return centres


def _build_net(vectors: np.ndarray, seed: int) -> Any:
    """A torch module: (question vectors, places, wide features) -> scores [rows, 2]: relevance,
    which reads the trunk only, and quality, which reads the wide features too."""
    import torch

    torch.manual_seed(seed)
    dim = vectors.shape[1]
    centred = vectors - vectors.mean(0)
    _, _, leading = np.linalg.svd(centred, full_matrices=False)
    directions = np.zeros((ENDPOINT, dim), np.float32)
    directions[: len(leading[:ENDPOINT])] = leading[:ENDPOINT]

    class TwoHeadNet(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.endpoint = torch.nn.Embedding(len(vectors), ENDPOINT)
            short = (centred @ directions.T).astype(np.float32)
            self.endpoint.weight.data.copy_(torch.from_numpy(short))
            # Questions start in the same directions, so that both agree where their texts do.
            self.asked = torch.nn.Linear(dim, ENDPOINT)
            self.asked.weight.data.copy_(torch.from_numpy(directions))
            self.trunk = torch.nn.Sequential(
                torch.nn.Linear(3 * ENDPOINT, _TRUNK[0]), torch.nn.ReLU(), torch.nn.Dropout(0.1),
                torch.nn.Linear(_TRUNK[0], _TRUNK[1]), torch.nn.ReLU(),
            )  # fmt: skip
            self.relevance = torch.nn.Linear(_TRUNK[1], 1)
            self.quality = torch.nn.Sequential(
                torch.nn.Linear(_TRUNK[1] + WIDE, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
            )

        def forward(
            self, asked: "torch.Tensor", places: "torch.Tensor", wide: "torch.Tensor"
        ) -> "torch.Tensor":
            query, endpoint = self.asked(asked), self.endpoint(places)
            deep = self.trunk(torch.cat([query, endpoint, query * endpoint], 1))
            return torch.cat([self.relevance(deep), self.quality(torch.cat([deep, wide], 1))], 1)

    return TwoHeadNet()


class _TrainingData:
    """Tensors of examples, and pairs of which the first should rank above the second."""

    def __init__(
        self, examples: Sequence[OutcomeExample], tally: CallTally, seed: int, *, wide: bool
    ) -> None:
        import torch

        self.rng = np.random.default_rng(seed)
        self.examples, self.tally = examples, tally
        self.asked = torch.from_numpy(
            np.array([example.question.vector for example in examples], np.float32)
        )
        self.places = torch.tensor([example.place for example in examples])
        rows = [tally.measure_without(example) if wide else np.zeros(WIDE) for example in examples]
        self.wide = torch.from_numpy(np.array(rows, np.float32).reshape(len(examples), WIDE))
        self.success = np.array([example.success for example in examples], bool)

    def pair_judged(self) -> np.ndarray:
        """[pairs, 2] rows: a success above a failure, of one task or else one category."""
        groups: dict[Any, list[int]] = defaultdict(list)
        for row, example in enumerate(self.examples):
            groups["task", example.task or example.question.text].append(row)
            groups["category", self.tally.find_category(example.question)].append(row)
        pairs = []
        for (kind, _), rows in groups.items():
            won = [row for row in rows if self.success[row]]
            lost = [row for row in rows if not self.success[row]]
            if won and lost:
                count = len(won) * len(lost) if kind == "task" else 2 * min(len(won), len(lost))
                firsts, seconds = self.rng.choice(won, count), self.rng.choice(lost, count)
                pairs += zip(firsts.tolist(), seconds.tolist(), strict=True)
        ordered = np.array(pairs, int).reshape(len(pairs), 2)
        return ordered[self.rng.permutation(len(ordered))[:_PAIRS]]

    def draw_candidates(self, rows: np.ndarray) -> np.ndarray:
        """For each row a candidate that was not called, drawn again each time."""
        drawn = []
        for row in rows.tolist():
            example = self.examples[row]
            others = example.question.candidates[example.question.candidates != example.place]
            others = others if len(others) else np.arange(len(self.tally.pool))
            drawn.append(int(self.rng.choice(others)))
        return np.array(drawn, int)


class ToolFlix(RerankMethod):
    """Two heads: alpha x relevance + (1 - alpha) x quality, alpha falling with the feedback. wide:
    whether quality reads the wide features, or an endpoint's vector alone."""

    def __init__(self, seed: int = 0, *, wide: bool = True) -> None:
        self._seed, self._wide = seed, wide

    def fit(self, examples: Sequence[OutcomeExample], pool: ToolPool) -> None:
        self._tally = CallTally(examples, pool)
        self._net = _build_net(pool.vectors, self._seed).eval()
        share = min(len(examples) / ALPHA_AFTER, 1.0)
        self._alpha = ALPHA_FIRST + share * (ALPHA_LAST - ALPHA_FIRST)
        self._trained = len(examples) >= FEWEST
        if self._trained:
            self._train(examples)

    def score(self, question: RerankQuestion, places: np.ndarray) -> np.ndarray:
        import torch

        if not self._trained:
            return self._tally.pool.vectors[places] @ question.vector
        wide = (
            self._tally.measure(question, places) if self._wide else np.zeros((len(places), WIDE))
        )
        with torch.no_grad():
            asked = torch.from_numpy(np.asarray(question.vector, np.float32))
            heads = self._net(
                asked.repeat(len(places), 1),
                torch.from_numpy(np.asarray(places, np.int64)),
                torch.from_numpy(wide.astype(np.float32)),
            ).numpy()
        return self._alpha * heads[:, 0] + (1 - self._alpha) * heads[:, 1]

    def update(self, example: OutcomeExample) -> None:
        self._tally.add(example)

    def _train(self, examples: Sequence[OutcomeExample]) -> None:
        """Three phases; keeps the weights that order the held-out seventh of the tasks best."""
        import torch

        sides: tuple[list[OutcomeExample], list[OutcomeExample]] = [], []
        for example in examples:
            task = example.task or example.question.text
            sides[zlib.crc32(task.encode()) % 7 == 0].append(example)
        data = _TrainingData(sides[0], self._tally, self._seed, wide=self._wide)
        relevance, quality = self._make_relevance(data), self._make_quality(data)
        best, best_state = self._measure_held(sides[1]), copy.deepcopy(self._net.state_dict())
        phases = ([relevance], [quality], [relevance, quality])
        for epochs, losses in zip(_EPOCHS, phases, strict=True):
            optimizer = torch.optim.Adam(self._net.parameters(), RATE, weight_decay=1e-4)
            for _ in range(epochs):
                self._net.train()
                for list_losses in losses:
                    for loss in list_losses():
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                self._net.eval()
                if (score := self._measure_held(sides[1])) > best:
                    best, best_state = score, copy.deepcopy(self._net.state_dict())
            self._net.load_state_dict(best_state)

    def _measure_held(self, examples: Sequence[OutcomeExample]) -> float:
        """AUC over outcomes; a half without both kinds."""
        scores = [
            float(self.score(example.question, np.array([example.place]))[0])
            for example in examples
        ]
        success = np.array([example.success for example in examples], bool)
        auc = measure_auc(np.array(scores), success)
        return 0.5 if auc is None else auc

    def _make_relevance(self, data: _TrainingData) -> Callable[[], Iterator[Any]]:
        """Margin losses of successes above candidates that were not called; no wide features."""
        import torch

        rows = np.flatnonzero(data.success)

        def measure(batch: np.ndarray) -> Any:
            asked, blank = data.asked[rows[batch]], torch.zeros(len(batch), WIDE)
            above = self._net(asked, data.places[rows[batch]], blank)[:, 0]
            others = torch.from_numpy(data.draw_candidates(rows[batch]))
            below = self._net(asked, others, blank)[:, 0]
            return torch.relu(MARGIN - above + below).mean()

        return lambda: _iterate_batches(measure, len(rows), data.rng)

    def _make_quality(self, data: _TrainingData) -> Callable[[], Iterator[Any]]:
        import torch

        pairs = data.pair_judged()

        def measure(batch: np.ndarray) -> Any:
            above, below = (
                self._net(data.asked[rows], data.places[rows], data.wide[rows])[:, 1]
                for rows in (pairs[batch, 0], pairs[batch, 1])
            )
            return torch.relu(MARGIN - above + below).mean()

        return lambda: _iterate_batches(measure, len(pairs), data.rng)


def _iterate_batches(
    measure: Callable[[np.ndarray], Any], rows: int, rng: np.random.Generator
) -> Iterator[Any]:
    """The losses of one epoch, one per batch, in another order each time."""
    order = rng.permutation(rows)
    for start in range(0, rows, BATCH):
        yield measure(order[start : start + BATCH])
