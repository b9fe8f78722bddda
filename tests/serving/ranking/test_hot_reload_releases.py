"""A running router follows promotions and rollbacks by real files; the commands that move them."""

import json
import logging
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from assets.contracts.quarantined_tools import Decision, record_decision
from assets.vectors.encoders.saved import find_encoder_folder
from serving.export import check_export, export_release
from serving.index.build import make_router_index
from serving.index.folder import load_index, read_served_version
from serving.index.model import IndexSource
from serving.ranking.overlays import read_blocked
from serving.ranking.query import ToolQuery
from serving.router import ServedRouter, open_router
from tests.serving.conftest import SNAPSHOT_ROWS
from tests.serving.test_adhoc import run
from tests.support.cases import cases
from tests.training.promotions import make_summary
from tests.vectors.conftest import snapshot
from tests.vectors.test_embed import lora
from training.gates import as_rows
from training.releases.champion import read_champion
from training.releases.in_service import find_model_in_service
from training.releases.promotion import consider_candidate
from training.releases.release import list_releases, make_release, read_served, serve_version
from training.role import check_gates, get_untrained_model, list_roles
from training.role_steps import write_model_card
from training.runtime.model_store import get_model_folder, save_model
from warehouse.home import claim_home
from warehouse.storage.lance import LanceStore

GROWN = [*SNAPSHOT_ROWS, snapshot("pypi:mail", "read_email", "Read the newest email")]
M1 = "1" * 64


def publish(home: Path, rows: list[dict], contracts: str) -> str:
    """A release and index, by the encoder that the champion is; the version served."""
    models = {role: find_model_in_service(home, role).model for role in list_roles()}
    name = make_release(home, models, contracts, "set1")
    store = LanceStore(home / "lance")
    return make_router_index(
        home, IndexSource(rows), store, models["retriever"], name, None, serve_version
    )


def crown(home: Path) -> None:
    """A retriever with real weights is made, measured and promoted, and its card written."""

    def fill(folder: Path) -> None:
        from safetensors.numpy import save_file

        (folder / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 4}))
        save_file(lora(), str(folder / "adapter_model.safetensors"))

    about = {"name": M1, "role": "retriever", "base": "minilm-l6-v2", "training_set": "set1"}
    save_model(home, M1, about, fill)
    summary = make_summary(home, M1)
    result = consider_candidate(
        home, "retriever", M1, "set1", check_gates("retriever", summary), summary
    )
    assert result.promoted, result.why
    write_model_card(home, M1, summary=summary, gates=as_rows(result.gates))


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two releases: the base retriever over four tools, a trained one over five."""
    home = tmp_path_factory.mktemp("releases")
    claim_home(home)
    publish(home, SNAPSHOT_ROWS, "c1")
    crown(home)
    publish(home, GROWN, "c2")
    return home


@pytest.fixture
def home(releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the releases; encoders, which nobody changes in place, as links."""
    place = tmp_path / "home"
    shutil.copytree(releases, place, ignore=shutil.ignore_patterns("encoders"))
    shutil.copytree(releases / "encoders", place / "encoders", copy_function=os.link)
    monkeypatch.setenv("TOOLMILL_HOME", str(place))
    monkeypatch.chdir(tmp_path)
    return place


def test_a_running_router_follows_rollback_and_undo_and_never_mixes(home):
    new, old = (release["versions"][0] for release in list_releases(home))
    router, done = ServedRouter(home), Event()
    embedders = {name: load_index(home, name).embedder for name in (old, new)}

    def ask() -> set[tuple[str, str, int]]:
        result = set()
        while not done.is_set():
            used = router.current()
            answer = used.find(ToolQuery("email or file", k=10, strategy="bm25"))
            result.add((answer.index, used.index.embedder, len(answer.hits)))
            time.sleep(0.02)  # threads that never rest keep the new version from being read
        return result

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(ask) for _ in range(2)]
        try:
            assert router.settle(60).index.version == new
            for arguments, wanted in ((("--json",), old), (("--undo",), new)):
                code, out, err = run("release", "rollback", *arguments)
                assert code == 0, err
                assert json.loads(out)["version"] == wanted == read_served_version(home)
                assert router.settle(60).index.version == wanted
        finally:
            done.set()  # the pool waits for its threads, so a failure would hang it
        result = {each for item in running for each in item.result()}
    assert result == {(old, embedders[old], 4), (new, embedders[new], 5)}


def test_a_broken_target_leaves_what_is_served_and_says_so(home, caplog):
    router = ServedRouter(home)
    new = router.current().index.version
    old = list_releases(home)[1]
    path = (
        find_encoder_folder(home, load_index(home, old["versions"][0]).embedder) / "tokenizer.json"
    )
    path.unlink()  # the link alone
    path.write_text("{}")
    code, _, err = run("release", "rollback")
    assert code == 1
    assert f"release {old['release'][:12]} cannot be served" in err
    assert "tokenizer.json" in err
    assert "possible: none" in err
    assert read_served_version(home) == new
    # Even a pointer that was moved past the checks takes the old router from nobody.
    head = {"version": old["versions"][0], "release": old["release"], "at": 0}
    before = (home / "router/HEAD.json").read_bytes()
    (home / "router/HEAD.json").write_text(json.dumps(head))
    with caplog.at_level(logging.ERROR):
        assert router.settle(60).index.version == new
    assert [r.getMessage().count("tokenizer.json") for r in caplog.records] == [1]
    (home / "router/HEAD.json").write_bytes(before)
    assert router.settle(60).find(ToolQuery("read an email", k=1)).index == new


