"""An index version is whole, immutable and named by its content; the pointer follows."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from serving.export import BadExport, check_export
from serving.index import model
from serving.index.build import (
    VIEWS,
    build_index,
    compute_version,
    make_router_index,
    move_pointer,
    order_content,
)
from serving.index.folder import load_index, read_served_version
from serving.index.model import IndexBroken, IndexMissing, IndexSource, list_nearly_best
from tests.serving.conftest import SNAPSHOT_ROWS, build, tell_sizes
from tests.support.cases import cases
from tests.vectors.conftest import snapshot
from warehouse.storage.lance import LanceStore


def test_the_same_inputs_make_the_same_version_and_pointing_there_changes_nothing(home, embedder):
    before = (home / "router" / "HEAD.json").read_bytes()
    version = build(home, SNAPSHOT_ROWS[::-1], embedder)
    assert version == read_served_version(home)
    move_pointer(home, version)
    assert (home / "router" / "HEAD.json").read_bytes() == before
    assert build(home, SNAPSHOT_ROWS, embedder, release="r2") != version


@settings(max_examples=25)
@given(st.permutations(SNAPSHOT_ROWS))
def test_the_order_of_rows_is_no_part_of_the_version_and_two_marketplaces_are_one_tool(rows):
    servers = {"npm:files": {"name": "Files", "description": "", "summary": ""}}
    contents = [order_content(IndexSource(each, servers)) for each in (rows, SNAPSHOT_ROWS)]
    assert len({compute_version(content, "e", "r", None) for content in contents}) == 1
    [clock] = [tool for tool in contents[0].tools if tool.tool == "get_time"]
    assert (clock.marketplaces, len(contents[0].tools)) == (("mcpso", "registry"), 4)


def test_all_that_is_answered_with_is_part_of_the_version_and_no_request_of_a_copy():
    digest = SNAPSHOT_ROWS[0]["contract_digest"]
    variants = [
        IndexSource(SNAPSHOT_ROWS),
        IndexSource(SNAPSHOT_ROWS, servers={"npm:files": {"name": "Files"}}),
        IndexSource(SNAPSHOT_ROWS, instructions={digest: ["Show me notes.txt"]}),
        IndexSource(SNAPSHOT_ROWS, recipes={"npm:files": {"package": "files"}}),
        IndexSource([{**SNAPSHOT_ROWS[0], "flags": ("poisoning",)}, *SNAPSHOT_ROWS[1:]]),
    ]
    result = {compute_version(order_content(source), "e", "r", None) for source in variants}
    assert len(result) == len(variants)
    copy = {**SNAPSHOT_ROWS[0], "server_id": "remote:copy", "flags": (model.UNVERIFIED,)}
    asked = {SNAPSHOT_ROWS[0]["contract_digest"]: ["Show me notes.txt"]}
    result = order_content(IndexSource([*SNAPSHOT_ROWS, copy], instructions=asked))
    assert [result.tools[at].server_id for at, _ in result.asked] == ["npm:files"]


def test_a_loaded_version_holds_what_was_built_with_contracts_and_recipes(home, tmp_path, embedder):
    index = load_index(home, read_served_version(home))
    assert (index.release, index.embedder) == ("r1", "words")
    assert [tool.tool_id for tool in index.tools] == sorted(t.tool_id for t in index.tools)
    for view in index.views.values():
        assert np.allclose(np.linalg.norm(view.vectors, axis=1), 1.0, atol=1e-5)
    assert index.fields["all"].score("email").argmax() == 3
    assert all(index.servers[tool.server].server_id == tool.server_id for tool in index.tools)
    source = IndexSource(
        SNAPSHOT_ROWS,
        servers={"pypi:mail": {"name": "Mail", "description": "Letters", "summary": "Sends mail"}},
        instructions={SNAPSHOT_ROWS[4]["contract_digest"]: ["Tell Anna I am late", "Write to Bob"]},
        recipes={"pypi:mail": {"registry": "pypi", "name": "mail"}},
    )
    version = build_index(tmp_path, source, embedder.embed, embedder="words")
    index = load_index(tmp_path, version)
    place = index.place_of("pypi:mail::send_email")
    assert place is not None
    assert index.contract(place) == json.loads(SNAPSHOT_ROWS[4]["contract"])
    assert index.recipe("pypi:mail") == {"registry": "pypi", "name": "mail"}
    assert (index.recipe("npm:files"), index.place_of("pypi:mail::gone")) == (None, None)
    assert index.views["asked"].owners.tolist() == [place, place]
    assert index.servers[index.tools[place].server].summary == "Sends mail"
    shutil.rmtree(tmp_path / "router" / version)
    assert index.contract(0)["name"] == "read_file"


def test_each_text_is_embedded_once_a_view_and_of_a_release_only_what_is_new(tmp_path, embedder):
    rows = [snapshot(f"npm:copy-{i}", "read_file", "Read one file") for i in range(5)]
    build_index(tmp_path, IndexSource(rows), embedder.embed, embedder="words")
    assert embedder.embedded.count("read file\nRead one file\npath") == 1
    store = LanceStore(tmp_path / "lance")
    first = make_router_index(tmp_path, IndexSource(SNAPSHOT_ROWS), store, "base", "r1")
    assert read_served_version(tmp_path) == first
    held = store.count(VIEWS)
    grown = [*SNAPSHOT_ROWS, snapshot("pypi:mail", "read_email", "Read the newest email")]
    second = make_router_index(tmp_path, IndexSource(grown), store, "base", "r2")
    assert store.count(VIEWS) == held + 2  # the new tool, and the summary by tools of its server
    assert read_served_version(tmp_path) == second != first


def test_a_home_without_an_index_is_told_and_a_failing_encoder_leaves_none(tmp_path, embedder):
    with pytest.raises(IndexMissing, match="toolmill index"):
        read_served_version(tmp_path)
    with pytest.raises(IndexMissing, match="materialize router_index"):
        load_index(tmp_path, "abc")

    def embed(_: object) -> np.ndarray:
        return np.ones((1, 4), np.float32)

    with pytest.raises(ValueError, match="texts but 1 vectors"):
        build_index(tmp_path, IndexSource(SNAPSHOT_ROWS), embed, embedder="e")
    assert list((tmp_path / "router").iterdir()) == []
    with pytest.raises(ValueError, match="0 tools"):
        build_index(tmp_path, IndexSource([]), embedder.embed, embedder="words")


@cases("text", "", "{}", '{"version": 3}', '{"version": "../x"}', "[1]")
def test_a_broken_pointer_says_what_is_wrong(home, text):
    (home / "router" / "HEAD.json").write_text(text)
    with pytest.raises(IndexBroken, match=r"HEAD\.json.*materialize router_index"):
        read_served_version(home)


@cases(
    "name",
    *("index.json", "tools.jsonl", "servers.jsonl", "contracts.jsonl", "recipes.jsonl"),
    *("twins.npy", "contracts.starts.npy", "view-full.npy", "view-full.owner.npy"),
    *("view-server.npy", "bm25-all.npz", "bm25-all.terms.json"),
)
def test_a_lost_or_half_written_file_is_refused(home, name):
    version = read_served_version(home)
    path = home / "router" / version / name
    path.write_bytes(path.read_bytes()[:-1] if path.stat().st_size else b"{")
    with pytest.raises(IndexBroken, match="materialize router_index"):
        load_index(home, version)
    path.unlink()
    with pytest.raises(IndexBroken, match="materialize router_index"):
        load_index(home, version)


def test_the_pointer_moves_to_no_broken_version_and_what_a_kill_left_is_built_again(home, embedder):
    before = read_served_version(home)
    other = build(home, SNAPSHOT_ROWS[:2], embedder)
    (home / "router" / other / "view-full.npy").unlink()
    with pytest.raises(IndexBroken):
        move_pointer(home, other)
    assert read_served_version(home) == before
    version = read_served_version(home)
    (home / "router" / version / "index.json").unlink()
    assert build(home, SNAPSHOT_ROWS, embedder) == version
    assert load_index(home, version).version == version


SCORES = arrays(np.float32, st.integers(0, 400), elements=st.integers(-40, 40).map(float))


@given(SCORES, st.integers(1, 12))
def test_the_best_are_among_the_nearly_best_in_order(scores, most):
    nearly_best = list_nearly_best(scores, most)
    assert (np.diff(nearly_best) > 0).all()
    assert np.sort(scores[nearly_best])[-most:].tolist() == np.sort(scores)[-most:].tolist()
    assert set(np.argsort(-scores, kind="stable")[:most]) <= set(nearly_best)
    many = np.random.default_rng(1).standard_normal(20_000).astype(np.float32)
    assert 50 <= len(list_nearly_best(many, 50)) < 100


def test_products_and_moments_are_those_of_the_rows():
    rng = np.random.default_rng(2)
    rows, vector = rng.standard_normal((300, 24), np.float32), rng.standard_normal(24, np.float32)
    products = model.compute_products(rows, vector)
    assert products.dtype == np.float32
    np.testing.assert_allclose(products, rows.astype(float) @ vector, rtol=1e-4, atol=1e-5)
    result = model.VectorMoments.of(rows).measure_along(vector)
    np.testing.assert_allclose(result, (products.mean(), products.std()), rtol=1e-3)


DEEP = "[" * 200_000


def ask_for(count: int) -> bytes:
    file = io.BytesIO()
    facts = {"descr": "<i4", "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(file, facts)
    return file.getvalue()


def put_fields(folder: Path, save: Callable = np.savez, **changed: np.ndarray) -> None:
    with np.load(folder / "bm25-all.npz") as held:
        save(folder / "bm25-all.npz", **{**held, **changed})


def rename_tool(folder: Path) -> None:
    """Gives a tool the id of another server's."""
    path = folder / "tools.jsonl"
    first, *rest = path.read_text().splitlines(True)
    row = {**json.loads(first), "tool_id": "npm:trusted::read_file"}
    path.write_text("".join([json.dumps(row) + "\n", *rest]))


