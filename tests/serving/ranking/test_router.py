"""The router answers from the served index, says why, follows promotions and rollbacks by real
files, and imports no torch; the commands that move what is served."""

import json
import logging
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from assets.contracts.quarantined_tools import Decision, record_decision
from assets.outcomes.reliability.table import write_overlay
from assets.vectors.encoders.saved import find_encoder_folder
from serving.export import check_export, export_release
from serving.index.build import make_router_index
from serving.index.folder import load_index, read_served_version
from serving.index.model import IndexBroken, IndexMissing, IndexSource
from serving.ranking import overlays
from serving.ranking.overlays import ToolReliability, read_blocked, write_blocklist
from serving.ranking.query import STRATEGIES, BadQuery, ToolQuery
from serving.router import Router, ServedRouter, _read_overlay, open_router
from tests.serving.conftest import SNAPSHOT_ROWS, copy_home
from tests.serving.test_adhoc import run
from tests.support.cases import cases
from tests.training.promotions import make_summary
from tests.vectors.conftest import WordEmbedder, snapshot
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

SMALL = SNAPSHOT_ROWS[:3]
GROWN = [*SNAPSHOT_ROWS, snapshot("pypi:mail", "read_email", "Read the newest email")]


def publish_index(place: Path, rows: list[dict], release: str = "r1") -> str:
    return make_router_index(place, IndexSource(rows), LanceStore(place / "lance"), "base", release)


@pytest.fixture
def router(home: Path, embedder: WordEmbedder) -> Router:
    return Router(load_index(home, read_served_version(home)), embedder)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_best_tool_comes_first_with_the_reason(router, strategy):
    answer = router.find(ToolQuery("send an email to somebody", k=2, strategy=strategy))
    hits = answer.hits
    assert hits[0].tool_id == "pypi:mail::send_email"
    assert {"send", "email"} <= set(hits[0].why["words"])
    assert hits[0].score >= hits[1].score
    assert hits[0].description.startswith("Send")
    assert (answer.strategy, answer.index) == (strategy, router.index.version)


@cases(
    "ask, message",
    *((ToolQuery(query), "empty") for query in ("", "   \n", None)),
    *((ToolQuery("file", k=k), f"k is {k}; expected 1 to 1,000") for k in (0, -1, 10_000)),
    (ToolQuery("file", strategy="best"), "'best'; expected one of ours"),
)
def test_a_bad_question_is_refused(router, ask, message):
    with pytest.raises(BadQuery, match=message):
        router.find(ask)


def test_a_batch_and_parts_of_a_question_give_what_single_questions_give(router):
    asks = [ToolQuery("tell me the time", k=3), ToolQuery("write a file", strategy="rrf")]
    asks += [ToolQuery("天气"), ToolQuery("file", k=1_000)]
    answers = router.find_many(asks)
    assert [answer.hits for answer in answers] == [router.find(ask).hits for ask in asks]
    assert (len(answers[-1].hits), router.find_many([])) == (4, [])
    held = frozenset({"npm:files::read_file"})
    whole = router.find(ToolQuery("send an email", k=2, exclude=held))
    parts = router.find(query="send an email", k=2, exclude=["npm:files::read_file"])
    assert parts.hits == whole.hits
    assert router.find(ToolQuery("send an email"), k=1).hits == whole.hits[:1]
    with pytest.raises(BadQuery, match="no 'limit'; expected allowed, client, context"):
        router.find(query="send an email", limit=3)


def test_an_index_of_another_embedder_is_refused(home):
    with pytest.raises(IndexBroken, match=r"made by words, the encoder is other.*toolmill index"):
        Router(load_index(home, read_served_version(home)), WordEmbedder("other"))


