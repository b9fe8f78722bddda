"""A tool's id is read back as it was written, whatever the server or the tool is called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.tool_id import BadToolId, ToolId, compile_globs
from tests.support.cases import cases

TEXTS = st.text(max_size=20) | st.text(alphabet=":%235Aab", max_size=8)
TOOLS = TEXTS.filter(bool)


@given(TEXTS, TOOLS)
def test_an_id_is_read_back_as_it_was_written(server, tool):
    assert ToolId.parse(str(ToolId(server, tool))) == ToolId(server, tool)


@given(TEXTS, TOOLS, TEXTS, TOOLS)
def test_no_two_tools_share_an_id(server, tool, other, name):
    same = (server, tool) == (other, name)
    assert (str(ToolId(server, tool)) == str(ToolId(other, name))) == same


@cases(
    "server, tool, other, name",
    ("a", "b::c", "a::b", "c"),
    ("a", ":b", "a:", "b"),
    ("a", "::b", "a::", "b"),
    ("a", "b:::c", "a::b:", "c"),
    ("a", "b%3A:c", "a", "b::c"),
    ("a", "%3Ab", "a", ":b"),
)  # fmt: skip
def test_a_name_that_holds_the_separator_takes_no_other_ones_id(server, tool, other, name):
    assert str(ToolId(server, tool)) != str(ToolId(other, name))
    assert ToolId.parse(str(ToolId(server, tool))) == (server, tool)
    assert ToolId.parse(str(ToolId(other, name))) == (other, name)


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
