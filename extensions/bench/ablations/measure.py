"""One arm of the ablations: trained in this process and asked the held-out items."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.vectors.encoders.embedder import embed_queries
from extensions.bench.ablations.arms import Learnt
from extensions.bench.ablations.data import Sets
from extensions.bench.ablations.options import CALLER, RETRIEVER
from training.evaluation.retriever import BASE_LABEL, evaluate_retriever, load_retriever
from training.runtime.model_store import Job
from warehouse.json_types import Row
from warehouse.storage.digest import digest

_LEARNT_FROM = ("pair_id", "contract_digest", "instruction", "calls", "negatives", "offered")
_COPIED = ("split", "server_id", "tool", "text_digest")


@dataclass(frozen=True)
class Asked:
    """What every arm is asked, and where its work is kept."""

    home: Path
    sets: Sets
    items: Sequence[Row]
    losses: Callable[[Mapping[str, Any]], None]

    def describe_inputs(self, role: str, made: Learnt | None) -> dict[str, Any]:
        """What an arm's result depends on beside its settings."""
        rows = made.rows if made else ()
        over = self.sets.texts if role == RETRIEVER else sorted(self.sets.pool)
        return {
            "learnt": digest([[row.get(name) for name in _LEARNT_FROM] for row in rows]),
            "items": digest([[row["pair_id"], row["instruction"]] for row in self.items]),
            "over": digest(over),
        }

    def make_job(
        self, role: str, base: str, settings: Mapping[str, Any], made: Learnt, name: str
    ) -> Job:
        """The training of one arm."""
        rows = [dict(row) for row in made.rows]
        held = dict(settings)
        return Job(role, name, self.home, self.sets.name, base, held, rows, self.sets.pool)


def measure_retriever(
    asked: Asked, base: str, settings: Mapping[str, Any], made: Learnt | None, name: str
) -> dict[str, Any]:
    """{rows, model}: the rank of the right tool of each item."""
    from training.retriever.settings import read_settings
    from training.retriever.train import resolve_retriever_base, train_retriever

    named = resolve_retriever_base(base)
    model = f"{BASE_LABEL}@{named}"
    if made is not None:
        model = name
        train_retriever(asked.make_job(RETRIEVER, named, settings, made, name), asked.losses)
    embedder = load_retriever(asked.home, model, prompts=read_settings(settings).prompts)

    def embed(texts: Sequence[str], is_query: bool) -> Any:
        return embed_queries(embedder, texts) if is_query else embedder.embed(texts)

    ranked = evaluate_retriever(asked.items, asked.sets.texts, {model: embed}, asked.sets.name)
    kept = (*_COPIED, "rank", "pool")
    rows = [{"item_id": row["pair_id"], **{key: row[key] for key in kept}} for row in ranked]
    return {"rows": rows, "model": model}


def measure_caller(
    asked: Asked, base: str, settings: Mapping[str, Any], made: Learnt | None, name: str
) -> dict[str, Any]:
    """{rows, model}: whether tool and call of each item are right, among ten candidates, once with
    random and once with hard distractors; untrained: of the baseline (BM25 and slot copying)."""
    from training.caller.train import train_caller
    from training.evaluation.caller.items import make_items
    from training.evaluation.caller.plan import TestPlan
    from training.evaluation.caller.run import evaluate_predictors
    from training.evaluation.predictors.adapter import AdapterPredictor
    from training.evaluation.predictors.baseline import BaselinePredictor

    given = {key: value for key, value in settings.items() if key != "items"}
    n = int(settings["items"])
    plan = TestPlan(
        candidates=(10,), per_split=n, perturbations=0, irrelevance=0, phantom=0,
    )  # fmt: skip
    items = [item for item in make_items(asked.items, asked.sets.pool, plan) if item.phantom == ""]
    if made is None:
        predictor: Any = BaselinePredictor()
    else:
        train_caller(asked.make_job(CALLER, base, given, made, name), asked.losses)
        predictor = AdapterPredictor(asked.home, name)
    scored = evaluate_predictors([predictor], items, asked.sets.name)
    kept = ("item_id", *_COPIED, "tool_ok", "ast_ok")
    return {"rows": [{key: row[key] for key in kept} for row in scored], "model": predictor.label}


MEASURED = {RETRIEVER: measure_retriever, CALLER: measure_caller}
