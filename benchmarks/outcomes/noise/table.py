"""The full-information log: what every candidate does for every task, and its files."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from assets.vectors.encoders.choose import open_embedder
from assets.vectors.encoders.embedder import embed_queries
from benchmarks.outcomes.noise.endpoints import ToolEndpoint
from benchmarks.outcomes.noise.intents import BenchTask

NO_CALL = "no_call"  # the task does not say what the tool needs
FILES = ("tasks.jsonl", "endpoints.jsonl", "outcomes.jsonl")


@dataclass(frozen=True)
class TaskFacts:
    """What is kept of a task. candidates: endpoint ids, the retriever's order of all of the pool;
    curated: the same of the real endpoints alone."""

    id: str
    split: str
    intent: str
    category: str
    world: str
    seed: int
    query: str
    candidates: tuple[str, ...]
    curated: tuple[str, ...]


@dataclass(frozen=True)
class TableCall:
    """One call that was made, or that could not be. success: by the task's rule. answer: the start
    of what was answered, of held-out tasks."""

    success: bool
    kind: str
    seconds: float = 0.0
    answer: str = ""


@dataclass
class OutcomeTable:
    """Tasks, endpoints, and outcomes by (task id, endpoint id)."""

    tasks: list[TaskFacts]
    endpoints: dict[str, ToolEndpoint]
    outcomes: dict[tuple[str, str], TableCall] = field(default_factory=dict)

    def find(self, task: str, endpoint: str) -> TableCall:
        """What the endpoint did. Raises KeyError for a call that was not made."""
        return self.outcomes[task, endpoint]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        rows = (
            map(asdict, self.tasks),
            map(asdict, self.endpoints.values()),
            (
                {"task": task, "endpoint": endpoint, **asdict(tried)}
                for (task, endpoint), tried in self.outcomes.items()
            ),
        )
        for name, own in zip(FILES, rows, strict=True):
            _write_lines(folder / name, own)


def load_table(folder: Path) -> OutcomeTable:
    """Raises OSError, and ValueError for what no table left there."""
    texts = [(folder / name).read_text(encoding="utf-8") for name in FILES]
    tasks, endpoints, outcomes = ([*map(json.loads, text.splitlines())] for text in texts)
    made = [ToolEndpoint(**endpoint) for endpoint in endpoints]
    keys = ("task", "endpoint")
    return OutcomeTable(
        [
            TaskFacts(**task | {name: tuple(task[name]) for name in ("candidates", "curated")})
            for task in tasks
        ],
        {item.id: item for item in made},
        {
            (outcome["task"], outcome["endpoint"]): TableCall(
                **{name: value for name, value in outcome.items() if name not in keys}
            )
            for outcome in outcomes
        },
    )


def keep_task(task: BenchTask, candidates: Iterable[str], curated: Iterable[str]) -> TaskFacts:
    """What the table keeps of a task."""
    return TaskFacts(
        task.id, task.split, task.intent, task.category, task.world, task.seed, task.query,
        tuple(candidates), tuple(curated),
    )  # fmt: skip


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


SHOWN = 5  # tools that the actor is shown
EMBEDDER = "general"
CANDIDATES = 20


def embed_endpoints(endpoints: Sequence[ToolEndpoint]) -> np.ndarray:
    """Unit vectors of the contracts as they are listed, float32 [endpoints, dim]."""
    return open_embedder(EMBEDDER).embed([tool_text(item.contract) for item in endpoints])


def embed_requests(texts: Sequence[str]) -> np.ndarray:
    """Unit vectors, float32 [texts, dim]; each text is embedded once."""
    different = list(dict.fromkeys(texts))
    vectors = embed_queries(open_embedder(EMBEDDER), different)
    places = {text: at for at, text in enumerate(different)}
    return vectors[[places[text] for text in texts]]


def choose_candidates(
    tasks: Sequence[BenchTask],
    endpoints: Sequence[ToolEndpoint],
    queries: np.ndarray,
    vectors: np.ndarray,
) -> list[TaskFacts]:
    """Each task with its candidates by cosine. queries [tasks, dim], vectors [endpoints, dim]."""
    real = np.array([endpoint.direct for endpoint in endpoints])
    scores = queries @ vectors.T
    order = np.argsort(-scores, axis=1, kind="stable")
    ids = [endpoint.id for endpoint in endpoints]
    return [
        keep_task(
            task, (ids[at] for at in row[:CANDIDATES]), (ids[at] for at in row[real[row]][:SHOWN])
        )
        for task, row in zip(tasks, order, strict=True)
    ]
