"""Open worlds have the same first state every time; reference calls of real servers pass."""

import multiprocessing
import os
import signal
from pathlib import Path
from unittest.mock import Mock

import pytest

from assets.outcomes.worlds import session
from assets.outcomes.worlds.catalogue import find_kind, find_world, list_worlds
from assets.outcomes.worlds.check import prove_tasks
from assets.outcomes.worlds.kind import FolderState
from assets.outcomes.worlds.session import find_missing, open_world
from assets.outcomes.worlds.spec import load_world
from assets.outcomes.worlds.tree import (
    PlaceUnusable,
    WorldFailed,
    WorldFileError,
    digest_tree,
    read_tree,
)
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import LaunchRecipe
from tests.outcomes.worlds.files import write_world
from tests.support.untrusted_server import require_sandbox

SHIPPED = [item.world for item in list_worlds() if item.world]
# A database of its own is held to the same in kinds/test_postgres.py: it takes seconds to start.
HERE = [item for item in SHIPPED if not find_missing(item) and not find_kind(item.kind).open_state]


@pytest.fixture
def small(tmp_path):
    return load_world(write_world(tmp_path / "files"))


def damage(folder: Path) -> None:
    """What a careless server may do to a folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            path.write_bytes(b"changed")
    (folder / "added").mkdir()
    (folder / "added" / "file").write_text("new")


@pytest.mark.parametrize("world", HERE, ids=lambda entry: entry.name)
def test_a_reset_is_equal_to_the_byte_and_a_seed_decides_it(tmp_path, world):
    states = {}
    for place, seed in (("a", 1), ("b", 1), ("c", 2)):
        with open_world(world, seed, tmp_path / place) as opened:
            states[place] = (digest_tree(read_tree(opened.folder)), opened.digest_state())
            damage(opened.folder)
            opened.reset()
            again = (digest_tree(read_tree(opened.folder)), opened.digest_state())
            assert again == states[place]
    assert states["a"] == states["b"]
    assert states["a"][1] != states["c"][1]


def test_a_folder_that_holds_something_else_is_no_place_for_a_world(tmp_path, small):
    place = tmp_path / "place"
    (place / "state").mkdir(parents=True)
    (place / "state" / "ledger.db").write_text("precious")
    with pytest.raises(PlaceUnusable, match="'state', which is no world's"):
        open_world(small, 1, place)
    assert (place / "state" / "ledger.db").read_text() == "precious"


@pytest.mark.parametrize("world", HERE, ids=lambda entry: entry.name)
def test_tasks_vary_by_seed_and_begin_unsolved(tmp_path, world):
    with open_world(world, 1, tmp_path) as opened:
        first, again, other = opened.tasks(1, 3), opened.tasks(1, 3), opened.tasks(2, 3)
        assert [item.id for item in first] == [item.id for item in again]
        assert len({item.id for item in (*first, *other)}) > len(first) * 1.3
        assert len({item.name for item in first}) == len(world.tasks)
        for task in first:
            assert task.servers
            assert not task.check(opened.read_facts()), task
            assert "{" not in task.request.replace("{}", "")


def test_nothing_outside_the_place_is_touched(tmp_path, small):
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "file").write_text("host")
    place = tmp_path / "place"

    def digest_host() -> str:
        tree = read_tree(tmp_path)
        return digest_tree({k: v for k, v in tree.items() if not k.startswith("place")})

    before = digest_host()
    with open_world(small, 1, place) as opened:
        (opened.folder / "escape").symlink_to(tmp_path / "host")
        (opened.folder / "a.txt").unlink()
        (opened.folder / "a.txt").symlink_to(tmp_path / "host" / "file")
        assert opened.digest_state()
        opened.reset()
        damage(opened.folder)
    with open_world(small, 2, place) as opened:
        first = opened.digest_state()
        opened.folder.joinpath(*"d" * 61).mkdir(parents=True)
        with pytest.raises(WorldFailed, match="more than 60 folders"):
            opened.digest_state()
        opened.reset()
        assert opened.digest_state() == first
    assert digest_host() == before


def test_a_check_wants_the_change_that_was_asked_for_and_no_other(tmp_path, small):
    with open_world(small, 1, tmp_path / "place") as opened:
        write, read = opened.tasks(1)
        word = write.calls[0].arguments["content"]
        target = opened.folder / "sub" / f"{word}.txt"
        target.write_text(word)
        assert write.check(opened.read_facts())
        (opened.folder / "a.txt").write_text("first, and more\n")
        assert not write.check(opened.read_facts())
        opened.reset()
        target.write_text(f"{word}x")
        assert not write.check(opened.read_facts())
        opened.reset()
        text = (
            opened.folder / read.calls[0].arguments["path"].removeprefix(f"{DATA}/")
        ).read_text()
        assert read.check(opened.read_facts(), ["it says:", text])
        assert not read.check(opened.read_facts(), ["nothing"])
        target.write_text("a side effect")
        assert not read.check(opened.read_facts(), [text])


def test_a_recipe_is_bound_to_the_world(tmp_path, small):
    made_up = ("arg:0", "env:WHERE", "env:KEY")
    recipe = LaunchRecipe(
        server_id="npm:files",
        ecosystem="npm",
        name="files",
        args=("placeholder",),
        env=(("KEY", "k"),),
        placeholders=made_up,
    )
    with open_world(small, 1, tmp_path / "place") as opened:
        bound = opened.bind_recipe(recipe)
        assert bound.args == (DATA,)
        assert dict(bound.env) == {"KEY": "k", "WHERE": f"{DATA}/a.txt"}
        assert bound.placeholders == ("env:KEY",)
        (mount,) = opened.grant.folders
        assert (mount.host, mount.inside, mount.writable) == (opened.folder, DATA, True)
        with pytest.raises(WorldFileError, match="does not suit 'npm:other'; it suits npm:files"):
            opened.bind_recipe(recipe.model_copy(update={"server_id": "npm:other"}))


def test_a_reset_that_fails_is_one_error_and_the_world_is_unusable(tmp_path, small, monkeypatch):
    with (
        open_world(small, 1, tmp_path / "one") as broken,
        open_world(small, 1, tmp_path / "two") as whole,
    ):
        first = whole.digest_state()
        fail = Mock(side_effect=OSError(28, "No space left on device"))
        with monkeypatch.context() as patch:
            patch.setattr(FolderState, "reset", fail)
            with pytest.raises(
                WorldFailed, match=r"'small' in .*one/state cannot be reset: OSError"
            ):
                broken.reset()
        for use in (broken.reset, broken.digest_state):
            with pytest.raises(WorldFailed, match="No space left"):
                use()
        whole.reset()
        assert whole.digest_state() == first
    with open_world(small, 1, tmp_path / "one") as again:
        assert again.digest_state() == first


def _die_in_reset(path: Path, place: Path) -> None:
    def write_half(folder: Path, tree: dict) -> None:
        (folder / "a.txt").write_text("fir")
        os.kill(os.getpid(), signal.SIGKILL)

    opened = open_world(load_world(path), 1, place)
    import assets.outcomes.worlds.kind as kind

    kind.write_tree = write_half
    opened.reset()


def test_a_world_whose_reset_was_killed_is_whole_when_it_is_opened_next(tmp_path):
    path, place = write_world(tmp_path), tmp_path / "place"
    with open_world(load_world(path), 1, place) as opened:
        first = opened.digest_state()
    process = multiprocessing.get_context("fork").Process(target=_die_in_reset, args=(path, place))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert (place / "state" / "a.txt").read_text() == "fir"
    with open_world(load_world(path), 1, place) as opened:
        assert opened.digest_state() == first


def test_a_place_is_held_by_one_and_must_be_a_folder(tmp_path, small, monkeypatch):
    place = tmp_path / "place"
    with open_world(small, 1, place), pytest.raises(WorldFailed, match=r"open in .*place already"):
        open_world(small, 1, place)
    with open_world(small, 1, place) as again:
        assert again.digest_state()
    (tmp_path / "file").write_text("")
    for used in (tmp_path / "file", tmp_path / "file" / "place"):
        with pytest.raises(PlaceUnusable, match="is a file, or below one"):
            open_world(small, 1, used)
    assert place.stat().st_mode & 0o777 == 0o700
    lacking = "needs `x`, which is not on PATH; install it"
    monkeypatch.setattr(session, "find_missing", lambda _: lacking)
    with pytest.raises(WorldFailed, match="'small': needs `x`"):
        open_world(small, 1, place)


async def prove(world, fit, warehouse):
    require_sandbox()
    row = await prove_tasks(world, fit, DeployPolicy(warehouse.home), warehouse.ledger, "worlds")
    if "registries" in str(row["why"]) or "download failed" in str(row["why"]):
        pytest.skip("the package registries are out of reach")
    return row


@pytest.mark.registry
async def test_tasks_of_a_memory_are_provable_on_its_real_server(warehouse):
    world = find_world("team-memory")
    row = await prove(world, world.servers[0], warehouse)
    assert (row["status"], row["absent"]) == ("ok", [])
    assert {item["status"] for item in row["tasks"]} == {"provable"}
    assert sum(item["perturbed"] for item in row["tasks"]) > 15


SUITED = [(item.world, fit) for item in list_worlds() if item.world for fit in item.world.servers]


@pytest.mark.registry
@pytest.mark.slow
@pytest.mark.parametrize(("world", "fit"), SUITED)
async def test_every_shipped_task_holds_on_every_server_it_suits(warehouse, world, fit):
    row = await prove(world, fit, warehouse)
    if row["status"] == "unavailable":
        pytest.skip(row["why"])
    assert row["status"] == "ok", row
    assert {item["status"] for item in row["tasks"]} <= {"provable", "leaky"}
