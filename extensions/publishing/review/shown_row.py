"""What a reviewer sees of a row."""

import json
from collections.abc import Mapping

from assets.synthesis.contract_reading import get_properties, get_required
from assets.synthesis.tables import read_goldens
from warehouse.json_types import Json, Row


def show_row(row: Row, contracts: Mapping[str, Row]) -> dict[str, Json]:
    """What the reviewer sees of a row: never a verdict, a flaw or a score."""
    calls = read_goldens(row)
    own = contracts.get(row["contract_digest"])
    offered = json.loads(row.get("offered") or "[]")
    beside = [contracts[one] for one in offered if one in contracts]
    return {
        "task": row.get("task") or "single",
        "server": row.get("server_id") or "",
        "instruction": row["instruction"],
        "calls": [{"tool": call.tool, "arguments": call.arguments} for call in calls],
        "messages": json.loads(row.get("messages") or "[]"),
        "tool": _show_tool(own) if own else {"name": row.get("tool"), "description": None},
        "others": [_show_tool(one) for one in beside if one is not own][:12],
    }


def _show_tool(contract: Row) -> dict[str, Json]:
    required = get_required(contract)
    return {
        "name": contract.get("name"),
        "description": str(contract.get("description") or ""),
        "parameters": [
            {"name": name, "required": name in required, "says": _describe_parameter(of)}
            for name, of in get_properties(contract).items()
        ],
    }


def _describe_parameter(of: Json) -> str:
    if not isinstance(of, Mapping):
        return ""
    kind = of.get("type") or ("one of several" if of.get("anyOf") or of.get("oneOf") else "any")
    options = (
        f" of {', '.join(map(str, of['enum'][:12]))}" if isinstance(of.get("enum"), list) else ""
    )
    return f"{kind}{options}. {str(of.get('description') or '')[:400]}".strip()
