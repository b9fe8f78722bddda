"""Trees of files: written, read and cleared below one folder, whatever a server left there."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.outcomes.worlds import tree as trees
from assets.outcomes.worlds.tree import (
    TreeLink,
    WorldFailed,
    add_folders,
    digest_tree,
    read_tree,
    write_tree,
)
from warehouse.storage.untrusted_files import clear_folder

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
    monkeypatch.setattr(trees, "_MOST_BYTES", 4)
    with pytest.raises(WorldFailed, match="larger than"):
        read_tree(folder)
    monkeypatch.setattr(trees, "_MOST_BYTES", 100)
    monkeypatch.setattr(trees, "_MOST_NAMES", 3)
    with pytest.raises(WorldFailed, match="more than 3 files"):
        read_tree(folder)
