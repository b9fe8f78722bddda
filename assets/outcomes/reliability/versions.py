"""What is still believed of a tool when its contract changes: the less, the graver the change."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from assets.contracts.tool_id import ToolId
from assets.outcomes.reliability.estimate import Evidence
from warehouse.json_types import Row

Version = tuple[str, str]  # tool id, contract digest

# What a call of the version before counts for the next one, by the class of the change. Other words
# leave the code alone, mostly; a contract whose calls break is another tool's.
CARRIED = {"wording": 0.8, "compatible": 0.5, "breaking": 0.1, "suspicious": 0.0}
MOST_CARRIED = 20.0  # calls; 20 calls of its own outweigh whatever was believed of a new version


@dataclass(frozen=True)
class Change:
    """A version's predecessor, and the class of the change between them."""

    before: Version
    cls: str


def read_changes(rows: Iterable[Row]) -> dict[Version, Change]:
    """Version -> its last change to it, of rows of CHANGES."""
    found: dict[Version, Change] = {}
    for row in sorted(rows, key=lambda row: (row["run_date"], row["from_digest"])):
        if row["from_digest"] and row["to_digest"]:
            now = str(ToolId(row["server_id"], row["tool"])), row["to_digest"]
            old = str(ToolId(row["server_id"], row["renamed_from"] or row["tool"]))
            if (before := (old, row["from_digest"])) != now:
                found[now] = Change(before, row["cls"])
    return found


def carry_evidence(
    version: Version, seen: Mapping[Version, Evidence], changes: Mapping[Version, Change]
) -> Evidence:
    """What the versions before this one count for it, at most MOST_CARRIED calls. A contract that
    comes back is not its own predecessor."""
    total, factor, met = Evidence(), 1.0, {version}
    while (change := changes.get(version)) is not None and change.before not in met:
        factor *= CARRIED.get(change.cls, 0.0)
        version = change.before
        met.add(version)
        total += seen.get(version, Evidence()).scale(factor)
    return total.limit(MOST_CARRIED)
