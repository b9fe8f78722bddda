"""A home of another version is refused; processes are told apart; patterns of third parties."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration.settings.load import load_settings
from tests.support.cases import cases
from warehouse import patterns, process_identity
from warehouse.home import LAYOUT, MARKER, HomeUnavailable, check_home, claim_home, require_home
from warehouse.process_identity import describe_owner, identify_process, is_abandoned
from warehouse.store import Warehouse

PUT_BACK = r'if this version made it, put \{"layout": 3\} into .*/home.json, or restore a backup'
GARBLED = "its home.json does not say which layout it has; " + PUT_BACK


def contents(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_an_absent_and_an_empty_home_are_marked_at_first_use(tmp_path):
    for home in (tmp_path / "absent", tmp_path):
        check_home(home)
        assert not (home / MARKER).exists()
        claim_home(home)
        assert json.loads((home / MARKER).read_text()) == {"layout": LAYOUT}
        claim_home(home)


@cases("store", "tables", "blobs", "ledger", "memo")
def test_every_store_marks_its_home(tmp_path, store):
    warehouse = Warehouse(home=tmp_path / "home", state=tmp_path / "home" / "state")
    assert not warehouse.home.exists()
    getattr(warehouse, store)
    check_home(warehouse.home)
    assert (warehouse.home / MARKER).exists()


@cases(
    "entry, marker, words",
    ("tables", None, "holds tables, and no home.json; " + PUT_BACK),
    ("state/ledger.db", None, "holds state/ledger.db, and no home.json; " + PUT_BACK),
    ("tables", "", GARBLED),
    ("tables", "[]", GARBLED),
    ("tables", '{"version": 2}', GARBLED),
    ("tables", "\udcff", GARBLED),
    ("tables", '{"layout": "two"}', GARBLED),
    ("tables", '{"layout": true}', GARBLED),
    ("tables", '{"layout": 2}', r"another version \(layout 2, expected 3\); install that"),
    ("tables", '{"layout": 999}', r"another version \(layout 999, expected 3\); install that"),
)
def test_a_home_of_another_version_is_refused_at_once(tmp_path, monkeypatch, entry, marker, words):
    home = tmp_path / "home"
    (home / entry).mkdir(parents=True)
    if marker is not None:
        (home / MARKER).write_bytes(marker.encode(errors="surrogateescape"))
    before = contents(home)
    warehouse = Warehouse(home=home, state=home / "state")
    monkeypatch.setenv("TOOLMILL_HOME", str(home))
    for use in (
        lambda: warehouse.tables,
        lambda: warehouse.ledger,
        lambda: warehouse.memo,
        warehouse.check_writable,
        load_settings().home_path,
    ):
        with pytest.raises(HomeUnavailable, match=words) as caught:
            use()
        message = str(caught.value)
        assert message.startswith(f"{home}: ")
        assert "make clean" not in message, "what is there may be good"
        assert "TOOLMILL_HOME" in message
        assert "\n" not in message
    assert contents(home) == before


def test_a_lost_marker_that_is_put_back_opens_the_home_again(tmp_path):
    sha = Warehouse(home=tmp_path, state=tmp_path / "state").blobs.put(b"good")
    (tmp_path / MARKER).unlink()
    with pytest.raises(HomeUnavailable) as caught:
        check_home(tmp_path)
    (tmp_path / MARKER).write_text(str(caught.value).partition("put ")[2].partition(" into")[0])
    assert Warehouse(home=tmp_path, state=tmp_path / "state").blobs.get(sha) == b"good"


def test_a_file_in_a_homes_place_is_said_to_be_one(tmp_path):
    (tmp_path / "file").write_text("")
    for use in (check_home, require_home, claim_home):
        with pytest.raises(HomeUnavailable, match="file: is a file; set TOOLMILL_HOME to a folder"):
            use(tmp_path / "file")
        with pytest.raises(HomeUnavailable, match="/file is a file; set TOOLMILL_HOME") as below:
            use(tmp_path / "file" / "home")
        assert "writable" not in str(below.value)


def test_a_living_process_has_one_identity_and_the_dead_have_none():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert identify_process(other.pid) == identify_process(other.pid) is not None
        assert identify_process(other.pid) != identify_process() == identify_process(os.getpid())
        other.kill()
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert identify_process(process.pid) is None, "a zombie"
    process.wait()
    assert identify_process(process.pid) is None


def test_a_name_with_brackets_and_a_restart_are_read_right(tmp_path, monkeypatch):
    fields = b" ".join(str(number).encode() for number in range(4, 30))
    for pid in ("self", "7"):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "stat").write_bytes(b"7 (a) R (b c) S " + fields)
    boot = tmp_path / "sys" / "kernel" / "random" / "boot_id"
    boot.parent.mkdir(parents=True)
    monkeypatch.setattr(process_identity, "_PROC", tmp_path)
    observed = []
    for name in ("one", "two"):
        boot.write_text(f"{name}\n")
        process_identity._read_boot.cache_clear()
        observed.append(identify_process(7))
    process_identity._read_boot.cache_clear()
    assert observed == ["one:22", "two:22"], "field 22 is the start, in ticks since that boot"


def test_an_owner_is_gone_only_where_we_can_know_it_and_plain_python_reads_it():
    pid, identity, place = describe_owner().split("@")
    assert not is_abandoned(describe_owner())
    with subprocess.Popen(["sleep", "60"]) as other:
        owner = f"{other.pid}@{identify_process(other.pid)}@{place}"
        assert not is_abandoned(owner)
        other.kill()
    assert is_abandoned(owner)
    assert is_abandoned(f"{pid}@{identity}0@{place}"), "its pid has another process now"
    elsewhere = ("", pid, f"{pid}@{identity}0", f"999999999@{identity}@other:1", "@@", "a@b@c")
    assert not any(map(is_abandoned, elsewhere))
    # The sandbox has the standard library alone.
    source = "import sys, warehouse.process_identity as p; p.describe_owner(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not {"psutil", "polars", "dagster"} & set(done.stdout.split())


_TEXT = st.text(
    alphabet=st.sampled_from("aAbB01_ .-,:/<>{}'\"\n\t\x00é中ß١\u2028😀\ud800"), max_size=30
)


# (ours, Python's, characters not before, not behind)
@cases(
    "ours, python, after, before",
    (r"\w+", r"\w+", "", ""),
    (r"[\w.-]{2,3}", r"[\w.-]{2,3}", "", ""),
    (r"[^\w]+\d*", r"[^\w]+\d*", "", ""),
    (r"\s|\S\D", r"\s|\S\D", "", ""),
    (r"(?i)(?P<first>a)|(b)(\d)?", r"(?i)(?P<first>a)|(b)(\d)?", "", ""),
    (r"\u00e9|[\u4e2d-\u9fff]", r"\u00e9|[\u4e2d-\u9fff]", "", ""),
    (r"[]a]|[^]a]", r"[]a]|[^]a]", "", ""),
    (r"[ab]+", r"(?<![\w.])[ab]+(?![\w])", r"\w.", r"\w"),
    (r"\w", r"(?<!\w)\w", r"\w", ""),
    (r"a|é|(0)", r"(?<![^\s,])(?:a|é|(0))", r"^\s,", ""),
    (r"a+?", r"a+?(?!b)", "", "b"),
)
@given(text=_TEXT)
def test_matches_as_python(ours, python, after, before, text):
    text = text.replace("\x00", " ") if after.startswith("^") else text
    pattern = patterns.compile_pattern(ours, unless_after=after, unless_before=before)
    other = re.compile(python)
    expected = [(m.span(), m.groups(), m.groupdict()) for m in other.finditer(text)]
    assert [(m.span(), m.groups(), m.groupdict()) for m in pattern.finditer(text)] == expected
    assert pattern.findall(text) == other.findall(text)
    assert pattern.sub("+", text) == other.sub("+", text)
    assert pattern.sub(lambda m: m[0] * 2, text) == other.sub(lambda m: m[0] * 2, text)
    for start in range(len(text) + 1):
        for method in ("search", "match"):
            mine, theirs = (getattr(p, method)(text, start) for p in (pattern, other))
            assert (mine and mine.span()) == (theirs and theirs.span()), (method, start)
    assert bool(pattern.fullmatch(text)) == bool(other.fullmatch(text))


def test_splits_and_passes_empty_matches():
    assert patterns.compile_pattern(r"\s*,\s*").split("a , é,\n😀") == ["a", "é", "😀"]
    assert patterns.compile_pattern(r"a*").findall("baé") == ["", "a", "", ""]


@cases("pattern", r"(a)\1", r"a++", r"(?<=a)b", r"[\W_]", "(")
def test_what_the_engine_lacks_is_refused(pattern):
    with pytest.raises(ValueError, match=re.escape(repr(pattern))):
        patterns.compile_pattern(pattern).search("a")
