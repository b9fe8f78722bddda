"""Back to what was served before by one move: whole, checked, remembered, and lifted again."""

import errno
import shutil
from pathlib import Path

import pytest

import training.releases.rollback
import warehouse.storage.files
from serving.index.folder import read_served_version
from tests.support.cases import cases
from tests.training.promotions import consider_model, read_pointers, serve_release
from training.releases.champion import MOVING, read_champion, read_last_trained_set
from training.releases.in_service import find_model_in_service
from training.releases.release import (
    ReleaseError,
    get_pinned_version,
    list_lineage,
    list_releases,
    make_release,
    read_current_release,
    read_served,
)
from training.releases.rollback import roll_back_release, undo_rollback
from training.runtime.model_store import get_model_folder

BASELINE = "baseline:bm25+slots"


@pytest.fixture(scope="module")
def three_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs: the base retriever, then m1, then m2."""
    home = tmp_path_factory.mktemp("three")
    serve_release(home, "c0")
    consider_model(home, "m1")
    serve_release(home, "c1")
    consider_model(home, "m2", training_set="set2")
    serve_release(home, "c2")
    return home


@pytest.fixture
def home(three_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of those. Their encoders are stand-ins, so whether one opens is asked of the real
    thing in `tests/serving/ranking/test_hot_reload_releases.py`."""
    monkeypatch.setattr(training.releases.rollback, "find_index_flaw", lambda home, version: None)
    return shutil.copytree(three_runs, tmp_path, symlinks=True, dirs_exist_ok=True)


def served_models(home: Path) -> tuple[str, str, str]:
    """The retriever of the champion, of HEAD's release and of the served release."""
    by_name = {
        release["release"]: release["models"]["retriever"] for release in list_releases(home)
    }
    return (
        read_champion(home, "retriever").model,
        read_current_release(home)["models"]["retriever"],
        by_name[read_served(home)["release"]],
    )


def test_a_rollback_moves_champion_release_and_router_together(home):
    old = list_lineage(home)
    moved = roll_back_release(home)
    assert served_models(home) == ("m1",) * 3
    assert (moved.release, moved.left) == (old[1], old[2])
    assert read_served_version(home) == moved.version == get_pinned_version(home)
    assert moved.rejected == {"retriever": ["m2"]}
    promoted = read_champion(home, "retriever")
    assert promoted.evidence["candidate"] == "m1"
    assert promoted.last_candidate["promoted"] is False
    assert read_last_trained_set(home, "retriever") == "set2"  # it is not trained on again


def test_rolling_back_twice_goes_two_releases_back_and_no_further(home):
    roll_back_release(home)
    roll_back_release(home)
    assert served_models(home) == ("base",) * 3
    with pytest.raises(ReleaseError, match="no release was served before this one; possible: "):
        roll_back_release(home)


def test_what_was_rolled_back_is_not_promoted_nor_released_again(home):
    second, _ = serve_release(home, "c2")
    roll_back_release(home)
    before = read_pointers(home)
    assert serve_release(home, "c2")[0] != second  # the same contracts, with the champion of before
    assert served_models(home) == ("m1",) * 3
    again = consider_model(home, "m2", training_set="set2")
    assert not again.promoted
    assert "not_rolled_back: rolled back on" in again.why
    assert "toolmill release rollback --undo" in again.why
    assert served_models(home) == ("m1",) * 3
    assert before["champions/HISTORY.jsonl"] != b""
    assert consider_model(home, "m3").promoted  # what was learnt since is another model


def test_a_release_of_the_same_models_is_not_made_again_on_the_same_contracts(home):
    first, version = serve_release(home, "c2")
    third, _ = serve_release(home, "c3")
    moved = roll_back_release(home)
    assert (moved.release, moved.version, moved.rejected) == (first, version, {})
    assert serve_release(home, "c3") == (first, version)
    assert serve_release(home, "c3") == (first, version)
    fourth, _ = serve_release(home, "c4")
    assert fourth not in (first, third)
    assert read_served(home)["release"] == fourth
    assert read_champion(home, "retriever").model == "m2"


def test_rolling_back_over_several_releases_keeps_all_their_models_out(home):
    moved = roll_back_release(home, list_lineage(home)[0][:10])
    assert moved.rejected == {"retriever": ["m1", "m2"]}
    assert find_model_in_service(home, "retriever").model == "base"
    shutil.rmtree(get_model_folder(home, "m1"))
    for name in ("m1", "m2"):
        assert not consider_model(home, name).promoted