HOSTILE: dict[str, Callable[[Path], object]] = {
    "deep facts": lambda at: (at / "index.json").write_text(DEEP),
    "deep tools": lambda at: (at / "tools.jsonl").write_text(DEEP),
    "deep terms": lambda at: (at / "bm25-all.terms.json").write_text(DEEP),
    "an id of another server": rename_tool,
    "terabytes": lambda at: (at / "twins.npy").write_bytes(ask_for(10**12)),
    "more than a word": lambda at: (at / "twins.npy").write_bytes(ask_for(10**30)),
    "terabytes of vectors": lambda at: (at / "view-full.npy").write_bytes(ask_for(10**12)),
    "objects": lambda at: np.save(at / "twins.npy", np.array([{}] * 4), allow_pickle=True),
    "twins elsewhere": lambda at: np.save(at / "twins.npy", np.full(4, 10**9)),
    "twins before": lambda at: np.save(at / "twins.npy", np.full(4, -1)),
    "contracts elsewhere": lambda at: np.save(at / "contracts.starts.npy", [-5, 1, 2, 3, 10**12]),
    "owners elsewhere": lambda at: np.save(at / "view-full.owner.npy", np.full(4, 4)),
    "vectors of one axis": lambda at: np.save(at / "view-full.npy", np.zeros(4, np.float32)),
    "documents elsewhere": lambda at: put_fields(at, documents=np.full(10, 10**6)),
    "compressed": lambda at: put_fields(at, np.savez_compressed),
    "starts that fall": lambda at: put_fields(at, starts=np.zeros(5, np.int64)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_clear_error(home, name):
    folder = home / "router" / (version := read_served_version(home))
    HOSTILE[name](folder)
    if name != "deep facts":  # the sizes are as told: only the content is wrong
        tell_sizes(folder)
    with pytest.raises(IndexBroken, match="build it again") as refused:
        load_index(home, version)
    assert len(str(refused.value)) < 600


def test_a_contract_that_cannot_be_read_is_named_and_the_old_format_refused(home):
    index = load_index(home, version := read_served_version(home))
    held = home / "router" / version / "contracts.jsonl"
    held.write_text("x" * held.stat().st_size)
    with pytest.raises(IndexBroken, match=r"contracts.jsonl: 'npm:files"):
        index.contract(0)
    version = read_served_version(home)
    path = home / "router" / version / "index.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "format": 1}))
    with pytest.raises(IndexBroken, match=r"format 1, expected 2.*build it again"):
        load_index(home, version)


@cases("text", DEEP, "[]", '{"files": {"a": 1}}')
def test_a_hostile_manifest_is_one_clear_error(tmp_path, text):
    (tmp_path / "RELEASE.json").write_text(text)
    with pytest.raises(BadExport):
        check_export(tmp_path)
