"""Asking for a tool: blocks in any model text, one clear problem for each flaw, bounded work."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from serving.discovery.request import LONGEST_VALUE, MOST, parse, write_block, write_system_prompt
from tests.support.cases import cases
from tests.support.examples import examples

GITHUB = ("GitHub", "create an issue")
MOST_CALLS = 300_000
BLOCK = "<tool_assistant>\nserver: GitHub\ntool: create an issue\n</tool_assistant>"


def pairs(text: str) -> list[tuple[str | None, str | None]]:
    return [(item.server, item.tool) for item in parse(text)]


def only(text: str):
    result = parse(text)
    assert len(result) == 1, result
    return result[0]


@cases(
    "text",
    BLOCK,
    f"I need a tool.\n\n{BLOCK}\n\nThen I go on.",
    BLOCK.replace("tool: create", "task: create"),
    BLOCK.replace("tool:", "[tool]:").replace("server:", "(server):"),
    BLOCK.replace("tool: ", "| tool | ").replace("server: ", "| server | "),
    BLOCK.replace("tool:", "### Tools:").replace("server:", "### Servers:"),
    "<tool_assistant>\ntool: create an issue\nserver: GitHub\n</tool_assistant>",
    BLOCK.upper().replace("GITHUB", "GitHub").replace("CREATE AN ISSUE", "create an issue"),
    BLOCK.replace(": ", "："),
    BLOCK.replace(": ", "   :   ").replace("\n", "  \n\n   "),
    f"```\n{BLOCK}\n```",
    f"```xml\n{BLOCK}\n```",
    BLOCK.replace("server", "```\nserver", 1).replace("issue\n", "issue\n```\n"),
    BLOCK.replace("<tool_assistant>\n", "<tool_assistant>\n~~~yaml\n").replace("\n</", "\n~~~\n</"),
    "\n".join(f"> {line}" for line in BLOCK.splitlines()),
    "\n".join(f">> {line}" for line in BLOCK.splitlines()),
    BLOCK.replace("<", "&lt;").replace(">", "&gt;"),
    BLOCK.replace("<", "&amp;lt;").replace(">", "&amp;gt;"),
    BLOCK.replace("<", "＜").replace(">", "＞"),
    BLOCK.replace("tool_assistant", "tool-assistant"),
    BLOCK.replace("<tool_assistant>", "<ToolAssistant>"),
    BLOCK.replace("<tool_assistant>", "< tool_asistant >"),
    BLOCK.replace("server:", "**server**:").replace("tool:", "**tool:**"),
    BLOCK.replace("server:", "- `server`:").replace("tool:", "- `tool`:"),
    BLOCK.replace("server:", "1. server name:").replace("tool:", "2. tool name:"),
    BLOCK.replace("server: GitHub", 'server: "GitHub"').replace("an issue", "an issue,"),
    BLOCK.replace("create an issue", "create\n  an issue"),
    BLOCK.replace("\n", " "),
    BLOCK.replace("\n", "\\n"),
    BLOCK.replace("\n", "\r\n"),
    BLOCK.replace("</tool_assistant>", "</tool_assistant"),
    '<tool_assistant>{"server": "GitHub", "tool": "create an issue"}</tool_assistant>',
    '<tool_assistant>\n```json\n{"tool":"create an issue",\n"server":"GitHub"}\n```\n'
    "</tool_assistant>",
    '<tool_assistant>{"tool_assistant": {"server": "GitHub", "task": "create an issue"}}'
    "</tool_assistant>",
    '<tool_assistant>{"server": "GitHub", "tool": "create an issue",}</tool_assistant>',
    "<tool_assistant><server>GitHub</server><tool>create an issue</tool></tool_assistant>",
    f"{BLOCK}\nand again\n{BLOCK.replace('GitHub', 'github')}",
    f"<think>perhaps {BLOCK.replace('GitHub', 'GitLab')}</think>{BLOCK}",
    f"I use the `<tool_assistant>` tag and close it by `</tool_assistant>`.\n{BLOCK}",
)
def test_every_way_of_writing_is_read_without_a_problem(text):
    expected = only(text)
    assert (expected.server, expected.tool) == GITHUB
    assert expected.problems == ()
    assert expected.raw in text


@cases(
    "text, problem",
    (BLOCK.replace("</tool_assistant>", ""), "cut off"),
    (BLOCK.removesuffix("_assistant>"), "cut off"),
    (BLOCK.removesuffix("ool_assistant>"), "cut off"),
)  # fmt: skip
def test_a_flaw_in_the_form_is_told_and_the_request_still_read(text, problem):
    expected = parse(text)[0]
    assert (expected.server, expected.tool) == GITHUB
    assert problem in " ".join(expected.problems)


def test_an_open_block_ends_where_the_next_begins():
    text = BLOCK.replace("</tool_assistant>", "") + BLOCK.replace("GitHub", "Jira")
    assert pairs(text) == [GITHUB, ("Jira", "create an issue")]


@cases(
    "text, found, problem",
    ("<tool_assistant>\nserver: GitHub\n</tool_assistant>", ("GitHub", None),
     "no `tool:` line"),
    ("<tool_assistant>\ntool: search\n</tool_assistant>", (None, "search"),
     "no `server:` line"),
    ("<tool_assistant>\nserver: none\ntool: search\n</tool_assistant>", (None, "search"),
     "no `server:` line"),
    ("<tool_assistant>\nserver: GitHub\ntool: ...\n</tool_assistant>", ("GitHub", None),
     "no `tool:` line"),
    ("<tool_assistant>find the weather</tool_assistant>", (None, "find the weather"),
     "its text counts as the tool"),
)  # fmt: skip
def test_what_is_there_is_used(text, found, problem):
    expected = only(text)
    assert (expected.server, expected.tool) == found
    assert len(expected.problems) == 1
    assert problem in expected.problems[0]


@cases(
    "body",
"", "\n\n", "{}", "[]", "{{{{", "server:\ntool:", "server: ...\ntool: ...", "```\n```",
     "a long story " * 60, "[" * 3000, '{"a": ' * 600, "\x00\x01", "?!…",
)  # fmt: skip
def test_a_malformed_block_gives_one_clear_problem(body):
    expected = only(f"So:\n<tool_assistant>{body}</tool_assistant>\nbye")
    assert not expected.usable
    assert len(expected.problems) == 1
    assert "expected" in expected.problems[0]


def test_one_block_may_hold_several_requests():
    body = "server: Jira\ntool: search issues\ntool: close an issue\nserver: Slack\ntool: post"
    assert pairs(f"<tool_assistant>\n{body}\n</tool_assistant>") == [
        ("Jira", "search issues"),
        ("Jira", "close an issue"),
        ("Slack", "post"),
    ]
    listing = '[{"server": "Jira", "tool": "search"}, {"server": "Slack", "tool": "post"}]'
    assert pairs(f"<tool_assistant>{listing}</tool_assistant>") == [
        ("Jira", "search"),
        ("Slack", "post"),
    ]


def test_a_colon_in_a_value_stays_in_it():
    assert pairs(
        "<tool_assistant>\nserver: C: drive\ntool: run a job: the task: nightly\n</tool_assistant>"
    ) == [("C: drive", "run a job: the task: nightly")]


def test_a_long_field_is_cut_and_says_so():
    expected = only(write_block("S", "word " * 400))
    assert expected.tool is not None
    assert len(expected.tool) <= LONGEST_VALUE
    assert any("the first" in problem for problem in expected.problems)


def test_there_are_never_more_than_a_few_requests():
    result = parse("\n".join(write_block(f"s{i}", f"t{i}") for i in range(500)))
    assert [item.tool for item in result] == [f"t{i}" for i in range(MOST)]
    assert f"more than {MOST} requests" in result[-1].problems[-1]
    assert all(not item.problems for item in result[:-1])


@cases("text", "", "no block", "tool_assistant", "<tool>x</tool>", None, 3, b"x")
def test_a_text_without_a_block_asks_for_nothing(text):
    assert parse(text) == []


@cases(
    "part",
"<tool_assistant>", "<tool_assistant", "</tool_assistant>", "<", "&lt;tool_as", "<think>",
     "<tool_assistant>server:", "server: ", "<tool_assistant>\n> > > >", "`", "\n",
     "<tool_assistant ",
     "<tool_assistant>{", "tool tool_", "<tool>", "<tool_assistant><tool>", "a", " ",
     "<tool_assistant>" + " " * 5000, "<tool_assistant>" + "\n" * 4000,
     "<tool_assistant>" + "mcp server name \"'` " * 200, "<tool_assistant>" + "</tool" * 600,
     "<tool_assistant>" + "server: a\n" * 400, "<tool_assistant>" + "x tool: a " * 400,
)  # fmt: skip
def test_work_is_linear_in_hostile_text(part):
    """Counted in calls of functions, not in seconds: twice the text, about twice the calls, and
    none more than a hundred blocks can need. 250 blocks of 4,000 empty lines once took 18 s."""

    def calls(size: int) -> int:
        count = 0

        def look(*_: object) -> None:
            nonlocal count
            count += 1

        text = part * (size // len(part))
        sys.setprofile(look)
        try:
            assert len(parse(text)) <= MOST
        finally:
            sys.setprofile(None)
        return count

    assert calls(1_000_000) <= min(2.2 * calls(500_000) + 2000, MOST_CALLS)


WORDS = st.text(
    st.characters(codec="utf-8", categories=("L", "N"), max_codepoint=0x3FFF),
    min_size=1,
    max_size=9,
).filter(lambda word: word.lower() not in ("none", "null", "na", "unknown", "undefined"))
VALUES = st.lists(WORDS, min_size=1, max_size=8).map(" ".join)
NOISE = st.text(max_size=60).filter(lambda text: "<" not in text and "＜" not in text)


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=5), st.lists(NOISE, min_size=6))
@examples(150)
def test_what_is_rendered_is_read_back_whatever_stands_around(asked, noise):
    expected = {(s.casefold(), t.casefold()): (s, t) for s, t in reversed(asked)}
    text = noise[0]
    for (server, tool), gap in zip(asked, noise[1:], strict=False):
        text += f"{write_block(server, tool)}{gap}"
    result = pairs(text)
    assert len(result) == len(expected)
    assert {(s, t) for s, t in result} == set(expected.values())
    assert not any(item.problems for item in parse(text))


@given(st.text(max_size=300))
@examples(150)
def test_nothing_raises(text):
    for item in (text, f"<tool_assistant>{text}", f"<tool_assistant>{text}</tool_assistant>"):
        assert len(parse(item)) <= MOST


FRAGMENTS = st.sampled_from(
    ["<tool_assistant>", "</tool_assistant>", "server:", "tool:", "\n", "> ", "```", "{", '"', "}",
     " x ", "GitHub", "&lt;", "<tool>", "</tool>", "<think>", "</think>", "\\n", "：", "</", "task"]
)  # fmt: skip


@given(st.lists(FRAGMENTS, max_size=60).map("".join))
@examples(300)
def test_pieces_of_blocks_in_any_order_never_raise_and_say_what_is_wrong(text):
    for item in parse(text):
        assert item.usable or len(item.problems) == 1
        assert "\n" not in f"{item.server}{item.tool}"


def test_the_prompt_shows_the_form_that_is_parsed():
    plain, worked = write_system_prompt(False), write_system_prompt(example=True)
    assert worked.startswith(plain)
    assert len(parse(plain)) == 1
    assert pairs(worked)[1:] == [
        ("Jira, issue tracking for teams", "search the issues of a project by text"),
        ("Jira, issue tracking for teams", "create an issue in a project"),
    ]
    for word in ("ask again", "no suitable tool", "stop and wait"):
        assert word in plain.lower()
