"""The ablations: what the arms learn with, and one arm trained and asked the held-out items."""

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as pydantic_dataclass

from assets.columns import read_table_spec
from assets.contracts.canonical import tool_text
from assets.synthesis.tables import ONE_CALL
from assets.vectors.encoders.embedder import Embedder, embed_queries
from extensions.bench.ablation_options import CALLER, RETRIEVER, AblationOptions
from extensions.bench.ablation_table import UNTRAINED, render_ablation_table, summarise_ablations
from training.caller.settings import CallerOptions, CallerSettings, get_base_profile
from training.evaluation.retriever import (
    BASE_LABEL,
    NothingToEvaluate,
    evaluate_retriever,
    load_retriever,
    select_testable_rows,
)
from training.policies import TrainerPolicy
from training.retriever.settings import NONE, RetrieverSettings
from training.runtime.model_store import TrainingFailed, TrainingJob, select_recipe
from training.sets.build import make_set
from training.sets.split import TRAIN, SetPolicy
from warehouse.json_types import Row
from warehouse.progress import Progress, SilentProgress
from warehouse.sanitize.markdown import Markdown
from warehouse.storage.digest import digest
from warehouse.storage.files import write_atomically
from warehouse.store import Warehouse

ARMS = ("filtered", "raw", "raw_all", "random", "plain", "mixed")
FILTERED, RAW, RAW_ALL, RANDOM, PLAIN, MIXED = ARMS


@dataclass(frozen=True)
class ArmTrainingRows:
    """What one arm learns with under one seed."""

    rows: list[Row]
    random: bool  # whether its distractors are drawn at random


def select_arm_rows(
    arm: str, accepted: Sequence[Row], raw: Sequence[Row], seed: int
) -> ArmTrainingRows:
    """An arm's rows, drawn by `seed` where there are more than it takes. Both sets may hold other
    splits; only train rows are learnt from, and none that a test row repeats.

    Raises TrainingFailed where the arm has no rows.
    """
    kept = [row for row in accepted if row["split"] == TRAIN]
    if arm in (RAW, RAW_ALL):
        rows = _select_single_calls(_select_unseen_rows(raw, accepted))
        rows = _draw_rows(rows, len(_select_single_calls(kept)), seed) if arm == RAW else rows
    elif arm == PLAIN:
        rows = [row for row in kept if not row.get("evolved")]
    elif arm == MIXED:
        plain = [row for row in kept if not row.get("evolved")]
        rows = _draw_rows(_select_single_calls(kept), len(_select_single_calls(plain)), seed)
    else:
        rows = kept
    rows = _select_single_calls(rows)
    if not rows:
        raise TrainingFailed(
            f"ablation arm {arm} has no rows ({len(kept)} accepted train rows, {len(raw)} raw);"
            " make pairs first"
        )
    return ArmTrainingRows(rows, arm == RANDOM)


def _select_single_calls(rows: Sequence[Row]) -> list[Row]:
    """Every arm learns from one kind of task, so that arms differ by one thing."""
    return [row for row in rows if (row.get("task") or ONE_CALL[0]) in ONE_CALL]


def _select_unseen_rows(raw: Sequence[Row], accepted: Sequence[Row]) -> list[Row]:
    """Raw train rows that no test row repeats, by id or by words. A tool's held-out pairs depend on
    which pairs there are, and with raw ones there are more."""
    tested = [row for row in accepted if row["split"] != TRAIN]
    names = {row["pair_id"] for row in tested}
    texts = {_normalise_words(row["instruction"]) for row in tested}
    return [
        row
        for row in raw
        if row["split"] == TRAIN
        and row["pair_id"] not in names
        and _normalise_words(row["instruction"]) not in texts
    ]


def _draw_rows(rows: Sequence[Row], n: int, seed: int) -> list[Row]:
    """`n` of the rows, in their order."""
    ordered = sorted(rows, key=lambda row: row["pair_id"])
    places = random.Random(f"ablation {seed}").sample(range(len(ordered)), min(n, len(ordered)))
    return [ordered[at] for at in sorted(places)]


def _normalise_words(text: str) -> str:
    return " ".join(text.casefold().split())


@dataclass(frozen=True)
class ArmSets:
    """Rows of two training sets over the same contracts, and the contracts."""

    name: str  # of the accepted set
    accepted: list[dict[str, Any]]
    raw: list[dict[str, Any]]
    pool: dict[str, dict[str, Any]]

    @property
    def texts(self) -> list[str]:
        """All tool texts, what a retriever's answer is ranked among."""
        return sorted({tool_text(entry["contract"]) for entry in self.pool.values()})


