"""Client refusals: what official clients refuse of a server's answers, beyond the vendor rules.

For the client of the TypeScript SDK stands what its version 1.32 does, tried entry by entry.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator, SchemaError

from assets.contracts.scan import ScanFinding
from assets.contracts.schema_shapes import find_lost_references
from warehouse.sanitize.untrusted_text import escape_text

RULE = "refused_by_clients"
_TYPESCRIPT = "the client of the TypeScript SDK refuses the whole list"
# Members that may be missing and, for that client, may not be null.
_NO_NULLS = ("title", "description", "annotations", "icons", "_meta", "outputSchema", "execution")
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_CAP = 200  # findings of one list


def find_client_refusals(
    tools: Sequence[Any], protocol: str | None, faults: Sequence[str] = ()
) -> list[ScanFinding]:
    """A finding for every member of a raw list that a client refuses, and for every fault of the
    answers. protocol: the revision that is spoken."""
    from mcp.shared.inbound import find_invalid_x_mcp_header
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    is_modern = protocol in MODERN_PROTOCOL_VERSIONS
    findings = [_make_finding("", "", fault, "it breaks the protocol") for fault in faults]
    for tool in tools:
        name = str(tool.get("name"))
        problems = _find_typescript_problems(tool)
        findings += (_make_finding(name, field, what, _TYPESCRIPT) for field, what in problems)
        # Its arguments are to be repeated as headers.
        if is_modern and (problem := find_invalid_x_mcp_header(tool.get("inputSchema"))):
            what = f"its x-mcp-header is invalid, {problem}"
            findings.append(_make_finding(name, "/inputSchema", what, "clients leave the tool out"))
    return findings[:_CAP]


def _find_typescript_problems(tool: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(JSON pointer, what is wrong)."""
    yield from (
        (f"/{name}", "is null") for name in _NO_NULLS if name in tool and tool[name] is None
    )
    annotations = tool.get("annotations")
    annotations = annotations if isinstance(annotations, Mapping) else {}
    for name in _HINTS:
        if name in annotations and not isinstance(annotations[name], bool):
            yield f"/annotations/{name}", "is no boolean"
    for member in ("inputSchema", "outputSchema"):
        schema = tool.get(member)
        if not isinstance(schema, Mapping):
            continue
        for name in ("properties", "required"):
            if name in schema and schema[name] is None:
                yield f"/{member}/{name}", "is null"
        properties = schema.get("properties")
        for name, value in properties.items() if isinstance(properties, Mapping) else ():
            if isinstance(value, bool):
                step = str(name).replace("~", "~0").replace("/", "~1")
                yield f"/{member}/properties/{step}", "is no object"
    output = tool.get("outputSchema")
    if isinstance(output, Mapping) and (problem := _find_schema_problem(output)):
        yield "/outputSchema", f"cannot be compiled, {problem}"


def _find_schema_problem(schema: Mapping[str, Any]) -> str | None:
    """Why no validator can be made of a schema, whichever draft its `$schema` names."""
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return str(error.message)[:120]
    except RecursionError:
        return "it is nested too deeply"
    lost = sorted(map(str, find_lost_references(schema)))
    return f"nothing is at {lost[0][:80]!r}" if lost else None


def _make_finding(tool: str, field: str, what: str, why: str) -> ScanFinding:
    excerpt = escape_text(f"{what}: {why}"[:300])
    facts = (escape_text(tool[:200]), RULE, "medium", escape_text(field[:200]))
    return ScanFinding(*facts, (0, 0), excerpt, why)
