"""Kinds of worlds: facts follow the content, not its layout, and damage is a state too."""

import io
import json
import sqlite3
import subprocess
import sys
import time
import zipfile
from contextlib import closing
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.outcomes.worlds import contained_reading, file_kinds, file_reader
from assets.outcomes.worlds.file_kinds import WORKBOOK_FILE, format_cell, read_cells, write_workbook
from assets.outcomes.worlds.file_reader import NoWorkbook, read_workbook
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
from warehouse.storage.digest import digest


def test_a_graph_is_the_same_in_any_order_and_with_what_a_server_adds():
    tree = file_kinds.generate_team(Random("x"), 8)
    whole = file_kinds.read_graph(tree)
    data = tree[file_kinds.MEMORY_FILE]
    assert isinstance(data, bytes)
    lines = [json.loads(line) for line in data.splitlines()]
    more = [{**line, "version": 2, "createdAt": "2026-01-01"} for line in reversed(lines)]
    text = "\n".join(json.dumps(line) for line in more)
    assert file_kinds.read_graph({file_kinds.MEMORY_FILE: text.encode()}) == whole
    twice = text + "\n" + json.dumps(lines[0])
    assert file_kinds.read_graph({file_kinds.MEMORY_FILE: twice.encode()}) != whole


@cases("text", "{", "[]", "7", '{"type": "entity"}', "\x00\xff", '{"a":' * 9999)
def test_a_line_that_is_no_part_of_a_graph_is_a_fact(text):
    facts = file_kinds.read_graph({file_kinds.MEMORY_FILE: text.encode("latin-1")})
    assert len(facts) == 1
    for stored in ("NaN", "1e999", str(2**60), '"\\ud800"'):  # without a canonical form
        line = f'{{"type": "entity", "name": "x", "observations": [{stored}]}}'
        facts = file_kinds.read_graph({file_kinds.MEMORY_FILE: line.encode()})
        assert facts == {"line/1": line}
        assert digest(facts)


def make_database(folder, *, changes=(), mode="delete"):
    folder.mkdir(exist_ok=True)
    write_tree(folder, file_kinds.generate_shop_database(Random("x"), 8))
    with closing(sqlite3.connect(folder / file_kinds.DATABASE_FILE)) as database:
        database.execute(f"PRAGMA journal_mode = {mode}")
        for sql in changes:
            database.execute(sql)
            database.commit()
        return file_kinds.read_database(read_tree(folder))  # a log beside it is there still


def test_a_database_is_read_by_its_rows_whatever_its_pages_are(tmp_path):
    plain = make_database(tmp_path / "a")
    assert plain["customers/1"]["id"] == 1
    assert "CREATE TABLE orders" in plain["schema/orders"]
    churn = ["INSERT INTO customers VALUES (99, 'x', 'y')", "DELETE FROM customers WHERE id = 99"]
    assert make_database(tmp_path / "b", changes=[*churn, "VACUUM"], mode="wal") == plain
    keys = ("('x/y', 'z')", "('x', 'y/z')", "(NULL, 1)", "(NULL, 1)")  # they read alike
    changes = ["DELETE FROM orders WHERE id = 1", "CREATE TABLE sqliteXhidden (a)"]
    changes += ["INSERT INTO sqliteXhidden VALUES ('x')"]
    changes += ["CREATE TABLE k (a TEXT, b TEXT, PRIMARY KEY (a, b))"]
    changes += [f"INSERT INTO k VALUES {key}" for key in keys]
    after = make_database(tmp_path / "c", changes=changes, mode="wal")  # in its log alone
    assert "orders/1" not in after
    assert "orders/2" in after
    assert after["sqliteXhidden/1"] == {"a": "x"}
    assert len([key for key in after if key.startswith("k/")]) == 4


HOSTILE = {
    "endless": "CREATE VIEW v AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n)"
    " SELECT i FROM n",
    "odd": 'CREATE TABLE "a""b; DROP TABLE orders" (x)',
    "keyless": "CREATE TABLE k AS SELECT 1e999 AS big, x'ff00' AS raw, 9007199254740993 AS n",
}


@pytest.mark.parametrize("sql", HOSTILE.values(), ids=HOSTILE)
def test_what_a_server_puts_into_a_database_is_read_and_never_run(tmp_path, sql):
    facts = make_database(tmp_path, changes=[sql])
    assert "orders/1" in facts
    json.dumps(facts, allow_nan=False)


