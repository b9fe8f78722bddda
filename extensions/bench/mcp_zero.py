"""An index of MCP-Zero's data file, scanned, by its own vectors: `toolmill index --mcp-zero`."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.scan import HIGH, scan_each
from assets.vectors.encoders.choose import open_embedder
from assets.vectors.encoders.embedder import Embedder
from assets.vectors.encoders.endpoint import EndpointEncoder
from assets.vectors.encoders.saved import save_encoder
from assets.vectors.texts import build_server_views, build_tool_views
from serving.adhoc import read_source
from serving.index.build import build_index, move_pointer, order_content
from serving.index.model import IndexSource
from warehouse.errors import UnusableInput
from warehouse.sanitize.redact import redact
from warehouse.storage.files import write_atomically
from warehouse.user_files import parse_json, read_text

MADE_BY = "openai:text-embedding-3-large"  # the vectors of the published file
_TYPE_NOTE = re.compile(r"\s*\(\s*([^()]{0,80})\)\s*")
_TYPES = {
    **dict.fromkeys(("string", "str", "text"), "string"),
    **dict.fromkeys(("integer", "int"), "integer"),
    **dict.fromkeys(("number", "float", "double"), "number"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("array", "list"), "array"),
    **dict.fromkeys(("object", "dict", "json", "dictionary"), "object"),
}
_MOST_PARAMETERS = 200  # of one tool
_MOST_TOOLS = 200_000  # of a file; searches were measured to 100,000
_MOST_SCANNED = 50_000_000  # characters of all; the scan takes 1.5 s for a million
_WIDEST = 8_192  # numbers of a vector
_NAME, _TEXT, _PARAMETER = 300, 20_000, 4_000  # characters
_SHOWN = 50  # reasons that are listed
_SHAPE = 'expected a JSON list of {"server_name", "server_description", "tools"}'


@dataclass
class ServerEntry:
    """One server of the file. vectors: of its description and its summary; tool_vectors: by name;
    a vector that the file does not have, or that is none, is missing."""

    name: str
    description: str
    summary: str
    tools: list[dict[str, Any]] = field(default_factory=list)
    vectors: dict[str, np.ndarray] = field(default_factory=dict)
    tool_vectors: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass
class McpZeroDataset:
    """What is usable of a file, why the rest is not, how many servers had to be named `NAME (2)`,
    and what it says made the vectors."""

    servers: list[ServerEntry] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    renamed: int = 0
    embedder: str | None = None
    dim: int | None = None

    @property
    def whole(self) -> bool:
        """Whether every server and every tool has its vectors."""
        return self.dim is not None and all(
            len(server.vectors) == 2 and len(server.tool_vectors) == len(server.tools)
            for server in self.servers
        )


def load_dataset(path: Path, out: Path, made_by: str = MADE_BY) -> dict[str, Any]:
    """Writes what a file in MCP-Zero's format holds to the folder `out`. made_by: what its vectors
    were made by, as `toolmill index --embedder` takes it.

    Returns {servers, renamed, tools, vectors, embedder, version, out, skipped}; `version` is None
    where a vector is missing: `toolmill index` makes vectors of one's own. Raises UnusableInput.
    """
    dataset = read_dataset(path)
    rows = [
        {
            "qualified_name": server.name,
            "description": server.description,
            "summary": server.summary,
            "tools": server.tools,
            "unverified": True,
        }
        for server in dataset.servers
    ]
    servers = out / "servers.jsonl"
    write_atomically(servers, "".join(f"{json.dumps(row)}\n" for row in rows).encode())
    source, unusable = read_source(servers)
    vectors = (len(server.vectors) + len(server.tool_vectors) for server in dataset.servers)
    report = {
        "servers": len(dataset.servers),
        "renamed": dataset.renamed,
        "tools": len(source.rows),
        "vectors": sum(vectors),
        "embedder": None,
        "version": None,
        "out": str(out),
    }
    if dataset.whole:
        with path.open("rb") as file:
            name = hashlib.file_digest(file, "sha256").hexdigest()
        report |= _build_by_vectors(dataset, source, out, made_by, name)
    skipped = [*dataset.skipped, *unusable]
    more = [f"… {len(skipped) - _SHOWN} more"] if len(skipped) > _SHOWN else []
    return {**report, "skipped": [*skipped[:_SHOWN], *more]}


def _build_by_vectors(
    dataset: McpZeroDataset, source: IndexSource, out: Path, made_by: str, name: str
) -> dict[str, Any]:
    encoder = _find_encoder(dataset, made_by)
    if dataset.embedder not in (None, encoder.id):
        raise UnusableInput(
            f"the file says that its vectors are by {dataset.embedder!r:.80}, not by {encoder.id};"
            " say what made them with --embedder (a file exported here by default: general)"
        )
    vectors = _map_texts(dataset, source)

    def embed(texts: Sequence[str]) -> np.ndarray:
        return np.stack([vectors[text] for text in texts])

    save_encoder(encoder, out)
    version = build_index(out, source, embed, embedder=encoder.id, release=f"mcp-zero-{name[:12]}")
    move_pointer(out, version)
    return {"embedder": encoder.id, "version": version}


def _find_encoder(dataset: McpZeroDataset, made_by: str) -> Embedder:
    """What a question is embedded by. Raises UnusableInput where its vectors have another size."""
    kind, _, name = made_by.partition(":")
    if kind == "openai" and name:
        model, at, where = name.partition("@http")
        # Nothing is sent: the vectors are there. A question is, and takes the user's own key.
        return EndpointEncoder(
            model, base_url=f"http{where}" if at else None, api_key="unused", dim=dataset.dim
        )
    encoder = open_embedder(made_by)
    if encoder.dim != dataset.dim:
        raise UnusableInput(
            f"--embedder {made_by[:80]}: its vectors have {encoder.dim} numbers, those of the file"
            f" {dataset.dim}; name the model that made them"
        )
    return encoder


def _map_texts(dataset: McpZeroDataset, source: IndexSource) -> dict[str, np.ndarray]:
    """What the index embeds of each tool and server -> the file's vector of it."""
    entries = {server.name: server for server in dataset.servers}
    content = order_content(source)
    contracts: dict[int, list[dict[str, Any]]] = {}
    result: dict[str, np.ndarray] = {}
    for tool, contract in zip(content.tools, content.contracts, strict=True):
        contracts.setdefault(tool.server, []).append(contract)
        vector = entries[tool.server_id].tool_vectors[tool.tool]
        for text in build_tool_views(contract).values():
            result.setdefault(text, vector)
    for at, server in enumerate(content.servers):
        views = build_server_views(server.name, server.description, server.summary, contracts[at])
        vectors = entries[server.server_id].vectors
        result.setdefault(views["server"], vectors["description"])
        result.setdefault(views["summary"], vectors["summary"])
    return result


