"""Learners play against the table: they order the candidates, an actor takes one of five."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from assets.contracts.canonical import contract_digest
from benchmarks.outcomes.noise.table import NO_CALL, SHOWN, OutcomeTable, TaskFacts
from extensions.recommender.rerank_method import OutcomeExample, RerankMethod
from extensions.recommender.tool_pool import ToolFacts, ToolPool
from serving.ranking.strategies import RerankQuestion

TICK_S = 600.0  # between two requests
# The actor's choice among the five it is shown. `top` takes the first; `by rank` does so in 55 of
# 100 (the published agent overrides 45), otherwise one of the others, earlier ones more often.
ACTORS: Mapping[str, np.ndarray] = {
    "top": np.array([1.0, 0, 0, 0, 0]),
    "by rank": np.array([0.55, 0.18, 0.12, 0.09, 0.06]),
}
Make = Callable[[], RerankMethod]


@dataclass(frozen=True)
class NoiseStage:
    """A table as methods see it. queries: unit vectors [tasks, dim]; vectors: of the endpoints'
    contracts, [endpoints, dim]. Tools that need what the task does not say are no candidates."""

    table: OutcomeTable
    queries: np.ndarray
    vectors: np.ndarray

    @cached_property
    def pool(self) -> ToolPool:
        facts = [
            ToolFacts(item.id, item.server_id, item.contract, contract_digest(item.contract))
            for item in self.table.endpoints.values()
        ]
        return ToolPool(facts, self.vectors)

    @cached_property
    def rows(self) -> dict[str, int]:
        return {task.id: row for row, task in enumerate(self.table.tasks)}

    def ask(self, task: TaskFacts, at: float = 0.0) -> RerankQuestion:
        """The request with its candidates as places in the pool."""
        candidates = self.find_places(task, task.candidates)
        return RerankQuestion(task.query, self.queries[self.rows[task.id]], candidates, at)

    def find_places(self, task: TaskFacts, names: Sequence[str]) -> np.ndarray:
        """Those that the actor can call, as places; all of them where it can call none."""
        places = self.pool.places
        kept = [name for name in names if self.table.find(task.id, name).kind != NO_CALL]
        return np.array([places[name] for name in kept or names], int)

    def succeeds(self, task: TaskFacts, place: int) -> bool:
        return self.table.find(task.id, self.pool.tools[place].tool_id).success

    def list_tasks(self, split: str) -> list[TaskFacts]:
        return [task for task in self.table.tasks if task.split == split]

    def measure_rates(self) -> dict[tuple[str, str], float]:
        """True rates by (intent, endpoint): the share of all tasks of the intent, of both splits,
        that the endpoint did."""
        found: dict[tuple[str, str], list[bool]] = {}
        for task in self.table.tasks:
            for name in task.candidates:
                if (task.id, name) in self.table.outcomes:
                    done = self.table.find(task.id, name).success
                    found.setdefault((task.intent, name), []).append(done)
        return {key: float(np.mean(own)) for key, own in found.items()}


def draw_log(stage: NoiseStage, tasks: Sequence[TaskFacts], seed: int) -> list[OutcomeExample]:
    """What a log holds where the retriever orders and the actor of `by rank` picks: one outcome a
    task, the same for every method."""
    rng, found = np.random.default_rng(seed), []
    for at, task in enumerate(tasks):
        question = stage.ask(task, at * TICK_S)
        place = pick_place(question.candidates, rng)
        found.append(OutcomeExample(question, place, stage.succeeds(task, place), task=task.id))
    return found


def pick_place(order: np.ndarray, rng: np.random.Generator) -> int:
    """What the actor of `by rank` takes of the first five."""
    shares = ACTORS["by rank"][: len(order)]
    return int(rng.choice(order[:SHOWN], p=shares / shares.sum()))


def order_candidates(scores: np.ndarray, question: RerankQuestion) -> np.ndarray:
    """Candidates by score; the retriever's order decides ties."""
    return question.candidates[np.argsort(-scores, kind="stable")]


def order_by_method(
    stage: NoiseStage, method: RerankMethod, tasks: Sequence[TaskFacts], learnt: int
) -> list[np.ndarray]:
    """The order of each task's candidates by a method, asked right after so many outcomes."""
    results = []
    for task in tasks:
        question = stage.ask(task, (learnt + 1) * TICK_S)
        results.append(order_candidates(method.score(question, question.candidates), question))
    return results


def order_by_retriever(stage: NoiseStage, tasks: Sequence[TaskFacts]) -> list[np.ndarray]:
    return [stage.ask(task).candidates for task in tasks]


def order_curated(stage: NoiseStage, tasks: Sequence[TaskFacts]) -> list[np.ndarray]:
    """The retriever's order where the pool holds real endpoints only."""
    endpoints, found = stage.table.endpoints, []
    for task in tasks:
        others = (name for name in task.candidates if endpoints[name].direct)
        names = list(dict.fromkeys([*task.curated, *others]))
        found.append(stage.find_places(task, names))
    return found


def order_by_oracle(stage: NoiseStage, tasks: Sequence[TaskFacts]) -> list[np.ndarray]:
    """The order of who knows the true rate of each endpoint at each intent."""
    rates, found = stage.measure_rates(), []
    for task in tasks:
        question = stage.ask(task)
        ids = [stage.pool.tools[place].tool_id for place in question.candidates]
        own = np.array([rates[task.intent, name] for name in ids])
        found.append(order_candidates(own, question))
    return found


def value_orders(
    stage: NoiseStage, tasks: Sequence[TaskFacts], orders: Sequence[np.ndarray], actor: str
) -> np.ndarray:
    """The chance that the actor's choice succeeds at each task, float [tasks]."""
    shares, found = ACTORS[actor], []
    for task, order in zip(tasks, orders, strict=True):
        done = [stage.succeeds(task, place) for place in order[:SHOWN].tolist()]
        own = shares[: len(done)]
        found.append(float(np.dot(own, done) / own.sum()))
    return np.array(found)
