"""Contracts in their canonical form, what changes their digest, and the ids of tools."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.canonical import (
    ContractError,
    canonicalize_contract,
    contract_digest,
    index_contracts,
    tool_text,
)
from assets.contracts.tool_id import BadToolId, ToolId, compile_globs
from assets.contracts.validate import validate_call
from tests.contracts.random_schemas import value_for, whole
from tests.contracts.strategies import tools
from tests.support.cases import cases

TOOL = {
    "name": "getUserByID",
    "title": "Get user",
    "description": "Finds one user.\r\n\tBy id.  ",
    "inputSchema": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "the user's id "},
            "$schema": {"type": "string"},
        },
        "required": ["id", "$schema"],
    },
    "_meta": {"version": 7},
    "icons": [{"src": "x.png"}],
}


def _shuffled(value, rng):
    if isinstance(value, dict):
        items = [(k, _shuffled(v, rng)) for k, v in value.items()]
        rng.shuffle(items)
        return dict(items)
    return [_shuffled(v, rng) for v in value] if isinstance(value, list) else value


@given(tools(), st.integers())
def test_the_order_of_keys_does_not_matter(tool, seed):
    assert contract_digest(_shuffled(tool, random.Random(seed))) == contract_digest(tool)


@given(tools())
def test_a_contract_is_its_own_contract_also_after_a_trip_through_json(tool):
    body = canonicalize_contract(tool)
    assert canonicalize_contract(body) == body
    assert contract_digest(json.loads(json.dumps(body))) == contract_digest(tool)


def test_what_no_model_reads_does_not_matter():
    bare = {k: v for k, v in TOOL.items() if k not in ("_meta", "icons")}
    schema = {k: v for k, v in TOOL["inputSchema"].items() if k != "$schema"}
    schema["required"] = ["$schema", "id", "id"]
    plain = {**bare, "inputSchema": schema, "description": "Finds one user.\n\tBy id."}
    assert contract_digest(plain) == contract_digest(TOOL)
    assert "$schema" in canonicalize_contract(TOOL)["inputSchema"]["properties"]


def _tool(schema, **more):
    return {"name": "t", "inputSchema": {"type": "object", "properties": {"a": schema}}, **more}


def _root(**keywords):
    return {"name": "t", "inputSchema": {"type": "object", **keywords}}


@cases(
    "item, other",
    (_root(**{"$id": "https://x.example/v2.json"}), _root()),
    (_root(**{"$schema": "http://json-schema.org/draft-07/schema#"}), _root()),
    (_root(required=[]), _root()),
    (_root(required=["b", "a", "b"]), _root(required=["a", "b"])),
    (_root(dependentRequired={"a": ["c", "b"]}), _root(dependentRequired={"a": ["b", "c"]})),
    (_root(additionalProperties={}), _root(additionalProperties=True)),
    (_root(additionalProperties={"not": {}}), _root(additionalProperties=False)),
    (_tool({"type": ["string", "null"]}), _tool({"type": ["null", "string", "null"]})),
    (_tool({"type": ["string"]}), _tool({"type": "string"})),
    (_tool(True), _tool({})),
    (_tool(False), _tool({"not": {}})),
    (_tool({"items": True}), _tool({"items": {}})),
    (_tool({"maximum": 5.0}), _tool({"maximum": 5})),
    (_tool({"description": ""}), _tool({})),
    (_tool({"description": " a \r\n b"}), _tool({"description": "a\nb"})),
    (_tool({}, description="a  b\t c"), _tool({}, description="a b c")),
    (_tool({}, description="a\n\n\n\nb"), _tool({}, description="a\n\nb")),
    (_tool({}, description="Do.\n\n    Args:\n        x: it\n    "),
     _tool({}, description="Do.\n\nArgs:\n    x: it")),
    (_tool({}, annotations={"title": None, "readOnlyHint": None}), _tool({})),
    (_tool({}, annotations={}), _tool({})),
    (_tool({}, annotations={"readOnlyHint": True, "title": ""}),
     _tool({}, annotations={"readOnlyHint": True, "idempotentHint": None})),
)  # fmt: skip
def test_noise_makes_no_new_digest(item, other):
    assert canonicalize_contract(item) == canonicalize_contract(other)
    assert contract_digest(item) == contract_digest(other)


@cases(
    "item, other",
    (_tool({"enum": ["a", "b"]}), _tool({"enum": ["b", "a"]})),
    (_tool({"enum": [1]}), _tool({"enum": [True]})),
    (_tool({"enum": ["a "]}), _tool({"enum": ["a"]})),
    (_tool({"default": None}), _tool({})),
    (_tool({"default": 0}), _tool({"default": False})),
    (_tool({"examples": ["a", "b"]}), _tool({"examples": ["b", "a"]})),
    (_tool({"$comment": "read me"}), _tool({})),
    (_tool({"x-note": "read me"}), _tool({})),
    (_tool({"description": "e\u0301"}), _tool({"description": "\u00e9"})),
    (_tool({"description": "a\u200b"}), _tool({"description": "a"})),
    (_tool({"description": "a\nb"}), _tool({"description": "a b"})),
    (_tool({"description": "a:\n- b\n  - c"}), _tool({"description": "a:\n- b\n- c"})),
    (_tool({"$id": "https://x.example/a"}), _tool({})),
    (_root(**{"$id": "https://x.example/a", "$ref": "a#/$defs/b"}),
     _root(**{"$ref": "a#/$defs/b"})),
    (_root(additionalProperties=True), _root()),
    (_root(properties={}), _root()),
    (_root(**{"$defs": {"a": {"type": "string"}}}), _root()),
    (_tool({"anyOf": [{"type": "string"}, {"type": "null"}]}),
     _tool({"anyOf": [{"type": "null"}, {"type": "string"}]})),
    ({**_tool({}), "name": "t "}, _tool({})),
    (_tool({}, annotations={"readOnlyHint": False}), _tool({})),
    *(({**TOOL, **change}, TOOL) for change in (
        {"name": "getUserById"}, {"title": "Fetch user"}, {"description": "Finds one user."},
        {"annotations": {"readOnlyHint": True}}, {"outputSchema": {"type": "object"}},
        {"inputSchema": {**TOOL["inputSchema"], "required": ["id"]}},
    )),
)  # fmt: skip
def test_what_a_reader_could_act_on_makes_a_new_digest(item, other):
    assert contract_digest(item) != contract_digest(other)


blanks = st.sampled_from([" ", "  ", "\t", "\n", "\n\n", "\r\n", "\n    ", "a", "b:", "- c", "\r"])


@given(st.lists(blanks, max_size=12))
def test_cleaned_text_is_clean_and_keeps_every_word(pieces):
    text = "x" + "".join(pieces) + "y"

    def clean(words):
        tool = {"name": "t", "description": words, "inputSchema": {}}
        return canonicalize_contract(tool)["description"]

    assert clean(clean(text)) == clean(text)
    assert clean(text).split() == text.split()


@given(st.integers(0, 2**32))
def test_a_contract_of_any_schema_is_its_own_contract_and_accepts_the_same(seed):
    rng = random.Random(seed)
    raw = whole(rng)
    body = canonicalize_contract({"name": "t", "inputSchema": raw})
    assert canonicalize_contract(body) == body
    for _ in range(5):
        value = value_for(raw, raw, rng)
        if isinstance(value, dict):
            before = {flaw.path for flaw in validate_call({"inputSchema": raw}, value)}
            assert {flaw.path for flaw in validate_call(body, value)} == before


@cases(
    "tool, says",
    ({"inputSchema": {}}, "usable name"),
    ({"name": "t"}, "no inputSchema"),
    ({"name": "t", "inputSchema": [1]}, "expected an object"),
    ({"name": "t", "inputSchema": {"default": float("nan")}}, "nan is not a JSON number"),
)
def test_a_tool_without_a_contract_says_what_is_missing(tool, says):
    with pytest.raises(ContractError, match=says):
        canonicalize_contract(tool)


def test_deep_nesting_is_refused_and_lone_surrogates_and_large_integers_are_digested():
    schema: dict = {"type": "object"}
    for _ in range(3000):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(ContractError, match="deeper than"):
        canonicalize_contract({"name": "t", "inputSchema": schema})
    assert canonicalize_contract({"name": "t", "description": "a\ud800b", "inputSchema": {}})
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 2**63 - 1}}}
    tool = {"name": "t", "inputSchema": schema}
    assert canonicalize_contract(tool)["inputSchema"]["properties"]["n"]["maximum"] == float(2**63)
    assert contract_digest(tool).startswith("c1:")


def test_the_text_of_a_tool_holds_its_words_and_its_parameters():
    text = tool_text(canonicalize_contract(TOOL))
    assert text.splitlines()[0] == "get user by id: Get user"
    assert "id: the user's id" in text
    assert tool_text(canonicalize_contract(TOOL), "name") == "get user by id"
    assert "user's id" not in tool_text(canonicalize_contract(TOOL), "brief")


def test_a_tool_with_a_very_long_name_has_no_contract_and_is_a_problem():
    tools = [{"name": "a" * length, "inputSchema": {"type": "object"}} for length in (128, 129)]
    contracts, problems = index_contracts(tools)
    assert list(contracts) == ["a" * 128]
    assert "129 characters, at most 128" in problems[1]


# --- a tool's id is read back as it was written, whatever the server or the tool is called
TEXTS = st.text(max_size=20) | st.text(alphabet=":%235Aab", max_size=8)
TOOLS = TEXTS.filter(bool)


@given(TEXTS, TOOLS)
def test_an_id_is_read_back_as_it_was_written(server, tool):
    assert ToolId.parse(str(ToolId(server, tool))) == ToolId(server, tool)


@cases(
    "server, tool",
    ("a", "b::c"), ("a::b", "c"), ("a", ":b"), ("a:", "b"), ("a", "::b"), ("a::", "b"),
    ("a", "b:::c"), ("a::b:", "c"), ("a", "b%3A:c"), ("a", "%3Ab"),
)  # fmt: skip
def test_a_name_that_holds_the_separator_takes_no_other_ones_id(server, tool):
    assert ToolId.parse(str(ToolId(server, tool))) == (server, tool)


@given(st.from_regex(r"[\w.@/-]{1,8}(:[\w.@/-]{1,8})?", fullmatch=True))
def test_a_usual_name_is_written_as_it_is(name):
    assert str(ToolId("npm:@scope/files", name)) == f"npm:@scope/files::{name}"
    assert str(ToolId("npm:files", "100% of it")) == "npm:files::100% of it"


def test_an_address_of_a_server_may_hold_the_separator():
    names = ToolId.parse("https://[2001:db8::1]/mcp::search")
    assert names == ("https://[2001:db8::1]/mcp", "search")
    assert str(names) == "https://[2001:db8::1]/mcp::search"
    assert ToolId.of_row({"server_id": "npm:a", "tool": "b", "more": 1}) == ("npm:a", "b")


@cases("text", "", "search", "npm:a::", "npm:a:search")
def test_what_names_no_tool_of_a_server_is_refused(text):
    with pytest.raises(BadToolId, match="expected <server_id>::<tool>"):
        ToolId.parse(text)


@cases(
    "glob, server, tool, fits",
    ("npm:files::*", "npm:files", "read", True),
    ("npm:files::*", "npm:files", "a::b", True),
    ("npm:files::*", "npm:files::more", "read", False),
    ("npm:files::*", "npm:files:", "read", False),
    ("npm:*::read_*", "npm:files", "read_all", True),
    ("npm:*::read_*", "npm:files", "write", False),
    ("npm:*", "npm:files::more", "read", True),
    ("*", "a", "b", True),
    ("http://[::1]:8000/mcp::*", "http://[::1]:8000/mcp", "read", True),
    ("http://[::1]:8000/mcp::read", "http://[::1]:8000/mcp", "read", True),
    ("http://*/mcp::*", "http://[::1]:8000/mcp", "read", True),
    ("npm:files::read", "npm:files", "Read", False),
    ("corp:team-[ab]::*", "corp:team-a", "x", True),
    ("corp:team-[ab]::*", "corp:team-[ab]", "x", False),
)
def test_a_glob_is_parted_as_an_id_is(glob, server, tool, fits):
    assert compile_globs(["pypi:none::x", glob])(server, tool) is fits
    assert compile_globs([])(server, tool) is False


@given(TEXTS, TOOLS, TEXTS, TOOLS)
def test_an_id_as_a_glob_names_its_own_tool(server, tool, other, name):
    matches = compile_globs([str(ToolId(server, tool))])
    assert matches(server, tool)
    wild = set("*?[") & {*server, *tool}
    assert wild or matches(other, name) == ((server, tool) == (other, name))
