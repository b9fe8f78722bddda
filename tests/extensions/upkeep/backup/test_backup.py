"""A backup is what a home was at one moment, and comes back whole or not at all."""

import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from extensions.upkeep.backup import save
from extensions.upkeep.backup.manifest import get_pool_path, list_stamps, read_manifest
from extensions.upkeep.backup.restore import BackupBroken, Restored, restore_backup
from extensions.upkeep.backup.save import Saved, prune_backups, save_backup
from tests.support.paths import ROOT
from warehouse.errors import UnusableInput
from warehouse.home import LAYOUT
from warehouse.ledger.attempts import Outcome
from warehouse.ledger.inspection import measure_health
from warehouse.storage.files import PointerBroken, hash_file
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

NAMES = TableSpec(name="names", key=("n",), columns={"n": pl.Int64, "blob": pl.String})


def live(warehouse: Warehouse, n: int) -> None:
    """One more night: an effect, a blob, a version that names it."""
    data = f"answer {n}".encode()
    warehouse.ledger.once("llm", f"k{n}", lambda: Outcome(data, usd=0.01), reserve_usd=0.1)
    rows = [{"n": n, "blob": warehouse.blobs.put(data)}]
    staged = warehouse.tables.stage(NAMES, NAMES.frame(rows))
    warehouse.tables.promote(staged, "run", [])


@pytest.fixture
def lived(warehouse: Warehouse) -> Warehouse:
    live(warehouse, 1)
    warehouse.memo.put("validators", "url", {"etag": "x"})
    (warehouse.home / "artifacts" / "a").mkdir(parents=True)
    (warehouse.home / "artifacts" / "a" / "big").write_text("fetched again")
    (warehouse.home / "latest").symlink_to("tables")
    volume = warehouse.state / "volumes" / "v"
    volume.mkdir(parents=True)
    (volume / "notes.db").write_text("a server's own")
    (warehouse.state / "salt").write_bytes(b"secret")
    (warehouse.state / "salt").chmod(0o600)
    return warehouse


def back_up(warehouse: Warehouse, folder: Path, *, link: bool = False) -> Saved:
    return save_backup(warehouse.home, warehouse.state, folder, "0.1.0", link=link)


def bring_back(folder: Path, to: Path, stamp: str | None = None) -> Warehouse:
    made = restore_backup(folder, to / "home", to / "home" / "state", stamp)
    assert isinstance(made, Restored)
    return Warehouse(home=to / "home", state=to / "home" / "state")


def assert_whole(made: Warehouse, *nights: int) -> None:
    [row] = made.tables.read(NAMES).to_dicts()
    assert row["n"] == nights[-1]
    assert made.blobs.get(row["blob"]) == f"answer {row['n']}".encode()
    for night in nights:
        held = made.ledger.once("llm", f"k{night}", lambda: pytest.fail("paid twice"))
        assert held == f"answer {night}".encode()
    health = measure_health(made.state / "ledger.db", None, made.blobs.has)
    assert health is not None
    assert health.blobs_missing == 0


def test_what_was_saved_comes_back(lived: Warehouse, tmp_path: Path) -> None:
    back_up(lived, tmp_path / "kept")
    live(lived, 2)
    made = bring_back(tmp_path / "kept", tmp_path / "new")
    assert_whole(made, 1)
    assert made.memo.get("validators", "url") == {"etag": "x"}
    assert (made.home / "latest").readlink() == Path("tables")
    assert (made.state / "volumes/v/notes.db").read_text() == "a server's own"
    assert (made.state / "salt").stat().st_mode & 0o777 == 0o600
    assert not (made.home / "artifacts").exists()
    assert made.ledger.spent() == pytest.approx(0.01)


def test_a_second_backup_copies_only_what_is_new(lived: Warehouse, tmp_path: Path) -> None:
    first = back_up(lived, tmp_path / "kept")
    again = back_up(lived, tmp_path / "kept")
    assert (first.copied > 5, again.copied, again.bytes_copied) == (True, 0, 0)
    live(lived, 2)
    third = back_up(lived, tmp_path / "kept")
    # A blob, a version, its pointer and history; the ledger.
    assert third.copied == 5
    assert list_stamps(tmp_path / "kept") == [first.stamp, again.stamp, third.stamp]
    assert_whole(bring_back(tmp_path / "kept", tmp_path / "new"), 1, 2)
    assert_whole(bring_back(tmp_path / "kept", tmp_path / "old", first.stamp), 1)


