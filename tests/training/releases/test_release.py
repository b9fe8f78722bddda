"""A release is one consistent set, served whole or not at all; a rollback is one move."""

import errno
import json
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

import training.releases.rollback
import warehouse.storage.files
from assets.vectors.encoders.saved import find_encoder_folder
from serving.index.build import build_index
from serving.index.folder import read_served_version
from serving.index.model import IndexBroken, IndexSource
from tests.serving.conftest import SNAPSHOT_ROWS
from tests.support.cases import cases
from tests.training import promotions
from tests.vectors.conftest import WordEmbedder
from training.releases.champion import MOVING, read_champion, read_last_trained_set
from training.releases.in_service import find_model_in_service, list_release_flaws
from training.releases.release import (
    ReleaseError,
    UnknownRelease,
    find_release,
    get_pinned_version,
    list_lineage,
    list_releases,
    make_release,
    read_current_release,
    read_served,
    serve_version,
)
from training.releases.retention import prune_releases
from training.releases.rollback import roll_back_release, undo_rollback
from training.runtime.model_store import get_model_folder, read_model_card
from training.settings import RetentionPolicy
from warehouse.storage.files import PointerBroken

MODELS = {"retriever": "m1", "caller": "baseline:bm25+slots"}


def test_the_same_set_is_the_same_release_also_when_it_comes_back(tmp_path):
    assert read_current_release(tmp_path) == {}
    first = make_release(tmp_path, MODELS, "contracts-1", "set1")
    at, before = read_current_release(tmp_path)["at"], promotions.read_pointers(tmp_path)
    assert make_release(tmp_path, MODELS, "contracts-1", "set1") == first
    assert promotions.read_pointers(tmp_path) == before
    assert make_release(tmp_path, MODELS, "contracts-2", "set1") != first
    assert read_current_release(tmp_path)["contracts"] == "contracts-2"
    assert make_release(tmp_path, MODELS, "contracts-1", "set1") == first
    again = read_current_release(tmp_path)
    assert (again["release"], again["at"]) == (first, at)


def test_what_is_served_names_its_release_and_a_second_run_moves_nothing(tmp_path):
    name, version = promotions.serve_release(tmp_path, "c1")
    assert read_served(tmp_path).items() >= {"release": name, "version": version}.items()
    before = promotions.read_pointers(tmp_path)
    assert promotions.serve_release(tmp_path, "c1") == (name, version)
    assert promotions.read_pointers(tmp_path) == before
    [release] = list_releases(tmp_path)
    assert (release["served"], release["current"], release["missing"]) == (True, True, [])
    assert release["versions"] == [version]


def test_until_its_index_is_built_the_release_before_is_served(tmp_path):
    first, version = promotions.serve_release(tmp_path, "c1")
    second = make_release(tmp_path, {**MODELS, "retriever": "base"}, "c2", "set1")
    assert read_served(tmp_path)["release"] == first
    assert read_served_version(tmp_path) == version
    newest, before = list_releases(tmp_path)
    assert (newest["release"], newest["missing"]) == (second, ["no index version of it is on disk"])
    assert before["served"]


def test_an_index_that_does_not_fit_its_release_or_is_not_whole_is_not_served(tmp_path):
    _, version = promotions.serve_release(tmp_path, "c1")
    promotions.consider_model(tmp_path, "m1")
    models = {"retriever": "m1", "caller": "baseline:bm25+slots"}
    name = make_release(tmp_path, models, "c1", "set1")
    words, source = WordEmbedder("words-base"), IndexSource(SNAPSHOT_ROWS)
    other = build_index(tmp_path, source, words.embed, embedder=words.id, release=name)
    with pytest.raises(ReleaseError, match="was made by retriever base, not m1"):
        serve_version(tmp_path, other)
    assert read_served_version(tmp_path) == version
    # One of an older release is not served either, but nothing is wrong with it.
    assert serve_version(tmp_path, version) == version
    home = tmp_path / "whole"
    _, version = promotions.serve_release(home, "c1")
    (home / "router" / version / "tools.jsonl").write_text("{}\n")
    (home / "router/HEAD.json").unlink()
    with pytest.raises(IndexBroken, match=r"tools\.jsonl"):
        serve_version(home, version)
    assert not (home / "router/HEAD.json").exists()


