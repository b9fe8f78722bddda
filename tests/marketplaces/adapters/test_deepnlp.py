"""DeepNLP's list and pages, read without HTTP."""

from typing import Any

import pytest

from assets.marketplaces.adapters.deepnlp import DeepNlpAdapter
from assets.marketplaces.listing import load_tools
from assets.marketplaces.policy import CrawlError
from tests.marketplaces.answers import POLICY, Answers, read
from tests.support.cases import cases

ADAPTER = DeepNlpAdapter(POLICY)
ROOT = f"{POLICY.base_url}/api/mcp_marketplace/v1"


def config(name: str = "quill", **entry: Any) -> dict[str, Any]:
    return {"mcpServers": {name: {"command": "npx", "args": ["-y", f"{name}@1.0.0"], **entry}}}


def item(native_id: str = "acme/quill", **facts: Any) -> dict[str, Any]:
    made = {"id": native_id, "content_name": "Quill", "review_cnt": "2", "rating": "4.5"}
    return made | {"website": "https://github.com/acme/quill/tree/main/src", **facts}


def detail(configs: Any, **facts: Any) -> dict[str, Any]:
    body = item(description="Writes.", config=configs, **facts)
    return {"total_hits": 1, "id": "acme/quill", "items": [body]}


def listed(*items: dict[str, Any], total: Any = 1) -> dict[str, Any]:
    return {"query": "", "items": list(items), "count": len(items), "total_hits": total}


def page_url(number: int) -> str:
    return f"{ROOT}?mode=list&page_id={number}&count_per_page=100"


def test_the_first_config_of_a_page_is_taken_and_a_later_one_where_that_cannot_be_run():
    (found,) = read(ADAPTER, detail([config(), config("other")]))
    assert (found.native_id, found.name, found.description) == ("acme/quill", "Quill", "Writes.")
    assert found.repository == "https://github.com/acme/quill/tree/main/src"
    assert (found.command, found.args) == ("npx", ("-y", "quill@1.0.0"))
    assert found.evidence == "items[0].config[0] mcpServers.quill"
    local = {"mcpServers": {"quill": {"command": "node", "args": ["/Users/me/x.js"]}}}
    (found,) = read(ADAPTER, detail([local, config()]))
    assert found.evidence == "items[0].config[1] mcpServers.quill"
    (found,) = read(ADAPTER, detail([local]))
    assert "author's machine" in (found.reason or "")


@cases("configs", [], None, [{}], "", [{"mcpServers": {}}])
def test_an_empty_config_is_a_reason(configs):
    (found,) = read(ADAPTER, detail(configs))
    assert (found.runnable, found.evidence) == (False, "")
    assert "no config" in (found.reason or "")


def test_a_config_may_be_a_text_or_of_several_servers_and_an_item_of_the_list_is_thin():
    text = "{mcpServers: {quill: {command: 'uvx', args: ['quill==1.0']}}} // as copied"
    (found,) = read(ADAPTER, detail([text]))
    assert found.command == "uvx"
    both = {"mcpServers": config("a")["mcpServers"] | config("b")["mcpServers"]}
    assert [each.native_id[-2:] for each in read(ADAPTER, detail([both]))] == ["#a", "#b"]
    (found,) = read(ADAPTER, item(content_description="Writes."))
    assert found.description == "Writes."
    assert "server's own page" in (found.reason or "")


def test_the_list_ends_at_its_total_and_is_truncated_before_it_and_a_page_comes_once():
    first = [item(f"a/{n}") for n in range(100)]
    pages = {page_url(0): listed(*first, total="101"), page_url(1): listed(item("b/1"), total=101)}
    one, two = Answers(pages).listed(ADAPTER)
    assert (len(one.refs), one.ended, len(two.refs), two.ended) == (100, False, 1, True)
    assert one.refs[0].weak
    pages = {page_url(0): listed(*first, total=500), page_url(1): listed(total=500)}
    last = Answers(pages).listed(ADAPTER)[-1]
    assert (last.ended, last.truncated) == (False, True)
    pages = {page_url(n): listed(*first, total=500) for n in (0, 1)}
    last = Answers(pages).listed(ADAPTER)[-1]
    assert not last.ended
    assert [row["error_kind"] for row in last.problems] == ["cursor_loop"]


def test_a_revision_holds_what_the_list_shows_but_not_its_votes():
    def revision(**facts: Any) -> str | None:
        (page,) = Answers({page_url(0): listed(item(**facts))}).listed(ADAPTER)
        return page.refs[0].revision

    assert revision() == revision(rating="1.0", review_cnt=99)
    assert revision() != revision(content_name="Quill 2")


def test_an_item_without_an_id_is_a_row_and_others_are_asked_for_by_owner_and_repository():
    (page,) = Answers({page_url(0): listed(item(), {"content_name": "x"}, total=2)}).listed(ADAPTER)
    assert [row["error_kind"] for row in page.problems] == ["malformed"]
    both = listed(item("acme/\ud800quill"), item("b/c"), total=2)
    assert len(Answers({page_url(0): both}).listed(ADAPTER)[0].refs) == 2
    (page,) = Answers({page_url(0): listed(item("acme/quill two"))}).listed(ADAPTER)
    url = f"{ROOT}/server/acme/quill%20two"
    raw = Answers({url: detail([config()])}).detailed(ADAPTER, page.refs[0])
    assert ADAPTER.parse(raw, page.refs[0])[0].runnable


def test_tools_are_asked_for_unless_they_are_on_the_servers_own_page():
    (page,) = Answers({page_url(0): listed(item())}).listed(ADAPTER)
    own, tools = f"{ROOT}/server/acme/quill", f"{ROOT}/tools/acme/quill"
    shown = {"id": "/acme/quill", "tools": [{"name": "write", "input_schema": {"type": "object"}}]}
    raw = Answers({own: detail([]), tools: shown}).detailed(ADAPTER, page.refs[0])
    (found,) = ADAPTER.parse(raw, page.refs[0])
    assert load_tools(found.tools or "") == [{"name": "write", "inputSchema": {"type": "object"}}]
    for answer in ({"id": "", "tools": []}, {"error": "no"}, {"id": "", "tools": "none"}, None):
        raw = Answers({own: detail([]), tools: answer}).detailed(ADAPTER, page.refs[0])
        (found,) = ADAPTER.parse(raw, page.refs[0])
        assert (found.name, found.tools) == ("Quill", None)
    busy = CrawlError("rate_limited", tools, "status 429", "200", "later", status=429)
    with pytest.raises(CrawlError, match="rate_limited"):
        Answers({own: detail([]), tools: busy}).detailed(ADAPTER, page.refs[0])
    for configs, tools in (([], [{"name": "write"}]), ([config()], [])):
        answers = Answers({own: detail(configs, ext_info={"tools": tools})})
        raw = answers.detailed(ADAPTER, page.refs[0])
        assert answers.asked == [own]
        assert load_tools(ADAPTER.parse(raw, page.refs[0])[0].tools or "[]") == tools
    both = {"mcpServers": config("a")["mcpServers"] | config("b")["mcpServers"]}
    shown = detail([both], ext_info={"tools": [{"name": "write"}]})
    assert [one.tools for one in read(ADAPTER, shown)] == [None, None]  # of which, nobody says
