"""An injected regression that reaches the served release is rolled back by itself, once."""

import shutil
import time
from pathlib import Path

import dagster as dg
import pytest

import training.releases.rollback
from assets.servers.calls.log import CallLog
from orchestration import sensors
from orchestration.sensors import roll_back_on_outcomes
from tests.training.promotions import consider_model, serve_release
from training.releases.champion import list_rollbacks, read_champion
from training.releases.regression import AUTHOR, judge_release, watch_release
from training.releases.release import ReleaseError, list_lineage, read_served
from training.releases.rollback import roll_back_release, undo_rollback
from training.settings import RollbackPolicy
from warehouse.home import claim_home

POLICY = RollbackPolicy(min_units=40)
HOUR = 3600.0


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A good release and one after it; their index versions."""
    home, versions = tmp_path_factory.mktemp("two"), []
    claim_home(home)
    for at, model in enumerate((None, "m1", "m2")):
        if model:
            consider_model(home, model)
        versions.append(serve_release(home, f"c{at}")[1])
    return home, versions


@pytest.fixture
def home(two_runs: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Their encoders are stand-ins: whether one opens is asked of the real thing elsewhere.
    monkeypatch.setattr(training.releases.rollback, "find_index_flaw", lambda home, version: None)
    return shutil.copytree(two_runs[0], tmp_path / "home", symlinks=True)


def write_calls(home: Path, version: str, n: int, share: float, token: str = "ann") -> None:
    log = CallLog(home)
    for at in range(n):
        status = "ok" if at % 100 < share * 100 else "tool_error"
        facts = {"token": token, "index": version, "tool_id": "a/b", "query": f"{version}{at}"}
        log.record({**facts, "status": status, "call_id": f"{version}{at}"})


def test_a_regression_is_rolled_back_once_and_is_not_served_again(
    home: Path, two_runs: tuple[Path, list[str]]
) -> None:
    now, lineage = time.time(), list_lineage(home)
    held: list[str] = []
    write_calls(home, two_runs[1][1], 100, 0.9)
    assert watch_release(home, POLICY, now).moved is None
    write_calls(home, two_runs[1][2], 100, 0.5)
    found = watch_release(home, POLICY, now, held.append)
    assert found.moved is not None
    assert held == [two_runs[1][1]]
    assert read_served(home)["release"] == lineage[1]
    assert read_champion(home, "retriever").model == "m1"
    [decision] = list_rollbacks(home)
    assert decision["by"] == AUTHOR
    assert "ended well" in decision["why"]
    # It never goes further by itself, nor back again: neither at once nor after the cool-down.
    for later in (now, now + 100 * HOUR, now + 2000 * HOUR):
        assert watch_release(home, POLICY, later).moved is None
    assert consider_model(home, "m2").promoted is False
    assert serve_release(home, "c2")[0] not in (lineage[2], decision["from"])


def test_a_release_after_a_rollback_waits_for_the_cool_down(
    home: Path, two_runs: tuple[Path, list[str]]
) -> None:
    now = time.time()
    write_calls(home, two_runs[1][1], 100, 0.9)
    write_calls(home, two_runs[1][2], 100, 0.5)
    assert watch_release(home, POLICY, now).moved
    consider_model(home, "m3")
    _, version = serve_release(home, "c3")
    write_calls(home, version, 100, 0.5)
    early = watch_release(home, POLICY, now + HOUR)
    assert early.moved is None
    assert "cools down for" in early.why
    assert watch_release(home, POLICY, now + 100 * HOUR).moved


def test_what_a_person_put_in_service_stays(home: Path, two_runs: tuple[Path, list[str]]) -> None:
    write_calls(home, two_runs[1][1], 100, 0.9)
    write_calls(home, two_runs[1][2], 100, 0.5)
    roll_back_release(home)
    undo_rollback(home)
    found = watch_release(home, POLICY, time.time() + 100 * HOUR)
    assert (found.moved, found.comparison) == (None, None)
    assert "a person" in found.why


def test_reports_alone_roll_nothing_back(home: Path, two_runs: tuple[Path, list[str]]) -> None:
    write_calls(home, two_runs[1][1], 100, 0.9)
    log = CallLog(home)
    for at in range(500):
        facts = {"token": f"t{at}", "index": two_runs[1][2], "tool_id": "a/b"}
        log.record({**facts, "status": "reported", "reported": "failed"})
    assert judge_release(home, POLICY, time.time()).comparison is not None
    assert watch_release(home, POLICY, time.time()).moved is None


def test_another_release_served_meanwhile_is_not_touched(home: Path) -> None:
    served = read_served(home)
    with pytest.raises(ReleaseError, match="is served no more"):
        roll_back_release(home, served="0" * 64)
    assert read_served(home) == served


def test_the_sensor_rolls_back_and_tells_of_it_until_it_was_told(
    home: Path, two_runs: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLMILL_HOME", str(home))
    monkeypatch.setenv("TOOLMILL_TRAINING__ROLLBACK__MIN_UNITS", "40")
    monkeypatch.setenv("TOOLMILL_ALERTS__WEBHOOK", "http://127.0.0.1:9/hook")
    told: list[dict[str, str]] = []
    down = [True]

    def send(_: str, message: dict[str, str]) -> None:
        if down:
            raise sensors.AlertUnsent("down")
        told.append(message)

    monkeypatch.setattr(sensors, "send_message", send)
    write_calls(home, two_runs[1][1], 100, 0.9)
    write_calls(home, two_runs[1][2], 100, 0.5)
    with dg.DagsterInstance.ephemeral() as instance:
        cursors: list[str | None] = [None]
        for tick in range(4):
            if tick == 2:
                down.clear()
            context = dg.build_sensor_context(instance, cursor=cursors[-1])
            cursors.append(roll_back_on_outcomes(context).cursor)
            assert len(list_rollbacks(home)) == 1
    assert cursors[:3] == [None, None, None]
    [message] = told
    assert "was rolled back to" in message["text"]


def test_the_sensor_says_why_it_leaves_a_worse_release_whose_predecessor_is_gone(
    home: Path, two_runs: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLMILL_HOME", str(home))
    monkeypatch.setenv("TOOLMILL_TRAINING__ROLLBACK__MIN_UNITS", "40")
    monkeypatch.setattr(
        training.releases.rollback, "find_index_flaw", lambda home, version: "its index is gone"
    )
    write_calls(home, two_runs[1][1], 100, 0.9)
    write_calls(home, two_runs[1][2], 100, 0.5)
    before = read_served(home)
    with dg.DagsterInstance.ephemeral() as instance:
        result = roll_back_on_outcomes(dg.build_sensor_context(instance))
    why = result.skip_reason.skip_message or ""
    assert "it serves worse and stays" in why
    assert "its index is gone" in why
    assert (read_served(home), list_rollbacks(home)) == (before, [])
