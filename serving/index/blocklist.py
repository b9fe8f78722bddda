"""What is held since the index was built: tools that no answer shows from now on.

router/BLOCKED.json   {digests: [contract digest], tools: [tool id]}
"""

import json
from collections.abc import Iterable
from pathlib import Path

from warehouse.storage.files import write_atomically


def write_blocklist(place: Path, digests: Iterable[str], tools: Iterable[str] = ()) -> int:
    """Makes these the held contracts of a place; a running router sees it at its next query.
    Returns how many there are."""
    held = {"digests": sorted(set(digests)), "tools": sorted(set(tools))}
    path = place / "router" / "BLOCKED.json"
    if not any(held.values()) and not path.exists():
        return 0
    write_atomically(path, json.dumps(held).encode())
    return len(held["digests"]) + len(held["tools"])
