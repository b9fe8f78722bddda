"""A tool's id is read back as it was written, whatever the server is called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.tool_id import BadToolId, ToolId

TOOLS = st.text(min_size=1, max_size=20).filter(lambda name: ":" not in name)


@given(st.text(max_size=40).filter(lambda name: not name.endswith(":")), TOOLS)
def test_an_id_is_read_back_as_it_was_written(server: str, tool: str) -> None:
    assert ToolId.parse(str(ToolId(server, tool))) == ToolId(server, tool)


def test_an_address_of_a_server_may_hold_the_separator() -> None:
    named = ToolId.parse("https://[2001:db8::1]/mcp::search")
    assert named == ("https://[2001:db8::1]/mcp", "search")
    assert ToolId.of_row({"server_id": "npm:a", "tool": "b", "more": 1}) == ("npm:a", "b")


@pytest.mark.parametrize("text", ["", "search", "npm:a::", "npm:a:search"])
def test_what_names_no_tool_of_a_server_is_refused(text: str) -> None:
    with pytest.raises(BadToolId, match="expected <server_id>::<tool>"):
        ToolId.parse(text)
