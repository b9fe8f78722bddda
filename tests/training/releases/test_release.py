"""A release is one consistent set, served whole or not at all, and past ones stay within bounds."""

import json
import os
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from assets.vectors.encoders.saved import find_encoder_folder
from serving.index.build import build_index
from serving.index.folder import read_served_version
from serving.index.model import IndexBroken
from tests.serving.conftest import SNAPSHOT_ROWS
from tests.support.cases import cases
from tests.training.promotions import (
    UNSURE,
    consider_model,
    read_pointers,
    save_empty_model,
    serve_release,
)
from training.releases.champion import read_champion
from training.releases.in_service import list_release_flaws
from training.releases.release import (
    ReleaseError,
    UnknownRelease,
    find_release,
    list_releases,
    make_release,
    read_current_release,
    read_served,
    serve_version,
)
from training.releases.retention import prune_releases
from training.runtime.model_store import get_model_folder, read_model_card
from training.settings import RetentionPolicy
from warehouse.storage.files import PointerBroken

MODELS = {"retriever": "m1", "caller": "baseline:bm25+slots"}


def test_the_same_set_is_the_same_release_also_when_it_comes_back(tmp_path):
    assert read_current_release(tmp_path) == {}
    first = make_release(tmp_path, MODELS, "contracts-1", "set1")
    at, before = read_current_release(tmp_path)["at"], pointers_of(tmp_path)
    assert make_release(tmp_path, MODELS, "contracts-1", "set1") == first
    assert pointers_of(tmp_path) == before
    assert make_release(tmp_path, MODELS, "contracts-2", "set1") != first
    assert read_current_release(tmp_path)["contracts"] == "contracts-2"
    assert make_release(tmp_path, MODELS, "contracts-1", "set1") == first
    again = read_current_release(tmp_path)
    assert (again["release"], again["at"]) == (first, at)


def pointers_of(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (home / "releases").iterdir()}


def test_what_is_served_names_its_release_and_a_second_run_moves_nothing(tmp_path):
    name, version = serve_release(tmp_path, "c1")
    assert {k: read_served(tmp_path)[k] for k in ("release", "version")} == {
        "release": name,
        "version": version,
    }
    before = read_pointers(tmp_path)
    assert serve_release(tmp_path, "c1") == (name, version)
    assert read_pointers(tmp_path) == before
    [release] = list_releases(tmp_path)
    assert (release["served"], release["current"], release["missing"]) == (True, True, [])
    assert release["versions"] == [version]


def test_until_its_index_is_built_the_release_before_is_served(tmp_path):
    first, version = serve_release(tmp_path, "c1")
    second = make_release(tmp_path, {**MODELS, "retriever": "base"}, "c2", "set1")
    assert read_served(tmp_path)["release"] == first
    assert read_served_version(tmp_path) == version
    newest, before = list_releases(tmp_path)
    assert (newest["release"], newest["missing"]) == (second, ["no index version of it is on disk"])
    assert before["served"]


def test_an_index_that_does_not_fit_its_release_is_not_served(tmp_path):
    _, version = serve_release(tmp_path, "c1")
    consider_model(tmp_path, "m1")
    models = {"retriever": "m1", "caller": "baseline:bm25+slots"}
    name = make_release(tmp_path, models, "c1", "set1")
    from serving.index.model import IndexSource
    from tests.vectors.conftest import WordEmbedder

    words = WordEmbedder("words-base")
    other = build_index(
        tmp_path, IndexSource(SNAPSHOT_ROWS), words.embed, embedder=words.id, release=name
    )
    with pytest.raises(ReleaseError, match="was made by retriever base, not m1"):
        serve_version(tmp_path, other)
    assert read_served_version(tmp_path) == version
    # One of an older release is not served either, but nothing is wrong with it.
    assert serve_version(tmp_path, version) == version


def test_a_version_whose_files_are_not_whole_is_not_served(tmp_path):
    _, first = serve_release(tmp_path, "c1")
    (tmp_path / "router" / first / "tools.jsonl").write_text("{}\n")
    (tmp_path / "router/HEAD.json").unlink()
    with pytest.raises(IndexBroken, match=r"tools\.jsonl"):
        serve_version(tmp_path, first)
    assert not (tmp_path / "router/HEAD.json").exists()


