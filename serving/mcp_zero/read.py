"""MCP-Zero's data file, read server by server within bounds: whoever wrote it is not trusted.

    [{"server_name", "server_summary", "server_description", "description_embedding",
      "summary_embedding", "tools": [{"name", "description", "description_embedding",
                                      "parameter": {"city": "(Optional, string) where"}}]}]

The published one (308 servers, 2,797 tools, vectors of 3,072 numbers) is 333 MB.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.scan import HIGH, scan_list
from serving.mcp_zero.parameters import make_schema
from warehouse.errors import UnusableInput
from warehouse.sanitize.redact import redact
from warehouse.user_files import read_text

_MOST_SERVERS, MOST_TOOLS = 100_000, 1_000  # of a file, of a server
_WIDEST = 8_192  # numbers of a vector
_NAME, _TEXT = 300, 20_000  # characters
_SHAPE = 'expected a JSON list of {"server_name", "server_description", "tools"}'

Vector = np.ndarray


@dataclass
class Entry:
    """One server of the file. vectors: of its description and its summary; tool_vectors: by name;
    a vector that the file does not have, or that is none, is missing."""

    name: str
    description: str
    summary: str
    tools: list[dict[str, Any]]
    vectors: dict[str, Vector] = field(default_factory=dict)
    tool_vectors: dict[str, Vector] = field(default_factory=dict)


@dataclass
class Dataset:
    """What is usable of a file, why the rest is not, how many servers had to be named `NAME (2)`,
    and what it says made the vectors."""

    servers: list[Entry] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    renamed: int = 0
    embedder: str | None = None
    dim: int | None = None

    @property
    def whole(self) -> bool:
        """Whether every server and every tool has its vectors."""
        return self.dim is not None and all(
            len(one.vectors) == 2 and len(one.tool_vectors) == len(one.tools)
            for one in self.servers
        )


def read_dataset(path: Path) -> Dataset:
    """The servers of a file in MCP-Zero's format. Secrets are redacted; a tool whose text looks
    like an attack is left out. Raises UnusableInput where nothing of it is usable."""
    out = Dataset()
    names: Counter[str] = Counter()  # how many servers of each name were read
    for number, raw in enumerate(_iterate_servers(read_text(path), path), 1):
        if number > _MOST_SERVERS:
            raise UnusableInput(f"{path}: more than {_MOST_SERVERS:,} servers; split the file")
        where = f"server {number}"
        entry = _read_server(raw, where, out)
        if entry is None:
            continue
        if not entry.tools:
            out.skipped.append(f"{where}: {entry.name!r} has no usable tool")
            continue
        said = entry.name
        while names[entry.name]:  # 15 of the published 308 share the name of another
            names[said] += 1
            entry.name = f"{said} ({names[said]})"
        out.renamed += entry.name != said
        names[entry.name] += 1
        out.servers.append(entry)
    if not out.servers:
        why = out.skipped[0] if out.skipped else "no servers"
        raise UnusableInput(f"{path}: {why}; {_SHAPE}")
    return out


def _iterate_servers(text: str, path: Path) -> Iterator[Any]:
    """The elements of a JSON list, one decoded at a time: as a whole, its numbers would take some
    ten times the file."""
    decoder, at = json.JSONDecoder(), _skip_blanks(text, 0)
    if text[at : at + 1] != "[":
        raise UnusableInput(f"{path}: it starts with {text[at : at + 20]!r}; {_SHAPE}")
    at, number = _skip_blanks(text, at + 1), 0
    while text[at : at + 1] != "]":
        number += 1
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            told = " ".join(str(error).split())[:120]
            raise UnusableInput(f"{path}: server {number} is not JSON ({told})") from None
        yield value
        at = _skip_blanks(text, at)
        if text[at : at + 1] == ",":
            at = _skip_blanks(text, at + 1)
        elif text[at : at + 1] != "]":
            raise UnusableInput(f"{path}: the list breaks off after server {number}; {_SHAPE}")


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _read_server(raw: Any, where: str, out: Dataset) -> Entry | None:
    if not isinstance(raw, Mapping):
        out.skipped.append(f"{where}: {type(raw).__name__}, expected an object")
        return None
    name = _read_text(raw.get("server_name"), _NAME)
    if not name:
        out.skipped.append(f"{where}: no server_name")
        return None
    _note_embedder(raw, where, out)
    texts = [_read_text(raw.get(f"server_{part}"), _TEXT) for part in ("description", "summary")]
    entry = Entry(name, *texts, tools=[])
    for part in ("description", "summary"):
        vector = _read_vector(raw.get(f"{part}_embedding"), f"{where}: {part}_embedding", out)
        if vector is not None:
            entry.vectors[part] = vector
    listed = raw.get("tools")
    listed = listed if isinstance(listed, list) else []
    if len(listed) > MOST_TOOLS:
        out.skipped.append(f"{where}: {len(listed):,} tools, the first {MOST_TOOLS:,} are read")
    for place, tool in enumerate(listed[:MOST_TOOLS], 1):
        _add_tool(entry, tool, f"{where}, tool {place}", out)
    _drop_alarming(entry, where, out)
    return entry


def _add_tool(entry: Entry, tool: Any, where: str, out: Dataset) -> None:
    raw = tool if isinstance(tool, Mapping) else {}
    name = _read_text(raw.get("name"), _NAME)
    if not name or name in entry.tool_vectors or any(one["name"] == name for one in entry.tools):
        out.skipped.append(f"{where}: {'no name' if not name else f'{name!r} was there before'}")
        return
    about, schema = _read_text(raw.get("description"), _TEXT), make_schema(raw.get("parameter"))
    entry.tools.append({"name": name, "description": about, "inputSchema": schema})
    vector = _read_vector(raw.get("description_embedding"), f"{where}: description_embedding", out)
    if vector is not None:
        entry.tool_vectors[name] = vector


def _drop_alarming(entry: Entry, where: str, out: Dataset) -> None:
    """Leaves out the tools that the scan of contracts would hold, and a server's text likewise."""
    told = {"name": "server", "description": f"{entry.description}\n{entry.summary}"}
    if any(one.severity == HIGH for one in scan_list([{**told, "inputSchema": {}}])):
        out.skipped.append(f"{where}: its description looks like an attack; it is left blank")
        entry.description = entry.summary = ""
    held = {one.tool: one.rule for one in scan_list(entry.tools) if one.severity == HIGH}
    known = {tool["name"] for tool in entry.tools}
    for name in known if held.keys() - known else held:  # a name that was shortened: all of them
        out.skipped.append(f"{where}: tool {name!r} looks like an attack ({held.get(name, '-')})")
        entry.tool_vectors.pop(name, None)
        entry.tools = [tool for tool in entry.tools if tool["name"] != name]


