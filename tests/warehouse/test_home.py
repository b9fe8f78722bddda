"""A home of another version is refused in one line, unread; an empty one is marked at first use."""

import json
from pathlib import Path

import pytest

from orchestration.settings.load import load_settings
from warehouse.home import LAYOUT, MARKER, HomeUnavailable, check_home, claim_home
from warehouse.store import Warehouse


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
        ("tables", None, r"earlier version \(tables without home.json\)"),
        ("state/ledger.db", None, "earlier version"),
        ("tables", "", "not readable"),
        ("tables", "[]", "not readable"),
        ("tables", '{"version": 2}', "not readable"),
        ("tables", "\udcff", "not readable"),
        ("tables", '{"layout": 2}', r"another version \(layout 2, expected 3\)"),
        ("tables", '{"layout": 4}', r"a later version \(layout 4, expected 3\)"),
        ("tables", '{"layout": "two"}', "another version"),
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
        assert "make clean" in message
        assert "TOOLMILL_HOME" in message
        assert "\n" not in message
    assert contents(home) == before
