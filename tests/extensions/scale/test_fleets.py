"""What a fleet promises, of both kinds; a real Ray of one machine is started for its half."""

import os
from dataclasses import replace
from unittest.mock import Mock

import pytest

from extensions.scale.ray_fleet import RayFleet, _start
from tests.extensions.scale import fleet_pieces
from warehouse.fleet import (
    FleetSettings,
    FleetUnavailable,
    LocalFleet,
    TaskLost,
    map_side_by_side,
    open_fleet,
)

SETTINGS = FleetSettings(runs_on="ray", address="local", memory_mb=64)


@pytest.fixture(scope="module")
def ray_fleet():
    ray = pytest.importorskip("ray", reason="uv pip install 'toolmill[ray]'")
    fleet = RayFleet(replace(SETTINGS))
    # The first piece is a thread's that ends: the cluster must outlive it.
    first = map_side_by_side(lambda n: fleet.call(fleet_pieces.double, n), [1], concurrency=1)
    assert first == [b"2"]
    yield fleet
    ray.shutdown()


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.slow)])
def fleet(request):
    return LocalFleet() if request.param == "local" else request.getfixturevalue("ray_fleet")


def test_many_pieces_come_back_in_their_order_and_an_error_as_it_is(fleet):
    made = map_side_by_side(lambda n: fleet.call(fleet_pieces.double, n), range(40), concurrency=4)
    assert made == [str(2 * n).encode() for n in range(40)]
    with pytest.raises(ValueError, match=r"^no tool$"):
        fleet.call(fleet_pieces.refuse, "tool")
    assert fleet.call(fleet_pieces.double, 4) == b"8"


@pytest.mark.slow
def test_pieces_run_in_other_processes(ray_fleet, tmp_path):
    asked = (fleet_pieces.tell_process, str(tmp_path))
    pids = {*map_side_by_side(lambda _: ray_fleet.call(*asked), range(6), concurrency=3)}
    assert str(os.getpid()).encode() not in pids
    assert {one.name.encode() for one in tmp_path.iterdir()} == pids


@pytest.mark.slow
def test_a_worker_that_dies_loses_nothing(ray_fleet, tmp_path):
    assert ray_fleet.call(fleet_pieces.die_first, str(tmp_path), 2) == b"done"
    assert len([*tmp_path.iterdir()]) == 3


@pytest.mark.slow
def test_a_piece_that_kills_each_worker_is_given_up(ray_fleet, tmp_path):
    with pytest.raises(TaskLost, match="3 of 3 times"):
        ray_fleet.call(fleet_pieces.die_first, str(tmp_path), 9)
    assert len([*tmp_path.iterdir()]) == 3
    assert ray_fleet.call(fleet_pieces.double, 3) == b"6"


@pytest.mark.slow
def test_what_cannot_travel_is_refused_and_a_piece_that_never_ends_is_ended(ray_fleet, monkeypatch):
    with pytest.raises(TypeError, match=r"a task takes a module's function and plain data"):
        ray_fleet.call(lambda: b"")
    with monkeypatch.context() as patched:
        patched.setattr("extensions.scale.ray_fleet._TIMEOUT_S", 2.0)
        with pytest.raises(TaskLost, match="no result within 2 s"):
            ray_fleet.call(fleet_pieces.wait_long)
    assert ray_fleet.call(fleet_pieces.double, 5) == b"10"


@pytest.mark.slow
def test_no_cluster_is_one_clear_error(monkeypatch):
    ray = pytest.importorskip("ray", reason="uv pip install 'toolmill[ray]'")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", Mock(side_effect=ConnectionError("nobody there")))
    with pytest.raises(FleetUnavailable, match=r"127\.0\.0\.1:9.*ray start --head"):
        RayFleet(replace(SETTINGS, address="127.0.0.1:9")).call(fleet_pieces.double, 1)


def test_settings_choose_the_fleet_and_what_is_missing_is_told(monkeypatch):
    assert open_fleet(FleetSettings()) == LocalFleet()
    assert open_fleet(SETTINGS) == RayFleet(SETTINGS)
    with pytest.raises(FleetUnavailable, match=r"no Ray cluster.*ConnectionRefusedError"):
        _start(object(), "127.0.0.1:1")
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(FleetUnavailable, match=r"toolmill\[ray\]"):
        open_fleet(SETTINGS).call(fleet_pieces.double, 1)
