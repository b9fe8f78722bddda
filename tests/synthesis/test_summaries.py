"""Server summaries: what they say, and of what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.canonical import canonicalize_contract
from assets.synthesis import summaries
from assets.synthesis.offline_summaries import make_readable, write_summary
from assets.synthesis.summaries import find_summary_flaws, make_summaries
from tests.support.examples import examples
from tests.vectors.conftest import snapshot

JIRA = [
    snapshot("npm:@acme/jira-mcp", "search_issues", "Search the issues of a project by their text"),
    snapshot("npm:@acme/jira-mcp", "create_issue", "Create an issue in a project"),
    snapshot("npm:@acme/jira-mcp", "delete_issue", "Delete an issue for good"),
]
CLOCK = [snapshot("pypi:clock", "get_time", "Tell the time in a city")]
LISTED = [*JIRA, *CLOCK]


def test_a_summary_says_what_kinds_of_things_the_tools_do() -> None:
    clock, jira = sorted(make_summaries(LISTED), key=lambda row: row["tools"])
    assert jira["summary"].startswith("jira can search issues of a project; create issue; ")
    assert (jira["server_id"], jira["status"], jira["tools"]) == ("npm:@acme/jira-mcp", "ok", 3)
    assert (
        clock["summary"] == "clock can tell time. Its tools speak of city and path. It only reads."
    )
    assert find_summary_flaws([clock, jira]) == []


def test_the_order_and_the_marketplaces_of_the_rows_decide_nothing() -> None:
    listed_twice = [*reversed(LISTED), *({**row, "marketplace": "glama"} for row in JIRA)]
    assert make_summaries(listed_twice) == make_summaries(LISTED)


def test_a_summary_that_nobody_foresaw_to_fail_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "write_summary", lambda *_: 1 / 0)
    rows = make_summaries(LISTED)
    assert {(row["status"], row["error_kind"], row["summary"]) for row in rows} == {
        ("failed", "internal", "")
    }
    (flaw,) = find_summary_flaws(rows)
    assert "2 of 2 servers have no summary, e.g. npm:@acme/jira-mcp: internal: " in flaw


@pytest.mark.parametrize(
    ("server_id", "name"),
    [
        ("npm:@acme/jira-mcp", "jira"),
        ("pypi:mcp-server-git", "git"),
        ("remote:https://mcp.linear.app/mcp", "linear app"),
        ("npm:@notion/mcp", "notion"),
        ("mcp", "mcp"),
    ],
)
def test_a_servers_name_is_its_own_and_not_its_publishers(server_id: str, name: str) -> None:
    assert make_readable(server_id) == name


@given(
    st.lists(st.tuples(st.text(min_size=1).filter(str.strip), st.text(max_size=300)), max_size=8)
)
@examples(60)
def test_any_tools_have_a_summary_of_bounded_length_whatever_their_order(tools: list) -> None:
    answer = [
        canonicalize_contract(
            {"name": name, "description": about, "inputSchema": {"type": "object"}}
        )
        for name, about in dict(tools).items()
    ]
    text = write_summary("files", answer)
    assert 0 < len(text) <= 900
    assert text == write_summary("files", answer[::-1])
