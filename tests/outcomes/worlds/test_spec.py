"""World files: what they may hold, and one error that names the file for what they may not."""

import os

import pytest

from assets.outcomes.worlds import spec
from assets.outcomes.worlds.catalogue import SHIPPED, find_world, list_worlds
from assets.outcomes.worlds.errors import WorldFileError
from assets.outcomes.worlds.spec import load_world
from tests.outcomes.worlds.files import SMALL, write_world


def test_a_world_file_is_read(tmp_path):
    world = load_world(write_world(tmp_path))
    assert (world.name, [task.name for task in world.tasks]) == ("small", ["write", "read"])
    assert world.read_files() == {"a.txt": b"first\n", "sub/b.txt": b"second\n"}


def test_a_world_file_that_was_edited_is_read_anew(tmp_path):
    path = write_world(tmp_path)
    stamp = path.stat()
    first = load_world(path)
    path.write_text(SMALL.replace('name = "small"', 'name = "other"', 1))  # as long as it was
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert (first.name, load_world(path).name) == ("small", "other")


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
    ('tasks = ["read"]', 'tasks = ["raed"]', "no task is called 'raed'"),
    ('blame = "caller"', 'blame = "nobody"', "faults.0.blame"),
    ('kind = "folder"', 'kind = "folder', "not TOML"),
    ('kind = "folder"', 'kind = "folder"\npath = "/x"', "path: no such key"),
]


@pytest.mark.parametrize(("old", "new", "told"), WRONG, ids=[one[2][:30] for one in WRONG])
def test_what_is_wrong_with_a_world_file_is_one_error_that_names_it(tmp_path, old, new, told):
    assert old in SMALL
    path = write_world(tmp_path, SMALL.replace(old, new, 1))
    with pytest.raises(WorldFileError, match=told) as error:
        load_world(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('kind = "folder"', 'kind = "castle"', "kind 'castle' does not exist; known: "),
        ('action = "remove"', 'action = "melt"', "'melt': kind 'folder' has corrupt, empty"),
        ('files = "seed"', 'generator = { name = "x" }', "generator 'x': kind 'folder' has office"),
    ],
)
def test_what_its_kind_does_not_have_is_told_with_what_it_has(tmp_path, old, new, told):
    path = write_world(tmp_path, SMALL.replace(old, new, 1))
    with pytest.raises(WorldFileError, match=told) as error:
        find_world("small", [tmp_path])
    assert str(path) in str(error.value)


def test_a_seed_that_leaves_its_folder_or_is_too_large_is_refused(tmp_path, monkeypatch):
    path = write_world(tmp_path)
    world, secret = load_world(path), tmp_path / "secret"
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
    known = {world.path: world for world in list_worlds([tmp_path])}
    for path in (first, second):
        assert f"{first}, {second}" in str(known[path].problem) or f"{second}, {first}" in str(
            known[path].problem
        )
    assert "not TOML" in str(known[tmp_path / "broken.toml"].problem)
    with pytest.raises(WorldFileError, match="two worlds are called 'small'"):
        find_world("small", [tmp_path])
    assert find_world("office-folder", [tmp_path]).name == "office-folder"
    with pytest.raises(WorldFileError, match=r"broken\.toml: not TOML"):
        find_world("broken", [tmp_path])


def test_a_world_with_a_shipped_name_costs_the_shipped_one_nothing(tmp_path):
    mine = write_world(tmp_path, name="office-folder")
    mine.write_text(mine.read_text().replace('"small"', '"office-folder"'))
    known = {world.path: world for world in list_worlds([tmp_path])}
    shipped = SHIPPED / "office-folder.toml"
    assert known[shipped].problem is None
    assert f"{shipped}, {mine}; rename one" in str(known[mine].problem)
    assert find_world("office-folder", [tmp_path]).path == shipped


def test_a_name_that_no_world_has_and_a_folder_that_is_not_there_are_told(tmp_path):
    with pytest.raises(WorldFileError, match=r"no world is called 'nowhere'; known: .*office"):
        find_world("nowhere")
    with pytest.raises(WorldFileError, match=r"worlds\.paths: .*missing"):
        list_worlds([tmp_path / "missing"])


def test_every_shipped_world_can_be_read():
    known = list_worlds()
    assert [one.problem for one in known] == [None] * len(known)
    assert all(one.world and one.world.name == one.path.stem for one in known)
