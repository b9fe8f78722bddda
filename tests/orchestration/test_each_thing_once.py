"""After a change every asset runs once, in order: the real graph, conditions, jobs, a sensor."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.execution.api import execute_run
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus

from assets.partitions import NIGHTLY
from orchestration.definitions import (
    AFTER_TRAINING,
    FOLLOWS_NEW_DATA,
    TRAINED,
    build_defs,
    define_jobs,
    on_new_data,
)
from orchestration.runs.instance import relax_sqlite
from orchestration.sensors import retrain_on_drift
from tests.orchestration.test_retrain_on_drift import publish, trained
from warehouse.storage.digest import digest

MARKETS = ["glama", "registry", "smithery"]
TOOLS = dict.fromkeys("abcdefghij", "1")
REAL = [one for one in build_defs().assets or [] if isinstance(one, dg.AssetsDefinition)]
SPECS = {spec.key.to_user_string(): spec for one in REAL for spec in one.specs}
ORIGIN = RemoteInstigatorOrigin(
    RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("toolmill"), "__repository__"),
    retrain_on_drift.name,
)
SENSOR = InstigatorState(ORIGIN, InstigatorType.SENSOR, InstigatorStatus.RUNNING)


class Daemon:
    """Ticks the conditions and the sensor, and runs what they ask for, one run after the other."""

    def __init__(self, instance: dg.DagsterInstance, home: Path) -> None:
        self.instance, self.home = instance, home
        self.cursor = None
        self.queue: list[tuple[Any, dg.DagsterRun]] = []
        self.keys: set[str | None] = set()  # of runs that the sensor asked for
        self.tools = TOOLS
        self.made: list[str] = []
        self.failing: set[str] = set()
        self.failed: Counter[str] = Counter()
        self.sensor_on = False
        self.defs = dg.Definitions(
            assets=[self._copy_asset(item) for item in REAL],
            jobs=define_jobs(),
            executor=dg.in_process_executor,
        )

    def _copy_asset(self, real: Any) -> dg.AssetsDefinition:
        """The same place in the graph; its version follows from its inputs'."""
        [spec] = real.specs
        name = spec.key.to_user_string()

        @dg.asset(
            name=name,
            deps=[dep.asset_key for dep in spec.deps],
            partitions_def=real.partitions_def,
            automation_condition=spec.automation_condition,
            code_version="1",
        )
        def copied(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
            if name in self.failing:
                self.failed[name] += 1
                raise RuntimeError("down")
            yield dg.MaterializeResult(data_version=dg.DataVersion(self._make(name)))
            self.made.append(name)
            self.tick()  # between two steps of a run

        return copied

    def _make(self, name: str) -> str:
        if name == "training_set":
            return publish(self.home, self.tools)
        if name == "retriever_champion":
            trained(self.home, str(self._read_version("training_set")))
        deps = sorted(dep.asset_key.to_user_string() for dep in SPECS[name].deps)
        inputs = [self._read_version(dep) for dep in deps if dep not in NIGHTLY]
        return digest([name, self.tools, inputs])

    def _read_version(self, name: str) -> str | None:
        event = self.instance.get_latest_materialization_event(dg.AssetKey(name))
        result = event.asset_materialization if event else None
        return (result.tags or {}).get("dagster/data_version") if result else None

    def add_run(self, job: str, partition: str | None = None, **how: Any) -> None:
        definition = self.defs.resolve_job_def(job)
        if names := how.pop("names", None):
            definition = definition.get_subset(asset_selection=names)
            how["asset_selection"] = names
        tags = {**how.pop("tags", {}), **({"dagster/partition": partition} if partition else {})}
        status = dg.DagsterRunStatus.STARTING
        run = self.instance.create_run_for_job(definition, status=status, tags=tags, **how)
        self.queue.append((definition, run))

    def tick(self) -> None:
        result = dg.evaluate_automation_conditions(self.defs, self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        names = {item.key for item in result.results if item.true_subset.size}
        if names:
            self.add_run("__ASSET_JOB", names=names)
        if not self.sensor_on:
            return
        asked = retrain_on_drift(dg.build_sensor_context(instance=self.instance))
        for request in getattr(asked, "run_requests", None) or []:
            if request.run_key not in self.keys:
                self.keys.add(request.run_key)
                self.add_run("train", tags=request.tags)

    def turn_sensor_on(self) -> None:
        self.sensor_on = True
        self.instance.add_instigator_state(SENSOR)

    def settle(self) -> list[str]:
        """Ticks and runs until three ticks ask for nothing; what was made, in order."""
        self.made, quiet = [], 0
        for _ in range(100):
            self.tick()
            quiet = 0 if self.queue else quiet + 1
            if quiet == 3:
                return self.made
            if self.queue:
                job, run = self.queue.pop(0)
                execute_run(InMemoryJob(job), run, self.instance)
        raise AssertionError(f"never quiet: {self.made[-20:]}")

    def run_night(self, tools: dict[str, str]) -> list[str]:
        """The nightly runs of all marketplaces over these tools, and whatever follows."""
        self.tools = tools
        for name in MARKETS:
            self.add_run("nightly", name)
        return self.settle()


@dataclass(frozen=True)
class FirstNight:
    """A home with everything made once and the sensor on, and how far its daemon is."""

    home: Path
    made: list[str]
    cursor: Any
    keys: set[str | None]


@contextmanager
def open_daemon(home: Path) -> Iterator[Daemon]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOOLMILL_HOME", str(home))
        patch.chdir(home)
        relax_sqlite()  # else each of a tick's hundreds of questions opens its file anew
        with dg.DagsterInstance.local_temp(str(home)) as instance:
            yield Daemon(instance, home)


@pytest.fixture(scope="module")
def first_night(tmp_path_factory: pytest.TempPathFactory) -> FirstNight:
    home = tmp_path_factory.mktemp("first")
    with open_daemon(home) as daemon:
        daemon.tick()
        daemon.turn_sensor_on()
        return FirstNight(home, daemon.run_night(TOOLS), daemon.cursor, daemon.keys)


@pytest.fixture
def daemon(first_night: FirstNight, tmp_path: Path) -> Iterator[Daemon]:
    with open_daemon(shutil.copytree(first_night.home, tmp_path / "home")) as made:
        made.cursor, made.keys, made.sensor_on = first_night.cursor, set(first_night.keys), True
        yield made


def count_following(made: list[str]) -> Counter[str]:
    return Counter(name for name in made if name not in NIGHTLY)


def check_order(made: list[str]) -> None:
    """No asset before the last version of anything that it is made from."""
    last = {name: place for place, name in enumerate(made)}
    late = {
        name: dep
        for place, name in enumerate(made)
        if name not in NIGHTLY
        for dep in SPECS[name].deps
        if last.get(dep.asset_key.to_user_string(), -1) > place
    }
    assert not late


def test_what_waits_for_a_training_is_what_an_adapter_leads_to():
    graph = build_defs().resolve_asset_graph()
    followed = [dg.AssetKey(name) for name in FOLLOWS_NEW_DATA]
    adapters = {dg.AssetKey(name) for name in TRAINED}
    led_to = {key for key in followed if adapters & graph.get_ancestor_asset_keys(key)}
    assert {key.to_user_string() for key in led_to} == AFTER_TRAINING


@pytest.mark.slow  # a tick over the whole graph takes .4 s, and it ticks after each step
def test_after_a_change_everything_runs_once_and_in_order(first_night, daemon):
    first = first_night.made
    assert count_following(first) == dict.fromkeys([*FOLLOWS_NEW_DATA, *TRAINED], 1)
    check_order(first)
    second = daemon.run_night({**TOOLS, "a": "2", "new": "1"})
    assert count_following(second) == dict.fromkeys([*FOLLOWS_NEW_DATA, *TRAINED], 1)
    assert Counter(second) - count_following(second) == dict.fromkeys(NIGHTLY, len(MARKETS))
    check_order(second)
    assert set(daemon.run_night(daemon.tools)) == set(NIGHTLY)  # the same contracts again


@pytest.mark.slow
def test_a_change_too_small_to_train_on_is_measured_once(daemon, monkeypatch):
    monkeypatch.setenv("TOOLMILL_TRAINING__DRIFT__MIN_SHARE", "0.5")
    result = daemon.run_night({**TOOLS, "a": "2"})
    assert count_following(result) == dict.fromkeys(FOLLOWS_NEW_DATA, 1)
    check_order(result)


@pytest.mark.slow
def test_nothing_waits_for_a_training_that_nobody_asks_for(daemon):
    daemon.sensor_on = False
    daemon.instance.update_instigator_state(SENSOR.with_status(InstigatorStatus.STOPPED))
    result = daemon.run_night({**TOOLS, "a": "2"})
    assert count_following(result) == dict.fromkeys(FOLLOWS_NEW_DATA, 1)


@pytest.mark.slow
def test_what_a_training_that_keeps_failing_held_up_goes_on_without_it(daemon):
    daemon.failing = {"caller_adapter"}
    counts = count_following(daemon.run_night({**TOOLS, "a": "2"}))
    for name in ("release", "router_index", "report", "caller_evaluation"):
        assert counts[name] == 1, name


@pytest.mark.slow
def test_a_fan_in_that_fails_is_tried_twice_and_holds_up_nothing(daemon):
    daemon.failing = {"server_summaries"}
    result = daemon.run_night({**TOOLS, "a": "2"})
    assert daemon.failed == {"server_summaries": 2}
    assert count_following(result)["router_index"] == 1


PARTS = dg.StaticPartitionsDefinition(["a", "b"])


class Upstream:
    """An upstream by partition with chosen data versions, a fan-in, and a same-key asset."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.cursor = None
        self.versions = {"a": "1", "b": "1"}
        self.fails = False

        @dg.asset(partitions_def=PARTS)
        def up(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
            version = self.versions[context.partition_key]
            return dg.MaterializeResult(data_version=dg.DataVersion(version))

        @dg.asset(deps=[up], automation_condition=on_new_data())
        def fan_in() -> None:
            if self.fails:
                raise RuntimeError("down")

        self.assets = [up, fan_in]
        self.defs = dg.Definitions(assets=self.assets)

    def make(self, name: str, partition: str | None = None, *, ok: bool = True) -> None:
        result = dg.materialize(
            self.assets,
            selection=[name],
            partition_key=partition,
            instance=self.instance,
            raise_on_error=False,
        )
        assert result.success is ok

    def change(self, partition: str) -> None:
        self.versions[partition] += "+"
        self.make("up", partition)

    def tick(self) -> bool:
        """One evaluation; whether it asks for the fan-in."""
        result = dg.evaluate_automation_conditions(self.defs, self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        return bool(result.get_num_requested(dg.AssetKey("fan_in")))


@pytest.fixture
def settled(instance) -> Upstream:
    """Both partitions made once, everything downstream made, nothing pending."""
    upstream = Upstream(instance)
    upstream.tick()
    for partition in ("a", "b"):
        upstream.make("up", partition)
    upstream.tick()
    upstream.make("fan_in")
    assert not upstream.tick()
    return upstream


def test_one_marketplace_is_enough_and_the_other_is_not_waited_for(instance):
    upstream = Upstream(instance)
    assert not upstream.tick(), "before anything is new"
    upstream.make("up", "a")
    assert upstream.tick()


def test_a_new_data_version_asks_once_and_the_same_again_for_nothing(settled):
    settled.make("up", "a")
    assert not settled.tick()
    settled.change("a")
    assert settled.tick()
    assert not settled.tick()
    settled.change("a")
    assert settled.tick()
    settled.change("b")
    assert settled.tick(), "what lands on the tick after a request is not lost"


def test_a_fan_in_that_failed_is_asked_for_once_more_and_not_for_ever(settled):
    settled.fails = True
    settled.change("a")
    for _ in range(2):
        assert settled.tick()
        settled.make("fan_in", ok=False)
    assert not settled.tick()
    assert not settled.tick()
