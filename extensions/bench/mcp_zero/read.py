"""MCP-Zero's data file, read server by server within bounds: whoever wrote it is not trusted.

    [{"server_name", "server_summary", "server_description", "description_embedding",
      "summary_embedding", "tools": [{"name", "description", "description_embedding",
                                      "parameter": {"city": "(Optional, string) where"}}]}]

The published one (308 servers, 2,797 tools, vectors of 3,072 numbers) is 333 MB.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.scan import HIGH, scan_each
from extensions.bench.mcp_zero.json_text import JsonText
from extensions.bench.mcp_zero.parameters import make_schema
from warehouse.errors import UnusableInput
from warehouse.sanitize.redact import redact
from warehouse.user_files import read_text

_MOST_SERVERS, _MOST_TOOLS = 100_000, 1_000  # of a file, of a server
_MOST_IN_ALL = 200_000  # tools of a file; searches were measured to 100,000
_MOST_SCANNED = 50_000_000  # characters of all; the scan takes 1.5 s for a million
_WIDEST = 8_192  # numbers of a vector
_NAME, _TEXT = 300, 20_000  # characters
_MOST_MEMBERS = 100  # of a server; the published ones have seven
_MEMBERS = (
    *("server_name", "server_description", "server_summary", "embedder"),
    *("description_embedding", "summary_embedding"),
)
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
    read: int = 0  # tools, usable or not

    @property
    def whole(self) -> bool:
        """Whether every server and every tool has its vectors."""
        return self.dim is not None and all(
            len(server.vectors) == 2 and len(server.tool_vectors) == len(server.tools)
            for server in self.servers
        )


def read_dataset(path: Path) -> Dataset:
    """The servers of a file in MCP-Zero's format. Secrets are redacted; a tool whose text looks
    like an attack is left out. Raises UnusableInput where nothing of it is usable."""
    out = Dataset()
    names: Counter[str] = Counter()  # how many servers of each name were read
    for where, entry in _read_entries(path, out):
        _drop_alarming(entry, where, out)
        if not entry.tools:
            out.skipped.append(f"{where}: {entry.name!r} has no usable tool")
            continue
        name = entry.name
        while names[entry.name]:  # 15 of the published 308 share the name of another
            names[name] += 1
            entry.name = f"{name} ({names[name]})"
        out.renamed += entry.name != name
        names[entry.name] += 1
        out.servers.append(entry)
    if not out.servers:
        why = out.skipped[0] if out.skipped else "no servers"
        raise UnusableInput(f"{path}: {why}; {_SHAPE}")
    return out


def _read_entries(path: Path, out: Dataset) -> list[tuple[str, Entry]]:
    """Every server with where it stands, none of it scanned. Raises UnusableInput."""
    entries: list[tuple[str, Entry]] = []
    characters = 0
    text = JsonText(read_text(path), path)
    if text.peek() != "[":
        raise UnusableInput(f"{path}: it starts with {text.preview()}; {_SHAPE}")
    for number, where in enumerate(text.iterate_list("server"), 1):
        _require_most(path, number, _MOST_SERVERS, "servers")
        entry = _read_server(text, where, path, out)
        if entry is None:
            continue
        characters += len(json.dumps(entry.tools, ensure_ascii=False))
        characters += len(entry.description) + len(entry.summary)
        _require_most(path, characters, _MOST_SCANNED, "characters of tools and servers")
        entries.append((where, entry))
    return entries


def _require_most(path: Path, found: int, most: int, what: str) -> None:
    """Raises UnusableInput where there are more."""
    if found > most:
        raise UnusableInput(f"{path}: more than {most:,} {what}, the most there is; split the file")


def _read_server(text: JsonText, where: str, path: Path, out: Dataset) -> Entry | None:
    if text.peek() != "{":
        out.skipped.append(f"{where}: {type(text.take(where)).__name__}, expected an object")
        return None
    raw: dict[str, Any] = {}
    entry, known = Entry("", "", "", tools=[]), set[str]()
    for members, member in enumerate(text.iterate_members(where), 1):
        _require_most(path, members, _MOST_MEMBERS, f"members in {where}")
        if member == "tools" and text.peek() == "[":
            if entry.tools:
                raise UnusableInput(f"{path}: {where} has `tools` twice; {_SHAPE}")
            for number, tool in enumerate(text.iterate_list(f"{where}, tool"), 1):
                _require_most(path, number, _MOST_TOOLS, f"tools in {where}")
                out.read += 1
                _require_most(path, out.read, _MOST_IN_ALL, "tools")
                _add_tool(entry, known, text.take(tool), tool, out)
        else:
            value = text.take(f"{where}: {member[:40]}")
            raw |= {member: value} if member in _MEMBERS else {}
    entry.name = _read_text(raw.get("server_name"), _NAME)
    if not entry.name:
        out.skipped.append(f"{where}: no server_name")
        return None
    _note_embedder(raw, where, out)
    entry.description, entry.summary = (
        _read_text(raw.get(f"server_{part}"), _TEXT) for part in ("description", "summary")
    )
    for part in ("description", "summary"):
        vector = _read_vector(raw.get(f"{part}_embedding"), f"{where}: {part}_embedding", out)
        if vector is not None:
            entry.vectors[part] = vector
    return entry


def _add_tool(entry: Entry, known: set[str], tool: Any, where: str, out: Dataset) -> None:
    raw = tool if isinstance(tool, Mapping) else {}
    name = _read_text(raw.get("name"), _NAME)
    if not name or name in known:
        out.skipped.append(f"{where}: {'no name' if not name else f'{name!r} was there before'}")
        return
    known.add(name)
    description = raw.get("description")
    if isinstance(description, str) and len(description) > _TEXT:
        out.skipped.append(
            f"{where}: a description of {len(description):,} characters; {_TEXT:,} are kept"
        )
    about, schema = _read_text(description, _TEXT), make_schema(raw.get("parameter"))
    entry.tools.append({"name": name, "description": about, "inputSchema": schema})
    vector = _read_vector(raw.get("description_embedding"), f"{where}: description_embedding", out)
    if vector is not None:
        entry.tool_vectors[name] = vector


def _drop_alarming(entry: Entry, where: str, out: Dataset) -> None:
    """Leaves out the tools that the scan of contracts would hold, and a server's text likewise."""
    server = {"name": "server", "description": f"{entry.description}\n{entry.summary}"}
    if any(one.severity == HIGH for one in scan_each([{**server, "inputSchema": {}}])[0]):
        out.skipped.append(f"{where}: its description looks like an attack; it is left blank")
        entry.description = entry.summary = ""
    kept = []
    for tool, found in zip(entry.tools, scan_each(entry.tools), strict=True):
        if rule := next((one.rule for one in found if one.severity == HIGH), None):
            out.skipped.append(f"{where}: tool {tool['name']!r} looks like an attack ({rule})")
            entry.tool_vectors.pop(tool["name"], None)
        else:
            kept.append(tool)
    entry.tools = kept


def _note_embedder(raw: Mapping[str, Any], where: str, out: Dataset) -> None:
    """What a file of ours says made its vectors. Raises UnusableInput where servers differ."""
    embedder = raw.get("embedder")
    if isinstance(embedder, str) and embedder:
        if out.embedder not in (None, embedder):
            raise UnusableInput(f"{where}: vectors of {embedder[:80]!r} beside those of"
                                f" {out.embedder!r:.80}; give one file for each")  # fmt: skip
        out.embedder = embedder


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
