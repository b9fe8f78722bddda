"""Resources: what the factories make of the settings, when a run starts."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import dagster as dg

from assets.synthesis.writing.writer import PairWriter
from orchestration.factories import (
    make_crawl_policies,
    make_embedder,
    make_executor,
    make_launcher,
    make_trainer,
    make_world_tasks,
    make_writer,
    open_warehouse,
)
from orchestration.pipes import TrainingScripts
from orchestration.settings.load import load_settings
from orchestration.settings.model import Settings
from warehouse.home import is_own_instance
from warehouse.store import Warehouse

HOME_TAG = "toolmill/home"  # of runs in an instance of several homes; as metadata, of assets


def build_default_resources() -> Mapping[str, Any]:
    """Every resource of the code location, made from the settings when a run starts."""
    return {
        "warehouse": dg.ResourceDefinition(_make_warehouse),
        "crawlers": _make_resource(make_crawl_policies),
        "launcher": _make_resource(make_launcher),
        "embedder": _make_resource(make_embedder),
        "writer": _make_resource(_make_writer),
        "executor": _make_resource(make_executor),
        "reliability_policy": _make_resource(lambda settings: settings.reliability),
        "trainer": _make_resource(make_trainer),
        "scripts": _make_resource(lambda settings: TrainingScripts(settings.training.place)),
    }


def _make_warehouse(context: dg.InitResourceContext) -> Warehouse:
    """The stores of one run. The run is tagged with its home where the Dagster instance is shared
    with other homes."""
    settings = _load_for(context)
    instance, run = context.instance, context.run_id
    if instance and run and not _is_own(instance, settings):
        instance.add_run_tags(run, {HOME_TAG: str(settings.home_path())})
    return open_warehouse(settings, run or "-")


def _is_own(instance: dg.DagsterInstance, settings: Settings) -> bool:
    return is_own_instance(Path(instance.root_directory), settings.state_path())


def _make_writer(settings: Settings) -> PairWriter:
    """Who writes pairs, and the worlds whose tasks are pairs too: commands that judge or read need
    none."""
    return replace(make_writer(settings), worlds=make_world_tasks(settings))


def _make_resource(build: Callable[[Settings], Any]) -> dg.ResourceDefinition:
    def made(context: dg.InitResourceContext) -> Any:
        return build(_load_for(context))

    return dg.ResourceDefinition(made)


def _load_for(context: dg.InitResourceContext) -> Settings:
    """The settings as they were when the run's first resource was made."""
    if context.run_id is None:
        return load_settings()
    return _load_once(context.run_id, hash(frozenset(os.environ.items())))


@lru_cache(maxsize=1)
def _load_once(run: str, environment: int) -> Settings:
    return load_settings()
