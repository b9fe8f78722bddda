"""The names a contract had before: old digest -> new digest, when the canonical form changes.

Pairs, judgements, vectors and effects stay under the names they were bought under, and are never
rewritten. Instead a stage that pays is given tonight's contracts as they were bought (`as_bought`:
old digest and old text), so that every key comes out as it did and nothing is due; whoever joins
old rows with new ones asks `current`. The table holds each old text, so a third form maps first
names straight to third names: there are no chains.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import polars as pl

from assets.contracts.canonical import CANON_VERSION, DIGEST_PREFIX, ContractError, contract
from assets.contracts.history.snapshot import SNAPSHOTS
from warehouse.storage.digest import canonical_json, sha256
from warehouse.storage.files import locked
from warehouse.storage.tables import Tables, TableSpec

Row = Mapping[str, Any]
V = TypeVar("V")

_COLUMNS = {
    "old_digest": pl.String,
    "new_digest": pl.String,  # its name in the form `canon_version`
    "old_contract": pl.String,  # canonical JSON in the form it was stored in
    "canon_version": pl.Int64,  # the form that `new_digest` is of
}


@dataclass(frozen=True)
class Form:
    """One canonical form: its version, and what makes a contract of a tool or an older contract."""

    version: int
    contract: Callable[[Mapping[str, Any]], dict[str, Any]]


CURRENT = Form(CANON_VERSION, contract)


def aliases_spec(version: int = CANON_VERSION) -> TableSpec:
    """The table of aliases of one form, partitioned as the snapshots are."""
    return TableSpec("contract_aliases", ("old_digest",), _COLUMNS, schema_version=version)


class Aliases:
    """Every name of every contract that was renamed. Immutable; made of rows of the table."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._new: dict[str, str] = {}
        self._old: dict[str, list[str]] = {}
        self._text: dict[str, str] = {}
        for row in sorted(rows, key=lambda row: row["old_digest"]):
            if row["old_digest"] not in self._new:
                self._new[row["old_digest"]] = row["new_digest"]
                self._text[row["old_digest"]] = row["old_contract"]
                self._old.setdefault(row["new_digest"], []).append(row["old_digest"])

    def __len__(self) -> int:
        return len(self._new)

    def current(self, digest: str) -> str:
        """The name of today; a digest that was never renamed is its own."""
        return self._new.get(digest, digest)

    def names(self, digest: str) -> tuple[str, ...]:
        """All names of the contract that any of its names means: today's first."""
        today = self.current(digest)
        return (today, *self._old.get(today, ()))

    def find(self, held: Mapping[str, V], digest: str) -> V | None:
        """What `held` keeps under any name of the contract; None if nothing."""
        return next((held[name] for name in self.names(digest) if name in held), None)

    def as_bought(self, rows: Iterable[Row], held: Iterable[Row] = ()) -> list[dict[str, Any]]:
        """Contract rows of today in the form under which their things were bought.

        `held` are rows of pairs, judgements or vectors with server_id, tool and contract_digest: a
        tool that has one of them under an older name is given that name. A tool that has none gets
        the first of its old names (what it bought may be in the ledger only, after a kill).
        """
        bought: dict[tuple[str, str], set[str]] = {}
        for row in held:
            key = (row["server_id"], row["tool"])
            bought.setdefault(key, set()).add(row["contract_digest"])
        return [self._as(row, bought.get((row["server_id"], row["tool"]), set())) for row in rows]

    def _as(self, row: Row, bought: set[str]) -> dict[str, Any]:
        names = self.names(row["contract_digest"])
        known = [name for name in names if name in bought] or ([] if bought else list(names[1:]))
        name = known[0] if known else row["contract_digest"]
        if name not in self._text:
            return dict(row)
        text = self._text[name]
        shown = text if isinstance(row["contract"], str) else json.loads(text)
        return {**row, "contract_digest": name, "contract": shown}


def read_aliases(tables: Tables, partition: str | None = None) -> Aliases:
    """The aliases of one marketplace, or of all."""
    return Aliases(tables.read(aliases_spec(), partition).to_dicts())


def upgrade(
    tables: Tables, partition: str, *, form: Form | None = None, run_id: str = "-"
) -> list[dict[str, Any]]:
    """Brings one marketplace's stored contracts to a form (today's); returns what was renamed.

    To be called before anything else of a night reads its snapshots. Costs one look at a file when
    there is nothing to do. The aliases, which also say which form all is in, are published last, so
    a kill before that is mended by the next call: the old names are still in the history.
    first_seen and last_seen stay: the contract is the same one.
    """
    form = form or CURRENT
    spec = aliases_spec(form.version)
    with locked(tables.folder(spec.name, partition) / ".upgrade.lock"):
        if _version(tables, partition) == form.version:
            return []
        known = tables.read(spec, partition).to_dicts()
        stored = {row["old_digest"]: row["old_contract"] for row in known}
        stored |= dict(_every_contract(tables, partition))
        made = {name: _renamed(text, form) for name, text in sorted(stored.items())}
        rows = [
            {"old_digest": old, "new_digest": _digest(text), "old_contract": stored[old],
             "canon_version": form.version}
            for old, text in made.items() if _digest(text) != old
        ]  # fmt: skip
        _publish(tables, partition, spec, rows, made, run_id, form)
    return rows


def _publish(
    tables: Tables,
    partition: str,
    spec: TableSpec,
    rows: list[dict[str, Any]],
    made: Mapping[str, str],
    run_id: str,
    form: Form,
) -> None:
    """Moves both pointers. No audit is asked: the facts are those that passed it."""
    note = [{"canon_version": form.version, "renamed": len(rows)}]
    staged = tables.stage(spec, spec.frame(rows), partition)
    current = tables.read(SNAPSHOTS, partition).to_dicts()
    after = [
        {**row, "contract": made[name], "contract_digest": _digest(made[name])}
        for row in current
        for name in [row["contract_digest"]]
    ]
    if current:
        snapshots = tables.stage(SNAPSHOTS, SNAPSHOTS.frame(after), partition)
        tables.promote(snapshots, run_id, note)
    tables.promote(staged, run_id, note)


def _version(tables: Tables, partition: str) -> int:
    """The form that a partition is in; the first one where nobody said."""
    head = tables.head(aliases_spec().name, partition)
    return head.audit[0]["canon_version"] if head and head.audit else 1


def _every_contract(tables: Tables, partition: str) -> Iterator[tuple[str, str]]:
    """(digest, canonical JSON) of each contract in any publication, the latest last."""
    for head in tables.history(SNAPSHOTS.name, partition):
        frame = tables.read(SNAPSHOTS, partition, as_of=head.at)
        yield from frame.select("contract_digest", "contract").iter_rows()


def _renamed(text: str, form: Form) -> str:
    """The contract in the given form; as it is, where that form has no place for it."""
    try:
        return canonical_json(form.contract(json.loads(text))).decode()
    except ContractError:
        return text


def _digest(text: str) -> str:
    return DIGEST_PREFIX + sha256(text.encode())
