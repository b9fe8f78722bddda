"""Changed schemas say the same: they take a changed call exactly where the old took the old one."""

import json
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from assets.contracts.match.match import match_call
from assets.contracts.validate import find_schema_problem, validate_call
from extensions.bench.perturbations import perturb_tools
from tests.support.cases import cases
from tests.support.examples import examples
from tests.synthesis.contracts import make_tool
from training.evaluation.caller_table import PERTURBATIONS
from training.evaluation.renaming import make_new_names, rename_one_tool

NAMES = st.sampled_from(["path", "file_id", "pageSize", "query", "url", "x", "when-to", "Ünï"])
LEAVES = st.sampled_from(
    [{"type": "string"}, {"type": "integer", "minimum": 2}, {"type": ["number", "null"]},
     {"enum": ["a", "b"]}, {"type": "array", "items": {"type": "string"}, "default": []},
     {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
     {"$ref": "#/$defs/one"}, {"anyOf": [{"type": "string"}, {"type": "boolean"}]}]
)  # fmt: skip
VALUES = st.sampled_from(["a", "two words", 1, 2, 2.5, None, True, [], ["a"], {"path": "a"}, {}])


@st.composite
def contracts(draw: Any) -> dict[str, Any]:
    properties = draw(st.dictionaries(NAMES, LEAVES, max_size=5))
    names = sorted(properties)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schema["$defs"] = {"one": {"type": "string"}}
    if names:
        schema["required"] = draw(st.lists(st.sampled_from(names), unique=True))
        if draw(st.booleans()):
            schema["anyOf"] = [{"required": [name]} for name in names[:2]]
        if draw(st.booleans()):
            schema["dependentRequired"] = {names[0]: [names[-1]]}
    if draw(st.booleans()):
        schema["additionalProperties"] = draw(st.booleans())
    description = 'Get a file. If `path` is set, the `pageSize` must be 3, e.g. "such as" this.'
    return {"name": draw(st.sampled_from(["get_file", "x", "API-get"])), "description": description,
            "inputSchema": schema}  # fmt: skip


ARGUMENTS = st.dictionaries(NAMES, VALUES, max_size=4)


@given(contracts(), ARGUMENTS, ARGUMENTS, st.sampled_from(PERTURBATIONS), st.integers(0, 3))
@examples(60)
def test_a_changed_schema_takes_the_call_changed_alike(tool, wanted, called, kind, seed):
    calls = [{"name": tool["name"], "arguments": held} for held in (wanted, called)]
    made = perturb_tools(kind, [tool], calls, seed)
    new = made.tools[0]
    assert find_schema_problem(new["inputSchema"]) == find_schema_problem(tool["inputSchema"])
    for old_call, new_call in zip(calls, made.expected, strict=True):
        assert new_call["name"] == new["name"]
        before = sorted(flaw.kind for flaw in validate_call(tool, old_call["arguments"]))
        assert before == sorted(flaw.kind for flaw in validate_call(new, new_call["arguments"]))
    old = match_call(tool["inputSchema"], *calls)
    assert match_call(new["inputSchema"], *made.expected).error_kind == old.error_kind
    assert perturb_tools(kind, [tool], calls, seed) == made


@given(contracts(), st.integers(0, 3))
@settings(deadline=None)
def test_another_order_holds_the_same_values(tool, seed):
    made = perturb_tools("reordered_parameters", [tool], [], seed).tools[0]
    assert made == tool
    several = len(tool["inputSchema"]["properties"]) > 1
    assert several <= (json.dumps(made) != json.dumps(tool))


def test_offered_tools_change_alike_or_one_alone_and_mentions_follow():
    tools = [
        {"name": name, "description": "See list_files first.", "inputSchema": {"type": "object"}}
        for name in ("list_files", "listFiles", "list-files", "files_list", "echo")
    ]
    made = perturb_tools("renamed_tool", tools, [{"name": "echo", "arguments": {}}])
    names = [tool["name"] for tool in made.tools]
    assert len(set(names)) == 5
    assert not set(names) & {tool["name"] for tool in tools}
    assert made.expected[0]["name"] == names[4]
    assert names[0] in made.tools[1]["description"]
    assert "list_files" not in made.tools[1]["description"]
    tools = [{"name": n, "inputSchema": {"type": "object"}} for n in ("get_file", "file_get", "b")]
    made = rename_one_tool(tools, [{"name": "get_file", "arguments": {}}], "get_file")
    assert [tool["name"] for tool in made.tools][1:] == ["file_get", "b"]
    assert made.tools[0]["name"] == made.expected[0]["name"] not in {"get_file", "file_get"}
    path = {"type": "string", "description": "as `path`, on the path"}
    tool = make_tool("read", "Reads `path`.", {"path": path}, "path", examples=[{"path": "/a"}])
    call = {"name": "read", "arguments": {"path": "/a"}}
    made = perturb_tools("renamed_parameters", [tool], [call])
    name = next(iter(made.expected[0]["arguments"]))
    about = {"type": "string", "description": f"as `{name}`, on the path"}
    renamed = make_tool("read", f"Reads `{name}`.", {name: about}, name, examples=[{name: "/a"}])
    assert made.tools == [renamed]


@given(st.lists(st.text(min_size=1, max_size=80), unique=True, max_size=6))
def test_new_names_are_usable_by_every_api(names):
    made = make_new_names(names)
    assert len(set(made.values())) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in made.values())
    assert not set(made.values()) & set(names)


@cases(
    "schema",
    {"type": "object", "properties": {"a": {}}, "patternProperties": {"^x": {}}},
    {"type": "object", "properties": {"a": {}}, "propertyNames": {"pattern": "^a"}},
    {"type": "object", "properties": {"a": {}, "b": {"$ref": "#/properties/a"}}},
    {"$ref": "#/$defs/all", "properties": {"a": {}}, "$defs": {"all": {"required": ["a"]}}},
)
def test_parameters_that_cannot_be_renamed_without_doubt_keep_their_names(schema):
    call = {"name": "t", "arguments": {"a": 1}}
    made = perturb_tools("renamed_parameters", [{"name": "t", "inputSchema": schema}], [call])
    assert (made.tools[0]["inputSchema"], made.expected) == (schema, [call])
    assert not made.changed
