"""World files, and the trees of files that are made of them."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.outcomes.worlds import spec
from assets.outcomes.worlds import tree as trees
from assets.outcomes.worlds.catalogue import SHIPPED, find_world, list_worlds
from assets.outcomes.worlds.changes import ChangeImpossible, apply_changes
from assets.outcomes.worlds.tree import (
    TreeLink,
    WorldFailed,
    WorldFileError,
    add_folders,
    digest_tree,
    read_tree,
    write_tree,
)
from tests.outcomes.worlds.files import SMALL, write_world
from tests.support.cases import cases
from tests.support.paths import ROOT
from warehouse.storage.untrusted_files import clear_folder


def test_a_world_file_that_was_edited_is_read_anew(tmp_path):
    path = write_world(tmp_path)
    stamp = path.stat()
    first = spec.load_world(path)
    path.write_text(SMALL.replace('name = "small"', 'name = "other"', 1))  # as long as it was
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert (first.name, spec.load_world(path).name) == ("small", "other")
    assert [task.name for task in first.tasks] == ["write", "read"]
    assert first.read_files() == {"a.txt": b"first\n", "sub/b.txt": b"second\n"}


WRONG = [
    ('kind = "folder"', 'kind = "folder"\ncolour = "red"', "colour: no such key"),
    ('tools = ["write_file"', 'tols = ["write_file"', "servers.0.tols: no such key"),
    ('tools = ["write_file", "read_file"]', 'tools = "x"', r"tools: expected a list \(.*'x'"),
    ('files = "seed"', 'files = "../seed"', "files: .*beside the world file"),
    ('files = "seed"', 'files = "/etc"', "files: .*beside the world file"),
    ('files = "seed"', "", "expected `files`"),
    ('name = "small"', 'name = "Small World"', "name: "),
    ('name = "read"', 'name = "write"', "two are called 'write'"),
    ('tool = "read_file"', 'tool = "drop_file"', "no server of the world has all of drop_file"),
    ('answer = ["{file.value}"]', "", "nothing is checked"),
    ('"Read {root}/{file}."', '"Read {root}/{fiel}."', "{fiel} stands for nothing"),
    ('{ key = "*.txt" }', '{ key = "*.txt", words = "cities" }', "exactly one of"),
    ('{ key = "*.txt" }', "{ between = [9, 2] }", "between.*the lower number first"),
    ('{ key = "*.txt" }', "{ one_of = [] }", "one_of.*names nothing"),
    ('kind = "folder"', 'kind = "folder', "not TOML"),
    ('kind = "folder"', 'kind = "folder"\npath = "/x"', "path: no such key"),
]


@pytest.mark.parametrize(("old", "new", "output"), WRONG, ids=[item[2][:30] for item in WRONG])
def test_what_is_wrong_with_a_world_file_is_one_error_that_names_it(tmp_path, old, new, output):
    assert old in SMALL
    path = write_world(tmp_path, SMALL.replace(old, new, 1))
    with pytest.raises(WorldFileError, match=output) as error:
        spec.load_world(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@cases(
    "old, new, output",
    ('kind = "folder"', 'kind = "castle"', "kind 'castle' does not exist; known: "),
    ('files = "seed"', 'generator = { name = "x" }', "generator 'x': kind 'folder' has office"),
)
def test_what_its_kind_does_not_have_is_told_with_what_it_has(tmp_path, old, new, output):
    path = write_world(tmp_path, SMALL.replace(old, new, 1))
    with pytest.raises(WorldFileError, match=output) as error:
        find_world("small", [tmp_path])
    assert str(path) in str(error.value)


def test_a_seed_that_leaves_its_folder_or_is_too_large_is_refused(tmp_path, monkeypatch):
    path = write_world(tmp_path)
    world, secret = spec.load_world(path), tmp_path / "secret"
    secret.write_text("secret")
    link = tmp_path / "seed" / "link"
    link.symlink_to(secret)
    with pytest.raises(WorldFileError, match="seed/link': it is a link"):
        world.read_files()
    with pytest.raises(WorldFileError, match="link': it is a link"):
        find_world("small", [tmp_path])
    link.unlink()
    (tmp_path / "seed" / "big").write_bytes(b"x" * 100)
    monkeypatch.setattr(spec, "_MOST_FILE", 50)
    with pytest.raises(WorldFileError, match="big': larger than 50 bytes"):
        world.read_files()
    (tmp_path / "seed").rename(tmp_path / "real")
    with pytest.raises(WorldFileError, match="seed files 'seed': it is not there"):
        world.read_files()
    (tmp_path / "seed").symlink_to(tmp_path / "real")
    with pytest.raises(WorldFileError, match="seed"):
        world.read_files()


def test_two_worlds_of_one_name_are_both_told_and_the_others_are_kept(tmp_path):
    first, second = write_world(tmp_path), write_world(tmp_path, name="other")
    (tmp_path / "broken.toml").write_text("nothing")
    by_name = {world.path: world for world in list_worlds([tmp_path])}
    for path in (first, second):
        assert str(first) in str(by_name[path].problem)
        assert str(second) in str(by_name[path].problem)
    assert "not TOML" in str(by_name[tmp_path / "broken.toml"].problem)
    with pytest.raises(WorldFileError, match="two worlds are called 'small'"):
        find_world("small", [tmp_path])
    assert find_world("office-folder", [tmp_path]).name == "office-folder"
    with pytest.raises(WorldFileError, match=r"broken\.toml: not TOML"):
        find_world("broken", [tmp_path])


def test_a_world_with_a_shipped_name_costs_the_shipped_one_nothing(tmp_path):
    mine = write_world(tmp_path, name="office-folder")
    mine.write_text(mine.read_text().replace('"small"', '"office-folder"'))
    by_name = {world.path: world for world in list_worlds([tmp_path])}
    shipped = SHIPPED / "office-folder.toml"
    assert by_name[shipped].problem is None
    assert f"{shipped}, {mine}; rename one" in str(by_name[mine].problem)
    assert find_world("office-folder", [tmp_path]).path == shipped


def test_a_name_that_no_world_has_and_a_folder_that_is_not_there_are_told(tmp_path):
    with pytest.raises(WorldFileError, match=r"no world is called 'nowhere'; known: .*office"):
        find_world("nowhere")
    with pytest.raises(WorldFileError, match=r"worlds\.paths: .*missing"):
        list_worlds([tmp_path / "missing"])
    worlds = list_worlds([ROOT / "demo/world/worlds"])
    assert [item.problem for item in worlds] == [None] * len(worlds)
    assert all(item.world and item.world.name == item.path.stem for item in worlds)


FACTS = {
    "a.txt": "one two",
    "sub": {"is": "folder"},
    "sub/b": {"n": 1.1, "tags": ["x", "y"]},
    "subtle": 3,
}


@cases(
    "change, key, after",
    ({"set": "a.txt", "to": "new"}, "a.txt", "new"),
    ({"add": "c", "to": 1}, "c", 1),
    ({"update": "sub/b", "with": {"n": 2}}, "sub/b", {"n": 2, "tags": ["x", "y"]}),
    ({"increase": "sub/b", "of": "n", "by": 2.2}, "sub/b", {"n": 3.3, "tags": ["x", "y"]}),
    ({"increase": "subtle", "by": 4}, "subtle", 7),
    ({"append": "sub/b", "of": "tags", "items": ["z"]}, "sub/b", {"n": 1.1, "tags": [*"xyz"]}),
    ({"append": "a.txt", "items": "!"}, "a.txt", "one two!"),
    ({"drop": "sub/b", "of": "tags", "items": ["x"]}, "sub/b", {"n": 1.1, "tags": ["y"]}),
    ({"replace": "a.txt", "old": "two", "new": "2"}, "a.txt", "one 2"),
)
def test_a_change_touches_its_key_and_no_other(change, key, after):
    assert apply_changes(FACTS, [change]) == {**FACTS, key: after}


def test_what_lies_below_is_copied_moved_and_removed_along():
    facts = {"branch/a": 1, "branch/a:x": 2, "branch/ab": 3, "S": 4, "S!A1": 5}
    copied = apply_changes(facts, [{"copy": "branch/a", "to": "branch/c"}])
    assert copied == {**facts, "branch/c": 1, "branch/c:x": 2}
    moved = apply_changes(facts, [{"move": "S", "to": "T"}])
    assert (moved["T"], moved["T!A1"], "S!A1" in moved) == (4, 5, False)
    with pytest.raises(ChangeImpossible):
        apply_changes(facts, [{"copy": "S", "to": "branch/a"}])
    moved = apply_changes(FACTS, [{"move": "sub", "to": "top"}])
    assert sorted(moved) == ["a.txt", "subtle", "top", "top/b"]
    assert sorted(apply_changes(FACTS, [{"remove": "sub/"}])) == ["a.txt", "subtle"]
    assert sorted(apply_changes(FACTS, [{"remove": "a.txt"}])) == ["sub", "sub/b", "subtle"]


@cases(
    "change",
    {"add": "a.txt", "to": 1},
    {"remove": "none"},
    {"move": "a.txt", "to": "sub"},
    {"move": "a.txt", "to": "a.txt"},
    {"update": "sub/b", "with": {"n": 1.1}},
    {"drop": "sub/b", "of": "tags", "items": ["q"]},
    {"replace": "a.txt", "old": "three", "new": "3"},
    {"replace": "a.txt", "old": "one", "new": "one"},
    {"increase": "a.txt", "by": 1},
    {"set": "a.txt"},
    {"rename": "a.txt", "to": "b"},
)
def test_a_change_that_is_impossible_or_none_is_refused(change):
    with pytest.raises(ChangeImpossible):
        apply_changes(FACTS, [change])


# --- trees of files: written, read and cleared below one folder, whatever a server left there
SEED = {"a.txt": b"one", "empty": None, "sub/b.bin": b"\xff\x00", "sub/link": TreeLink("../a.txt")}
NAMES = st.text("abc.é ", min_size=1, max_size=4).filter(lambda item: item.strip(". ") != "")
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


def make_world(tmp_path: Path) -> Path:
    folder = tmp_path / "world"
    folder.mkdir()
    write_tree(folder, SEED)
    return folder


def test_a_tree_is_read_as_it_was_written_with_the_same_modes_and_times(tmp_path):
    folder = make_world(tmp_path)
    assert read_tree(folder) == add_folders(SEED)
    about = [os.lstat(folder / name) for name in ("a.txt", "sub")]
    assert [item.st_mode & 0o777 for item in about] == [0o666, 0o777]
    assert {item.st_mtime for item in about} == {trees._TIME}
    before = digest_tree(read_tree(folder))
    os.utime(folder / "a.txt", (1, 1))
    assert digest_tree(read_tree(folder)) == before
    (folder / "sub" / "link").unlink()
    (folder / "sub" / "link").symlink_to("b.bin")
    assert digest_tree(read_tree(folder)) != before


@given(st.dictionaries(PATHS, st.one_of(st.none(), st.binary(max_size=20)), max_size=6))
def test_any_tree_comes_back_byte_for_byte(tmp_path_factory, nodes):
    paths = [path for path in nodes if not any(path.startswith(f"{node}/") for node in nodes)]
    tree = {path: nodes[path] for path in paths}
    folder = tmp_path_factory.mktemp("tree")
    for _ in range(2):
        clear_folder(folder)
        write_tree(folder, tree)
        assert read_tree(folder) == add_folders(tree)


def test_what_a_server_left_is_removed_and_nothing_behind_its_links(tmp_path):
    folder, outside = make_world(tmp_path), tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (folder / "out").symlink_to(outside)
    (folder / "sub" / "up").symlink_to("/")
    os.mkfifo(folder / "pipe")
    (folder / ".removing-0").mkdir()
    (folder / "locked").mkdir()
    (folder / "locked" / "deep").mkdir()
    (folder / "locked").chmod(0)
    assert isinstance(read_tree(folder)["pipe"], trees.SpecialNode)
    clear_folder(folder)
    assert os.listdir(folder) == []
    assert (outside / "kept").read_text() == "kept"
    (folder / "sub").symlink_to(outside)  # put in the way, it is never written through
    with pytest.raises(OSError):
        write_tree(folder, SEED)
    assert os.listdir(outside) == ["kept"]


def test_a_chain_of_folders_is_no_state_but_can_be_removed(tmp_path):
    folder, here = make_world(tmp_path), os.getcwd()
    try:
        os.chdir(folder)
        for _ in range(80):  # as a path it would be longer than the kernel takes
            os.mkdir("d" * 100)
            os.chdir("d" * 100)
    finally:
        os.chdir(here)
    with pytest.raises(WorldFailed, match="folders one in another"):
        read_tree(folder)
    clear_folder(folder)
    assert os.listdir(folder) == []


def test_more_than_a_world_may_hold_is_one_error(tmp_path, monkeypatch):
    folder = make_world(tmp_path)
    for cap, most, problem in (("BYTES", 4, "larger than"), ("NAMES", 3, "more than 3 files")):
        with monkeypatch.context() as patch:
            patch.setattr(trees, f"_MOST_{cap}", most)
            with pytest.raises(WorldFailed, match=problem):
                read_tree(folder)