def test_what_is_missing_of_a_release_is_named(tmp_path):
    consider_model(tmp_path, "m1")
    name, version = serve_release(tmp_path, "c1")
    release = find_release(tmp_path, name[:6])
    assert list_release_flaws(tmp_path, release, version) == []
    shutil.rmtree(find_encoder_folder(tmp_path, "words-m1"))
    shutil.rmtree(get_model_folder(tmp_path, "m1"))
    assert list_release_flaws(tmp_path, release, version) == [
        "models/m1 is missing",
        "its encoder words-m1 is missing under encoders/",
    ]
    assert list_release_flaws(tmp_path, {**release, "release": "other"}, version)[1].endswith(
        name[:12]
    )


@cases("wanted", "", "zz", "x" * 5000, "../../etc")
def test_a_release_that_is_not_there_is_named_with_those_that_are(tmp_path, wanted):
    name, _ = serve_release(tmp_path, "c1")
    with pytest.raises(UnknownRelease, match=f"no release .*{name[:12]}") as refused:
        find_release(tmp_path, wanted)
    assert len(str(refused.value)) < 300


def test_a_broken_head_is_named_with_its_fix(tmp_path):
    serve_release(tmp_path, "c1")
    (tmp_path / "releases/HEAD.json").write_text("{half")
    with pytest.raises(PointerBroken, match=r"releases/HEAD\.json.*make run"):
        read_current_release(tmp_path)


def test_the_last_releases_stay_on_disk_and_the_served_one_always(tmp_path):
    made = []
    for at in range(4):
        consider_model(tmp_path, f"m{at}")
        made.append(serve_release(tmp_path, f"c{at}"))
    consider_model(tmp_path, "refused", UNSURE)
    save_empty_model(tmp_path, "by-hand")
    gone = prune_releases(tmp_path, RetentionPolicy(2), protect=["m0"])
    assert gone.versions == sorted(version for _, version in made[:2])
    assert gone.models == ["m1", "refused"]
    assert gone.encoders == sorted(
        find_encoder_folder(tmp_path, f"words-m{at}").name for at in range(2)
    )
    assert (
        read_model_card(tmp_path, "by-hand") is not None
    )  # nobody ever released it: it is not ours to take
    assert [bool(release["missing"]) for release in list_releases(tmp_path)] == [
        False, False, True, True,
    ]  # fmt: skip
    assert prune_releases(tmp_path, RetentionPolicy(2), protect=["m0"]).versions == []
    gone = prune_releases(tmp_path, RetentionPolicy(1))
    assert gone.versions == [made[2][1]]
    assert gone.models == ["m0", "m2"]
    assert read_served_version(tmp_path) == made[3][1]
    assert read_champion(tmp_path, "retriever").model == "m3"
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        RetentionPolicy(0)


def test_of_one_release_the_version_served_last_stays(tmp_path):
    _, first = serve_release(tmp_path, "c1")
    _, second = serve_release(tmp_path, "c1", SNAPSHOT_ROWS[:3])
    assert first != second
    assert prune_releases(tmp_path, RetentionPolicy(3)).versions == [first]


def test_what_is_younger_than_a_grace_period_stays_with_all_it_needs(tmp_path):
    made = []
    for at in range(3):
        consider_model(tmp_path, f"m{at}")
        made.append(serve_release(tmp_path, f"c{at}"))
    folders = [path for name in ("encoders", "models") for path in (tmp_path / name).iterdir()]
    for folder in [*folders, tmp_path / "router" / made[0][1]]:
        os.utime(folder, (1.0, 1.0))
    assert prune_releases(tmp_path, RetentionPolicy(1), before=0.5).list_folders(tmp_path) == []
    gone = prune_releases(tmp_path, RetentionPolicy(1), before=1000.0)
    assert (gone.versions, gone.models) == ([made[0][1]], ["m0"])
    assert gone.encoders == [find_encoder_folder(tmp_path, "words-m0").name]
    assert not list_releases(tmp_path)[1]["missing"]


def test_what_a_kill_left_of_a_pruning_is_removed_by_the_next(tmp_path, monkeypatch):
    made = [serve_release(tmp_path, f"c{at}") for at in range(2)]
    monkeypatch.setattr("training.releases.retention.shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        prune_releases(tmp_path, RetentionPolicy(1))
    monkeypatch.undo()
    folders = (tmp_path / "router").iterdir()
    assert {path.name for path in folders if path.is_dir() and not path.name.startswith(".")} == {
        made[1][1]
    }
    prune_releases(tmp_path, RetentionPolicy(1))
    assert not list((tmp_path / "router").glob(".*"))
    assert json.loads((tmp_path / "router/HEAD.json").read_bytes())["version"] == made[1][1]


def killed(path: Path, ignore_errors: bool = False) -> None:
    raise KeyboardInterrupt