def test_what_is_missing_of_a_release_is_named(tmp_path):
    promotions.consider_model(tmp_path, "m1")
    name, version = promotions.serve_release(tmp_path, "c1")
    release = find_release(tmp_path, name[:6])
    assert list_release_flaws(tmp_path, release, version) == []
    shutil.rmtree(find_encoder_folder(tmp_path, "words-m1"))
    shutil.rmtree(get_model_folder(tmp_path, "m1"))
    assert list_release_flaws(tmp_path, release, version) == [
        "models/m1 is missing",
        "its encoder words-m1 is missing under encoders/",
    ]
    flaws = list_release_flaws(tmp_path, {**release, "release": "other"}, version)
    assert flaws[1].endswith(name[:12])


def test_a_release_that_is_not_there_is_named_with_those_that_are_and_a_broken_head(tmp_path):
    name, _ = promotions.serve_release(tmp_path, "c1")
    for wanted in ("", "zz", "x" * 5000, "../../etc"):
        with pytest.raises(UnknownRelease, match=f"no release .*{name[:12]}") as refused:
            find_release(tmp_path, wanted)
        assert len(str(refused.value)) < 300
    (tmp_path / "releases/HEAD.json").write_text("{half")
    with pytest.raises(PointerBroken, match=r"releases/HEAD\.json.*make run"):
        read_current_release(tmp_path)


def test_the_last_releases_stay_on_disk_and_the_served_one_always(tmp_path):
    made = []
    for at in range(4):
        promotions.consider_model(tmp_path, f"m{at}")
        made.append(promotions.serve_release(tmp_path, f"c{at}"))
    promotions.consider_model(tmp_path, "refused", promotions.UNSURE)
    promotions.save_empty_model(tmp_path, "by-hand")
    gone = prune_releases(tmp_path, RetentionPolicy(2), protect=["m0"])
    assert gone.versions == sorted(version for _, version in made[:2])
    assert gone.models == ["m1", "refused"]
    encoders = [find_encoder_folder(tmp_path, f"words-m{at}").name for at in range(2)]
    assert gone.encoders == sorted(encoders)
    assert read_model_card(tmp_path, "by-hand")  # nobody ever released it: it is not ours to take
    assert [bool(each["missing"]) for each in list_releases(tmp_path)] == [False] * 2 + [True] * 2
    assert prune_releases(tmp_path, RetentionPolicy(2), protect=["m0"]).versions == []
    gone = prune_releases(tmp_path, RetentionPolicy(1))
    assert (gone.versions, gone.models) == ([made[2][1]], ["m0", "m2"])
    assert read_served_version(tmp_path) == made[3][1]
    assert read_champion(tmp_path, "retriever").model == "m3"


def test_of_one_release_the_version_served_last_stays(tmp_path):
    _, first = promotions.serve_release(tmp_path, "c1")
    _, second = promotions.serve_release(tmp_path, "c1", SNAPSHOT_ROWS[:3])
    assert first != second
    assert prune_releases(tmp_path, RetentionPolicy(3)).versions == [first]


def test_what_is_younger_than_a_grace_period_stays_with_all_it_needs(tmp_path):
    made = []
    for at in range(3):
        promotions.consider_model(tmp_path, f"m{at}")
        made.append(promotions.serve_release(tmp_path, f"c{at}"))
    folders = [path for name in ("encoders", "models") for path in (tmp_path / name).iterdir()]
    for folder in [*folders, tmp_path / "router" / made[0][1]]:
        os.utime(folder, (1.0, 1.0))
    assert prune_releases(tmp_path, RetentionPolicy(1), before=0.5).list_folders(tmp_path) == []
    gone = prune_releases(tmp_path, RetentionPolicy(1), before=1000.0)
    assert (gone.versions, gone.models) == ([made[0][1]], ["m0"])
    assert gone.encoders == [find_encoder_folder(tmp_path, "words-m0").name]
    assert not list_releases(tmp_path)[1]["missing"]


