"""The files that `toolmill verify` and `toolmill judge` read: rows, and servers with tools."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from assets.contracts.canonical import ContractError, canonicalize_contract, contract_digest
from assets.contracts.tool_id import ToolId
from warehouse.errors import UnusableInput
from warehouse.json_types import Contract, Json, JsonObject, Row
from warehouse.user_files import read_json_lines

_FIELDS = ("tool_id", "instruction", "arguments")


@dataclass(frozen=True)
class Given:
    """One row as it was handed in. Labels beside these fields were never read."""

    tool_id: str
    instruction: str
    arguments: Json

    @property
    def server(self) -> str:
        return ToolId.parse(self.tool_id).server_id

    @property
    def tool(self) -> str:
        return ToolId.parse(self.tool_id).tool


@dataclass
class Tools:
    """The tools of a servers file, by tool id."""

    by_id: dict[str, dict[str, Json]] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)  # and why
    digests: dict[str, str] = field(default_factory=dict)
    contracts: dict[str, dict[str, Json]] = field(default_factory=dict)  # by digest
    repeated: set[str] = field(default_factory=set)  # ids that stand more than once
    _servers: dict[str, list[str]] = field(default_factory=dict)

    def list_server_tools(self, server: str) -> list[str]:
        """The ids of a server's tools, in the order of the file."""
        return self._servers.get(server, [])

    def add(self, server: str, tool: Contract, keep: Set[str] = frozenset()) -> None:
        """Adds a tool; a later one of the same id replaces it, except those in `keep`."""
        name = tool.get("name") if isinstance(tool, Mapping) else None
        if not isinstance(name, str):
            return
        key = str(ToolId(server, name))
        if key in keep:
            return
        try:
            schema = tool.get("inputSchema") or {"type": "object"}
            made = canonicalize_contract({**tool, "inputSchema": schema})
            digest = contract_digest({**tool, "inputSchema": schema})
        except (ContractError, KeyError, AttributeError, TypeError, ValueError) as error:
            self.unusable[key] = f"{key[:200]} has no usable contract ({str(error)[:120]})"
            return
        if key in self.by_id:
            self.repeated.add(key)
        else:
            self._servers.setdefault(server, []).append(key)
        self.by_id[key], self.digests[key], self.contracts[digest] = made, digest, made


def read_rows(path: Path) -> list[Given]:
    """The rows of a JSON Lines file. Raises UnusableInput; labels are never read."""
    found = [_parse_given(path, number, row) for number, row in read_lines(path)]
    if not found:
        raise UnusableInput(f"{path}: no rows; expected a JSON object a line with {_name_fields()}")
    return found


def read_tools(path: Path) -> Tools:
    """The tools of a JSON Lines file of servers: qualified_name (or server_id, or name), tools.

    A tool whose contract is unusable is kept by name, so that its rows can say why. Raises
    UnusableInput where no tool at all is found.
    """
    tools = Tools()
    for _, server in read_lines(path):
        listed = server.get("tools")
        for tool in listed if isinstance(listed, list) else []:
            tools.add(get_server_name(server), tool)
    if not tools.by_id and not tools.unusable:
        shape = '{"qualified_name": "…", "tools": [{"name": "…", "inputSchema": {…}}]}'
        raise UnusableInput(f"{path}: no tools found; expected a server a line as {shape}")
    return tools


def get_server_name(server: JsonObject) -> str:
    """How a record of a servers file names its server; "" where it does not."""
    found = (server[k] for k in ("qualified_name", "server_id", "name") if server.get(k))
    return str(next(found, ""))


def _parse_given(path: Path, number: int, row: Row) -> Given:
    where = f"{path}, line {number}"
    if missing := [name for name in _FIELDS if name not in row]:
        raise UnusableInput(f"{where}: no {', '.join(missing)}; expected {_name_fields()}")
    for name in ("tool_id", "instruction"):
        if not isinstance(row[name], str):
            found = type(row[name]).__name__
            raise UnusableInput(f"{where}: {name} is {found}, expected a text")
    return Given(row["tool_id"], row["instruction"], row["arguments"])


def _name_fields() -> str:
    return f"{', '.join(_FIELDS[:-1])} and {_FIELDS[-1]}"


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Json]]]:
    """(line number, object) of a JSON Lines file. Raises UnusableInput."""
    return read_json_lines(path, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
