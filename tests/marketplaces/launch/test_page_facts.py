"""Configs are found wherever a page keeps them, and its JavaScript is read as data."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.launch.js_literal import NotALiteral, find_object, read_all, read_literal
from assets.marketplaces.launch.page_facts import (
    CodeBlockParser,
    HtmlTag,
    find_config,
    find_configs,
    read_tokens,
)
from tests.contracts.strategies import values
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
    assert (config.rule, config.servers) == (rule, CONFIG["mcpServers"])


@cases("prefix", "", "sha256:")
def test_a_link_to_a_bundle_is_found_with_its_digest(prefix):
    config = find_config(f'<a href="/b/x.mcpb?v=1" data-sha256="{prefix}{"AB" * 32}">Install</a>')
    assert (config.rule, config.bundle, config.sha256) == ("link", "/b/x.mcpb?v=1", "ab" * 32)


@cases("text", "ab", "../../state/ledger.db", "a" * 63 + "/", "a" * 64 + "\n.")
def test_what_is_no_digest_is_not_taken_for_one(text):
    assert find_config(f'<a href="/b/x.mcpb" data-sha256="{text}">Install</a>').sha256 is None


@cases("html", "", "<pre>mcpServers</pre>", "<p>{}</p>", "<script>mcpServers: f()</script>")
def test_a_page_without_one_gives_none(html):
    assert find_config(html) is None


@given(st.text())
def test_any_text_is_searched_without_an_exception(html):
    config = find_config(html + "<pre>{'mcpServers':" + html)
    assert config is None or config.servers or config.bundle


def test_a_part_streamed_after_the_page_is_known_by_its_id_and_what_a_page_says_is_read():
    html = f"""<h1>a/<!-- -->b</h1><template id="B:0"></template><div><pre>{ESCAPED}</pre></div>
      <div hidden id="S:0"><div><pre>{ESCAPED.replace("npx", "bunx")}</pre></div></div>"""
    page = CodeBlockParser(html)
    assert page.find_first("h1") == "a/b"
    assert [(config.part, config.servers["a"]["command"]) for config in find_configs(page)] == [
        ("", "npx"),
        ("S:0", "bunx"),
    ]
    page = CodeBlockParser(
        """<TITLE>A &amp; B</TITLE><meta name=description content='x > y'>
        <meta property="og:url" content="https://b.example/1">
        <link rel=canonical href="https://A.example/x?a=1&amp;b=2"><a title=don't href=/y>y</a>"""
    )
    assert page.find_first("title") == "A & B"
    assert (page.meta["description"], page.canonical) == ("x > y", "https://A.example/x?a=1&b=2")
    assert (page.host, page.links) == ("a.example", ["/y"])


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


@cases(
    "part",
    *("<a b=", "<a '", "<!--", "<!--x--", "<![CDATA[", "<a", "<a b='", "</", "<script>", "&#9"),
    *("<pre>", "<div id='S:0'>", "<pre>mcpServers:{", "<pre>mcpServers:{'a':'"),
    "<script>mcpServers:{/*",
)
def test_a_hostile_page_holds_no_config(part):
    # 20,000 times: the standard library's parser, which is quadratic, takes a minute for some.
    assert find_config(part * 20_000) is None


@given(st.text(alphabet="<>/='\"!-?&;ab pre", max_size=60))
def test_any_markup_is_read_without_an_exception(html):
    assert all(block.name and block.text in html for block in CodeBlockParser(html).blocks)


# --- javaScript literals are read as data, and code is refused
STREAM = (
    "const page={server:$R[16]={slug:'new-slug',previousSlug:'old',name:'Ex\\'ample',"
    "description:'createdAt: a misleading string, server:{slug:1}',"
    "createdAt:$R[17]=new Date('2025-07-21T09:03:18.907Z'),updatedAt:new Date('2026-09-10'),"
    "stars:1200,score:.5,ok:!0,bad:!1,none:void 0,other:$R[3],tags:['a',\"b\",],},"
    "related:[{slug:'other',createdAt:new Date('2026-01-01')}]};"
)


@given(values)
def test_json_reads_as_itself(value):
    assert read_literal(json.dumps(value))[0] == value
    assert read_literal(json.dumps(value, ensure_ascii=False))[0] == value


@given(st.text())
def test_any_text_is_read_or_refused(text):
    try:
        _, end = read_literal(text)
    except NotALiteral:
        pass
    else:
        assert 0 < end <= len(text)


def test_a_streamed_object_is_read_at_its_anchor():
    server = find_object(STREAM, "server")
    assert (server["slug"], server["name"]) == ("new-slug", "Ex'ample")
    assert server["createdAt"] == "2025-07-21T09:03:18.907Z"
    assert (server["stars"], server["score"], server["ok"], server["bad"]) == (
        1200, 0.5, True, False,
    )  # fmt: skip
    assert (server["none"], server["other"], server["tags"]) == (None, None, ["a", "b"])


@cases(
    "text",
    "{a:alert(1)}", "{a:()=>1}", "{a:1+1}", "{a:`${x}`}", "'open", "(1)", "[" * 500, "{a:1,,b:2}",
    "{a:constructor.constructor('x')()}", "(()=>1)()", "{get a(){}}",
)  # fmt: skip
def test_code_is_refused(text):
    with pytest.raises(NotALiteral):
        read_literal(text)


def test_an_anchor_may_have_to_hold_a_member_and_nothing_there_is_none():
    assert find_object("related:[{server:1}]", "server") is None
    text = "{server:{port:1},server:{slug:'x'}}"
    assert find_object(text, "server", having="slug") == {"slug": "x"}
    assert find_object(text, "server", having="name") is None
    assert read_literal("[1e999, -1e999, 1e3]")[0] == [None, None, 1000.0]


def test_comments_and_trailing_commas_are_read_and_more_text_is_not():
    text = "\ufeff// a\n{/* b */ 'a': [1, 2, /* 3 */], // c\n b: `d$`,}\n// end"
    assert read_all(text) == {"a": [1, 2], "b": "d$"}
    assert read_all("{a /* b */ : 1, c // d: e\n : 2, 3 /* f */ /* g */\n: 4}") == {
        "a": 1,
        "c": 2,
        "3": 4,
    }
    for more in ("{} {}", "{}; alert(1)", "{} /* open", "{a /* open : 1}"):
        with pytest.raises(NotALiteral):
            read_all(more)


@cases("part", "[", "{a:", "/*", "//", "a=", "'\\\\", "new Date(", "'a',", "`$")
def test_hostile_text_is_refused(part):
    # 100,000 times: a reader that looks at it twice for each character does not end here.
    for before in ("", "[", "server:"):
        text = before + part * 100_000
        with pytest.raises(NotALiteral):
            read_all(text)
        assert find_object(text, "server") is None


def test_a_literal_without_end_is_refused_at_its_millionth_token(monkeypatch):
    monkeypatch.setattr("assets.marketplaces.launch.js_literal._MOST_TOKENS", 100)
    assert read_literal(f"[{'0,' * 40}]")[0] == [0] * 40
    with pytest.raises(NotALiteral, match="more than 100 tokens"):
        read_literal(f"[{'0,' * 60}]")
