"""Tables: immutable versions named by content, and a pointer that moves only by `promote`.

tables/<asset>/<partition or _>/<digest>.parquet
                                <digest>.volatile.parquet   figures that do not make a version
                                HEAD.json                   {digest, rows, run_id, audit, at}
                                HEADS.jsonl                 every publication, for as-of

What is taken down (`warehouse/storage/takedowns.py`) is neither written nor read, of any moment.
"""

import io
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from warehouse.audit import ColumnExpectation
from warehouse.storage.digest import digest
from warehouse.storage.files import (
    PointerBroken,
    add_history,
    hold_lock,
    keep_file_young,
    read_history,
    read_pointer,
    write_atomically,
    write_pointer,
)
from warehouse.storage.takedowns import keep_rows, read_takedowns

_POINTER_FILES = ("HEAD.json", "HEADS.jsonl")
WHOLE = "_"  # the partition of a table that has none
_FIX = (
    "`toolmill doctor --fix` puts it back to the last version of its history; or remove its folder"
    " and materialize the asset of that table again"
)


class VersionGone(ValueError):
    """A version that was published and that retention has taken away since."""


@dataclass(frozen=True)
class TableSpec:
    """A table's key, columns with types, and volatile ones (seconds, last_seen …), which are stored
    beside a version and make none. A column is its type, or (type, what it holds): `described`, for
    the UI. expectations, rules: what must hold before a version becomes current."""

    name: str
    key: tuple[str, ...]
    columns: Mapping[str, Any]
    volatile: tuple[str, ...] = ()
    schema_version: int = 1
    expectations: tuple[ColumnExpectation, ...] = ()
    rules: Mapping[str, str] = field(default_factory=dict)
    described: Mapping[str, str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        both = {name: column for name, column in self.columns.items() if isinstance(column, tuple)}
        types = {
            name: both[name][0] if name in both else column for name, column in self.columns.items()
        }
        object.__setattr__(self, "described", {name: text for name, (_, text) in both.items()})
        object.__setattr__(self, "columns", types)
        unknown = (set(self.key) | set(self.volatile)) - set(self.columns)
        if unknown or set(self.key) & set(self.volatile):
            raise ValueError(
                f"table {self.name}: key or volatile columns {sorted(unknown)} unknown"
            )

    def frame(self, rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
        """Rows as a typed frame by key, absent columns null. Raises ValueError naming the fault."""
        records = [dict(row) for row in rows]
        unknown = {name for row in records for name in row} - set(self.columns)
        if unknown:
            raise ValueError(f"table {self.name}: unknown columns {sorted(unknown)}")
        frame = pl.DataFrame(
            [self._make_column(name, [row.get(name) for row in records]) for name in self.columns]
        )
        self.check_keys(frame)
        return frame.sort(self.key)

    def _make_column(self, name: str, values: list[Any]) -> pl.Series:
        """A column of its own type alone: polars would make a null of what does not fit."""
        try:
            return pl.Series(name, values, self.columns[name], strict=True)
        except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
            raise ValueError(
                f"table {self.name}, column {name}: expected {self.columns[name]},"
                f" {str(error).splitlines()[0][:200]}"
            ) from error

    def check_keys(self, frame: pl.DataFrame) -> None:
        """Raises ValueError naming the first duplicate or null key."""
        null = frame.filter(pl.any_horizontal(pl.col(self.key).is_null()))
        if len(null):
            raise ValueError(
                f"table {self.name}: null in key {self.key}: {null.row(0, named=True)}"
            )
        doubled = frame.group_by(self.key).len().filter(pl.col("len") > 1).sort(self.key)
        if len(doubled):
            raise ValueError(
                f"table {self.name}: key {doubled.row(0)[:-1]} occurs {doubled[0, -1]}x"
            )

    def count_changes(self, old: pl.DataFrame, new: pl.DataFrame) -> dict[str, int]:
        """Counts of `new`, `stale` (a non-volatile column differs), `gone`, `unchanged` keys."""
        keys, stable = list(self.key), [n for n in self.columns if n not in self.volatile]
        fresh = new.join(old, on=keys, how="anti").height
        gone = old.join(new, on=keys, how="anti").height
        same = new.join(old, on=stable, how="semi", nulls_equal=True).height
        return {"new": fresh, "stale": new.height - fresh - same, "gone": gone, "unchanged": same}

    def digest(self, frame: pl.DataFrame) -> str:
        """Content digest over all columns that are not volatile, independent of row order."""
        stable = [name for name in self.columns if name not in self.volatile]
        body = frame.select(stable).sort(self.key).write_ndjson()
        return digest({"table": self.name, "schema_version": self.schema_version, "rows": body})


@dataclass(frozen=True)
class TableHead:
    digest: str
    rows: int
    run_id: str
    at: float  # seconds since the epoch
    audit: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class StagedVersion:
    """A written version that nothing points to yet, and its volatile columns, not yet written."""

    spec: TableSpec
    partition: str
    digest: str
    rows: int
    volatile: bytes | None = None  # parquet; the current version may be this one


class Tables:
    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, name: str, partition: str | None = None) -> Path:
        return self.root / name / (partition or WHOLE)

    def stage(
        self, spec: TableSpec, frame: pl.DataFrame, partition: str | None = None
    ) -> StagedVersion:
        """Writes a version; readers do not see it until `promote`. Staging twice is free."""
        spec.check_keys(frame)
        frame = self._drop_taken(frame.select(list(spec.columns))).sort(spec.key)
        name = spec.digest(frame)
        folder = self.folder(spec.name, partition)
        version = folder / f"{name}.parquet"
        stable = [column for column in spec.columns if column not in spec.volatile]
        with hold_lock(folder / ".lock"):  # against `remove_version`
            if _holds_rows(version, frame.select(stable)):
                keep_file_young(version)
            else:
                write_atomically(version, _encode_parquet(frame.select(stable)))
                get_mark_path(version).unlink(missing_ok=True)
        beside = frame.select([*spec.key, *spec.volatile]) if spec.volatile else None
        volatile = None if beside is None else _encode_parquet(beside)
        return StagedVersion(spec, partition or WHOLE, name, len(frame), volatile)

    def promote(self, staged: StagedVersion, run_id: str, audit: list[dict[str, Any]]) -> TableHead:
        """Moves the partition's pointer to a staged version: the last act of publication. The same
        version again takes over only the staged volatile columns."""
        folder = self.folder(staged.spec.name, staged.partition)
        with hold_lock(folder / ".lock"):
            current = self.head(staged.spec.name, staged.partition)
            if staged.volatile is not None:  # before the pointer: what it names can be read whole
                write_atomically(folder / _make_volatile_name(staged.digest), staged.volatile)
            if current and current.digest == staged.digest:
                head = current
            else:
                head = TableHead(staged.digest, staged.rows, run_id, time.time(), audit)
                write_pointer(folder / "HEAD.json", asdict(head))
            # After the pointer: on a full disk a line before it would tell of a version that never
            # was current. A line that is missing here is read from the pointer, and added later.
            before = [asdict(current)] if current and current != head else []
            add_history(folder / "HEADS.jsonl", [*before, asdict(head)])
            return head

    def head(
        self, name: str, partition: str | None = None, as_of: float | None = None
    ) -> TableHead | None:
        """The version current now or at `as_of`, or None. Raises PointerBroken, VersionGone."""
        if as_of is None:
            path = self.folder(name, partition) / "HEAD.json"
            body = read_pointer(path, _FIX)
            if body is None:
                if read_history(path.with_name("HEADS.jsonl")):  # published before: not empty
                    raise PointerBroken(f"{path}: is missing beside its history; {_FIX}")
                return None
            if (head := _parse_head(body)) is None:
                raise PointerBroken(f"{path}: names no version; {_FIX}")
            return head
        heads = self.list_publications(name, partition)
        head = next((head for head in reversed(heads) if head.at <= as_of), None)
        if head is not None and not self._is_kept(name, partition, head):
            raise VersionGone(_describe_gone(name, partition, head, as_of))
        return head

    def history(self, name: str, partition: str | None = None) -> list[TableHead]:
        """Every publication of one partition that can still be read, oldest first."""
        heads = self.list_publications(name, partition)
        return [head for head in heads if self._is_kept(name, partition, head)]

    def _is_kept(self, name: str, partition: str | None, head: TableHead) -> bool:
        return (self.folder(name, partition) / f"{head.digest}.parquet").exists()

    def list_publications(self, name: str, partition: str | None = None) -> list[TableHead]:
        """Every publication of one partition, oldest first; a torn line is passed over."""
        lines = read_history(self.folder(name, partition) / "HEADS.jsonl")
        heads = [head for head in map(_parse_head, lines) if head]
        try:
            current = self.head(name, partition)
        except PointerBroken:
            return heads
        return heads if current is None or current in heads else [*heads, current]

    def partitions(self, name: str) -> list[str]:
        """Names of the partitions that were ever published, one with a lost pointer too."""
        paths = (self.root / name).glob("*/HEAD*.json*")
        return sorted({path.parent.name for path in paths if path.name in _POINTER_FILES})

    def count_rows(self, name: str) -> dict[str, int]:
        """How many rows the current version of each partition has. Raises PointerBroken."""
        heads = {partition: self.head(name, partition) for partition in self.partitions(name)}
        return {partition: head.rows for partition, head in heads.items() if head}

    def read(
        self, spec: TableSpec, partition: str | None = None, as_of: float | None = None
    ) -> pl.DataFrame:
        """The current rows of one partition, or of all partitions when `partition` is None. A table
        that was never published reads as an empty frame with its columns."""
        names = [partition] if partition else self.partitions(spec.name)
        frames = [self._read_one(spec, name, as_of) for name in names]
        return pl.concat([spec.frame([]), *frames])

    def _read_one(self, spec: TableSpec, partition: str, as_of: float | None) -> pl.DataFrame:
        head = self.head(spec.name, partition, as_of)
        return spec.frame([]) if head is None else self.read_publication(spec, partition, head)

    def read_publication(self, spec: TableSpec, partition: str, head: TableHead) -> pl.DataFrame:
        """The rows of one publication of `history`, whatever the clock said when it was made."""
        folder = self.folder(spec.name, partition)
        frame = pl.read_parquet(folder / f"{head.digest}.parquet")
        beside = folder / _make_volatile_name(head.digest)
        if spec.volatile and beside.exists():
            frame = frame.join(pl.read_parquet(beside), on=spec.key, how="left")
        added = [pl.lit(None).alias(c) for c in spec.columns if c not in frame.columns]
        typed = frame.with_columns(added).select(
            [pl.col(name).cast(kind) for name, kind in spec.columns.items()]
        )
        return self._drop_taken(typed)

    def _drop_taken(self, frame: pl.DataFrame) -> pl.DataFrame:
        return keep_rows(read_takedowns(self.root.parent), frame)


@dataclass(frozen=True)
class RowPlan:
    """Which keys an incremental step must make (`new`, `stale`), drop (`gone`) or may keep."""

    new: list[str]
    stale: list[str]
    gone: list[str]
    unchanged: list[str]

    @property
    def due(self) -> list[str]:
        """The keys that cost something in this run."""
        return sorted([*self.new, *self.stale])


def plan_keys(
    previous: Mapping[str, str], wanted: Mapping[str, str], retry: Collection[str] = ()
) -> RowPlan:
    """Compares what was made (key -> provenance digest) with what is wanted. `retry`: keys due
    again with the same digest (failed rows past `retry_at`), as stale."""
    again = set(retry)
    both = wanted.keys() & previous.keys()
    stale = {key for key in both if wanted[key] != previous[key] or key in again}
    return RowPlan(
        new=sorted(wanted.keys() - previous.keys()),
        stale=sorted(stale),
        gone=sorted(previous.keys() - wanted.keys()),
        unchanged=sorted(both - stale),
    )


def _parse_head(body: Mapping[str, Any]) -> TableHead | None:
    """A publication as it was written down; None for a line or a pointer that is none."""
    try:
        head = TableHead(**body)
    except TypeError:
        return None
    kinds = ((head.digest, str), (head.rows, int), (head.run_id, str), (head.at, float | int))
    whole = all(isinstance(value, kind) for value, kind in kinds) and isinstance(head.audit, list)
    return head if whole else None


def _describe_gone(name: str, partition: str | None, head: TableHead, as_of: float) -> str:
    moment = time.strftime("%Y-%m-%d %H:%M", time.gmtime(as_of))
    where = f"{name}/{partition or WHOLE}"
    return (
        f"{where} as of {moment} UTC was version {head.digest[:12]}, which retention has taken away"
        " ([retention] days); ask for a later time, or restore a backup that has it"
    )


def get_mark_path(version: Path) -> Path:
    """Where it stands that rows of a version's file were taken down since it was written."""
    return version.with_name(f"{version.name.removesuffix('.parquet')}.taken.json")


def _make_volatile_name(version: str) -> str:
    return f"{version}.volatile.parquet"


def _holds_rows(version: Path, frame: pl.DataFrame) -> bool:
    """Whether a version was written before, and can still be read as what its name says."""
    try:
        return pl.read_parquet(version).equals(frame)
    except (OSError, pl.exceptions.PolarsError):
        return False


def _encode_parquet(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()