def test_a_served_router_follows_the_pointer_and_what_is_held(tmp_path):
    first = publish_index(tmp_path, SMALL)
    served = ServedRouter(tmp_path)
    observed: list[str] = []
    served.on_change(observed.append)
    assert served.current().index.version == first
    assert served.current() is served.current()
    second = publish_index(tmp_path, SNAPSHOT_ROWS, "r2")
    assert (served.settle(30).index.version, observed) == (second, [second])
    publish_index(tmp_path, SNAPSHOT_ROWS)
    served = ServedRouter(tmp_path)
    assert served.current().find(ToolQuery("send an email", k=1)).hits[0].tool == "send_email"
    path = tmp_path / "router" / "BLOCKED.json"
    path.write_text(json.dumps({"digests": [SNAPSHOT_ROWS[4]["contract_digest"]], "tools": []}))
    served.settle(30)
    assert served.current().find(ToolQuery("send an email", k=1)).hits[0].tool != "send_email"
    path.write_text("{half")
    served.settle(30)
    # What cannot be read must not set free what was held.
    assert served.current().find(ToolQuery("send an email", k=1)).hits[0].tool != "send_email"


def test_a_search_imports_neither_torch_nor_dagster(tmp_path):
    publish_index(tmp_path, SNAPSHOT_ROWS)
    heavy = ("torch", "dagster", "transformers", "lancedb", "polars", "pandas", "pyarrow")
    program = (
        "import sys, pathlib; from serving.router import ToolQuery, open_router;"
        f"open_router(pathlib.Path({str(tmp_path)!r})).find(ToolQuery('send mail', k=1));"
        f"print([n for n in {heavy!r} if n in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


def test_nothing_published_yet_is_an_error_and_then_an_answer(tmp_path):
    served = ServedRouter(tmp_path)
    with pytest.raises(IndexMissing, match="toolmill index"):
        served.current()
    version = publish_index(tmp_path, SMALL)
    assert served.current().index.version == version
    (tmp_path / "router" / "BLOCKED.json").write_text('["x"]')
    with pytest.raises(IndexBroken, match=r"BLOCKED\.json"):
        open_router(tmp_path)


READ, MAIL = SNAPSHOT_ROWS[0], SNAPSHOT_ROWS[4]


def row(snapshot: dict[str, Any], mean: float = 0.5, **more: Any) -> dict[str, Any]:
    named = {name: snapshot[name] for name in ("server_id", "tool", "contract_digest")}
    return {**named, "mean": mean, "low": 0.2, "high": 0.9, "n": 3.0, **more}


def read(home: Path) -> overlays.ReliabilityOverlay | None:
    return overlays.read_overlay(home, load_index(home, read_served_version(home)))


def test_rows_stand_at_their_tools_under_their_contract(home):
    assert (write_overlay(home, [], 0.5, 1.0), read(home)) == (0, None)
    old = row(MAIL, contract_digest="c1:old")
    gone = row(MAIL, tool="gone")
    assert write_overlay(home, [row(READ), old, gone], 0.75, 1.0) == 3
    result = read(home)
    assert result is not None
    index = load_index(home, read_served_version(home))
    place = index.places["npm:files::read_file"]
    assert result.tell(place) == ToolReliability(0.5, 0.2, 0.9, 3.0)
    assert result.lift[place] == np.float32(-0.25)
    others = [at for at in range(len(index.tools)) if at != place]
    assert [result.tell(at) for at in others] == [None] * len(others)
    assert not result.lift[others].any()


@cases(
    "text",
    "{half",
    "[]",
    '{"format": 2, "overall": 0.5, "rows": []}',
    '{"format": 1, "overall": 7, "rows": []}',
    *(
        f'{{"format": 1, "overall": 0.5, "rows": [{row}]}}'
        for row in ('["a", "b", 2, 0, 1, 1]', '["a", "b", NaN, 0, 1, 1]', '["a", "b", 1, 0, 1, -1]')
    ),
    '{"format": 1, "overall": 0.5, "rows": [["a", "b"]]}',
    '{"format": 1, "overall": 0.5, "rows": [[["a"], "b", 1, 0, 1, 1]]}',
    "[" * 100_000,
)
def test_a_broken_overlay_is_named_with_its_fix(home, text):
    (home / "router" / "RELIABILITY.json").write_text(text)
    with pytest.raises(overlays.OverlayBroken, match=r"RELIABILITY\.json.*toolmill run"):
        read(home)


def test_outcomes_reach_a_running_router_whatever_a_broken_file_holds(home, embedder, caplog):
    def opened(place: Path, version: str | None) -> Router:
        index = load_index(place, version or read_served_version(place))
        return Router(index, embedder, read_blocked(place), _read_overlay(place, index, None))

    served, ask = ServedRouter(home, opened), ToolQuery("read one text file", k=1)
    assert served.current().find(ask).hits[0].reliability is None
    write_overlay(home, [row(READ, 0.7)], 0.7, 1.0)
    [hit] = served.settle(30).find(ask).hits
    assert hit.reliability == ToolReliability(0.7, 0.2, 0.9, 3.0)
    (home / "router" / "RELIABILITY.json").write_text(json.dumps([]))
    write_blocklist(home, [MAIL["contract_digest"]])
    with caplog.at_level(logging.ERROR):
        router = served.settle(30)
    assert router.find(ask).hits[0].reliability == hit.reliability
    assert MAIL["contract_digest"] in router.blocked.digests
    assert "RELIABILITY.json" in caplog.text


M1 = "1" * 64


def publish(home: Path, rows: list[dict], contracts: str) -> str:
    """A release and index, by the encoder that the champion is; the version served."""
    models = {role: find_model_in_service(home, role).model for role in list_roles()}
    name = make_release(home, models, contracts, "set1")
    store, encoder = LanceStore(home / "lance"), models["retriever"]
    return make_router_index(home, IndexSource(rows), store, encoder, name, None, serve_version)


def crown(home: Path) -> None:
    """A retriever with real weights is made, measured and promoted, and its card written."""

    def fill(folder: Path) -> None:
        from safetensors.numpy import save_file

        (folder / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 4}))
        save_file(lora(), str(folder / "adapter_model.safetensors"))

    about = {"name": M1, "role": "retriever", "base": "minilm-l6-v2", "training_set": "set1"}
    save_model(home, M1, about, fill)
    summary = make_summary(home, M1)
    gates = check_gates("retriever", summary)
    result = consider_candidate(home, "retriever", M1, "set1", gates, summary)
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
def released(releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the releases, where the commands look for them."""
    place = copy_home(releases, tmp_path / "home")
    monkeypatch.setenv("TOOLMILL_HOME", str(place))
    monkeypatch.chdir(tmp_path)
    return place


def test_a_running_router_follows_rollback_and_undo_and_never_mixes(released):
    new, old = (release["versions"][0] for release in list_releases(released))
    router, done = ServedRouter(released), Event()
    embedders = {name: load_index(released, name).embedder for name in (old, new)}

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
            for arguments, wanted in (((), old), (("--undo",), new)):
                code, out, err = run("release", "rollback", *arguments)
                assert code == 0, err
                assert json.loads(out)["version"] == wanted == read_served_version(released)
                assert router.settle(60).index.version == wanted
        finally:
            done.set()  # the pool waits for its threads, so a failure would hang it
        result = {each for item in running for each in item.result()}
    assert result == {(old, embedders[old], 4), (new, embedders[new], 5)}


def test_a_broken_target_leaves_what_is_served_and_says_so(released, caplog):
    router = ServedRouter(released)
    new = router.current().index.version
    old = list_releases(released)[1]
    encoder = load_index(released, old["versions"][0]).embedder
    path = find_encoder_folder(released, encoder) / "tokenizer.json"
    path.unlink()  # the link alone
    path.write_text("{}")
    code, _, err = run("release", "rollback")
    assert code == 1
    assert f"release {old['release'][:12]} cannot be served" in err
    assert "tokenizer.json" in err
    assert "possible: none" in err
    assert read_served_version(released) == new
    # Even a pointer that was moved past the checks takes the old router from nobody.
    before = (released / "router/HEAD.json").read_bytes()
    _point(released, old["versions"][0])
    with caplog.at_level(logging.ERROR):
        assert router.settle(60).index.version == new
    assert [r.getMessage().count("tokenizer.json") for r in caplog.records] == [1]
    (released / "router/HEAD.json").write_bytes(before)
    assert router.settle(60).find(ToolQuery("read an email", k=1)).index == new


def test_what_is_published_after_a_broken_version_is_followed_at_once(released):
    new, old = (release["versions"][0] for release in list_releases(released))
    router = ServedRouter(released)
    router.current()
    whole = (released / "router" / old / "tools.jsonl").read_bytes()
    (released / "router" / old / "tools.jsonl").write_text("{}\n")
    _point(released, old)
    assert router.settle(60).index.version == new
    (released / "router" / old / "tools.jsonl").write_bytes(whole)
    _point(released, old)  # published again: no wait of half a minute
    assert router.settle(60).index.version == old


def _point(released: Path, version: str) -> None:
    beside = released / "router/beside"
    beside.write_text(json.dumps({"version": version, "release": "r", "at": 0}))
    beside.replace(released / "router/HEAD.json")


def test_what_was_found_out_since_is_blocked_before_an_older_index_is_served(released):
    rows = {row["tool"]: row["contract_digest"] for row in SNAPSHOT_ROWS}
    held = Decision(rows["send_email"], "*", "held", "ann", "2026-01-02T03:04:05Z", "bad")
    record_decision(released, held)
    assert read_blocked(released).digests == frozenset()
    assert run("release", "rollback")[0] == 0
    assert read_blocked(released).digests == {rows["send_email"]}
    hits = open_router(released).find(ToolQuery("send an email", k=10)).hits
    assert "send_email" not in {hit.tool for hit in hits}


@cases(
    "arguments, code, message",
    (("release", "list", "zz"), 2, "no release 'zz'; known, newest first: "),
    (("release", "rollback", "--to", "zz"), 2, "no release 'zz'"),
    (("release", "rollback", "--to", "zz", "--undo"), 2, "not both"),
    (("release", "rollback", "--undo"), 1, "no rollback stands"),
    (("champion", "cook"), 2, "'cook' does not exist"),
)
def test_bad_input_is_one_line_that_names_the_mend(released, arguments, code, message):
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


def test_champions_are_listed_and_a_lost_one_is_put_back(released):
    champions = json.loads(run("champion", "--json")[1])
    models = {role: champion["model"] for role, champion in champions.items()}
    assert (models["retriever"], models["caller"]) == (M1, get_untrained_model("caller"))
    assert "passed  gain_at_1" in run("champion")[1]
    (released / "champions/retriever.json").write_text("{half")
    code, _, err = run("champion")
    assert (code, "toolmill doctor --fix" in err) == (1, True)
    run("doctor", "--fix")
    assert read_champion(released, "retriever").model == M1
    shutil.rmtree(get_model_folder(released, M1))
    assert "cannot serve (models/111111111111 is missing)" in run("champion")[1]


def test_releases_are_exported_listed_and_shown_with_their_cards(released, tmp_path):
    manifest = export_release(released, tmp_path / "out")
    assert manifest["release"] == read_served(released)["release"]
    assert manifest["models"]["retriever"] == M1
    assert "gain_at_1" in (tmp_path / "out/cards/retriever.md").read_text()
    assert not (tmp_path / "out/cards/caller.md").exists()
    assert check_export(tmp_path / "out") == manifest
    tool_query = ToolQuery("read an email", k=1)
    ours, exported = (open_router(at).find(tool_query) for at in (released, tmp_path / "out"))
    assert exported.hits == ours.hits
    code, out, _ = run("release", "list")
    lines = out.splitlines()
    assert (code, lines[-1]) == (0, "2 releases")
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
