"""Training of the shipped retriever: a recipe's sets in, an adapter's folder out; it resumes."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from assets.vectors.encoders.weights import BASE
from benchmarks.retriever_fit.recipe import Recipe
from benchmarks.retriever_fit.rows import Row, make_listed_rows, make_rows
from benchmarks.router_fit.sets import check_sides, read_set
from training.retriever.train import train_retriever
from training.runtime.model_store import TrainingJob, get_model_folder, make_model_name
from warehouse.storage.digest import sha256

ROLE = "retriever"


def collect_data(
    recipe: Recipe, data: Path, left_out: Sequence[str] = ()
) -> tuple[list[Row], dict[str, Row]]:
    """(rows, pool) of every set of the recipe but those left out, and of its lists."""
    rows: list[Row] = []
    pool: dict[str, Row] = {}
    for name in recipe.sets:
        if name not in left_out:
            found = read_set(name, data)
            check_sides(found)
            own, near = make_rows(found, recipe)
            rows += own
            pool |= near
    for name in recipe.listed:
        own, near = make_listed_rows(name, data, recipe)
        rows += own
        pool |= near
    return rows, pool


def digest_data(rows: Sequence[Row], pool: dict[str, Row]) -> str:
    """SHA-256 of everything that is learnt from."""
    body = json.dumps([rows, pool], sort_keys=True, ensure_ascii=False)
    return sha256(body.encode("utf-8", "surrogatepass"))


def train_recipe(
    recipe: Recipe, data: Path, home: Path, threads: int | None, left_out: Sequence[str] = ()
) -> tuple[Path, dict[str, Any]]:
    """(folder of the adapter, its card); a training that was stopped goes on."""
    rows, pool = collect_data(recipe, data, left_out)
    learnt = digest_data(rows, pool)
    settings = asdict(replace(recipe.settings, threads=threads))
    name = make_model_name(ROLE, BASE, learnt, settings)
    job = TrainingJob(ROLE, name, home, learnt, BASE, settings, rows, pool)
    card = train_retriever(job, _report)
    return get_model_folder(home, name), card


def _report(figures: dict[str, Any]) -> None:
    if figures["step"] % 10 == 0 or figures["step"] == figures["steps"]:
        line = f"  step {figures['step']} of {figures['steps']}: loss {figures['loss']}\n"
        sys.stderr.write(line)
        sys.stderr.flush()
