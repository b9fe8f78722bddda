"""Below a folder of somebody else only plain files are read, and nothing is waited for."""

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.storage import untrusted_files
from warehouse.storage.untrusted_files import (
    UnreadableFile,
    list_files,
    match_paths,
    open_file,
    read_file,
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with one file, and a trap of each kind beside it."""
    (tmp_path / "secret").write_bytes(b"of the host")
    root = tmp_path / "tree"
    (root / "a").mkdir(parents=True)
    (root / "a/file").write_bytes(b"here")
    (root / "a/link").symlink_to("file")
    (root / "folder").symlink_to(tmp_path)
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "socket"))
    return root


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a/link", "it is a link"),
        ("folder/secret", "on its way is no folder"),
        ("folder/tree/a/file", "on its way is no folder"),
        ("loop", "it is a link"),
        ("pipe", "no plain file"),
        ("socket", "no plain file"),
        ("a", "no plain file"),
        ("", "no plain file"),
        ("none", "not there"),
        ("none/file", "not there"),
        ("a/file/more", "on its way is no folder"),
        ("../secret", "leads out of its folder"),
        ("a/../../secret", "leads out of its folder"),
        ("/etc/hostname", "leads out of its folder"),
        ("a\0b", "no name of a file"),
        ("\ud800", "no name of a file"),
        ("x" * 300, "too long"),
    ],
)
def test_only_plain_files_below_plain_folders_are_read(tree: Path, name: str, message: str) -> None:
    held = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UnreadableFile, match=message) as refused:
        open_file(tree, name)
    assert len(str(refused.value)) < 300
    assert len(os.listdir("/proc/self/fd")) == held


def test_a_plain_file_is_read_up_to_its_cap(tree: Path) -> None:
    assert read_file(tree, "a/file", 4) == b"here"
    with pytest.raises(UnreadableFile, match="a/file: larger than 3 bytes"):
        read_file(tree, "a/file", 3)


def test_a_link_in_place_of_the_root_is_not_followed(tree: Path) -> None:
    with pytest.raises(UnreadableFile):
        read_file(tree.parent / "tree" / "folder", "secret", 100)


def test_a_listing_follows_no_link_and_names_every_file(tree: Path) -> None:
    names = [str(path) for path in list_files(tree)]
    assert names == ["folder", "loop", "pipe", "socket", "a/file", "a/link"]
    assert list(list_files(tree, skip={"a"})) == [Path(name) for name in names[:4]]
    with pytest.raises(UnreadableFile):
        list(list_files(tree, "folder"))


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are opened from now on."""
    seen, opened = [], os.open

    def count(name, *facts, **more):
        seen.append(str(name))
        return opened(name, *facts, **more)

    monkeypatch.setattr(os, "open", count)
    return seen


def test_a_deep_tree_is_opened_folder_by_folder(tmp_path: Path, openings: list[str]) -> None:
    chain = tmp_path.joinpath(*["d"] * 60)
    chain.mkdir(parents=True)
    (chain / "file").write_bytes(b"")
    held = len(os.listdir("/proc/self/fd"))
    assert list(list_files(tmp_path)) == [(chain / "file").relative_to(tmp_path)]
    assert len(openings) <= 61
    walk = list_files(tmp_path)
    next(walk)
    walk.close()
    assert len(os.listdir("/proc/self/fd")) == held


def test_a_tree_has_a_depth_and_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.joinpath(*["d"] * 200).mkdir(parents=True)
    with pytest.raises(UnreadableFile, match="more than 64 folders one in another"):
        list(list_files(tmp_path))
    held = len(os.listdir("/proc/self/fd"))
    for cap, message in (("_MOST_FOLDERS", "than 5 folders"), ("_MOST_NAMES", "than 5 names")):
        monkeypatch.setattr(untrusted_files, cap, 5)
        with pytest.raises(UnreadableFile, match=message):
            list(list_files(tmp_path))
        monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) == held


def test_a_pattern_leads_through_no_link(tree: Path) -> None:
    (tree / "a/b-1.info").mkdir()
    assert match_paths(tree, "*/*.info") == [Path("a/b-1.info")]
    assert match_paths(tree, "folder/*/a") == []
    assert match_paths(tree, "*/f*") == [Path("a/file")]
    assert match_paths(tree / "none", "*") == []


names = st.lists(st.sampled_from(["a", "file", "link", "folder", "..", ".", "pipe", "/", "secret"]))


@given(names)
def test_no_path_reads_anything_else(tmp_path_factory: pytest.TempPathFactory, parts) -> None:
    root = tmp_path_factory.mktemp("made")
    (root / "secret").write_bytes(b"of the host")
    (root / "tree/a").mkdir(parents=True)
    (root / "tree/a/file").write_bytes(b"here")
    (root / "tree/a/link").symlink_to(root / "secret")
    (root / "tree/a/folder").symlink_to(root)
    (root / "tree/folder").symlink_to("..")
    os.mkfifo(root / "tree/pipe")
    try:
        file = read_file(root / "tree", "/".join(parts), 100)
    except UnreadableFile:
        return
    assert file == b"here"
