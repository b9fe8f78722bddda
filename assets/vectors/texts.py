"""The texts that stand for a tool and its server in the router: what is embedded, what is indexed.

A tool has one vector and its server two: a tool's text rarely names its server. Vectors of the
parameters alone and of the tool with its server's name were worth +.002 and +.005 of Recall@1 on
seven left-out sets (n = 1,657), not to be told from nothing, at two thirds of an index's cost.
"""

from collections.abc import Mapping, Sequence

from assets.contracts.canonical import tool_text
from warehouse.json_types import Json

FULL = "full"  # name, description and parameters: the view that finds the candidates
TOOL_VIEWS = (FULL,)
ASKED = "asked"  # requests that were written for the tool: several rows a tool, or none
SERVER_VIEWS = ("server", "summary")
ALL, JOINT = "all", "joint"
TOOL_FIELDS = ("name", "about", ALL, JOINT)
PLAIN_FIELDS = (ALL,)  # whole words: plain BM25, what products do; the others are stemmed
SERVER_FIELD = "server"
_LISTED = 40  # tool names that stand for a server without a summary


def build_tool_views(contract: Mapping[str, Json]) -> dict[str, str]:
    """One text per view of `TOOL_VIEWS`; none is empty."""
    return {FULL: tool_text(contract)}


def build_server_views(
    name: str, description: str, summary: str, contracts: Sequence[Mapping[str, Json]]
) -> dict[str, str]:
    """One text per view of `SERVER_VIEWS`. A server without a summary is told by its tools."""
    tools = sorted(tool_text(contract, "name") for contract in contracts)[:_LISTED]
    return {
        "server": f"{name}\n{description}".strip(),
        "summary": summary.strip() or f"{name} server\ntools: {', '.join(tools)}",
    }


def build_tool_fields(contract: Mapping[str, Json], server: str) -> dict[str, str]:
    """One text per field of `TOOL_FIELDS`; a field may be empty. server: the server's own field."""
    whole = f"{contract['name']}\n{tool_text(contract)}"
    return {
        "name": f"{contract['name']}\n{contract.get('title', '')}",
        "about": contract.get("description", ""),
        ALL: whole,
        JOINT: f"{whole}\n{server}",
    }


def build_server_field(name: str, description: str, summary: str, server_id: str) -> str:
    """What a server's full-text document holds."""
    return "\n".join((name, split_id(server_id), description, summary))


def split_id(server_id: str) -> str:
    """`npm:@acme/mail-mcp` -> `acme mail-mcp`."""
    kind, _, name = server_id.partition(":")
    return (name or kind).replace("/", " ").replace("@", " ").strip()
