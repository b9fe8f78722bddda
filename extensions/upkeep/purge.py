"""Rewriting versions of tables without what was taken down. A version keeps its name;
`<digest>.taken.json` beside it says which digest its rows have (`warehouse/storage/tables.py`)."""

import calendar
import io
import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

import polars as pl

from assets.catalogue.catalogue import CATALOGUE
from assets.contracts.canonical import tool_text
from assets.servers.calls.log import CallLog, parse_line
from assets.vectors.index import build_server_text
from assets.vectors.texts import build_server_views, split_id
from extensions.upkeep.garbage import GarbageItem, is_finished, measure_size, remove_path
from extensions.upkeep.home_tables import TABLES
from extensions.upkeep.ledger_inspection import list_effect_blobs, list_local_answers
from extensions.upkeep.stored_versions import LanceVersions, find_schema_version, write_mark
from serving.index.model import IndexBroken
from serving.ranking.overlays import find_taken_tools
from training.releases.champion import hold_pointer_lock
from training.releases.release import get_pinned_version, read_served
from warehouse.item_failure import try_item
from warehouse.json_types import JsonObject
from warehouse.ledger.database import find_url
from warehouse.ledger.ledger import Ledger
from warehouse.storage.blobs import Blobs
from warehouse.storage.digest import is_sha256
from warehouse.storage.files import hold_lock, rewrite_lines, write_atomically
from warehouse.storage.tables import TableSpec
from warehouse.storage.takedowns import Takedowns, find_active, find_taken, read_takedowns


@dataclass(frozen=True)
class SplitVersion:
    """A version's rows, split into taken down and staying, with their volatile columns."""

    path: Path
    taken: pl.DataFrame
    kept: pl.DataFrame

    @property
    def table(self) -> str:
        return self.path.parent.parent.name


def rewrite_version(spec: TableSpec | None, path: Path, taken: Takedowns) -> bool:
    """Takes what is taken down out of a version's files; whether there was any. A kill leaves each
    file whole, old or new, and a mark that tells of both."""
    with hold_lock(path.parent / ".lock"):  # as whoever stages or removes a version
        if not path.exists():
            return False
        version = _split_version(path, taken)
        if not len(version.taken):
            return False
        names = pl.read_parquet(path).columns
        schema_version = spec and find_schema_version(spec, path)
        if spec is not None and schema_version is not None:
            write_mark(spec, path, version.kept.select(names), schema_version)
        beside = path.with_name(f"{path.stem}.volatile.parquet")
        if beside.exists():  # first: a row that lost its volatile part alone is still found
            _write(beside, version.kept.select(pl.read_parquet(beside).columns))
        _write(path, version.kept.select(names))
        return True


def collect_blob_names(frame: pl.DataFrame) -> set[str]:
    columns = [name for name in frame.columns if name.endswith("_blob")]
    return {sha for name in columns for sha in frame[name].drop_nulls() if is_sha256(sha)}


def _split_version(path: Path, taken: Takedowns) -> SplitVersion:
    beside = path.with_name(f"{path.stem}.volatile.parquet")
    try:
        frame = pl.read_parquet(path)
        volatile = pl.read_parquet(beside) if beside.exists() else None
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ValueError(
            f"{path}: cannot be read ({reason}), so nobody knows what it holds of what was taken"
            " down; `toolmill doctor` says what to do, or remove the file"
        ) from error
    if volatile is not None:
        key = [name for name in frame.columns if name in volatile.columns]
        frame = frame.join(volatile, on=key, how="left", nulls_equal=True)
    hit = find_taken(taken, frame)
    return SplitVersion(path, frame.filter(hit), frame.filter(~hit))


def _write(path: Path, frame: pl.DataFrame) -> None:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd")
    write_atomically(path, buffer.getvalue())


_WHOLE = ("instruction", "positive", "summary")  # columns whose texts are embedded as they are