def build_ablation_sets(
    warehouse: Warehouse, embedder: Embedder, policy: SetPolicy | None = None
) -> ArmSets:
    """Both sets of the current tables; the firewall and the leak rules hold for raw pairs too."""
    chosen = make_set(warehouse, embedder, policy)
    raw = make_set(warehouse, embedder, policy, choose=select_complete_pairs)
    return ArmSets(chosen.name, chosen.made.rows, raw.made.rows, chosen.made.pool)


def select_complete_pairs(pairs: Sequence[Row], _: Sequence[Row]) -> list[dict[str, Any]]:
    """Pairs that were written to their end, whatever a filter or the judge says of them."""
    kept = {
        row["pair_id"]: dict(row)
        for row in reversed(pairs)
        if row["status"] == "ok" and row["task"] in ONE_CALL
    }
    return [kept[name] for name in sorted(kept)]


_LEARNT_FROM = ("pair_id", "contract_digest", "instruction", "calls", "negatives", "offered")
_COPIED = ("split", "server_id", "tool", "text_digest")


@dataclass(frozen=True)
class ArmTestItems:
    """What every arm is asked, and where its work is kept."""

    home: Path
    sets: ArmSets
    items: Sequence[Row]
    losses: Callable[[Mapping[str, Any]], None]

    def describe_inputs(self, role: str, made: ArmTrainingRows | None) -> dict[str, Any]:
        """What an arm's result depends on beside its settings."""
        rows = made.rows if made else ()
        over = self.sets.texts if role == RETRIEVER else sorted(self.sets.pool)
        return {
            "learnt": digest([[row.get(name) for name in _LEARNT_FROM] for row in rows]),
            "items": digest([[row["pair_id"], row["instruction"]] for row in self.items]),
            "over": digest(over),
        }

    def make_job(
        self, role: str, base: str, settings: Mapping[str, Any], made: ArmTrainingRows, name: str
    ) -> TrainingJob:
        """The training of one arm."""
        rows = [dict(row) for row in made.rows]
        values = dict(settings)
        return TrainingJob(
            role, name, self.home, self.sets.name, base, values, rows, self.sets.pool
        )


def measure_retriever(
    asked: ArmTestItems,
    base: str,
    settings: Mapping[str, Any],
    made: ArmTrainingRows | None,
    name: str,
) -> dict[str, Any]:
    """{rows, model}: the rank of the right tool of each item."""
    from training.retriever.settings import read_settings
    from training.retriever.train import resolve_retriever_base, train_retriever

    retriever_base = resolve_retriever_base(base)
    model = f"{BASE_LABEL}@{retriever_base}"
    if made is not None:
        model = name
        train_retriever(
            asked.make_job(RETRIEVER, retriever_base, settings, made, name), asked.losses
        )
    embedder = load_retriever(asked.home, model, prompts=read_settings(settings).prompts)

    def embed(texts: Sequence[str], is_query: bool) -> Any:
        return embed_queries(embedder, texts) if is_query else embedder.embed(texts)

    ranked = evaluate_retriever(asked.items, asked.sets.texts, {model: embed}, asked.sets.name)
    kept = (*_COPIED, "rank", "pool")
    rows = [{"item_id": row["pair_id"], **{key: row[key] for key in kept}} for row in ranked]
    return {"rows": rows, "model": model}


def measure_caller(
    asked: ArmTestItems,
    base: str,
    settings: Mapping[str, Any],
    made: ArmTrainingRows | None,
    name: str,
) -> dict[str, Any]:
    """{rows, model}: whether tool and call of each item are right, among ten candidates, once with
    random and once with hard distractors; untrained: of the baseline (BM25 and slot copying)."""
    from training.caller.train import train_caller
    from training.evaluation.adapter_predictor import AdapterPredictor
    from training.evaluation.baselines import BaselinePredictor
    from training.evaluation.caller_items import TestPlan, make_items
    from training.evaluation.caller_run import evaluate_predictors

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


_FORMAT = 1
_UNTRAINED = ("device", "threads", "items", "query_prompt", "document_prompt")  # ask it too

ABLATIONS = read_table_spec(__file__, "ablations")


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class AblationSettings(AblationOptions):
    """What is trained, how often and where. On a lent GPU: the same with `device` "cuda", a larger
    `caller_base`, and "caller" among the roles. caller_items: a split; each is a generation."""

    arms: tuple[str, ...] = ARMS
    seeds: tuple[int, ...] = (7, 8, 9)
    caller_items: int = 60
    retriever: RetrieverSettings = field(default_factory=RetrieverSettings)
    retriever_base: str = "minilm"
    caller: CallerSettings = field(default_factory=lambda: get_base_profile(CallerOptions.base))
    caller_base: str = CallerOptions.base


