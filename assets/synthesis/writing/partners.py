"""Which tools stand beside one another: partners of tasks that need several, and tools offered
together.

Every choice is the best of all candidates by a score of the two tools alone: a tool that is not
chosen can come or go and change nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assets.synthesis.common.contract_reading import get_properties, get_required
from assets.synthesis.common.tables import read_contract
from assets.synthesis.writing.tool_chains import JOINED, Link, chained, link
from warehouse.storage.digest import sha256

Row = Mapping[str, Any]
Key = tuple[str, str]  # server_id, tool
_MIX, _MASK = 0x9E3779B97F4A7C15, 2**64 - 1  # Knuth's multiplier: near inputs fall far apart


def fraction(*of: str) -> float:
    """A number in [0, 1) that these words always give."""
    # Not `digest`: its canonical JSON costs ten times as much, and all servers are drawn for each.
    return int(sha256("\0".join(of).encode())[:12], 16) / 16**12


def distinct(own: Row, others: Sequence[Row]) -> list[Row]:
    """The first of each name: tools offered in one conversation are told apart by name alone."""
    first: dict[str, Row] = {own["tool"]: own}
    for row in others:
        first.setdefault(row["tool"], row)
    return list(first.values())[1:]


class Partners:
    """All tools of a marketplace, by server, with what their contracts take."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = {_key(row): row for row in rows}
        self._contracts = {_key(row): _read(row) for row in rows}
        self._links: dict[Key, Link] = {}
        self._servers: dict[str, list[Row]] = {}
        for row in rows:
            if self.readable(row):
                self._servers.setdefault(row["server_id"], []).append(row)
        self._marks = {name: int(fraction("server", name) * 2**48) for name in self._servers}

    def known(self, others: Sequence[Row]) -> list[Row]:
        """Those of `others` that are among the rows, as they are there."""
        found = (self._rows.get(_key(row)) for row in others)
        return [row for row in found if row is not None and self.readable(row)]

    def readable(self, row: Row) -> bool:
        return self._contracts[_key(row)] is not None

    def contract(self, row: Row) -> Mapping[str, Any]:
        return self._contracts[_key(row)] or {}

    def asks(self, row: Row) -> bool:
        """Whether the tool has a required parameter that nothing fills in."""
        return bool(required(self.contract(row)))

    def takes(self, row: Row) -> bool:
        return bool(get_properties(self.contract(row)))

    def beside(self, row: Row) -> list[Row]:
        """Partners of parallel calls: none (the same tool again), of its server, or of another."""
        part = fraction("parallel", *_key(row))
        if part < 1 / 3:
            return [] if self.takes(row) else self._nearby(row)
        return self._nearby(row) if part < 2 / 3 else self._elsewhere(row) or self._nearby(row)

    def _nearby(self, row: Row) -> list[Row]:
        return self._best(row, self._servers.get(row["server_id"], ()))[:1]

    def _elsewhere(self, row: Row) -> list[Row]:
        return next((self._best(row, tools)[:1] for tools in self._others(row) if tools), [])

    def _best(self, row: Row, tools: Sequence[Row]) -> list[Row]:
        apart = [one for one in tools if one["tool"] != row["tool"]]
        return sorted(apart, key=lambda one: fraction("beside", *_key(row), *_key(one)))

    def _others(self, row: Row) -> Iterator[list[Row]]:
        """The tools of other servers whose names tell them apart, server by server, in an order of
        the row's own."""
        own = int(fraction("server", *_key(row)) * 2**48)
        # One hash a server and one a row, mixed: hashing every pair took 4 of 10 s at 4,235 tools.
        order = sorted(self._marks, key=lambda name: ((self._marks[name] ^ own) * _MIX) & _MASK)
        for name in order:
            if name == row["server_id"]:
                continue
            if apart := [one for one in self._servers[name] if one["tool"] != row["tool"]]:
                yield apart

    def chain(self, row: Row) -> Row | None:
        """The tool that goes best before or after this one: of its server, else of another."""
        for tools in (self._servers.get(row["server_id"], []), *self._others(row)):
            fits = [one for one in tools if one["tool"] != row["tool"] and self._joins(row, one)]
            if fits:
                return min(fits, key=lambda one: (-self._joint(row, one), _tie(row, one)))
        return None

    def _joins(self, row: Row, other: Row) -> bool:
        return self._joint(row, other) >= JOINED

    def _joint(self, row: Row, other: Row) -> float:
        return chained(self._link(row), self._link(other))[1]

    def _link(self, row: Row) -> Link:
        key = _key(row)
        if key not in self._links:
            self._links[key] = link(self.contract(row))
        return self._links[key]


def _tie(row: Row, other: Row) -> float:
    return fraction("chain", *_key(row), *_key(other))


def _key(row: Row) -> Key:
    return row["server_id"], row["tool"]


def _read(row: Row) -> Mapping[str, Any] | None:
    try:
        return read_contract(row)
    except (ValueError, TypeError):
        return None


def required(contract: Mapping[str, Any]) -> list[str]:
    """The required parameters that neither a default nor a constant fills in."""
    properties = get_properties(contract)
    filled = {name for name, of in properties.items() if isinstance(of, Mapping) and _is_filled(of)}
    return [name for name in get_required(contract) if name in properties and name not in filled]


def _is_filled(schema: Mapping[str, Any]) -> bool:
    return "default" in schema or "const" in schema