def test_what_is_published_after_a_broken_version_is_followed_at_once(home):
    new, old = (release["versions"][0] for release in list_releases(home))
    router = ServedRouter(home)
    router.current()
    whole = (home / "router" / old / "tools.jsonl").read_bytes()
    (home / "router" / old / "tools.jsonl").write_text("{}\n")
    _point(home, old)
    assert router.settle(60).index.version == new
    (home / "router" / old / "tools.jsonl").write_bytes(whole)
    _point(home, old)  # published anew: no half a minute is waited
    assert router.settle(60).index.version == old


def _point(home: Path, version: str) -> None:
    beside = home / "router/beside"
    beside.write_text(json.dumps({"version": version, "release": "r", "at": 0}))
    beside.replace(home / "router/HEAD.json")


def test_what_was_found_out_since_is_blocked_before_an_older_index_is_served(home):
    rows = {row["tool"]: row["contract_digest"] for row in SNAPSHOT_ROWS}
    record_decision(
        home, Decision(rows["send_email"], "*", "held", "ann", "2026-01-02T03:04:05Z", "bad")
    )
    assert read_blocked(home).digests == frozenset()
    assert run("release", "rollback")[0] == 0
    assert read_blocked(home).digests == {rows["send_email"]}
    hits = open_router(home).find(ToolQuery("send an email", k=10)).hits
    assert "send_email" not in {hit.tool for hit in hits}


def test_releases_are_listed_and_shown_with_their_cards(home):
    code, out, _ = run("release", "list")
    lines = out.splitlines()
    assert code == 0
    assert lines[-1] == "2 releases"
    assert ("served" in lines[0], "possible" in lines[1]) == (True, True)
    [newest, oldest] = json.loads(run("release", "list", "--json")[1])["releases"]
    assert newest["models"]["retriever"] == M1
    assert json.loads(run("release", "list", "served")[1])["release"] == newest["release"]
    output = json.loads(run("release", "list", oldest["release"][:8])[1])
    assert (output["models"]["retriever"], output["cards"]) == ("base", {})
    [card] = json.loads(run("release", "list", newest["release"])[1])["cards"].values()
    assert "| gain_at_1 | yes |" in Path(card).read_text()
    run("release", "rollback")
    assert "rolled back" in run("release", "list")[1]


@cases(
    "arguments, code, message",
    (("release", "list", "zz"), 2, "no release 'zz'; known, newest first: "),
    (("release", "rollback", "--to", "zz"), 2, "no release 'zz'"),
    (("release", "rollback", "--to", "zz", "--undo"), 2, "not both"),
    (("release", "rollback", "--undo"), 1, "no rollback stands"),
    (("champion", "cook"), 2, "'cook' does not exist"),
)
def test_bad_input_is_one_line_that_names_the_mend(home, arguments, code, message):
    result = run(*arguments)
    assert (result[0], message in result[2], result[1]) == (code, True, ""), result


def test_a_home_without_releases_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path / "new"))
    monkeypatch.chdir(tmp_path)
    code, out, err = run("release", "list")
    assert (code, out, "nothing was made there yet" in err) == (2, "", True)
    claim_home(tmp_path / "new")
    for command in (("list", "served"), ("rollback",)):
        code, _, err = run("release", *command)
        assert (code, "nothing is served yet: `make run`" in err) == (2, True)


def test_champions_are_listed_and_a_lost_one_is_put_back(home):
    champions = json.loads(run("champion", "--json")[1])
    assert (champions["retriever"]["model"], champions["caller"]["model"]) == (
        M1,
        get_untrained_model("caller"),
    )
    assert "passed  gain_at_1" in run("champion")[1]
    (home / "champions/retriever.json").write_text("{half")
    code, _, err = run("champion")
    assert (code, "toolmill doctor --fix" in err) == (1, True)
    run("doctor", "--fix")
    assert read_champion(home, "retriever").model == M1
    shutil.rmtree(get_model_folder(home, M1))
    assert "cannot serve (models/111111111111 is missing)" in run("champion")[1]


def test_an_export_is_of_the_served_release_with_its_cards(home, tmp_path):
    manifest = export_release(home, tmp_path / "out")
    assert manifest["release"] == read_served(home)["release"]
    assert manifest["models"]["retriever"] == M1
    assert "gain_at_1" in (tmp_path / "out/cards/retriever.md").read_text()
    assert not (tmp_path / "out/cards/caller.md").exists()
    assert check_export(tmp_path / "out") == manifest
    tool_query = ToolQuery("read an email", k=1)
    assert (
        open_router(tmp_path / "out").find(tool_query).hits
        == open_router(home).find(tool_query).hits
    )