def _note_embedder(raw: Mapping[str, Any], where: str, out: Dataset) -> None:
    """What a file of ours says made its vectors. Raises UnusableInput where servers differ."""
    said = raw.get("embedder")
    if isinstance(said, str) and said:
        if out.embedder not in (None, said):
            raise UnusableInput(f"{where}: vectors of {said[:80]!r} beside those of"
                                f" {out.embedder!r:.80}; give one file for each")  # fmt: skip
        out.embedder = said


def _read_vector(value: Any, where: str, out: Dataset) -> Vector | None:
    """A unit vector, None where there is none; a broken one is told."""
    if value is None:
        return None
    try:
        if not isinstance(value, list) or not 0 < len(value) <= _WIDEST:
            raise ValueError(f"expected 1 to {_WIDEST:,} numbers")
        if not {type(one) for one in value} <= {float, int}:
            raise ValueError("expected a list of numbers")
        with np.errstate(over="ignore"):
            found = np.array(value, np.float32)
        if out.dim not in (None, len(found)):
            raise ValueError(f"{len(found)} numbers, others have {out.dim}")
        norm = float(np.linalg.norm(found))
        if not np.isfinite(norm) or norm == 0:
            raise ValueError(f"its norm is {norm}")
    except (ValueError, TypeError, OverflowError) as error:
        out.skipped.append(f"{where}: no vector ({' '.join(str(error).split())[:100]})")
        return None
    out.dim = len(found)
    return found / np.float32(norm)


def _read_text(value: Any, most: int) -> str:
    return redact(value[: most + 100]).strip()[:most] if isinstance(value, str) else ""
