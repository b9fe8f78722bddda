"""Configs are found wherever a page keeps them, and no page takes long."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.launch.page_facts import (
    CodeBlockParser,
    HtmlTag,
    find_config,
    find_configs,
    read_tokens,
)
from tests.support.cases import cases

CONFIG = {"mcpServers": {"a": {"command": "npx", "args": ["-y", "a@1.0.0"]}}}
TEXT = json.dumps(CONFIG)
ESCAPED = TEXT.replace('"', "&quot;")


@cases(
    "html, rule",
    (f"<pre><code>{ESCAPED}</code></pre>", "code"),
    (f"<pre>before\n{TEXT}\nafter</pre>", "pre"),
    (f"<script>x = {TEXT}</script>", "script"),
    (f"<script>x = {json.dumps(TEXT)}</script>", "script"),
    ("<pre>{mcpServers: {a: {command: 'npx', args: ['-y', 'a@1.0.0'],},}}</pre>", "pre"),
    (f"<pre>broken {{mcpServers: {{</pre><pre>{TEXT}</pre>", "pre"),
)
def test_a_config_is_found_wherever_it_stands(html, rule):
    config = find_config(html)
    assert config is not None
    assert config.rule == rule
    assert config.servers == CONFIG["mcpServers"]


@cases("prefix", "", "sha256:")
def test_a_link_to_a_bundle_is_found_with_its_digest(prefix):
    config = find_config(f'<a href="/b/x.mcpb?v=1" data-sha256="{prefix}{"AB" * 32}">Install</a>')
    assert config is not None
    assert (config.rule, config.bundle, config.sha256) == ("link", "/b/x.mcpb?v=1", "ab" * 32)


@cases("text", "ab", "../../state/ledger.db", "a" * 63 + "/", "a" * 64 + "\n.")
def test_what_is_no_digest_is_not_taken_for_one(text):
    config = find_config(f'<a href="/b/x.mcpb" data-sha256="{text}">Install</a>')
    assert config is not None
    assert config.sha256 is None


@cases("html", "", "<pre>mcpServers</pre>", "<p>{}</p>", "<script>mcpServers: f()</script>")
def test_a_page_without_one_gives_none(html):
    assert find_config(html) is None


@given(st.text())
def test_any_text_is_searched_without_an_exception(html):
    config = find_config(html + "<pre>{'mcpServers':" + html)
    assert config is None or config.servers or config.bundle


def test_a_part_streamed_after_the_page_is_known_by_its_id():
    html = f"""<h1>a/<!-- -->b</h1><template id="B:0"></template><div><pre>{ESCAPED}</pre></div>
      <div hidden id="S:0"><div><pre>{ESCAPED.replace("npx", "bunx")}</pre></div></div>"""
    page = CodeBlockParser(html)
    assert page.find_first("h1") == "a/b"
    assert [(config.part, config.servers["a"]["command"]) for config in find_configs(page)] == [
        ("", "npx"),
        ("S:0", "bunx"),
    ]


def test_what_a_page_says_of_itself_is_read():
    page = CodeBlockParser(
        """<TITLE>A &amp; B</TITLE><meta name=description content='x > y'>
        <meta property="og:url" content="https://b.example/1">
        <link rel=canonical href="https://A.example/x?a=1&amp;b=2"><a title=don't href=/y>y</a>"""
    )
    assert page.find_first("title") == "A & B"
    assert page.meta["description"] == "x > y"
    assert page.canonical == "https://A.example/x?a=1&b=2"
    assert page.host == "a.example"
    assert page.links == ["/y"]


def test_scripts_are_not_read_as_markup():
    found = list(
        read_tokens("<script>if (a < b) '</p><pre>'</script ><pre>x &lt; y</pre><!-- <pre> -->")
    )
    assert [item if isinstance(item, str) else (item.name, item.ends) for item in found] == [
        ("script", False),
        "if (a < b) '</p><pre>'",
        ("script", True),
        ("pre", False),
        "x < y",
        ("pre", True),
    ]
    assert HtmlTag("a", source=" b = c d='e' f").attributes == {"b": "c", "d": "e", "f": ""}


HOSTILE = [
    *("<a b=", "<a '", "<!--", "<!--x--", "<![CDATA[", "<a", "<a b='", "</", "<script>", "&#9"),
    *("<pre>", "<div id='S:0'>", "<pre>mcpServers:{", "<pre>mcpServers:{'a':'"),
    "<script>mcpServers:{/*",
]


@pytest.mark.parametrize("part", HOSTILE)
def test_a_hostile_page_holds_no_config(part):
    # 20,000 times: the standard library's parser, which is quadratic, takes a minute for some.
    assert find_config(part * 20_000) is None


@given(st.text(alphabet="<>/='\"!-?&;ab pre", max_size=60))
def test_any_markup_is_read_without_an_exception(html):
    assert all(block.name and block.text in html for block in CodeBlockParser(html).blocks)
