"""A file of servers as the source of an index."""

import json
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from assets.synthesis.judging.adhoc.files import Tools, get_server_name, read_lines
from assets.synthesis.summaries.offline import make_readable, write_summary
from serving.index.model import UNVERIFIED, Source
from warehouse.errors import UnusableInput

AD_HOC = "ad hoc"
_TEXT_CAP = 4_000  # characters of a description that are read


def read_source(path: Path) -> tuple[Source, list[str]]:
    """The source of an index, and why tools were left out. A server a line: qualified_name (or
    server_id, or name), tools, and what is known of display_name, overview or description, tags.
    The tools of one that says `"unverified": true` carry that mark.

    Raises UnusableInput.
    """
    entries, skipped = [], []
    for at, server in read_lines(path):
        where = f"{path}, line {at}"
        if get_server_name(server):
            entries.append((_read_mark(server, where), server))
        else:
            skipped.append(f"{where}: a server without qualified_name, server_id and name")
    tools = Tools()
    servers: dict[str, dict[str, str]] = {}
    for server in (one for marked, one in entries if not marked):
        servers[get_server_name(server)] = _describe_server(server)
        _add_tools(tools, server)
    launched = frozenset(tools.by_id)
    # After those that were launched, whatever the order of the lines: it takes no place of theirs.
    for server in (one for marked, one in entries if marked):
        servers.setdefault(get_server_name(server), _describe_server(server))
        _add_tools(tools, server, launched)
    if not tools.by_id:
        shape = '{"qualified_name": "…", "tools": [{"name": "…", "inputSchema": {…}}]}'
        why = next(iter([*tools.unusable.values(), *skipped]), "no tools found")
        raise UnusableInput(f"{path}: {why}; expected a server a line as {shape}")
    rows = [
        _make_row(name, key, tools) | ({} if key in launched else {"flags": (UNVERIFIED,)})
        for name in servers
        for key in tools.list_server_tools(name)
    ]
    for name, facts in servers.items():
        contracts = [tools.by_id[key] for key in tools.list_server_tools(name)]
        facts["summary"] = facts["summary"] or write_summary(
            facts["name"] or make_readable(name), contracts
        )
    held = {row["server_id"] for row in rows}
    about = {name: facts for name, facts in servers.items() if name in held}
    twice = [f"{key[:200]} stands more than once; the last is kept" for key in tools.repeated]
    return Source(rows, about, {}, {}), [*skipped, *sorted([*tools.unusable.values(), *twice])]


def _read_mark(server: Mapping[str, Any], where: str) -> bool:
    """Whether a server says that nobody launched it; nothing but true and false is read as one."""
    mark = server.get("unverified", False)
    if isinstance(mark, bool):
        return mark
    raise UnusableInput(f"{where}: unverified is {mark!r:.60}; expected true or false")


def _add_tools(tools: Tools, server: Mapping[str, Any], keep: Set[str] = frozenset()) -> None:
    listed = server.get("tools")
    for tool in listed if isinstance(listed, list) else []:
        tools.add(get_server_name(server), tool, keep)


def _make_row(server: str, key: str, tools: Tools) -> dict[str, Any]:
    return {
        "server_id": server,
        "tool": tools.by_id[key]["name"],
        "contract_digest": tools.digests[key],
        "contract": json.dumps(tools.by_id[key], ensure_ascii=False),
        "marketplace": AD_HOC,
    }


def _describe_server(server: Mapping[str, Any]) -> dict[str, str]:
    about = server.get("overview") or server.get("description") or ""
    tags = [tag for tag in server.get("tags") or [] if isinstance(tag, str)]
    text = str(about) if not tags else f"{about}\n{', '.join(tags)}"
    return {
        "name": str(server.get("display_name") or server.get("name") or "")[:200],
        "description": text[:_TEXT_CAP],
        "summary": str(server.get("summary") or "")[:_TEXT_CAP],
    }
