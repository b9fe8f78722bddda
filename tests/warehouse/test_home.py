"""A home of another version is refused in one line, unread; an empty one is marked at first use."""

import json
from pathlib import Path

import pytest

from orchestration.settings.load import load_settings
from warehouse.home import LAYOUT, MARKER, HomeUnavailable, check_home, claim_home, require_home
from warehouse.store import Warehouse

PUT_BACK = r'if this version made it, put \{"layout": 3\} into .*/home.json, or restore a backup'
GARBLED = "its home.json does not say which layout it has; " + PUT_BACK


def contents(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_an_absent_and_an_empty_home_are_marked_at_first_use(tmp_path: Path) -> None:
    for home in (tmp_path / "absent", tmp_path):
        check_home(home)
        assert not (home / MARKER).exists()
        claim_home(home)
        assert json.loads((home / MARKER).read_text()) == {"layout": LAYOUT}
        claim_home(home)


@pytest.mark.parametrize("store", ["tables", "blobs", "ledger", "memo"])
def test_every_store_marks_its_home(tmp_path: Path, store: str) -> None:
    warehouse = Warehouse(home=tmp_path / "home", state=tmp_path / "home" / "state")
    assert not warehouse.home.exists()
    getattr(warehouse, store)
    check_home(warehouse.home)
    assert (warehouse.home / MARKER).exists()


@pytest.mark.parametrize(
    ("entry", "marker", "words"),
    [
        ("tables", None, "holds tables, and no home.json; " + PUT_BACK),
        ("state/ledger.db", None, "holds state/ledger.db, and no home.json; " + PUT_BACK),
        ("tables", "", GARBLED),
        ("tables", "[]", GARBLED),
        ("tables", '{"version": 2}', GARBLED),
        ("tables", "\udcff", GARBLED),
        ("tables", '{"layout": "two"}', GARBLED),
        ("tables", '{"layout": true}', GARBLED),
        ("tables", '{"layout": 2}', r"an earlier version \(layout 2, expected 3\); that version"),
        ("tables", '{"layout": 999}', r"a later version \(layout 999, expected 3\); install that"),
    ],
)
def test_a_home_of_another_version_is_refused_in_one_line(
    tmp_path: Path, monkeypatch, entry: str, marker: str | None, words: str
) -> None:
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


def test_a_lost_marker_that_is_put_back_opens_the_home_again(tmp_path: Path) -> None:
    warehouse = Warehouse(home=tmp_path, state=tmp_path / "state")
    sha = warehouse.blobs.put(b"good")
    (tmp_path / MARKER).unlink()
    with pytest.raises(HomeUnavailable) as caught:
        check_home(tmp_path)
    put_back = str(caught.value).partition("put ")[2].partition(" into")[0]
    (tmp_path / MARKER).write_text(put_back)
    assert Warehouse(home=tmp_path, state=tmp_path / "state").blobs.get(sha) == b"good"


def test_a_file_in_a_homes_place_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for use in (check_home, require_home, claim_home):
        with pytest.raises(HomeUnavailable, match="file: is a file; set TOOLMILL_HOME to a folder"):
            use(tmp_path / "file")
        with pytest.raises(
            HomeUnavailable, match=r"/file is a file; set TOOLMILL_HOME to a"
        ) as below:
            use(tmp_path / "file" / "home")
        assert "writable" not in str(below.value)
