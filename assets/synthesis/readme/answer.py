"""What a README is read as, and what of that can be believed: only what stands in it."""

import re
from typing import Any

from pydantic import BaseModel, Field

from assets.contracts.canonical import ContractError, canonicalize_contract
from assets.contracts.scan import HIGH, scan_each

MOST_TOOLS, MOST_PARAMETERS = 200, 60
_KINDS = ("string", "integer", "number", "boolean", "array", "object")


class ReadmeParameter(BaseModel):
    """One parameter that a README names."""

    name: str = Field(min_length=1, max_length=120)
    type: str = Field(default="", max_length=40)
    required: bool = True
    description: str = Field(default="", max_length=2_000)


class ReadmeTool(BaseModel):
    """One tool that a README names."""

    name: str = Field(min_length=1, max_length=120)
    description: str = Field(default="", max_length=4_000)
    parameters: list[ReadmeParameter] = Field(default_factory=list, max_length=MOST_PARAMETERS)


class ReadmeTools(BaseModel):
    """The generator's answer to `readme_tools`."""

    tools: list[ReadmeTool] = Field(max_length=MOST_TOOLS)


def select_grounded(found: ReadmeTools, readme: str) -> tuple[list[dict[str, Any]], list[str]]:
    """(tools as `tools/list` would have them, why others are left out). A name that the README does
    not hold was made up; a tool whose text the scan of contracts would hold is left out."""
    kept: dict[str, dict[str, Any]] = {}
    left: list[str] = []
    for one in found.tools:
        if one.name in kept:
            left.append(f"{one.name!r} is named twice")
        elif not _stands_in(one.name, readme):
            left.append(f"{one.name!r} does not stand in the README")
        else:
            kept[one.name] = _make_tool(one, readme)
    each = zip(list(kept), scan_each(list(kept.values())), strict=True)
    held = [name for name, found in each if any(one.severity == HIGH for one in found)]
    left += [f"{name!r} looks like an attack" for name in held]
    return [tool for name, tool in kept.items() if name not in held], left


def _make_tool(one: ReadmeTool, readme: str) -> dict[str, Any]:
    parameters = [parameter for parameter in one.parameters if _stands_in(parameter.name, readme)]
    tool: dict[str, Any] = {"name": one.name}
    if about := " ".join(one.description.split()):
        tool["description"] = about
    schema: dict[str, Any] = {"type": "object"}
    if parameters:
        schema["properties"] = {parameter.name: _make_schema(parameter) for parameter in parameters}
        if required := [parameter.name for parameter in parameters if parameter.required]:
            schema["required"] = required
    try:
        return canonicalize_contract({**tool, "inputSchema": schema})
    except ContractError:  # a name of blanks is refused before; what is left has a contract
        return {**tool, "inputSchema": {"type": "object"}}


def _make_schema(given: ReadmeParameter) -> dict[str, Any]:
    kind = given.type.strip().lower()
    schema: dict[str, Any] = {"type": kind} if kind in _KINDS else {}
    if about := " ".join(given.description.split()):
        schema["description"] = about
    return schema


def _stands_in(name: str, readme: str) -> bool:
    """Whether a text holds the name as a word of its own."""
    return bool(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", readme))
