"""The fan-in's condition, ticked on an ephemeral instance through the cases that broke others."""

from collections.abc import Iterator

import dagster as dg
import pytest

from orchestration.automation import on_new_data

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

    def tick(self) -> bool:
        """One evaluation; whether it asks for the fan-in."""
        result = dg.evaluate_automation_conditions(self.defs, self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        return bool(result.get_num_requested(dg.AssetKey("fan_in")))


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Upstream(instance)


def settle(upstream: Upstream) -> None:
    """Both partitions made once, everything downstream made, nothing pending."""
    upstream.tick()
    for partition in ("a", "b"):
        upstream.make("up", partition)
    upstream.tick()
    upstream.make("fan_in")
    assert not upstream.tick()


def change(upstream: Upstream, partition: str) -> None:
    upstream.versions[partition] += "+"
    upstream.make("up", partition)


def test_nothing_is_asked_for_before_anything_is_new(upstream: Upstream) -> None:
    assert not upstream.tick()


def test_one_marketplace_is_enough_and_the_other_is_not_waited_for(upstream: Upstream) -> None:
    upstream.tick()
    upstream.make("up", "a")
    assert upstream.tick()


def test_the_same_data_version_again_asks_for_nothing(upstream: Upstream) -> None:
    settle(upstream)
    upstream.make("up", "a")
    assert not upstream.tick()


def test_a_new_data_version_asks_once(upstream: Upstream) -> None:
    settle(upstream)
    change(upstream, "a")
    assert upstream.tick()
    assert not upstream.tick()


def test_a_change_that_lands_on_the_tick_after_a_request_is_not_lost(upstream: Upstream) -> None:
    settle(upstream)
    change(upstream, "a")
    assert upstream.tick()
    change(upstream, "b")
    assert upstream.tick()


def test_a_fan_in_that_failed_is_asked_for_once_more_and_not_for_ever(upstream: Upstream) -> None:
    settle(upstream)
    upstream.fails = True
    change(upstream, "a")
    assert upstream.tick()
    upstream.make("fan_in", ok=False)
    assert upstream.tick()
    upstream.make("fan_in", ok=False)
    assert not upstream.tick()
    assert not upstream.tick()
