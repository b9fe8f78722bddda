"""A few contracts in the shapes that real servers have, written for these tests."""

from typing import Any

from assets.contracts.canonical import canonicalize_contract, contract_digest


def make_tool(
    name: str, description: str, properties: dict[str, Any], *required: str, **more: Any
) -> dict[str, Any]:
    """A tool as its server lists it. more: of its schema."""
    schema = {"type": "object", "properties": properties, **more}
    schema |= {"required": list(required)} if required else {}
    return {"name": name, "description": description, "inputSchema": schema}


TEXT = {"type": "string"}
CITY_TIME = make_tool(
    "get_current_time",
    "Get current time in a specific timezone",
    {
        "timezone": {
            "type": "string",
            "description": "IANA timezone name (e.g., 'America/New_York', 'Europe/London').",
        }
    },
    "timezone",
)
READ_FILE = make_tool(
    "read_text_file",
    "Read the complete contents of a file from the file system as text. Handles various text"
    " encodings.",
    {
        "path": TEXT,
        "head": {"type": "number", "description": "only the first N lines"},
        "numbered": {"type": "boolean", "default": False},
    },
    "path",
)
CREATE_ISSUE = make_tool(
    "jira_create_issue",
    "Create a new Jira issue in a project.",
    {
        "project_key": {"type": "string", "pattern": "^[A-Z][A-Z0-9_]+$"},
        "title": TEXT,
        "priority": {"type": "string", "enum": ["low", "medium", "high"]},
        "due_date": {"type": "string", "format": "date"},
        "estimate": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
    },
    *("project_key", "title", "priority"),
    additionalProperties=False,
)
_RELATION = make_tool("", "", {"from": TEXT, "to": TEXT}, "from", "to")["inputSchema"]
ADD_RELATIONS = make_tool(
    "create_relations",
    "Create multiple new relations between entities in the knowledge graph",
    {"relations": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Relation"}}},
    "relations",
    **{"$defs": {"Relation": _RELATION}},
)
_CURRENCY = {"type": "string", "minLength": 3, "maxLength": 3}
CONVERT = make_tool(
    "convert_amount",
    "Convert an amount of money from one currency to another.",
    {
        "amount": {"type": "number", "exclusiveMinimum": 0},
        "source_currency": _CURRENCY,
        "target_currency": _CURRENCY,
    },
    *("amount", "source_currency", "target_currency"),
)
PING = {"name": "ping", "description": "", "inputSchema": {"type": "object"}}
ODD = make_tool(
    "高德天气",
    "根据城市名称查询天气",
    {
        "city": TEXT,
        "options": {"type": "object", "additionalProperties": {"type": "number"}},
        "ids": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
    },
    *("city", "options", "ids"),
)
ALL = [CITY_TIME, READ_FILE, CREATE_ISSUE, ADD_RELATIONS, CONVERT, PING, ODD]


def snapshot_rows(tools: list[dict[str, Any]], server_id: str = "npm:demo") -> list[dict[str, Any]]:
    return [
        {
            "server_id": server_id, "tool": tool["name"], "marketplace": "registry",
            "contract": canonicalize_contract(tool), "contract_digest": contract_digest(tool),
            "recipe_digest": "r" * 64, "license": "MIT",
        }
        for tool in tools
    ]  # fmt: skip
