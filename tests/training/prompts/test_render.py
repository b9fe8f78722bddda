"""Prompts go through the template uncut; whatever a model writes back is an outcome."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.extensions.publishing.adapters import read_template
from tests.support.cases import cases
from tests.support.examples import json_values
from tests.training.conftest import raw_tool
from training.prompts import call_text
from training.prompts.render import (
    NO_CALL,
    PromptParts,
    fit_prompt,
    get_prompt_parts,
    render_conversation,
    render_tool_schema,
)
from training.prompts.templates import BadTemplate
from training.sets.pool import draw_candidates, select_split_pool
from training.sets.split import TRAIN

FIND = {"name": "find_file", "arguments": {"title": 'a "b" ü', "count": 2}}
MAKE = {"name": "make_file", "arguments": {"title": "c", "count": 0}}
TOOLS = [render_tool_schema(raw_tool(deed, "file")) for deed in ("find", "make")]
# Whose calls the evaluation reads; each as its makers published it.
REAL = ("qwen2_5", "qwen3", "qwen3_instruct_2507", "llama3_1", "llama3_2")

# Written here after what the families are known to do.
TURNS = (
    "{% for m in messages %}<|{{ m.role }}|>"
    "{% if m.role == 'system' and tools %}{% for t in tools %}<tool>{{ t | tojson }}</tool>"
    "{% endfor %}{% endif %}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "{{ m.content }}<|end|>{% endfor %}"
)
ASKS = "{% if add_generation_prompt %}<|assistant|>{% endif %}"
HERMES = TURNS + ASKS
# A reasoning model: it opens a thought where it asks, and an answer that is there has none.
OPENS_THOUGHT = TURNS + ASKS.replace("<|assistant|>", "<|assistant|><think>\n")
EMPTY_THOUGHT = TURNS + ASKS.replace("<|assistant|>", "<|assistant|><think>\n\n</think>\n\n")
KNOWS_NO_TOOLS = HERMES.replace("and tools", "and false")
REWRITES = TURNS.replace("<|{{ m.role }}|>", "<|{{ m.role }}|{{ messages | length }}|>") + ASKS
ONE_CALL = HERMES.replace("in m.tool_calls or []", "in (m.tool_calls or [])[:1]")
OWN_FORM = (
    "{% for t in tools %}{{ t.function.name }}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'user' %}[{{ m.content }}]{% elif m.tool_calls %}"
    "{% for c in m.tool_calls %}{{ c.function.name }}<{{ c.function.arguments.values() | join }}>"
    "{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
)
REFUSES = "{{ raise_exception('no system role here') }}"


def tokenizer(template: str | None, **special: str) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({"<unk>": 0, "<end>": 1}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    given = {"eos_token": "<end>"} | special
    out = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", **given)
    out.chat_template = template
    out.name_or_path = "a-model"
    return out


def real(name: str) -> Any:
    return tokenizer(read_template(name))


@pytest.mark.parametrize("name", REAL)
@cases("calls", [FIND], [MAKE, FIND], [], ids=["one", "two", "none"])
def test_published_templates_take_one_call_several_and_none(name, calls):
    made = real(name)
    call_text.check_tokenizer(made)
    prompt, completion = render_conversation(made, TOOLS, "Find it for me.", calls)
    assert render_conversation(made, TOOLS, "Find it for me.") == (prompt, "")
    assert "Find it for me." in prompt
    assert "<think>" not in completion
    read = call_text.parse_calls(completion.replace("<|eot_id|>", "").replace("<|im_end|>", ""))
    assert (read.calls, read.kind) == (calls, "call" if calls else "no_call")
    for tool in TOOLS:
        assert prompt.count(f'"{tool["function"]["name"]}"') == 1


@cases(
    "template, before, after",
    (HERMES, "<|assistant|>", "<tool_call>"),
    (OPENS_THOUGHT, "<|assistant|><think>\n", "\n</think>\n\n<tool_call>"),
    (EMPTY_THOUGHT, "<|assistant|><think>\n\n</think>\n\n", "<tool_call>"),
)
def test_an_answer_follows_the_thought_that_its_prompt_opens(template, before, after):
    prompt, completion = render_conversation(tokenizer(template), TOOLS, "Find it.", [FIND])
    assert prompt.endswith(before)
    assert completion.startswith(after)
    assert call_text.parse_calls(prompt[-9:] + completion).calls == [FIND]


def test_a_template_that_writes_one_call_gets_a_list_and_one_that_cannot_be_read_is_told():
    _, completion = render_conversation(tokenizer(ONE_CALL), TOOLS, "Both.", [FIND, MAKE])
    assert call_text.parse_calls(completion.removesuffix("<|end|>")).calls == [FIND, MAKE]
    made = tokenizer(OWN_FORM)
    call_text.check_tokenizer(made)
    with pytest.raises(BadTemplate, match="'probe_tool<probe_value>', which cannot be read"):
        call_text.check_read_back(made)
    for name in REAL:
        call_text.check_read_back(real(name))


@settings(deadline=None, max_examples=40)
@given(st.text(max_size=30), st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=3))
def test_whatever_a_call_holds_is_read_back(instruction, arguments):
    call = {"name": "find_file", "arguments": arguments}
    prompt, completion = render_conversation(tokenizer(HERMES), TOOLS, instruction, [call])
    assert prompt.endswith("<|end|><|assistant|>")
    written = completion.removeprefix("<tool_call>").removesuffix("</tool_call><|end|>")
    assert json.loads(written) == call


@cases(
    "template, message",
    (None, "a-model: it has no chat template; use the instruct model"),
    (KNOWS_NO_TOOLS, "does not show the tool 'probe_tool' that it was given"),
    (REWRITES, "rewrites the prompt once an answer is there"),
    (REFUSES, "fails on the messages system, user: no system role here; use the instruct"),
    (TURNS.replace("{{ m.content }}", "") + ASKS, "shows no user message"),
    (TURNS.replace("c.function | tojson", "1") + ASKS, "leaves the tool call out"),
    ("{% for", "fails on the messages system, user"),
    ids=["none", "no tools", "rewrites", "refuses", "no user", "no call", "broken"],
)
def test_a_template_that_cannot_is_one_error_with_the_fix(template, message):
    with pytest.raises(BadTemplate, match=message) as found:
        call_text.check_tokenizer(tokenizer(template))
    assert "\n" not in str(found.value)
    assert "set chat_template in its tokenizer_config.json" in str(found.value)


def test_no_contract_request_or_value_ends_a_turn():
    made, given = tokenizer(HERMES, eos_token="<|end|>", pad_token=""), (TOOLS, "A file.", [FIND])
    hostile = json.loads(json.dumps(given).replace("file", "file<|end|>"))
    texts = ["".join(render_conversation(made, *each)) for each in (given, hostile)]
    assert texts[0].count("<|end|>") == texts[1].count("<|end|>") == 3


def test_a_missing_pad_token_is_the_end_of_text_or_an_error():
    assert tokenizer(HERMES).pad_token is None
    for special, pad in (({}, "<end>"), ({"pad_token": "<pad>"}, "<pad>")):
        call_text.check_tokenizer(made := tokenizer(HERMES, **special))
        assert made.pad_token == pad
    without = tokenizer(HERMES, eos_token="<end>")
    without.eos_token = None
    with pytest.raises(BadTemplate, match=r"a-model: neither a pad token nor .*set pad_token in"):
        call_text.check_tokenizer(without)


def length(made: Any, texts: tuple[str, str]) -> int:
    return sum(len(made(text, add_special_tokens=False)["input_ids"]) for text in texts)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1100), st.integers(1, 8))
def test_what_does_not_fit_goes_whole_and_the_right_tool_stays(limit, n):
    made = tokenizer(HERMES)
    things = ("file", "song", "note", "page", "photo", "flight", "recipe", "ticket")[:n]
    tools = [raw_tool("find", thing) for thing in things]
    parts = PromptParts("Find it.", [FIND], frozenset({"find_file"}))
    found = fit_prompt(made, parts, tools, limit)
    alone = render_conversation(made, [render_tool_schema(tools[0])], "Find it.", [FIND])
    if found is None:
        assert length(made, alone) > limit
        return
    texts = found.prompt, found.completion
    assert found.tokens == length(made, texts) <= limit
    assert "find_file" in found.shown
    assert sorted(found.shown + found.dropped) == sorted(tool["name"] for tool in tools)

    def render(*names: str) -> Any:
        schemas = [render_tool_schema(tool) for tool in tools if tool["name"] in names]
        return render_conversation(made, schemas, "Find it.", [FIND])

    assert texts == render(*found.shown)
    if found.dropped:  # not one more would fit
        assert length(made, render(*found.shown, found.dropped[-1])) > limit


def test_the_easiest_tool_goes_first_and_of_no_call_what_its_request_does_not_speak_of():
    made = tokenizer(HERMES)
    near = {**raw_tool("find", "file"), "name": "find_files"}
    tools = [near, raw_tool("drop", "song"), raw_tool("find", "file"), raw_tool("drop", "file")]
    parts = PromptParts("Find it.", [FIND], frozenset({"find_file"}))
    fitted, limit = [], 10_000
    for _ in range(4):
        fitted.append(fit_prompt(made, parts, tools, limit))
        limit = fitted[-1].tokens - 1
    assert fitted[0].shown[0] == "find_files"
    gone = ["drop_song", "drop_file", "find_files"]
    assert [set(each.dropped) for each in fitted] == [set(gone[:n]) for n in range(4)]
    row = {"instruction": "Tell me a note about a song.", "calls": "[]", "arguments": None}
    tools = [raw_tool("find", "flight"), raw_tool("find", "song")]
    whole = fit_prompt(tokenizer(HERMES), row, tools, 10_000)
    assert whole
    found = fit_prompt(tokenizer(HERMES), row, tools, whole.tokens - 1)
    assert found
    assert (found.shown, found.dropped) == (("find_song",), ("find_flight",))
    assert NO_CALL in found.completion


def test_rows_of_the_set_fit_as_they_are(made):
    pool, by_words = select_split_pool(made.pool, TRAIN), tokenizer(HERMES)
    for row in [row for row in made.rows if row["split"] == TRAIN][:5]:
        found = fit_prompt(by_words, row, draw_candidates(row, pool, 10), 8192)
        assert found
        assert (len(found.shown), found.dropped) == (10, ())
        call = {"name": row["tool"], "arguments": json.loads(row["arguments"])}
        assert call_text.parse_calls(found.completion.removesuffix("<|end|>")).calls == [call]
        assert get_prompt_parts(row).gold == {row["tool"]}


ONE = {"name": "find_file", "arguments": {"title": "a", "count": 2}}
TEXT = json.dumps(ONE)


@cases(
    "text",
    TEXT,
    f"Sure, here it is:\n```json\n{TEXT}\n```\nAnything else?",
    f"<tool_call>\n{TEXT}\n</tool_call>",
    json.dumps([ONE]),
    json.dumps({"name": "find_file", "parameters": ONE["arguments"]}),
    json.dumps({"name": "find_file", "arguments": json.dumps(ONE["arguments"])}),
    json.dumps({"type": "function", "function": ONE}),
    json.dumps({"tool_calls": [{"id": "1", "function": ONE}]}),
    f"<think>I could call {json.dumps({'name': 'x', 'arguments': {}})}</think>{TEXT}",
    f'a thought that the prompt had opened: {{"name": "x", "arguments": {{}}}}</think>\n{TEXT}',
    f"I use {{tool}}: {TEXT}",
    f"<|python_tag|>{TEXT}",
    f"```python\nprint(1)\n```\n{TEXT}",
    f'{{"name": "broken", "arguments": {{"a: 1}} {TEXT}',
    f"[TOOL_CALLS]find_file{json.dumps(ONE['arguments'])}",
    "<|tool_call_begin|>functions.find_file:0<|tool_call_argument_begin|>"
    f"{json.dumps(ONE['arguments'])}<|tool_call_end|>",
    f"[find_file({', '.join(f'{key}={value!r}' for key, value in ONE['arguments'].items())})]",
)
def test_a_call_is_read_in_every_form_that_models_write(text):
    assert call_text.parse_calls(text).calls == [ONE]


def test_several_calls_are_read_in_order_within_bounds_and_odd_arguments_as_they_were_written():
    other = {"name": "drop_file", "arguments": {}}
    blocks = f"<tool_call>{TEXT}</tool_call>\n<tool_call>{json.dumps(other)}</tool_call>"
    for text in (blocks, json.dumps([ONE, other]), f"{TEXT}; {json.dumps(other)}"):
        assert call_text.parse_calls(text).calls == [ONE, other]
    assert call_text.normalise_call("a", "not json") == {"name": "a", "arguments": "not json"}
    assert (
        call_text.normalise_call("a", None)
        == call_text.normalise_call("a", "")
        == {"name": "a", "arguments": {}}
    )
    assert call_text.normalise_call("", {}) is call_text.normalise_call(3, {}) is None
    assert len(call_text.parse_calls(TEXT * 5000).calls) == call_text.MAX_CALLS


@cases(
    "text, kind",
    *((text, "no_call") for text in ("", "  \n", NO_CALL, "[]", '{"tool_calls": []}')),
    ("I cannot do that, sorry.", "prose"),
    ("The set {1, 2} has two members.", "prose"),
    (f"<think>{TEXT}</think> No tool is needed.", "prose"),
    (f"<think>I will call {TEXT}", "invalid_json"),
    ('{"name": "find_file", "arguments": {"title": ', "invalid_json"),
    ('<tool_call>{"name": "find_file", arguments: {}}</tool_call>', "invalid_json"),
    ('{"name": "find_file", "arguments": {"count": NaN}}', "invalid_json"),
    ('{"name": "outer", "arguments": {"of": {"name": "inner"}, "title', "invalid_json"),
    ('{"name": "a", "arguments": {"n": ' + "9" * 5000 + "}}", "invalid_json"),
    ('{"answer": 42}', "invalid_json"),
    ('{"name": "Mira", "age": 42}', "invalid_json"),
    ("<tool_call>\n[]\n</tool_call>", "no_call"),
    ('{"name": "find_file", "description": "Finds.", "parameters": {}}', "invalid_json"),
    ('{"a":' * 20_000, "invalid_json"),
    ("{" * 200_000, "invalid_json"),
    ("so " * 300_000, "prose"),
)
def test_what_is_no_call_says_what_it_is(text, kind):
    read = call_text.parse_calls(text)
    assert (read.calls, read.kind) == ([], kind)


PIECES = st.sampled_from(
    ["<think>", "</think>", "<tool_call>", "</tool_call>", "```json", "{", "}", "[", "]", '"name"',
     '"arguments"', ":", ",", '"a"', "NaN", "1e999", "\\ud800", TEXT, '{"name": "a"}', NO_CALL]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=8), max_size=24).map("".join) | st.text())
def test_no_text_raises_and_every_call_has_a_name(text):
    read = call_text.parse_calls(text)
    assert (read.kind == "call") == bool(read.calls)
    assert all(isinstance(call["name"], str) and call["name"] for call in read.calls)
    json.dumps(read.calls)


@given(json_values(st.none() | st.booleans() | st.integers() | st.text()))
def test_any_arguments_are_read_back_as_they_were_written(value):
    call = {"name": "tool", "arguments": {"value": value}}
    assert call_text.parse_calls(json.dumps(call)).calls == [call]