def test_rolling_back_to_what_is_served_moves_nothing(home):
    before = read_pointers(home)
    assert "nothing moved" in roll_back_release(home, read_served(home)["release"]).summary
    assert read_pointers(home) == before


def test_a_release_whose_index_was_never_built_is_left_for_the_served_one(home):
    now = read_served(home)["release"]
    pending = make_release(home, {"retriever": "m2", "caller": BASELINE}, "c9", "set1")
    roll_back_release(home, now)
    assert read_current_release(home)["release"] == now
    assert make_release(home, {"retriever": "m2", "caller": BASELINE}, "c9", "set1") == now
    assert pending != now


def test_undoing_serves_what_was_left_and_lifts_the_decision(home):
    left = read_served(home)
    roll_back_release(home)
    moved = undo_rollback(home)
    assert (moved.release, moved.version) == (left["release"], left["version"])
    assert served_models(home) == ("m2",) * 3
    assert get_pinned_version(home) is None
    assert consider_model(home, "m2").why == "the candidate is the champion already"
    with pytest.raises(ReleaseError, match="no rollback stands"):
        undo_rollback(home)
    assert roll_back_release(home).release == list_lineage(home)[-1]
    assert served_models(home) == ("m1",) * 3


def test_undoing_after_a_newer_release_lifts_the_decision_alone(home):
    roll_back_release(home)
    serve_release(home, "c7")
    before = read_served(home)
    moved = undo_rollback(home)
    assert read_served(home) == before
    assert "a newer release was made since" in moved.summary
    assert consider_model(home, "m2").promoted


@cases("lost", "models/m1", "router/{}", "encoders")
def test_a_release_that_is_not_whole_is_refused_with_those_that_are(home, lost):
    target = list_releases(home)[1]
    shutil.rmtree(home / lost.format(target["versions"][0]))
    before = read_pointers(home)
    with pytest.raises(ReleaseError) as refused:
        roll_back_release(home)
    assert f"release {target['release'][:12]} cannot be served" in str(refused.value)
    assert "Nothing has moved; possible: " in str(refused.value)
    assert read_pointers(home) == before
    possible = [r["release"] for r in list_releases(home) if not r["missing"] and not r["served"]]
    for name in possible:
        assert name[:12] in str(refused.value)
    assert ("none" in str(refused.value)) == (not possible)


def test_before_anything_moves_the_version_is_told_and_may_be_refused(home):
    before = read_pointers(home)

    def refuse(version: str) -> None:
        assert version == list_releases(home)[1]["versions"][0]
        raise RuntimeError("cannot be scanned")

    with pytest.raises(RuntimeError, match="cannot be scanned"):
        roll_back_release(home, before=refuse)
    assert read_pointers(home) == before


STEPS = 8  # the move written down, router, release, champion, four histories


@pytest.mark.parametrize("step", range(1, STEPS + 1))
@cases("error", KeyboardInterrupt, OSError(errno.ENOSPC, "No space left"))
def test_a_rollback_cut_short_is_undone_or_finished_by_the_next(home, monkeypatch, step, error):
    wanted, left, writes = list_releases(home)[1], read_served(home), 0

    def killed(path: Path, data: bytes, **options: bool) -> None:
        nonlocal writes
        writes += 1
        if writes == step:
            raise error
        real(path, data, **options)

    real = warehouse.storage.files.write_atomically
    monkeypatch.setattr(warehouse.storage.files, "write_atomically", killed)
    with pytest.raises((KeyboardInterrupt, OSError)):
        roll_back_release(home)
    monkeypatch.undo()
    monkeypatch.setattr(training.releases.rollback, "find_index_flaw", lambda home, version: None)
    # Whoever reads in between sees all of it or nothing, and serving one release or the other.
    assert served_models(home) == (("m2",) * 3 if step == 1 else ("m1",) * 3)
    assert read_served_version(home) == (left["version"] if step <= 2 else wanted["versions"][0])
    roll_back_release(home, wanted["release"])
    assert served_models(home) == ("m1",) * 3
    assert read_served_version(home) == get_pinned_version(home)
    assert not (home / MOVING).exists()
    assert not consider_model(home, "m2").promoted


def test_a_rollback_has_as_many_steps_as_are_tried(home, monkeypatch):
    written: list[Path] = []
    real = warehouse.storage.files.write_atomically

    def counted(path: Path, data: bytes, **options: bool) -> None:
        written.append(path)
        real(path, data, **options)

    monkeypatch.setattr(warehouse.storage.files, "write_atomically", counted)
    roll_back_release(home)
    assert len(written) == STEPS
