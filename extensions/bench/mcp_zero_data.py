"""A JSON text read part by part, so that never more than one bounded part of it is decoded: as a
whole it takes up to 25 times its size."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.scan import HIGH, scan_each
from warehouse.errors import UnusableInput
from warehouse.sanitize.redact import redact
from warehouse.user_files import read_text

MOST = 2_000_000  # characters of one part; a tool with a vector of 8,192 numbers has 230,000
_WINDOWS = (1 << 16, 1 << 19, MOST)  # looked at one after another: most parts are short
_BLANKS = re.compile(r"[ \t\r\n]*")


class JsonText:
    """A place in a text. What it raises is UnusableInput and names the file and the part."""

    def __init__(self, text: str, file: object) -> None:
        self._text, self._file, self._at = text, file, 0
        self._decoder = json.JSONDecoder()

    def peek(self) -> str:
        """The character that comes next, "" at the end."""
        match = _BLANKS.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._text[self._at : self._at + 1]

    def preview(self) -> str:
        """What stands here, for an error."""
        return repr(self._text[self._at : self._at + 20])

    def iterate_list(self, what: str) -> Iterator[str]:
        """`what` with its number for each element of the list here; each is taken or iterated by
        the caller before the next."""
        self._at += 1
        number = 0
        while self.peek() != "]":
            number += 1
            yield f"{what} {number}"
            self._pass_comma("]", f"the list breaks off after {what} {number}")
        self._at += 1

    def iterate_members(self, where: str) -> Iterator[str]:
        """The name of each member of the object here; its value is taken or iterated by the caller
        before the next."""
        self._at += 1
        while self.peek() != "}":
            name = self.take(where)
            if not isinstance(name, str) or self.peek() != ":":
                raise self._refuse(f"{where} is not JSON (expected a name and a colon)")
            self._at += 1
            yield name
            self._pass_comma("}", f"{where} is not JSON (it breaks off after {name[:40]!r})")
        self._at += 1

    def take(self, where: str) -> Any:
        """The value here, of MOST characters at most."""
        self.peek()
        for size in _WINDOWS:
            window = self._text[self._at : self._at + size]
            whole = self._at + size >= len(self._text)
            try:
                value, end = self._decoder.raw_decode(window)
            except (ValueError, RecursionError) as error:
                if whole or isinstance(error, RecursionError):
                    message = " ".join(str(error).split())[:120]
                    raise self._refuse(f"{where} is not JSON ({message})") from None
                continue
            if whole or end < len(window):  # else a number may go on
                self._at += end
                return value
        raise self._refuse(
            f"{where} has no JSON value within {MOST:,} characters, the most there is"
        )

    def _pass_comma(self, end: str, message: str) -> None:
        if self.peek() == ",":
            self._at += 1
        elif self.peek() != end:
            raise self._refuse(message)

    def _refuse(self, message: str) -> UnusableInput:
        return UnusableInput(f"{self._file}: {message}")


_TYPE_NOTE = re.compile(r"\s*\(\s*([^()]{0,80})\)\s*")
_OPTIONAL, _REQUIRED = "optional", "required"
_TYPES = {
    **dict.fromkeys(("string", "str", "text"), "string"),
    **dict.fromkeys(("integer", "int"), "integer"),
    **dict.fromkeys(("number", "float", "double"), "number"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("array", "list"), "array"),
    **dict.fromkeys(("object", "dict", "json", "dictionary"), "object"),
}
_MOST = 200  # parameters of one tool
_LONGEST = 4_000  # characters of a description
_LONGEST_NAME = 300


def make_schema(parameters: Any) -> dict[str, Any]:
    """The input schema of a tool's `parameter`; one that is no object takes anything.

    A parameter that does not say that it is optional is required. A type that JSON Schema does not
    have stays in the description.
    """
    if not isinstance(parameters, Mapping) or not parameters:
        return {"type": "object"}
    properties: dict[str, Any] = {}
    required: list[str] = []
    short = [pair for pair in parameters.items() if len(str(pair[0])) <= _LONGEST_NAME]
    for name, parameter in short[:_MOST]:
        properties[str(name)], optional = _read_parameter(parameter)
        required += [] if optional else [str(name)]
    return {"type": "object", "properties": properties, "required": required}


def write_parameters(contract: Mapping[str, Any]) -> dict[str, str]:
    """The `parameter` of a contract; {} where it takes none."""
    schema = contract.get("inputSchema") or {}
    properties = schema.get("properties")
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    described = {}
    for name, one in (properties if isinstance(properties, Mapping) else {}).items():
        one = one if isinstance(one, Mapping) else {}
        kind = one.get("type")
        kinds = kind if isinstance(kind, list) else [kind]
        words = " or ".join(kind for kind in kinds if isinstance(kind, str)) or "any"
        head = words if name in required else f"Optional, {words}"
        about = " ".join(str(one.get("description") or "").split())[:_LONGEST]
        described[name] = f"({head}) {about}".strip()
    return described


def _read_parameter(parameter: Any) -> tuple[dict[str, Any], bool]:
    """(schema of one parameter, whether it is optional)."""
    if isinstance(parameter, Mapping):
        parameter = f"({parameter.get('type') or ''}) {parameter.get('description') or ''}"
    text = redact("" if parameter is None else str(parameter)[:_LONGEST])
    match = _TYPE_NOTE.match(text)
    if match is None:
        return ({"description": text} if text else {}), False
    parts = [part.strip() for part in match[1].split(",")]
    optional = any(part.lower() == _OPTIONAL for part in parts)
    kinds = [part for part in parts if part.lower() not in (_OPTIONAL, _REQUIRED, "", "any")]
    about = text[match.end() :].strip()
    schema: dict[str, Any] = {}
    names = [_TYPES.get(word.strip().lower()) for word in (kinds or [""])[0].split(" or ")]
    if len(kinds) == 1 and None not in names:
        schema["type"] = names[0] if len(names) == 1 else names
    elif kinds:
        about = f"({', '.join(kinds)}) {about}".strip()
    return ({**schema, "description": about} if about else schema), optional


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
class ServerEntry:
    """One server of the file. vectors: of its description and its summary; tool_vectors: by name;
    a vector that the file does not have, or that is none, is missing."""

    name: str
    description: str
    summary: str
    tools: list[dict[str, Any]]
    vectors: dict[str, Vector] = field(default_factory=dict)
    tool_vectors: dict[str, Vector] = field(default_factory=dict)


@dataclass
class McpZeroDataset:
    """What is usable of a file, why the rest is not, how many servers had to be named `NAME (2)`,
    and what it says made the vectors."""

    servers: list[ServerEntry] = field(default_factory=list)
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
    entries: list[tuple[str, ServerEntry]] = []
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


def _read_server(text: JsonText, where: str, path: Path, out: McpZeroDataset) -> ServerEntry | None:
    if text.peek() != "{":
        out.skipped.append(f"{where}: {type(text.take(where)).__name__}, expected an object")
        return None
    raw: dict[str, Any] = {}
    entry, known = ServerEntry("", "", "", tools=[]), set[str]()
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


def _add_tool(
    entry: ServerEntry, known: set[str], tool: Any, where: str, out: McpZeroDataset
) -> None:
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


def _drop_alarming(entry: ServerEntry, where: str, out: McpZeroDataset) -> None:
    """Leaves out the tools that the scan of contracts would hold, and a server's text likewise."""
    server = {"name": "server", "description": f"{entry.description}\n{entry.summary}"}
    if any(item.severity == HIGH for item in scan_each([{**server, "inputSchema": {}}])[0]):
        out.skipped.append(f"{where}: its description looks like an attack; it is left blank")
        entry.description = entry.summary = ""
    kept = []
    for tool, found in zip(entry.tools, scan_each(entry.tools), strict=True):
        if rule := next((item.rule for item in found if item.severity == HIGH), None):
            out.skipped.append(f"{where}: tool {tool['name']!r} looks like an attack ({rule})")
            entry.tool_vectors.pop(tool["name"], None)
        else:
            kept.append(tool)
    entry.tools = kept


def _note_embedder(raw: Mapping[str, Any], where: str, out: McpZeroDataset) -> None:
    """What a file of ours says made its vectors. Raises UnusableInput where servers differ."""
    embedder = raw.get("embedder")
    if isinstance(embedder, str) and embedder:
        if out.embedder not in (None, embedder):
            raise UnusableInput(f"{where}: vectors of {embedder[:80]!r} beside those of"
                                f" {out.embedder!r:.80}; give one file for each")  # fmt: skip
        out.embedder = embedder


def _read_vector(value: Any, where: str, out: McpZeroDataset) -> Vector | None:
    """A unit vector, None where there is none; a broken one is told."""
    if value is None:
        return None
    try:
        if not isinstance(value, list) or not 0 < len(value) <= _WIDEST:
            raise ValueError(f"expected 1 to {_WIDEST:,} numbers")
        if not {type(item) for item in value} <= {float, int}:
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