def test_what_a_kill_left_of_a_pruning_is_removed_by_the_next(tmp_path, monkeypatch):
    made = [promotions.serve_release(tmp_path, f"c{at}") for at in range(2)]
    killed = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("training.releases.retention.shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        prune_releases(tmp_path, RetentionPolicy(1))
    monkeypatch.undo()
    [left] = [path for path in (tmp_path / "router").glob("[!.]*") if path.is_dir()]
    assert left.name == made[1][1]
    prune_releases(tmp_path, RetentionPolicy(1))
    assert not list((tmp_path / "router").glob(".*"))
    assert json.loads((tmp_path / "router/HEAD.json").read_bytes())["version"] == made[1][1]


BASELINE = "baseline:bm25+slots"


@pytest.fixture(scope="module")
def three_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs: the base retriever, then m1, then m2."""
    home = tmp_path_factory.mktemp("three")
    promotions.serve_release(home, "c0")
    promotions.consider_model(home, "m1")
    promotions.serve_release(home, "c1")
    promotions.consider_model(home, "m2", training_set="set2")
    promotions.serve_release(home, "c2")
    return home


@pytest.fixture
def home(three_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of those. Their encoders are stand-ins, so whether one opens is asked of the real
    thing in `tests/serving/ranking/test_router.py`."""
    monkeypatch.setattr(training.releases.rollback, "find_index_flaw", lambda home, version: None)
    return shutil.copytree(three_runs, tmp_path, symlinks=True, dirs_exist_ok=True)


def served_models(home: Path) -> tuple[str, str, str]:
    by_name = {each["release"]: each["models"]["retriever"] for each in list_releases(home)}
    current = read_current_release(home)["models"]["retriever"]
    return read_champion(home, "retriever").model, current, by_name[read_served(home)["release"]]


def test_a_rollback_moves_champion_release_and_router_together_again_and_again(home):
    old, moved = list_lineage(home), roll_back_release(home)
    assert served_models(home) == ("m1",) * 3
    assert (moved.release, moved.left) == (old[1], old[2])
    assert read_served_version(home) == moved.version == get_pinned_version(home)
    assert moved.rejected == {"retriever": ["m2"]}
    promoted = read_champion(home, "retriever")
    assert promoted.evidence["candidate"] == "m1"
    assert promoted.last_candidate["promoted"] is False
    assert read_last_trained_set(home, "retriever") == "set2"  # it is not trained on again
    roll_back_release(home)
    assert served_models(home) == ("base",) * 3
    with pytest.raises(ReleaseError, match="no release was served before this one; possible: "):
        roll_back_release(home)


def test_what_was_rolled_back_is_not_promoted_nor_released_again(home):
    second, _ = promotions.serve_release(home, "c2")
    roll_back_release(home)
    before = promotions.read_pointers(home)
    assert (
        promotions.serve_release(home, "c2")[0] != second
    )  # the same contracts, with the champion of before
    assert served_models(home) == ("m1",) * 3
    again = promotions.consider_model(home, "m2", training_set="set2")
    assert not again.promoted
    assert "not_rolled_back: rolled back on" in again.why
    assert "toolmill release rollback --undo" in again.why
    assert served_models(home) == ("m1",) * 3
    assert before["champions/HISTORY.jsonl"] != b""
    assert promotions.consider_model(home, "m3").promoted  # what was learnt since is another model


def test_a_release_of_the_same_models_is_not_made_again_on_the_same_contracts(home):
    first, version = promotions.serve_release(home, "c2")
    third, _ = promotions.serve_release(home, "c3")
    moved = roll_back_release(home)
    assert (moved.release, moved.version, moved.rejected) == (first, version, {})
    assert promotions.serve_release(home, "c3") == (first, version)
    assert promotions.serve_release(home, "c3") == (first, version)
    fourth, _ = promotions.serve_release(home, "c4")
    assert fourth not in (first, third)
    assert read_served(home)["release"] == fourth
    assert read_champion(home, "retriever").model == "m2"


def test_rolling_back_over_several_releases_keeps_all_their_models_out(home):
    moved = roll_back_release(home, list_lineage(home)[0][:10])
    assert moved.rejected == {"retriever": ["m1", "m2"]}
    assert find_model_in_service(home, "retriever").model == "base"
    shutil.rmtree(get_model_folder(home, "m1"))
    for name in ("m1", "m2"):
        assert not promotions.consider_model(home, name).promoted


def test_rolling_back_to_what_is_served_moves_nothing_nor_does_a_refusal_of_the_version(home):
    before = promotions.read_pointers(home)
    assert "nothing moved" in roll_back_release(home, read_served(home)["release"]).summary
    assert promotions.read_pointers(home) == before

    def refuse(version: str) -> None:
        assert version == list_releases(home)[1]["versions"][0]
        raise RuntimeError("cannot be scanned")

    with pytest.raises(RuntimeError, match="cannot be scanned"):
        roll_back_release(home, before=refuse)
    assert promotions.read_pointers(home) == before


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
    assert promotions.consider_model(home, "m2").why == "the candidate is the champion already"
    with pytest.raises(ReleaseError, match="no rollback stands"):
        undo_rollback(home)
    assert roll_back_release(home).release == list_lineage(home)[-1]
    assert served_models(home) == ("m1",) * 3


def test_undoing_after_a_newer_release_lifts_the_decision_alone(home):
    roll_back_release(home)
    promotions.serve_release(home, "c7")
    before, moved = read_served(home), undo_rollback(home)
    assert read_served(home) == before
    assert "a newer release was made since" in moved.summary
    assert promotions.consider_model(home, "m2").promoted


@cases("lost", "models/m1", "router/{}", "encoders")
def test_a_release_that_is_not_whole_is_refused_with_those_that_are(home, lost):
    target = list_releases(home)[1]
    shutil.rmtree(home / lost.format(target["versions"][0]))
    before = promotions.read_pointers(home)
    with pytest.raises(ReleaseError) as refused:
        roll_back_release(home)
    assert f"release {target['release'][:12]} cannot be served" in str(refused.value)
    assert "Nothing has moved; possible: " in str(refused.value)
    assert promotions.read_pointers(home) == before
    possible = [r["release"] for r in list_releases(home) if not r["missing"] and not r["served"]]
    assert all(name[:12] in str(refused.value) for name in possible)
    assert ("none" in str(refused.value)) == (not possible)


STEPS = 8  # the move written down, router, release, champion, four histories


@pytest.mark.parametrize("step", range(1, STEPS + 1))
@cases("error", KeyboardInterrupt, OSError(errno.ENOSPC, "No space left"))
def test_a_rollback_cut_short_is_undone_or_finished_by_the_next(home, monkeypatch, step, error):
    wanted, left = list_releases(home)[1], read_served(home)
    with monkeypatch.context() as patch:
        promotions.fail_write(patch, step, error)
        with pytest.raises((KeyboardInterrupt, OSError)):
            roll_back_release(home)
    # Whoever reads in between sees all of it or nothing, and serving one release or the other.
    assert served_models(home) == (("m2",) * 3 if step == 1 else ("m1",) * 3)
    assert read_served_version(home) == (left["version"] if step <= 2 else wanted["versions"][0])
    roll_back_release(home, wanted["release"])
    assert served_models(home) == ("m1",) * 3
    assert read_served_version(home) == get_pinned_version(home)
    assert not (home / MOVING).exists()
    assert not promotions.consider_model(home, "m2").promoted


def test_a_rollback_has_as_many_steps_as_are_tried(home, monkeypatch):
    written = Mock(wraps=warehouse.storage.files.write_atomically)
    monkeypatch.setattr(warehouse.storage.files, "write_atomically", written)
    roll_back_release(home)
    assert written.call_count == STEPS
