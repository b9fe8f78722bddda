"""Lists that the TypeScript SDK's client (1.32) refuses whole, and faults of answers."""

import pytest

from assets.servers.probe.client_refusals import RULE, find_client_refusals

OBJECT = {"type": "object"}
GOOD = {
    "name": "weigh",
    "description": "Weighs.",
    "inputSchema": {**OBJECT, "properties": {"x": {}}},
}


def input_schema(**more):
    return {"name": "weigh", "inputSchema": {**OBJECT, **more}}


def with_members(**more):
    return {**GOOD, **more}


TYPESCRIPT = [
    (with_members(description=None), "/description", "is null"),
    (with_members(annotations=None), "/annotations", "is null"),
    (with_members(outputSchema=None), "/outputSchema", "is null"),
    (with_members(annotations={"readOnlyHint": 1}), "/annotations/readOnlyHint", "is no boolean"),
    (input_schema(properties={"a/b": True}), "/inputSchema/properties/a~1b", "is no object"),
    (with_members(outputSchema={**OBJECT, "properties": {"x": {"type": "number!"}}}),
     "/outputSchema", "cannot be compiled"),
    (with_members(outputSchema={**OBJECT, "properties": {"x": {"$ref": "#/$defs/No"}}}),
     "/outputSchema", "nothing is at '#/$defs/No'"),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "field", "words"), TYPESCRIPT)
def test_a_member_that_makes_a_client_refuse_the_list_is_named(tool, field, words):
    [found] = find_client_refusals([GOOD, tool], "2025-11-25")
    assert (found.tool, found.rule, found.field) == ("weigh", RULE, field)
    assert words in found.excerpt
    assert "TypeScript" in found.excerpt


def test_what_every_client_takes_has_no_finding():
    full = {**GOOD, "title": "Weigh", "annotations": {"readOnlyHint": True}, "_meta": {"a": 1}}
    recursive = {**OBJECT, "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": OBJECT}}
    tools = [GOOD, {**full, "outputSchema": recursive}, with_members(inputSchema=recursive)]
    assert find_client_refusals(tools, "2025-06-18") == []
    assert find_client_refusals(tools, "2026-07-28") == []


def test_the_newer_revision_has_rules_of_its_own():
    odd = input_schema(properties={"x": {"type": "object", "x-mcp-header": "X"}})
    found = find_client_refusals([odd], "2026-07-28", ["a cursor came twice"])
    assert [(each.tool, each.field) for each in found] == [("", ""), ("weigh", "/inputSchema")]
    assert "leave the tool out" in found[1].excerpt
