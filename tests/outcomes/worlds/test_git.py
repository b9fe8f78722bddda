"""Git's files as we write and read them, held against git itself in repositories of our own."""

import subprocess
import time
from random import Random

import pytest

from assets.outcomes.worlds.git import (
    MeteredReader,
    add_object,
    generate_project,
    list_commit_files,
    read_index,
    read_object,
    read_repository,
)
from assets.outcomes.worlds.tree import WorldFailed, add_folders, read_tree, write_tree
from tests.support.cases import cases


@pytest.fixture
def repository(tmp_path):
    write_tree(tmp_path, generate_project(Random("seed"), 7))
    return tmp_path


def git(folder, *words):
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", str(folder), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_git_finds_our_repository_whole_and_as_we_read_it(repository):
    before = read_repository(read_tree(repository))
    assert git(repository, "fsck", "--full", "--strict") == ""
    staged = git(repository, "ls-files", "--stage").splitlines()
    for line in staged:
        mode_blob, _, path = line.partition("\t")
        assert before[f"staged/{path}"] == mode_blob.split()[1]
    output = git(repository, "log", "-1", "--format=%s|%an").strip()
    main = before["branch/main"]
    assert (output, main["commits"]) == (f"{main['message']}|{main['author']}", 7)
    assert "A  NOTICE.md" in git(repository, "status", "--porcelain")
    assert read_repository(read_tree(repository)) == before  # git's own writing is left out


def test_what_git_does_is_read_without_ids_and_times(repository):
    before = read_repository(read_tree(repository))
    git(repository, "branch", "new")
    git(repository, "tag", "v1")
    git(repository, "commit", "-q", "-m", "a message")
    after = read_repository(read_tree(repository))
    changed = {key: item for key, item in after.items() if before.get(key) != item}
    built = {key for key in changed if not key.startswith(("branch/new", "tag/v1"))}
    assert built == {"branch/main", "branch/main:NOTICE.md"}
    assert after["branch/main"] == {"message": "a message", "author": "Mill Worker", "commits": 8}
    assert after["branch/new"] == after["tag/v1"] == before["branch/main"]


def test_what_is_no_repository_any_more_is_still_a_state():
    tree = dict(generate_project(Random("seed"), 5))
    whole = read_repository(add_folders(tree))
    for path, data in {
        ".git/HEAD": b"ref: refs/heads/gone\n",
        ".git/index": b"DIRC\xff",
        ".git/refs/heads/main": b"0" * 40 + b"\n",
        ".git/config": b"[core]\n\tfsmonitor = touch /tmp/x\n",
        ".git/hooks/pre-commit": b"#!/bin/sh\n",
    }.items():
        assert read_repository(add_folders({**tree, path: data})) != whole, path


@cases("data", b"", b"DIRC", b"DIRC\0\0\0\x02\0\0\0\x09", b"DIRC\0\0\0\x04" * 9)
def test_an_index_that_is_none_is_refused(data):
    with pytest.raises((ValueError, IndexError)):
        read_index(data)


def test_an_object_under_another_s_name_is_none():
    tree = dict(generate_project(Random("seed"), 5))
    item, other = [path for path in tree if path.startswith(".git/objects/") and tree[path]][:2]
    name = item.removeprefix(".git/objects/").replace("/", "")
    assert read_object(tree, name)
    tree[item] = tree[other]
    assert read_object(tree, name) is None
    tree[item] = b"no zlib"
    assert read_object(tree, name) is None


def test_what_is_named_very_often_comes_to_an_end():
    with pytest.raises(WorldFailed, match="more than 200 branches"):
        read_repository({f".git/refs/heads/{n}": b"0" * 40 for n in range(201)})
    tree, name = {}, ""
    for level in range(12):  # folders that hold one another
        names = bytes.fromhex(name) if name else b"\0" * 20
        entries = (f"40000 {level}{n}\0".encode() + names for n in range(12))
        name = add_object(tree, "tree", b"".join(entries))
    assert list_commit_files(MeteredReader(tree), name) == {"?": name}
    tree = {}
    entries = b"".join(b"100644 %d\0" % n + b"\0" * 20 for n in range(30_000))
    name = add_object(tree, "tree", entries)
    began = time.process_time()
    assert list_commit_files(MeteredReader(tree), name) == {"?": name}
    commit = add_object(tree, "commit", f"tree {name}\n\n{'x' * 900_000}".encode())
    tree |= {f".git/refs/heads/{n}": commit.encode() for n in range(199)}
    with pytest.raises(WorldFailed, match="takes more than 64 MB to read"):
        read_repository(tree)
    assert time.process_time() - began < 20