def read_dataset(path: Path) -> McpZeroDataset:
    """The servers of a file in MCP-Zero's format. Secrets are redacted; a tool whose text looks
    like an attack is left out. Raises UnusableInput where nothing of it is usable."""
    out = McpZeroDataset()
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


def _read_entries(path: Path, out: McpZeroDataset) -> list[tuple[str, ServerEntry]]:
    """Every server with where it stands, none of it scanned. Raises UnusableInput."""
    rows = parse_json(read_text(path), path)
    if not isinstance(rows, list):
        raise UnusableInput(f"{path}: {type(rows).__name__}; {_SHAPE}")
    entries: list[tuple[str, ServerEntry]] = []
    tools = characters = 0
    for number, row in enumerate(rows, 1):
        where = f"server {number}"
        raw = row if isinstance(row, Mapping) else {}
        if not (name := _read_text(raw.get("server_name"), _NAME)):
            found = "no server_name" if raw else f"{type(row).__name__}, expected an object"
            out.skipped.append(f"{where}: {found}")
            continue
        about, summary = (
            _read_text(raw.get(f"server_{part}"), _TEXT) for part in ("description", "summary")
        )
        entry = ServerEntry(name, about, summary)
        _note_embedder(raw, where, out)
        for part in ("description", "summary"):
            vector = _read_vector(raw.get(f"{part}_embedding"), f"{where}: {part}_embedding", out)
            if vector is not None:
                entry.vectors[part] = vector
        listed = raw.get("tools")
        for place, tool in enumerate(listed if isinstance(listed, list) else [], 1):
            _add_tool(entry, tool, f"{where}, tool {place}", out)
        tools += len(entry.tools)
        characters += len(json.dumps(entry.tools, ensure_ascii=False))
        characters += len(about) + len(summary)
        for count, most, what in (
            (tools, _MOST_TOOLS, "tools"),
            (characters, _MOST_SCANNED, "characters of tools and servers"),
        ):
            if count > most:
                raise UnusableInput(f"{path}: more than {most:,} {what}; split the file")
        entries.append((where, entry))
    return entries