@cases("size", 0, 50, 100)
def test_a_damaged_database_is_a_state_with_a_digest(size):
    tree = file_kinds.generate_shop_database(Random("x"), 8)
    whole = tree[file_kinds.DATABASE_FILE]
    damaged = whole[:size] + b"\xff" * size
    facts = file_kinds.read_database({**tree, file_kinds.DATABASE_FILE: damaged})
    assert facts != file_kinds.read_database(tree)


def test_very_many_lines_alike_are_told_at_once():
    line = b'{"type": "entity"}\n'
    assert len(file_kinds.read_graph({file_kinds.MEMORY_FILE: line * 20_000})) == 20_000
    with pytest.raises(WorldFailed, match="more than 20,000 lines"):
        file_kinds.read_graph({file_kinds.MEMORY_FILE: line * 20_001})


_ZEROES = "(n INTEGER, z BLOB GENERATED ALWAYS AS (zeroblob(900000000)))"
_MANY = "WITH RECURSIVE c(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM c LIMIT {}) SELECT i FROM c"
_COLUMNS = ", ".join(f"c{n}" for n in range(1900))
_TEXTS = "CREATE TABLE t (x AS (hex(zeroblob(400000))), n INTEGER PRIMARY KEY)"
_WIDE = f"CREATE TABLE w (n INTEGER PRIMARY KEY, {_COLUMNS})"
_MUCH = "more than 8,388,608 characters"
LARGE = {
    "zeroes": ([f"CREATE TABLE z {_ZEROES}", "INSERT INTO z (n) VALUES (1)"], "too big"),
    "texts": ([_TEXTS, f"INSERT INTO t (n) {_MANY.format(9999)}"], _MUCH),
    "columns": ([_WIDE, f"INSERT INTO w (n) {_MANY.format(19000)}"], _MUCH),
}


@pytest.mark.parametrize(("sql", "why"), LARGE.values(), ids=LARGE)
def test_a_database_that_would_fill_the_memory_is_one_clear_error(tmp_path, sql, why):
    facts = make_database(tmp_path, changes=sql)
    assert why in facts[file_kinds.DATABASE_FILE]["why"]
    assert not [key for key in facts if key.startswith("orders/")]


def test_reading_what_a_server_wrote_takes_less_than_200_mb_in_all(tmp_path):
    """Of this process and of the largest of those that it starts."""
    make_database(tmp_path, changes=LARGE["columns"][0])
    tried = """
import resource, sys
from pathlib import Path
from assets.outcomes.worlds import file_kinds
data = Path(sys.argv[1]).read_bytes()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
facts = file_kinds.read_database({file_kinds.DATABASE_FILE: data})
after, below = (resource.getrusage(who).ru_maxrss
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(facts[file_kinds.DATABASE_FILE]["is"], (after - before) // 1024 + below // 1024)
"""
    argv = [sys.executable, "-c", tried, str(tmp_path / file_kinds.DATABASE_FILE)]
    state, megabytes = subprocess.run(argv, capture_output=True, text=True).stdout.split()
    assert state == "unreadable"
    assert int(megabytes) < 200


def test_a_reading_that_was_ended_is_tried_again(monkeypatch):
    tree = file_kinds.generate_shop_database(Random("again"), 8)
    with monkeypatch.context() as patch:
        patch.setattr(contained_reading, "_run", lambda launch: b'{"fac')
        facts = file_kinds.read_database(tree)
    assert "takes more than" in facts[file_kinds.DATABASE_FILE]["why"]
    facts = file_kinds.read_database(tree)
    monkeypatch.setattr(contained_reading, "_run", lambda launch: pytest.fail("it was read twice"))
    assert file_kinds.read_database(tree) == facts
    assert "orders/1" in facts


TEXTS = st.text("aé <&>\"'=_x日 ", max_size=6)
CELLS = st.one_of(st.none(), st.booleans(), st.integers(-(2**40), 2**40), TEXTS)


@given(st.lists(st.lists(CELLS, max_size=3), max_size=3))
def test_any_cells_come_back(rows):
    data = write_workbook({"One": rows, "Two & <three>": [[1.5]]})
    result = read_workbook(data)
    assert list(result) == ["One", "Two & <three>"]
    filled = [(x, y, v) for y, cells in enumerate(rows, 1) for x, v in enumerate(cells, 1)]
    expected = {format_cell(x, y): value for x, y, value in filled if value is not None}
    assert (result["One"], result["Two & <three>"]) == (expected, {"A1": 1.5})
    assert [format_cell(n, 7) for n in (1, 26, 27, 702, 703)] == ["A7", "Z7", "AA7", "ZZ7", "AAA7"]


