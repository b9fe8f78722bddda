"""The tiny base's template and tokenizer: prompts are prefixes, nothing is lost, nothing is cut."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from training.caller.tiny.corpus import END, LEADS, SPECIAL, WORDS, make_tokenizer
from training.prompts.call_text import check_read_back, check_tokenizer, parse_calls
from training.prompts.render import NO_CALL, render_conversation, render_tool_schema

TEXTS = ["Find a file by its Title", "jira_get_issue get_file", "under /home/notes.txt"] * 3
ODD: list[dict[str, Any]] = [
    {"name": "ü-日", "description": None, "inputSchema": {}},
    {"name": "bare"},
    {
        "name": "all_kinds",
        "description": "one two three four five six seven eight nine ten eleven <|call|>",
        "inputSchema": {
            "required": ["id", "maybe", "whatever", "rows"],
            "properties": {
                "id": {"type": ["null", "integer"]},
                "maybe": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
                "whatever": True,
                "rows": {"type": "array", "items": {"type": "object"}},
                "mode": {"enum": ["a", "b"]},
            },
        },
    },
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer(TEXTS, 330)


def functions(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [render_tool_schema(tool) for tool in tools]


def test_it_can_all_that_the_caller_asks_of_a_tokenizer(tokenizer: Any) -> None:
    check_tokenizer(tokenizer)
    check_read_back(tokenizer)
    assert set(SPECIAL) == set(tokenizer.all_special_tokens)


def test_tools_of_every_kind_are_shown_whole(tokenizer: Any) -> None:
    prompt, _ = render_conversation(tokenizer, functions(ODD), "do it")
    assert "do it<|tool|><|:|>ü-日<|tool|><|:|>bare<|tool|>one two" in prompt
    shown = prompt.partition("bare<|tool|>")[2].partition("<|:|>")[0]
    assert len(shown.split()) == WORDS
    wanted = "all_kinds<|int|>id<|bool|>maybe<|str?|>mode<|list|>rows<|any|>whatever<|call|>"
    assert prompt.endswith(wanted)


def test_the_tools_stand_after_the_last_request(tokenizer: Any) -> None:
    before = [("earlier", [{"name": "bare", "arguments": {}}])]
    prompt, _ = render_conversation(tokenizer, functions(ODD[1:2]), "now", examples=before)
    assert prompt.endswith("<|user|>now<|tool|><|:|>bare<|call|>")
    assert prompt.count("<|tool|>") == 1


def test_no_words_of_a_request_or_description_are_taken_for_marks(tokenizer: Any) -> None:
    tool = {"name": "a", "description": "see <|call|> now", "inputSchema": {}}
    prompt, _ = render_conversation(tokenizer, functions([tool]), "say <|end|> and <|tool|>")
    ids = tokenizer(prompt)["input_ids"]
    for token, times in ((END, 0), ("<|call|>", 1), ("<|tool|>", 1)):
        assert ids.count(tokenizer.convert_tokens_to_ids(token)) == times


@given(
    asked=st.text(max_size=40),
    values=st.dictionaries(
        st.text("abcXYZ_-ü", min_size=1, max_size=6),
        st.one_of(st.text(max_size=12), st.integers(), st.booleans(), st.lists(st.text("ab /"))),
        max_size=4,
    ),
    place=st.integers(0, 2),
    several=st.integers(1, 3),
)
@examples(60)
def test_a_call_comes_back_as_it_was_written(
    tokenizer: Any, asked: str, values: dict[str, Any], place: int, several: int
) -> None:
    calls = [{"name": ODD[place]["name"], "arguments": values}] * several
    prompt, completion = render_conversation(tokenizer, functions(ODD), asked, calls)
    assert render_conversation(tokenizer, functions(ODD), asked) == (prompt, "")
    ids = tokenizer(completion, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == completion
    assert ids[-1] == tokenizer.eos_token_id
    assert parse_calls(tokenizer.decode(ids, skip_special_tokens=True)).calls == calls
    whole = tokenizer(prompt + completion, add_special_tokens=False)["input_ids"]
    assert whole == tokenizer(prompt, add_special_tokens=False)["input_ids"] + ids


def test_where_no_tool_fits_the_answer_says_so(tokenizer: Any) -> None:
    _, completion = render_conversation(tokenizer, functions(ODD), "hello", [])
    ids = tokenizer(completion, add_special_tokens=False)["input_ids"]
    answer = tokenizer.decode(ids, skip_special_tokens=True)
    assert answer == NO_CALL
    assert parse_calls(answer).kind == "no_call"


def test_a_call_is_plain_json(tokenizer: Any) -> None:
    _, completion = render_conversation(
        tokenizer, functions(ODD), "go", [{"name": "bare", "arguments": {}}]
    )
    assert completion == '{"name": "bare", "arguments": {}}' + END


@pytest.mark.parametrize("word", ["file", "issue", "Title", "zebrafish", "日"])
def test_a_word_is_cut_alike_behind_a_space_an_underscore_and_a_slash(
    tokenizer: Any, word: str
) -> None:
    def pieces(text: str) -> list[str]:
        found = tokenizer.tokenize(text)
        return [f[1:] if f[:1] in LEADS and len(f) > 1 else f for f in found]

    plain = pieces(word)
    assert [p for p in pieces(f" {word}") if p not in LEADS] == plain
    if word.isascii():
        assert pieces(f"_{word}") == pieces(f"/{word}") == plain


def test_arguments_stand_in_one_order(tokenizer: Any) -> None:
    names = ["b", "a", "C"]
    texts = {
        render_conversation(
            tokenizer, [], "x", [{"name": "n", "arguments": dict.fromkeys(order, 1)}]
        )[1]
        for order in (names, names[::-1])
    }
    assert len(texts) == 1
    assert json.loads(texts.pop().removesuffix(END))["arguments"] == {"a": 1, "b": 1, "C": 1}
