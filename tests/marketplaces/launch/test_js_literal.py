"""JavaScript literals are read as data, and code is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.launch.js_literal import NotALiteral, find_object, read_all, read_literal
from tests.support.cases import cases

STREAM = (
    "const page={server:$R[16]={slug:'new-slug',previousSlug:'old',name:'Ex\\'ample',"
    "description:'createdAt: a misleading string, server:{slug:1}',"
    "createdAt:$R[17]=new Date('2025-07-21T09:03:18.907Z'),updatedAt:new Date('2026-09-10'),"
    "stars:1200,score:.5,ok:!0,bad:!1,none:void 0,other:$R[3],tags:['a',\"b\",],},"
    "related:[{slug:'other',createdAt:new Date('2026-01-01')}]};"
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**14), 10**14) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(json_values)
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
    assert server is not None
    assert server["slug"] == "new-slug"
    assert server["name"] == "Ex'ample"
    assert server["createdAt"] == "2025-07-21T09:03:18.907Z"
    assert (server["stars"], server["score"], server["ok"], server["bad"]) == (
        1200,
        0.5,
        True,
        False,
    )
    assert server["none"] is None
    assert server["other"] is None
    assert server["tags"] == ["a", "b"]


@cases(
    "text",
    "{a:alert(1)}",
    "{a:()=>1}",
    "{a:1+1}",
    "{a:`${x}`}",
    "'open",
    "(1)",
    "[" * 500,
    "{a:1,,b:2}",
)
def test_code_is_refused(text):
    with pytest.raises(NotALiteral):
        read_literal(text)


def test_no_object_at_the_anchor_is_none():
    assert find_object("related:[{server:1}]", "server") is None


def test_an_anchor_may_have_to_hold_a_member():
    text = "{server:{port:1},server:{slug:'x'}}"
    assert find_object(text, "server", having="slug") == {"slug": "x"}
    assert find_object(text, "server", having="name") is None


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


def test_a_number_beyond_any_is_nothing():
    assert read_literal("[1e999, -1e999, 1e3]")[0] == [None, None, 1000.0]


def test_nothing_is_ever_evaluated(monkeypatch):
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("something was evaluated")

    for name in ("eval", "exec", "compile", "__import__"):
        monkeypatch.setattr(f"builtins.{name}", forbidden)
    for text in ("{a:constructor.constructor('x')()}", "{a:`${1}`}", "(()=>1)()", "{get a(){}}"):
        with pytest.raises(NotALiteral):
            read_all(text)


@cases("part", "[", "{a:", "/*", "//", "a=", "'\\\\", "new Date(", "'a',", "`$")
def test_hostile_text_is_refused(part):
    # 100,000 times: whoever reads it twice for each character does not come to an end here.
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