def choose_ablation_settings(trainer: TrainerPolicy) -> AblationSettings:
    """The options with the trainer's models. Both start from nothing and learn all rows of an arm:
    what data is worth is asked of an adapter that has learnt from nothing else."""
    options = trainer.options.get("ablations") or AblationOptions()
    return AblationSettings(
        **asdict(options),
        retriever=replace(trainer.retriever, start=NONE),
        retriever_base=trainer.retriever_base,
        caller=replace(trainer.caller, update_tokens=None),
        caller_base=trainer.caller_base,
    )


def run_ablations(
    home: Path,
    sets: ArmSets,
    settings: AblationSettings | None = None,
    report: Progress | None = None,
    losses: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Rows of ABLATIONS: every role, arm and seed.

    `report` is told of each arm, `losses` of each step of a training.
    Raises TrainingFailed, NothingToEvaluate.
    """
    settings, reporter = settings or AblationSettings(), report or SilentProgress()
    items = select_testable_rows(sets.accepted)
    if not items:
        raise NothingToEvaluate(
            f"ablations: 0 of {len(sets.accepted)} rows are held out with a call to one tool;"
            " expected accepted pairs of at least one test server. Deploy more servers"
        )
    arm_test_items = ArmTestItems(home / "ablations", sets, items, losses)
    due: list[tuple[str, str, int]] = [
        (role, arm, seed)
        for role in settings.roles
        for seed in settings.seeds
        for arm in (*((UNTRAINED,) if seed == settings.seeds[0] else ()), *settings.arms)
    ]
    out = []
    for done, (role, arm, seed) in enumerate(due):
        reporter.update("ablations", done, len(due), role=role, arm=arm, seed=seed)
        made = None if arm == UNTRAINED else select_arm_rows(arm, sets.accepted, sets.raw, seed)
        found = _measure_arm(arm_test_items, settings, role, made, seed)
        about = {"role": role, "arm": arm, "seed": 0 if made is None else seed}
        figures = {name: found[name] for name in ("pairs", "model", "minutes")}
        same = {**about, **figures, "training_set": sets.name}
        out += [{**row, **same} for row in found["rows"]]
    reporter.update("ablations", len(due), len(due))
    return out


def _measure_arm(
    asked: ArmTestItems,
    settings: AblationSettings,
    role: str,
    made: ArmTrainingRows | None,
    seed: int,
) -> dict[str, Any]:
    """The kept result of an arm and seed, or a new one, kept."""
    how = _choose_arm_settings(settings, role, made, seed)
    recipe = select_recipe(how["settings"])
    what = {"base": how["base"], "settings": recipe, **asked.describe_inputs(role, made)}
    name = digest({"format": _FORMAT, "role": role, **what})
    path = asked.home / "measured" / f"{name}.json"
    if (done := _read_kept_result(path)) is not None:
        return done
    began = time.monotonic()
    pairs = len(made.rows) if made else 0
    found = MEASURED[role](asked, how["base"], how["settings"], made, name)
    body = {**found, "pairs": pairs, "minutes": round((time.monotonic() - began) / 60, 2)}
    write_atomically(path, json.dumps(body, ensure_ascii=False).encode())
    return body


def _read_kept_result(path: Path) -> dict[str, Any] | None:
    """A result that was kept; one that cannot be read is made again."""
    try:
        body = json.loads(path.read_bytes())
        return body if {"rows", "model", "pairs", "minutes"} <= body.keys() else None
    except (OSError, ValueError, AttributeError):
        return None


def _choose_arm_settings(
    settings: AblationSettings, role: str, made: ArmTrainingRows | None, seed: int
) -> dict[str, Any]:
    """Base and hyper-parameters of an arm."""
    if role == RETRIEVER:
        base, given = settings.retriever_base, asdict(settings.retriever)
    else:
        base, given = settings.caller_base, asdict(settings.caller)
        given["items"] = settings.caller_items
    if made is None:
        return {"base": base, "settings": {n: given[n] for n in _UNTRAINED if n in given}}
    if made.random:
        given["distractors"] = "random"
    return {"base": base, "settings": {**given, "seed": seed}}


def render_ablation_section(warehouse: Warehouse) -> Markdown | None:
    """The ablations as a section of the report; None where none were run."""
    rows = warehouse.tables.read(ABLATIONS).to_dicts()
    return render_ablation_table(summarise_ablations(rows)) if rows else None