class RowTexts:
    """The texts of rows, table by table. A server is embedded under the names that the catalogue
    has for it, so that is to be read before the tables of contracts."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = defaultdict(set)  # server id -> what it is called

    def collect(self, table: str, frame: pl.DataFrame) -> set[str]:
        """The texts by which rows of a table may stand in the vector store."""
        result = {
            text for name in _WHOLE if name in frame.columns for text in frame[name].drop_nulls()
        }
        if table == CATALOGUE.name:
            for name, about, servers in frame.select("name", "description", "server_ids").rows():
                for server in servers or ():
                    called = name or split_id(server)
                    self._names[server].add(called)
                    result.add(build_server_views(called, about or "", "", [])["server"])
        if {"server_id", "contract"} <= set(frame.columns):
            result |= self._collect_contract_texts(frame)
        return result

    def _collect_contract_texts(self, frame: pl.DataFrame) -> set[str]:
        rows = frame.select("server_id", "contract").drop_nulls().unique().rows()
        tool_texts, servers = set[str](), defaultdict[str, list[JsonObject]](list)
        for server, text in rows:
            contract = try_item(partial(_read_contract, text), lambda _: None)
            if contract is not None:
                tool_texts.add(tool_text(contract))
                servers[server].append(contract)
        for server, contracts in servers.items():
            tool_texts.add(build_server_text(server, contracts))
            for name in (*self._names[server], split_id(server)):
                tool_texts |= set(build_server_views(name, "", "", contracts).values())
        return tool_texts


def _read_contract(text: str) -> JsonObject:
    contract = json.loads(text)
    tool_text(contract)  # one that has no text is in no index either
    return contract


KIND = "taken"


@dataclass
class _TakenTraces:
    """versions: with taken rows. blobs, texts: that these rows name, and no row that stays."""

    versions: list[SplitVersion] = field(default_factory=list)
    blobs: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)


def list_taken(home: Path, state: Path, now: float, oldest: float | None) -> Iterator[GarbageItem]:
    """All that is taken down, in the order in which it goes. now: epoch seconds; oldest: start of
    the oldest run under way, which may still read older versions of vectors."""
    takedowns = read_takedowns(home)
    if not takedowns:
        return
    reached = _look(home, takedowns)
    yield from _list_vectors(home, reached, now - (oldest or now))
    yield from _list_blobs(home, state, reached)
    yield from _list_pools(home, takedowns)
    yield from _list_jobs(home, takedowns)
    yield from _list_indexes(home)
    for place in (home, *sorted((state / "served").glob("*"))):
        yield from _list_trace_lines(CallLog(place).traces, takedowns)
    for version in reached.versions:
        remove = partial(rewrite_version, TABLES.get(version.table), version.path, takedowns)
        name = str(version.path.relative_to(home))
        yield GarbageItem(KIND, f"{name}: {len(version.taken)} rows", 0, remove)


def _list_trace_lines(traces: CallLog, taken: Takedowns) -> Iterator[GarbageItem]:
    """Calls of taken tools that were kept for those who opted in."""

    def stays(text: str) -> bool:
        line = parse_line(text) or {}
        return not taken.is_reached(*str(line.get("tool_id")).partition("::")[::2])

    for path in traces.list_files():
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if count := sum(not stays(line) for line in lines):
            remove = partial(_call, rewrite_lines, path, stays)
            yield GarbageItem(KIND, f"traces/{path.name}: {count} calls", 0, remove)


def _look(home: Path, taken: Takedowns) -> _TakenTraces:
    reached, kept_blobs, kept_texts = _TakenTraces(), set[str](), set[str]()
    texts = RowTexts()
    for path in sorted((home / "tables").glob("*/*/*.parquet")):
        if path.name.endswith(".volatile.parquet"):
            continue
        version = _split_version(path, taken)
        kept_blobs |= collect_blob_names(version.kept)
        kept_texts |= texts.collect(version.table, version.kept)
        if len(version.taken):
            reached.blobs |= collect_blob_names(version.taken)
            reached.texts |= texts.collect(version.table, version.taken)
            reached.versions.append(version)
    reached.blobs -= kept_blobs
    reached.texts -= kept_texts
    return reached


def _list_vectors(home: Path, reached: _TakenTraces, oldest_s: float) -> Iterator[GarbageItem]:
    store = LanceVersions(home / "lance")
    moments = (time.strptime(item.at, "%Y-%m-%dT%H:%M:%SZ") for item in find_active(home).values())
    last = float(max(map(calendar.timegm, moments)))

    def holds(texts: list[str]) -> set[int]:
        return {at for at, text in enumerate(texts) if text in reached.texts}

    for table in store.list_tables():
        keys = store.find_texts(holds, table)
        if keys or store.has_versions(last + 1, table):
            remove = partial(_call, store.remove_rows, keys, timedelta(seconds=oldest_s), table)
            yield GarbageItem(KIND, f"lance/{table}: {len(keys)} vectors", 0, remove)


def _list_blobs(home: Path, state: Path, reached: _TakenTraces) -> Iterator[GarbageItem]:
    """Blobs that only rows which go name; before them the answers of the ledger that they are."""
    blobs, path, url = Blobs(home / "blobs"), state / "ledger.db", find_url()
    has_ledger = bool(url) or path.exists()
    # What a local model answered may be about what is taken down, and is soon generated again.
    local = list_local_answers(path, url) if has_ledger and reached.versions else set()
    present = {sha for sha in reached.blobs | local if blobs.path(sha).is_file()}
    answers = present & list_effect_blobs(path, url) if has_ledger else set()
    if answers:
        remove = partial(_forget_answers, path, blobs, answers)
        yield GarbageItem(KIND, f"ledger: {len(answers)} answers", 0, remove)
    for sha in sorted(present):
        size = blobs.path(sha).stat().st_size
        yield GarbageItem(KIND, f"blobs/{sha}", size, partial(blobs.remove, sha, float("inf")))


def _forget_answers(path: Path, blobs: Blobs, answers: Collection[str]) -> bool:
    """Makes effects with these blobs due again, costs kept; whether there were any."""
    ledger, names = Ledger(path, blobs, url=find_url()), sorted(answers)
    try:
        marks = ", ".join("?" * len(names))
        sql = f"SELECT key FROM effects WHERE blob IN ({marks})"
        rows = ledger.database.select(sql, *names)
        for (key,) in rows:
            ledger.forget(key)
        return bool(rows)
    finally:
        ledger.close()


def _list_pools(home: Path, taken: Takedowns) -> Iterator[GarbageItem]:
    for path in sorted((home / "training_sets").glob("*.pool.json")):
        pool = json.loads(path.read_bytes())
        gone = [name for name, entry in pool.items() if _is_reached(taken, entry)]
        if gone:
            remove = partial(_rewrite_pool, path, gone)
            yield GarbageItem(KIND, f"training_sets/{path.name}: {len(gone)} contracts", 0, remove)


def _list_jobs(home: Path, taken: Takedowns) -> Iterator[GarbageItem]:
    """Jobs of trainings that are finished: their rows are those of the set as it was."""
    names = [json.dumps(server, ensure_ascii=False).encode() for server in taken.servers]
    names += [item.encode() for item in taken.shown]
    for path in filter(partial(is_finished, home), sorted((home / "jobs").glob("*.json"))):
        data = path.read_bytes()
        if any(name in data for name in names):
            yield GarbageItem(KIND, f"jobs/{path.name}", len(data), partial(remove_path, path))


def _is_reached(taken: Takedowns, entry: dict) -> bool:
    contract = entry.get("contract") or {}
    tool = str(entry.get("tool") or contract.get("name") or "")
    return taken.is_reached(str(entry.get("server_id")), tool)


def _rewrite_pool(path: Path, gone: Collection[str]) -> bool:
    pool = json.loads(path.read_bytes())
    remaining = {name: entry for name, entry in pool.items() if name not in gone}
    write_atomically(path, json.dumps(remaining, ensure_ascii=False).encode())
    return True


def _list_indexes(home: Path) -> Iterator[GarbageItem]:
    """Versions of the router's index that are not served; the served one outlives the next run."""
    stay = {read_served(home).get("version"), get_pinned_version(home)}
    for path in sorted((home / "router").glob("*/index.json")):
        folder = path.parent
        if folder.name in stay or folder.name.startswith("."):
            continue
        try:
            tools = find_taken_tools(home, folder.name)
        except IndexBroken:
            continue  # nothing serves it; retention takes it away
        if tools:
            remove = partial(_remove_index, home, folder)
            name = f"router/{folder.name}: {len(tools)} tools"
            yield GarbageItem(KIND, name, measure_size(folder), remove)


def _remove_index(home: Path, folder: Path) -> bool:
    with hold_pointer_lock(home):
        if folder.name in (read_served(home).get("version"), get_pinned_version(home)):
            return False
        return remove_path(folder)


def _call(act: Callable[..., object], *args: object) -> bool:
    act(*args)
    return True