def _add_tool(entry: ServerEntry, tool: Any, where: str, out: McpZeroDataset) -> None:
    raw = tool if isinstance(tool, Mapping) else {}
    name = _read_text(raw.get("name"), _NAME)
    if not name or name in {known["name"] for known in entry.tools}:
        out.skipped.append(f"{where}: {'no name' if not name else f'{name!r} was there before'}")
        return
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


def make_schema(parameters: Any) -> dict[str, Any]:
    """The input schema of a tool's `parameter`; one that is no object takes anything.

    A parameter that does not say that it is optional is required. A type that JSON Schema does not
    have stays in the description.
    """
    if not isinstance(parameters, Mapping) or not parameters:
        return {"type": "object"}
    properties: dict[str, Any] = {}
    required: list[str] = []
    short = [pair for pair in parameters.items() if len(str(pair[0])) <= _NAME]
    for name, parameter in short[:_MOST_PARAMETERS]:
        properties[str(name)], optional = _read_parameter(parameter)
        required += [] if optional else [str(name)]
    return {"type": "object", "properties": properties, "required": required}


def _read_parameter(parameter: Any) -> tuple[dict[str, Any], bool]:
    """(schema of one parameter, whether it is optional)."""
    if isinstance(parameter, Mapping):
        parameter = f"({parameter.get('type') or ''}) {parameter.get('description') or ''}"
    text = redact("" if parameter is None else str(parameter)[:_PARAMETER])
    match = _TYPE_NOTE.match(text)
    if match is None:
        return ({"description": text} if text else {}), False
    notes = [note.strip() for note in match[1].split(",")]
    optional = any(note.lower() == "optional" for note in notes)
    kinds = [note for note in notes if note.lower() not in ("optional", "required", "", "any")]
    about = text[match.end() :].strip()
    schema: dict[str, Any] = {}
    names = [_TYPES.get(word.strip().lower()) for word in (kinds or [""])[0].split(" or ")]
    if len(kinds) == 1 and None not in names:
        schema["type"] = names[0] if len(names) == 1 else names
    elif kinds:
        about = f"({', '.join(kinds)}) {about}".strip()
    return ({**schema, "description": about} if about else schema), optional


def _drop_alarming(entry: ServerEntry, where: str, out: McpZeroDataset) -> None:
    """Leaves out the tools that the scan of contracts would hold, and a server's text likewise."""
    server = {"name": "server", "description": f"{entry.description}\n{entry.summary}"}
    if any(item.severity == HIGH for item in scan_each([{**server, "inputSchema": {}}])[0]):
        out.skipped.append(f"{where}: its description looks like an attack; it is left blank")
        entry.description = entry.summary = ""
    clean = []
    for tool, findings in zip(entry.tools, scan_each(entry.tools), strict=True):
        if rule := next((item.rule for item in findings if item.severity == HIGH), None):
            out.skipped.append(f"{where}: tool {tool['name']!r} looks like an attack ({rule})")
            entry.tool_vectors.pop(tool["name"], None)
        else:
            clean.append(tool)
    entry.tools = clean


def _note_embedder(raw: Mapping[str, Any], where: str, out: McpZeroDataset) -> None:
    """What a file of ours says made its vectors. Raises UnusableInput where servers differ."""
    embedder = raw.get("embedder")
    if isinstance(embedder, str) and embedder:
        if out.embedder not in (None, embedder):
            raise UnusableInput(
                f"{where}: vectors of {embedder[:80]!r} beside those of {out.embedder!r:.80}; give"
                " one file for each"
            )
        out.embedder = embedder


def _read_vector(value: Any, where: str, out: McpZeroDataset) -> np.ndarray | None:
    """A unit vector, None where there is none; a broken one is reported."""
    if value is None:
        return None
    try:
        if not isinstance(value, list) or not 0 < len(value) <= _WIDEST:
            raise ValueError(f"expected 1 to {_WIDEST:,} numbers")
        if not {type(item) for item in value} <= {float, int}:
            raise ValueError("expected a list of numbers")
        with np.errstate(over="ignore"):
            vector = np.array(value, np.float32)
        if out.dim not in (None, len(vector)):
            raise ValueError(f"{len(vector)} numbers, others have {out.dim}")
        norm = float(np.linalg.norm(vector))
        if not np.isfinite(norm) or norm == 0:
            raise ValueError(f"its norm is {norm}")
    except (ValueError, TypeError, OverflowError) as error:
        out.skipped.append(f"{where}: no vector ({' '.join(str(error).split())[:100]})")
        return None
    out.dim = len(vector)
    return vector / np.float32(norm)


def _read_text(value: Any, most: int) -> str:
    return redact(value[: most + 100]).strip()[:most] if isinstance(value, str) else ""
