"""What is held or taken down since the index was built: tools that no answer shows from now on.

router/BLOCKED.json   {digests: [contract digest], tools: [tool id]}
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from serving.index.errors import IndexMissing
from serving.index.folder import load_index, read_served_version
from warehouse.storage.files import write_atomically
from warehouse.storage.takedowns import read_takedowns


def write_blocklist(
    place: Path, digests: Iterable[str], tools: Iterable[str] = (), version: str | None = None
) -> int:
    """Makes these the held contracts of a place, with the tools of `version` (by default of the
    served one) that are taken down; a running router sees it at its next query. Returns how many
    there are. Raises TakedownError, IndexBroken."""
    taken = find_taken_tools(place, version)
    held = {"digests": sorted(set(digests)), "tools": sorted({*tools, *taken})}
    path = place / "router" / "BLOCKED.json"
    if not any(held.values()) and not path.exists():
        return 0
    write_atomically(path, json.dumps(held).encode())
    return len(held["digests"]) + len(held["tools"])


def find_taken_tools(place: Path, version: str | None = None) -> set[str]:
    """Ids of the tools of an index version that are taken down; of the served one by default, of
    none where none is served."""
    taken = read_takedowns(place)
    if not taken:
        return set()
    try:
        index = load_index(place, version or read_served_version(place))
    except IndexMissing:
        return set()

    def iterate_texts(at: int) -> Iterator[str]:
        server = index.servers[index.tools[at].server]
        yield json.dumps(index.contract(at), ensure_ascii=False)
        yield from (server.name, server.description, server.summary)

    return {
        tool.tool_id
        for at, tool in enumerate(index.tools)
        if taken.is_reached(tool.server_id, tool.tool, tool.contract_digest, iterate_texts(at))
    }
