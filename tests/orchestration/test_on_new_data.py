"""The fan-in's condition, ticked on an ephemeral instance through the cases that broke others."""

from collections.abc import Iterator

import dagster as dg
import pytest

from orchestration.automation import on_new_data

PARTS = dg.StaticPartitionsDefinition(["a", "b"])


class World:
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

    def tick(self) -> bool:
        """One evaluation; whether it asks for the fan-in."""
        result = dg.evaluate_automation_conditions(self.defs, self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        return bool(result.get_num_requested(dg.AssetKey("fan_in")))


@pytest.fixture
def world() -> Iterator[World]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield World(instance)


def settle(world: World) -> None:
    """Both partitions made once, everything downstream made, nothing pending."""
    world.tick()
    for partition in ("a", "b"):
        world.make("up", partition)
    world.tick()
    world.make("fan_in")
    assert not world.tick()


def change(world: World, partition: str) -> None:
    world.versions[partition] += "+"
    world.make("up", partition)


def test_nothing_is_asked_for_before_anything_is_new(world: World) -> None:
    assert not world.tick()


def test_one_marketplace_is_enough_and_the_other_is_not_waited_for(world: World) -> None:
    world.tick()
    world.make("up", "a")
    assert world.tick()


def test_the_same_data_version_again_asks_for_nothing(world: World) -> None:
    settle(world)
    world.make("up", "a")
    assert not world.tick()


def test_a_new_data_version_asks_once(world: World) -> None:
    settle(world)
    change(world, "a")
    assert world.tick()
    assert not world.tick()


def test_a_change_that_lands_on_the_tick_after_a_request_is_not_lost(world: World) -> None:
    settle(world)
    change(world, "a")
    assert world.tick()
    change(world, "b")
    assert world.tick()


def test_a_fan_in_that_failed_is_asked_for_once_more_and_not_for_ever(world: World) -> None:
    settle(world)
    world.fails = True
    change(world, "a")
    assert world.tick()
    world.make("fan_in", ok=False)
    assert world.tick()
    world.make("fan_in", ok=False)
    assert not world.tick()
    assert not world.tick()
