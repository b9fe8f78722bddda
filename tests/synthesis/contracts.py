"""A few contracts in the shapes that real servers have, written for these tests."""

from typing import Any

from assets.contracts.canonical import canonicalize_contract, contract_digest

CITY_TIME = {
    "name": "get_current_time",
    "description": "Get current time in a specific timezone",
    "inputSchema": {
        "type": "object",
        "properties": {
            "timezone": {
                "type": "string",
                "description": "IANA timezone name (e.g., 'America/New_York', 'Europe/London').",
            }
        },
        "required": ["timezone"],
    },
}
READ_FILE = {
    "name": "read_text_file",
    "description": "Read the complete contents of a file from the file system as text. Handles "
    "various text encodings.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "head": {"type": "number", "description": "only the first N lines"},
            "numbered": {"type": "boolean", "default": False},
        },
        "required": ["path"],
    },
}
CREATE_ISSUE = {
    "name": "jira_create_issue",
    "description": "Create a new Jira issue in a project.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "project_key": {"type": "string", "pattern": "^[A-Z][A-Z0-9_]+$"},
            "title": {"type": "string"},
            "priority": {"type": "string", "enum": ["low", "medium", "high"]},
            "due_date": {"type": "string", "format": "date"},
            "estimate": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        },
        "required": ["project_key", "title", "priority"],
        "additionalProperties": False,
    },
}
ADD_RELATIONS = {
    "name": "create_relations",
    "description": "Create multiple new relations between entities in the knowledge graph",
    "inputSchema": {
        "type": "object",
        "$defs": {
            "Relation": {
                "type": "object",
                "properties": {"from": {"type": "string"}, "to": {"type": "string"}},
                "required": ["from", "to"],
            }
        },
        "properties": {
            "relations": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Relation"}}
        },
        "required": ["relations"],
    },
}
CONVERT = {
    "name": "convert_amount",
    "description": "Convert an amount of money from one currency to another.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "amount": {"type": "number", "exclusiveMinimum": 0},
            "source_currency": {"type": "string", "minLength": 3, "maxLength": 3},
            "target_currency": {"type": "string", "minLength": 3, "maxLength": 3},
        },
        "required": ["amount", "source_currency", "target_currency"],
    },
}
PING = {"name": "ping", "description": "", "inputSchema": {"type": "object"}}
ODD = {
    "name": "高德天气",
    "description": "根据城市名称查询天气",
    "inputSchema": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "options": {"type": "object", "additionalProperties": {"type": "number"}},
            "ids": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
        },
        "required": ["city", "options", "ids"],
    },
}
ALL = [CITY_TIME, READ_FILE, CREATE_ISSUE, ADD_RELATIONS, CONVERT, PING, ODD]


def snapshot_rows(tools: list[dict[str, Any]], server_id: str = "npm:demo") -> list[dict[str, Any]]:
    """Contract rows as the snapshot table has them."""
    return [
        {
            "server_id": server_id,
            "tool": tool["name"],
            "marketplace": "registry",
            "contract": canonicalize_contract(tool),
            "contract_digest": contract_digest(tool),
            "recipe_digest": "r" * 64,
            "license": "MIT",
        }
        for tool in tools
    ]
