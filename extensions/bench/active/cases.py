"""One request with the pool in which its tool must be found, and where requests come from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assets.contracts.tool_id import ToolId
from serving.index.model import IndexSource

RETRIEVAL, STANDARD = "retrieval", "standard"
ACTIVE, ACTIVE_EXAMPLE = "active", "active_example"
ARMS = (RETRIEVAL, STANDARD, ACTIVE, ACTIVE_EXAMPLE)


@dataclass(frozen=True)
class Case:
    """messages: of users and the assistant, the last one is a user's. gold: the tool that comes
    next; one that says the same counts too. pool: tool ids in the order in which a model that is
    shown all of them sees them. cell: what it is counted under. group: resampled whole."""

    case_id: str
    messages: tuple[Mapping[str, str], ...]
    gold: str
    pool: tuple[str, ...]
    cell: tuple[tuple[str, Any], ...]
    group: str

    @property
    def request(self) -> str:
        """The user's last words."""
        return next(
            message["content"] for message in reversed(self.messages) if message["role"] == "user"
        )


@dataclass(frozen=True)
class CaseSet:
    """Cases of one set with the tools of all their pools. left_out: reason -> how many."""

    name: str
    source: IndexSource
    cases: Sequence[Case]
    left_out: Mapping[str, int] = field(default_factory=dict)


def select_source(source: IndexSource, pool: Iterable[str]) -> IndexSource:
    """The source of an index of these tools alone, without accepted requests: they may be the
    very requests that are asked."""
    held = set(pool)
    rows = [row for row in source.rows if str(ToolId.of_row(row)) in held]
    servers = {row["server_id"] for row in rows}
    about = {name: facts for name, facts in source.servers.items() if name in servers}
    return replace(source, rows=rows, servers=about, instructions={}, recipes={})
