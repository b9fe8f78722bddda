"""Found tools as functions that an endpoint takes, in its names and within bounds."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from serving.index.model import UNVERIFIED
from serving.meta.untrusted_text import Bounded, show_line
from serving.ranking.query import Hit
from warehouse.llm.chat import write_wire_name
from warehouse.sanitize.quote import escape_exact

_ABOUT = 1_000  # characters of a description
_SCHEMA = 8_000  # of a tool's parameters: 99% of real contracts are shorter than 6,000


@dataclass(frozen=True)
class Offered:
    """A tool that a model may call: its id, its name on the wire, and the OpenAI function."""

    tool_id: str
    wire: str
    function: dict[str, Any]


def keep_callable(hits: Iterable[Hit]) -> list[Hit]:
    """Without tools that nobody launched: those are only shown."""
    return [hit for hit in hits if UNVERIFIED not in hit.flags]


def write_functions(contracts: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Offered]:
    """Name on the wire -> tool, of (tool id, contract) in order. The texts are third-party: what
    shows nothing is taken out, what is long is cut."""
    held = dict(contracts)
    offered = (_write_offered(*one) for one in held.items())
    return {one.wire: one for one in offered}


def _write_offered(tool_id: str, contract: Mapping[str, Any]) -> Offered:
    wire = write_wire_name(tool_id)
    return Offered(tool_id, wire, _write_function(wire, contract))


def _write_function(wire: str, contract: Mapping[str, Any]) -> dict[str, Any]:
    about = show_line(str(contract.get("description") or ""), _ABOUT)
    told = {"name": wire, "description": about, "parameters": bound_parameters(contract)}
    return {"type": "function", "function": told}


def bound_parameters(contract: Mapping[str, Any], quoted: bool = False) -> dict[str, Any]:
    """The input schema, its prose between marks if `quoted`; of one too large, the names of its
    parameters alone."""
    schema = contract.get("inputSchema")
    schema = dict(schema) if isinstance(schema, Mapping) else {}
    copy = Bounded(_SCHEMA, longest=_ABOUT, quoted=quoted)
    made = copy({**schema, "type": "object"})
    if not copy.cut:
        return {"properties": {}, **made}
    properties = schema.get("properties")
    names = list(properties)[:100] if isinstance(properties, Mapping) else []
    required = schema.get("required")
    needed = [name for name in required if name in names] if isinstance(required, list) else []
    return {
        "type": "object",
        "properties": {escape_exact(str(name), 200): {} for name in names},
        "required": [escape_exact(str(name), 200) for name in needed],
    }


def read_arguments(given: Any) -> Any:
    """Arguments as an object; what is no JSON stays the text it is."""
    if not isinstance(given, str):
        return {} if given is None else given
    try:
        return json.loads(given) if given.strip() else {}
    except (ValueError, RecursionError):
        return given


def write_arguments(arguments: Any) -> str:
    """Arguments in the history: an object, whatever a model wrote, for endpoints take no other."""
    held = arguments if isinstance(arguments, Mapping) else {"unreadable": str(arguments)[:2000]}
    return json.dumps(held, ensure_ascii=True, default=str)
