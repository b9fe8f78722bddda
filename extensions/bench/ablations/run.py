"""Running the ablations: every arm and seed trained and measured once, on the same held-out items.

    <home>/ablations/measured/<digest>.json   rows and figures of one arm and seed, or of the base
    <home>/ablations/models/<name>            what it trained; a killed one goes on from its
                                              checkpoint

An arm is named by what it learns from, with which settings, and what it is asked: arms that come to
the same are trained once, and a kill loses no more than the steps since a checkpoint.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from assets.columns import SERVER_ID, TOOL, TRAINING_SET
from extensions.bench.ablations.arms import UNTRAINED, Learnt, select_arm_rows
from extensions.bench.ablations.data import Sets
from extensions.bench.ablations.measure import MEASURED, Asked
from extensions.bench.ablations.options import ARMS, RETRIEVER, AblationOptions
from training.caller.settings import CallerSettings, get_base_profile
from training.evaluation.retriever import NothingToEvaluate, select_testable_rows
from training.policies import Trainer
from training.retriever.settings import NONE, RetrieverSettings
from training.runtime.model_store import select_recipe
from warehouse.progress import Progress, SilentProgress
from warehouse.storage.digest import digest
from warehouse.storage.files import write_atomically
from warehouse.storage.tables import TableSpec

_FORMAT = 1
_UNTRAINED = ("device", "threads", "items", "query_prompt", "document_prompt")  # ask it too

ABLATIONS = TableSpec(
    name="ablations",
    key=("role", "arm", "seed", "item_id"),
    columns={
        "role": (pl.String, '"retriever" or "caller"'),
        "arm": (pl.String, f'one of {", ".join(ARMS)}, or "untrained" (seed 0)'),
        "seed": (pl.Int64, "of the training"),
        "item_id": (pl.String, "of the question; the retriever's: its pair"),
        "split": (pl.String, "of the training set that the question's pair is in"),
        "server_id": SERVER_ID,
        "tool": TOOL,
        "text_digest": (pl.String, "items are resampled by it"),
        "rank": (pl.Int64, "of the right tool; the retriever's"),
        "pool": (pl.Int64, "distinct tool texts ranked; the retriever's"),
        "tool_ok": (pl.Boolean, "the caller's"),
        "ast_ok": (pl.Boolean, "the caller's: its calls match the expected ones"),
        "pairs": (pl.Int64, "that the arm learnt from"),
        "model": (pl.String, "the digest that names it, or the name of the untrained one"),
        "training_set": TRAINING_SET,
        "minutes": (pl.Float64, "of training and measuring the arm, when it was done"),
    },
    volatile=("minutes",),
)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class AblationSettings(AblationOptions):
    """What is trained, how often and where. On a lent GPU: the same with `device` "cuda", a larger
    `caller_base`, and "caller" among the roles."""

    retriever: RetrieverSettings = field(default_factory=RetrieverSettings)
    retriever_base: str = "minilm"
    caller: CallerSettings = field(default_factory=lambda: get_base_profile("tiny"))
    caller_base: str = "tiny"


def choose_ablation_settings(trainer: Trainer) -> AblationSettings:
    """The options with the trainer's models. The retriever starts from nothing: what data is worth
    is asked of an adapter that has learnt from nothing else."""
    options = trainer.options.get("ablations") or AblationOptions()
    return AblationSettings(
        **asdict(options),
        retriever=replace(trainer.retriever, start=NONE),
        retriever_base=trainer.retriever_base,
        caller=trainer.caller,
        caller_base=trainer.caller_base,
    )


def run_ablations(
    home: Path,
    sets: Sets,
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
    asked = Asked(home / "ablations", sets, items, losses)
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
        found = _measure_arm(asked, settings, role, made, seed)
        about = {"role": role, "arm": arm, "seed": 0 if made is None else seed}
        figures = {name: found[name] for name in ("pairs", "model", "minutes")}
        same = {**about, **figures, "training_set": sets.name}
        out += [{**row, **same} for row in found["rows"]]
    reporter.update("ablations", len(due), len(due))
    return out


def _measure_arm(
    asked: Asked, settings: AblationSettings, role: str, made: Learnt | None, seed: int
) -> dict[str, Any]:
    """The kept result of an arm and seed, or a new one, kept."""
    how = _choose_arm_settings(settings, role, made, seed)
    kept = select_recipe(how["settings"])
    what = {"base": how["base"], "settings": kept, **asked.describe_inputs(role, made)}
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
    settings: AblationSettings, role: str, made: Learnt | None, seed: int
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
