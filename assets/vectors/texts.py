"""The texts that stand for a tool and its server in the router: what is embedded, what is indexed.

Views are kept apart because a request speaks of one side of a tool at a time: 128 word pieces of a
long description leave no room for its parameters, and a tool's text rarely names its server.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from assets.contracts.canonical import iterate_parameters, tool_text

Json = Any
FULL = "full"  # name, description and parameters: the view that finds the candidates
TOOL_VIEWS = (FULL, "params", "placed")
ASKED = "asked"  # requests that were written for the tool: several rows a tool, or none
SERVER_VIEWS = ("server", "summary")
ALL, JOINT = "all", "joint"
TOOL_FIELDS = ("name", "about", "params", ALL, JOINT)
PLAIN_FIELDS = (ALL,)  # whole words: plain BM25, what products do; the others are stemmed
SERVER_FIELD = "server"
_ABOUT = 400  # characters of a description beside the server's name
_VALUES = 12  # values of an enumeration that a field lists
_LISTED = 40  # tool names that stand for a server without a summary


def build_tool_views(contract: Mapping[str, Json], server_name: str) -> dict[str, str]:
    """One text per view of `TOOL_VIEWS`; none is empty."""
    words = tool_text(contract, "name")
    about = " ".join(contract.get("description", "").split())[:_ABOUT]
    listed = tool_text(contract)[len(tool_text(contract, "brief")) :].strip()
    return {
        FULL: tool_text(contract),
        "params": listed or words,
        "placed": f"{server_name}: {words}. {about}".rstrip(". "),
    }


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
    """One text per field of `TOOL_FIELDS`; a field may be empty. `server` is the server's own
    field: the joint field holds both, as a request names now the one and now the other."""
    whole = f"{contract['name']}\n{tool_text(contract)}"
    return {
        "name": f"{contract['name']}\n{contract.get('title', '')}",
        "about": contract.get("description", ""),
        "params": "\n".join(
            _describe_parameter(name, schema) for name, schema in iterate_parameters(contract)
        ),
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


def _describe_parameter(name: str, schema: Json) -> str:
    if not isinstance(schema, Mapping):
        return name
    values = schema.get("enum")
    listed = values[:_VALUES] if isinstance(values, list) else []
    said = " ".join(str(value)[:40] for value in listed if isinstance(value, str))
    return f"{name} {schema.get('description', '')} {said}".rstrip()