def repack(data: bytes, **changed: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            key = name.rpartition("/")[2].partition(".")[0]
            new.writestr(name, changed.get(key, old.read(name)))
    return out.getvalue()


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa">]><worksheet>&a;</worksheet>'


@cases(
    "changed, output",
    ({"sheet1": BOMB}, "declares entities"),
    ({"sheet1": BOMB.replace("DOCTYPE", "doctype")}, "declares entities"),
    ({"sheet1": "<worksheet>"}, "ParseError"),
    ({"workbook": "<workbook/>" * 2}, "ParseError"),
    ({"sheet1": " " * 40_000}, "more than 20,000 bytes"),
)
def test_a_hostile_part_is_refused(monkeypatch, changed, output):
    monkeypatch.setattr(file_reader, "_MOST_PART", 20_000)
    with pytest.raises(NoWorkbook, match=output):
        read_workbook(repack(write_workbook({"One": [[1]]}), **changed))


def test_a_number_that_is_none_in_json_is_text_and_what_is_no_workbook_says_why():
    cells = "<c r='A1'><v>NaN</v></c><c r='B1'><v>1e999</v></c><c r='C1' t='s'><v>²</v></c>"
    rows = f"<sheetData><row>{cells}</row></sheetData>"
    sheet = f"<worksheet xmlns='{file_reader._MAIN}'>{rows}</worksheet>"
    facts = read_cells({WORKBOOK_FILE: repack(write_workbook({"One": [[1]]}), sheet1=sheet)})
    assert [facts[f"One!{cell}"] for cell in ("A1", "B1", "C1")] == ["NaN", "1e999", "²"]
    assert digest(facts)
    good, bad = write_workbook({"One": [["x", "=A1"]]}), b"PK\x03\x04 no zip"
    facts = read_cells({WORKBOOK_FILE: good, "more.xlsx": good, "bad.xlsx": bad, "a.txt": b"text"})
    assert [facts[key] for key in ("One!A1", "One!B1", "a.txt")] == ["x", "=A1", "text"]
    assert (facts["One"], facts["more.xlsx:One!A1"]) == ({"place": 1}, "x")
    assert facts["bad.xlsx"]["why"].startswith("NoWorkbook: BadZipFile")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as built:
        built.writestr("xl/workbook.xml", "<workbook/>" * 99)
    data = bytearray(out.getvalue())
    data[60:70] = b"\xff" * 10  # within what is packed
    with pytest.raises(NoWorkbook):
        read_workbook(bytes(data))


def pack_bomb(method: int, size: int, text: bytes = b" ") -> bytes:
    out, plain = io.BytesIO(), io.BytesIO(write_workbook({"One": [[1]]}))
    with zipfile.ZipFile(out, "w", method) as built, zipfile.ZipFile(plain) as old:
        for name in old.namelist():
            large = "sheet1" in name
            with built.open(name, "w") as part:
                part.write(b"<a>" if large else old.read(name))
                for _ in range(size >> 20 if large else 0):
                    part.write(text * ((1 << 20) // len(text)))
    return out.getvalue()


@cases(
    "data, why",
    (pack_bomb(zipfile.ZIP_BZIP2, 64 << 20), "another method than deflate"),
    (pack_bomb(zipfile.ZIP_LZMA, 64 << 20), "another method than deflate"),
    (pack_bomb(zipfile.ZIP_DEFLATED, 64 << 20), "more than 16,777,216 bytes"),
    (pack_bomb(zipfile.ZIP_DEFLATED, 15 << 20, b"<a/>"), "more memory than its reader"),
    ids=["bzip2", "lzma", "deflate", "elements"],
)
def test_a_workbook_that_unpacks_to_more_is_one_clear_error(data, why):
    assert len(data) < 100_000
    facts = read_cells({WORKBOOK_FILE: data, "a.txt": b"text"})
    assert why in facts[WORKBOOK_FILE]["why"]
    assert (facts["a.txt"], len(facts)) == ("text", 2)


# --- git's files as we write and read them, held against git itself in repositories of our own
@pytest.fixture
def repository(tmp_path):
    write_tree(tmp_path, generate_project(Random("seed"), 7))
    return tmp_path


def git(folder, *words):
    command = ["git", "-c", "safe.directory=*", "-C", str(folder), *words]
    return subprocess.check_output(command, text=True, timeout=60)


def test_git_finds_our_repository_whole_and_what_it_does_is_read_without_ids_and_times(repository):
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