def test_older_backups_go_with_what_only_they_held(lived: Warehouse, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    back_up(lived, kept)
    live(lived, 2)
    last = back_up(lived, kept)
    before = len(list((kept / "files").rglob("*")))
    assert prune_backups(lived.home, kept, 1) == 1
    assert list_stamps(kept) == [last.stamp]
    assert len(list((kept / "files").rglob("*"))) < before
    assert_whole(bring_back(kept, tmp_path / "new"), 1, 2)
    assert prune_backups(lived.home, kept, 1) == 0


def test_linked_files_outlive_what_becomes_of_the_home(lived: Warehouse, tmp_path: Path) -> None:
    made = back_up(lived, tmp_path / "kept", link=True)
    assert made.linked == 2, "the blob and the version"
    live(lived, 2)
    for path in lived.home.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.unlink()
    assert_whole(bring_back(tmp_path / "kept", tmp_path / "new"), 1)


def test_a_home_that_holds_anything_is_left_alone(lived: Warehouse, tmp_path: Path) -> None:
    back_up(lived, tmp_path / "kept")
    before = sorted(path for path in lived.home.rglob("*"))
    with pytest.raises(UnusableInput, match="holds something already"):
        restore_backup(tmp_path / "kept", lived.home, lived.state)
    assert sorted(path for path in lived.home.rglob("*")) == before


@pytest.mark.parametrize(("layout", "word"), [(LAYOUT + 1, "a newer"), (LAYOUT - 1, "an older")])
def test_a_backup_of_another_version_is_refused(
    lived: Warehouse, tmp_path: Path, layout: int, word: str
) -> None:
    stamp = back_up(lived, tmp_path / "kept").stamp
    path = tmp_path / "kept" / "backups" / f"{stamp}.json"
    body = json.loads(path.read_bytes())
    path.write_text(json.dumps({**body, "layout": layout, "version": "9.9.9"}))
    with pytest.raises(UnusableInput, match=rf"made by {word} version \(9\.9\.9, layout {layout}"):
        bring_back(tmp_path / "kept", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("data", [b"other", None])
def test_a_damaged_backup_puts_nothing_in_place(
    lived: Warehouse, tmp_path: Path, data: bytes | None
) -> None:
    back_up(lived, tmp_path / "kept")
    [path] = (lived.home / "tables").rglob("*.parquet")
    held = get_pool_path(tmp_path / "kept", hash_file(path))
    held.unlink() if data is None else held.write_bytes(data)
    with pytest.raises(BackupBroken, match="restore another backup"):
        bring_back(tmp_path / "kept", tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize("name", ["../out", "/etc/out", ""])
def test_a_manifest_that_leads_out_of_its_root_is_refused(
    lived: Warehouse, tmp_path: Path, name: str
) -> None:
    stamp = back_up(lived, tmp_path / "kept").stamp
    path = tmp_path / "kept" / "backups" / f"{stamp}.json"
    body = json.loads(path.read_bytes())
    body["home"][name] = next(iter(body["home"].values()))
    path.write_text(json.dumps(body))
    with pytest.raises(UnusableInput, match="cannot be read"):
        bring_back(tmp_path / "kept", tmp_path / "new")


def test_a_folder_of_other_things_or_in_the_home_is_refused(
    lived: Warehouse, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("x")
    with pytest.raises(UnusableInput, match="neither empty nor"):
        back_up(lived, tmp_path / "mine")
    with pytest.raises(UnusableInput, match="name a folder elsewhere"):
        back_up(lived, lived.home / "kept")
    with pytest.raises(UnusableInput, match="`toolmill backup` makes one"):
        bring_back(tmp_path / "mine", tmp_path / "new")


def test_killed_before_its_manifest_it_is_none(
    lived: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = back_up(lived, tmp_path / "kept")
    live(lived, 2)

    def fall(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(save, "list_home_files", fall)
        with pytest.raises(KeyboardInterrupt):
            back_up(lived, tmp_path / "kept")
    assert list_stamps(tmp_path / "kept") == [first.stamp]
    assert_whole(bring_back(tmp_path / "kept", tmp_path / "one"), 1)
    back_up(lived, tmp_path / "kept")
    assert_whole(bring_back(tmp_path / "kept", tmp_path / "two"), 1, 2)


def test_what_the_owner_keeps_on_another_disk_is_saved(lived: Warehouse, tmp_path: Path) -> None:
    """By a link at the top of home or state; of what lies in a volume no link is followed."""
    for name in ("blobs", "tables", "state/volumes"):
        away = tmp_path / "disk" / name
        away.parent.mkdir(parents=True, exist_ok=True)
        root = lived.state if name == "state/volumes" else lived.home
        place = root / away.name
        place.rename(away)
        place.symlink_to(away)
    (tmp_path / "secret").write_text("of the host")
    (lived.state / "volumes/v/peek").symlink_to(tmp_path)
    back_up(lived, tmp_path / "kept")
    live(lived, 2)
    before = {path: path.read_bytes() for path in (tmp_path / "disk").rglob("*") if path.is_file()}
    made = bring_back(tmp_path / "kept", tmp_path / "new")
    assert_whole(made, 1)
    assert (made.state / "volumes/v/peek").readlink() == tmp_path
    assert not (made.home / "blobs").is_symlink()
    after = {path: path.read_bytes() for path in (tmp_path / "disk").rglob("*") if path.is_file()}
    assert after == before, "what the links lead to is another home's"


def test_no_link_of_a_backup_leads_a_file_out_of_its_home(lived: Warehouse, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    stamp = back_up(lived, tmp_path / "kept").stamp
    path = tmp_path / "kept" / "backups" / f"{stamp}.json"
    body = json.loads(path.read_bytes())
    file = next(one for one in body["home"].values() if not one["target"])
    link = {**body["home"]["latest"], "target": str(out)}
    body["home"] = {"way": link, "way/file": file, **body["home"], "way/deep": link}
    path.write_text(json.dumps(body))
    with pytest.raises(BackupBroken, match="link and a folder at once"):
        bring_back(tmp_path / "kept", tmp_path / "new")
    assert list(out.iterdir()) == []


def test_whatever_a_server_names_its_files_they_are_saved(lived: Warehouse, tmp_path: Path) -> None:
    volume = lived.state / "volumes" / "v"
    names = (".notes", "yarn.lock", ".going-away/file")
    for name in names:
        (volume / name).parent.mkdir(exist_ok=True)
        (volume / name).write_text(name)
    back_up(lived, tmp_path / "kept")
    made = bring_back(tmp_path / "kept", tmp_path / "new")
    assert [(made.state / "volumes/v" / name).read_text() for name in names] == list(names)


def test_folders_one_in_another_are_saved_however_many(lived: Warehouse, tmp_path: Path) -> None:
    deep = lived.state / "volumes" / "v" / ("d/" * 250)
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 200)
    try:
        back_up(lived, tmp_path / "kept")
        made = bring_back(tmp_path / "kept", tmp_path / "new")
    finally:
        sys.setrecursionlimit(usual)
    assert (made.state / deep.relative_to(lived.state) / "file").read_text() == "x"


def test_a_folder_that_goes_while_it_is_walked_is_passed_over(
    lived: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going = lived.home / "models" / "m1"
    going.mkdir(parents=True)
    (going / "model.json").write_text("{}")
    look = Path.iterdir

    def take_away(path: Path) -> object:
        if path == going and going.exists():
            going.rename(tmp_path / "gone")
        return look(path)

    monkeypatch.setattr(Path, "iterdir", take_away)
    back_up(lived, tmp_path / "kept")
    monkeypatch.undo()
    assert_whole(bring_back(tmp_path / "kept", tmp_path / "new"), 1)


@pytest.mark.slow
def test_backups_beside_a_writer_are_whole(lived: Warehouse, tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from tests.extensions.upkeep.backup.test_backup import live
from warehouse.store import Warehouse
made = Warehouse(home=Path(sys.argv[1]), state=Path(sys.argv[2]))
for n in range(2, 150):
    live(made, n)
"""
    command = [sys.executable, "-c", code, str(lived.home), str(lived.state)]
    writer = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    stamps = []
    while writer.poll() is None:
        stamps.append(back_up(lived, tmp_path / "kept").stamp)
    assert writer.returncode == 0
    chosen = stamps[:: max(1, len(stamps) // 6)]
    seen = set()
    for stamp in chosen:
        made = bring_back(tmp_path / "kept", tmp_path / stamp, stamp)
        night = made.tables.read(NAMES)["n"][0]
        seen.add(night)
        assert_whole(made, *range(1, night + 1))
    assert len(seen) > 1, "they were taken while it wrote"


def test_two_homes_in_one_folder_keep_their_own(
    lived: Warehouse, warehouse: Warehouse, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    other = Warehouse(home=tmp_path / "two", state=tmp_path / "two" / "state")
    other.check_writable()
    live(other, 5)
    mine = [back_up(lived, kept).stamp, back_up(lived, kept).stamp]
    theirs = [back_up(other, kept).stamp, back_up(other, kept).stamp]
    assert prune_backups(other.home, kept, 1) == 1
    assert list_stamps(kept) == [*mine, theirs[1]]
    with pytest.raises(UnusableInput, match=f"of 2 homes, say which: --at {mine[1]} of .*home"):
        bring_back(kept, tmp_path / "new")
    assert_whole(bring_back(kept, tmp_path / "new", mine[0]), 1)
    assert_whole(bring_back(kept, tmp_path / "new2", theirs[1]), 5)


def test_a_file_of_another_home_with_the_same_size_and_time_is_no_copy(
    lived: Warehouse, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    other = Warehouse(home=tmp_path / "two", state=tmp_path / "two" / "state")
    other.check_writable()
    for home, text in ((lived.home, "one"), (other.home, "two")):
        (home / "note").write_text(text)
        os.utime(home / "note", (1.0, 1.0))
    back_up(lived, kept)
    stamp = back_up(other, kept).stamp
    assert (bring_back(kept, tmp_path / "new", stamp).home / "note").read_text() == "two"


def test_backups_of_another_layout_are_told_before_anything_is_saved(
    lived: Warehouse, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    made = kept / "backups" / f"{back_up(lived, kept).stamp}.json"
    made.write_text(json.dumps({**json.loads(made.read_text()), "layout": LAYOUT - 1}))
    with pytest.raises(UnusableInput, match="back up into a new folder, and keep this one"):
        back_up(lived, kept)
    assert list_stamps(kept) == [made.stem]


def test_a_home_inside_its_state_is_saved_once_and_comes_back(tmp_path: Path) -> None:
    made = Warehouse(home=tmp_path / "state" / "home", state=tmp_path / "state")
    made.check_writable()
    live(made, 1)
    saved = back_up(made, tmp_path / "kept")
    manifest = read_manifest(tmp_path / "kept", saved.stamp)
    assert not [name for name in manifest.state if name.startswith("home")]
    new = tmp_path / "new"
    restore_backup(tmp_path / "kept", new / "home", new)
    assert_whole(Warehouse(home=new / "home", state=new), 1)


def test_a_link_put_in_place_of_a_volume_s_file_is_not_followed(
    lived: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "notes.db").write_text("of the host")
    volume = lived.state / "volumes" / "v"
    copy = save._Saver._copy_file

    def swap(saver: save._Saver, root: Path, path: Path) -> str:
        if path.parent == volume:
            os.rename(volume, tmp_path / "aside")
            volume.symlink_to(secret)
        return copy(saver, root, path)

    monkeypatch.setattr(save._Saver, "_copy_file", swap)
    saved = back_up(lived, tmp_path / "kept")
    manifest = read_manifest(tmp_path / "kept", saved.stamp)
    assert "volumes/v/notes.db" not in manifest.state
    pool = [path.read_bytes() for path in (tmp_path / "kept/files").rglob("*") if path.is_file()]
    assert b"of the host" not in pool


def lose_version(pointer: Path) -> None:
    for path in pointer.parent.glob("*.parquet"):
        path.unlink()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.write_text("{"), r"names/_/HEAD\.json: cannot be read \(Expecting"),
        (lambda path: path.write_text("[]"), r"expected a JSON object"),
        (lambda path: path.write_text("{}"), "names no version"),
        (Path.unlink, "is not there, though its history names publications"),
        (lose_version, "names version .{12}, which is not there"),
    ],
)
def test_of_a_home_whose_pointer_does_not_resolve_no_backup_is_made(
    lived: Warehouse, tmp_path: Path, damage: Callable[[Path], object], words: str
) -> None:
    kept = tmp_path / "kept"
    first = back_up(lived, kept)
    damage(lived.home / "tables/names/_/HEAD.json")
    with pytest.raises(PointerBroken, match=words):
        back_up(lived, kept)
    assert list_stamps(kept) == [first.stamp]
    assert_whole(bring_back(kept, tmp_path / "new"), 1)


def test_the_last_backup_that_resolves_outlives_any_number_of_later_ones(
    lived: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    stamps = [back_up(lived, kept).stamp, back_up(lived, kept).stamp]
    (lived.home / "tables/names/_/HEAD.json").write_text("{")
    monkeypatch.setattr(save._Saver, "_require_pointers", lambda *_: None)  # as versions before
    stamps += [back_up(lived, kept).stamp, back_up(lived, kept).stamp]
    assert prune_backups(lived.home, kept, 1) == 2
    assert list_stamps(kept) == [stamps[1], stamps[3]]
    assert_whole(bring_back(kept, tmp_path / "new", stamps[1]), 1)


def test_an_emptied_home_does_not_push_out_the_last_backup_with_tables(
    lived: Warehouse, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    first = back_up(lived, kept)
    shutil.rmtree(lived.home / "tables")
    made = [back_up(lived, kept), back_up(lived, kept)]
    assert [one.tables for one in (first, *made)] == [1, 0, 0]
    assert prune_backups(lived.home, kept, 1) == 1
    assert list_stamps(kept) == [first.stamp, made[1].stamp]
    assert restore_backup(kept, tmp_path / "a", tmp_path / "a/state").tables == 0
    assert restore_backup(kept, tmp_path / "b", tmp_path / "b/state", first.stamp).tables == 1


def test_a_backup_that_lost_a_file_does_not_count_as_the_good_one(
    lived: Warehouse, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    first = back_up(lived, kept)
    live(lived, 2)
    second = back_up(lived, kept)
    before = {one.sha256 for one in read_manifest(kept, first.stamp).home.values()}
    versions = {hash_file(path) for path in (lived.home / "tables").rglob("*.parquet")}
    get_pool_path(kept, (versions - before).pop()).unlink()
    assert prune_backups(lived.home, kept, 1) == 0
    assert list_stamps(kept) == [first.stamp, second.stamp]


def test_locks_that_a_refused_command_left_are_nothing(lived: Warehouse, tmp_path: Path) -> None:
    kept, new = tmp_path / "kept", tmp_path / "new"
    back_up(lived, kept)
    (new / "home" / "state").mkdir(parents=True)
    for name in ("state/run.lock", "state/ledger.lock"):
        (new / "home" / name).touch()
    assert_whole(bring_back(kept, new), 1)


@pytest.mark.parametrize("name", ["yarn.lock", "mine/run.lock"])
def test_beside_locks_anything_else_is_something(
    lived: Warehouse, tmp_path: Path, name: str
) -> None:
    back_up(lived, tmp_path / "kept")
    mine = tmp_path / "new" / "home" / name
    mine.parent.mkdir(parents=True)
    mine.touch()
    with pytest.raises(UnusableInput, match="holds something already"):
        bring_back(tmp_path / "kept", tmp_path / "new")
    assert mine.exists()
