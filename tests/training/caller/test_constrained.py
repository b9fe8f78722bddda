"""Constrained generation: no call can be written that does not fit, and nothing else is held."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from assets.contracts.validate import validate_call
from training.caller.bases import load_base
from training.caller.generation import CallGrammars, generate_completions
from training.prompts.call_text import find_call_form, parse_calls
from training.prompts.render import NO_CALL, render_conversation, render_tool_schema
from training.prompts.templates import BadTemplate


def make_tool(name: str, properties: Any, *required: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required), **more}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema}


DAY = {"type": "integer", "minimum": 1, "maximum": 14}
UNIT = {"type": "string", "enum": ["celsius", "fahrenheit"]}
CODE = {"type": "string", "pattern": "^[A-Z]{3}$"}
PLACE = {"type": "object", "properties": {"code": CODE}, "required": ["code"]}
NODE = {"type": "object", "properties": {"day": DAY, "next": {"$ref": "#/$defs/node"}}}
TOOLS = [
    make_tool("forecast", {"unit": UNIT, "days": DAY, "place": PLACE}, "unit", "place"),
    make_tool("walk", {"node": {"$ref": "#/$defs/node"}}, "node", **{"$defs": {"node": NODE}}),
    make_tool("toggle", {"on": {"type": "boolean"}, "when": {"anyOf": [CODE, DAY]}}, "on"),
]


@pytest.fixture(scope="module")
def loaded(small_caller: Path) -> tuple[Any, Any]:
    return load_base(str(small_caller), "cpu")


def test_loading_what_lies_on_the_disk_prints_nothing(
    small_caller: Path, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    load_base(str(small_caller), "cpu")
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


@pytest.fixture(scope="module")
def grammars(loaded: tuple[Any, Any]) -> CallGrammars:
    model, tokenizer = loaded
    return CallGrammars(tokenizer, model.config.vocab_size)


def read_text(
    grammars: CallGrammars, text: str, tools: Any = TOOLS, *, must_call: bool = False
) -> bool:
    """Whether the grammar of the tools takes the whole text."""
    from llguidance import LLMatcher

    ids = grammars.tokenizer(text, add_special_tokens=False)["input_ids"]
    matcher = LLMatcher(
        grammars.guide, grammars.write_grammar(tools, must_call=must_call).text, log_level=0
    )
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def write_call(name: str, **arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def test_calls_that_fit_and_any_other_text_can_be_written(grammars: CallGrammars) -> None:
    fits = write_call("forecast", unit="celsius", place={"code": "ROM"})
    assert read_text(grammars, fits)
    assert read_text(grammars, f"{fits} {write_call('toggle', on=True)}")
    assert read_text(grammars, NO_CALL)
    assert read_text(grammars, 'Which city? {"a": [')
    for wrong in (
        write_call("forecasts", unit="celsius", place={"code": "ROM"}),
        write_call("forecast", unit="kelvin", place={"code": "ROM"}),
        write_call("forecast", unit="celsius"),
        write_call("forecast", unit="celsius", place={"code": "Rome"}),
        write_call("forecast", unit="celsius", place={"code": "ROM"}, days=15),
        write_call("toggle", on=True, loud=True),
        f"Now: {write_call('walk', node=[])}",
    ):
        assert not read_text(grammars, wrong)


def test_one_call_and_nothing_else_where_a_call_is_asked_for(grammars: CallGrammars) -> None:
    fits, other = write_call("toggle", on=True), write_call("walk", node={})
    assert read_text(grammars, fits, must_call=True)
    for wrong in (NO_CALL, "", f"Now: {fits}", f"{fits} {other}", write_call("toggle", on=3)):
        assert not read_text(grammars, wrong, must_call=True)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_a_model_prefers_its_calls_fit(grammars: CallGrammars, seed: int) -> None:
    draw, tokenizer = torch.Generator().manual_seed(seed), grammars.tokenizer
    begun = tokenizer('{"name": "', add_special_tokens=False)["input_ids"]
    grammar, last = grammars.write_grammar(TOOLS), tokenizer.eos_token_id
    process = grammars.make_processor([grammar, grammar], 1)
    ids = torch.zeros((2, 1), dtype=torch.long)
    for step in range(300):
        scores = torch.randn((2, grammars.vocabulary), generator=draw)
        scores[:, last] = 99.0  # it ends as soon as it may
        if step < len(begun):
            scores[:, begun[step]] = 999.0
        ids = torch.cat([ids, process(ids, scores).argmax(1, keepdim=True)], 1)
    contracts = {tool["name"]: tool for tool in TOOLS}
    for row in ids[:, 1:].tolist():
        text = tokenizer.decode(row[: row.index(last)])
        [call] = parse_calls(text).calls
        assert validate_call(contracts[call["name"]], call["arguments"]) == []


def test_a_schema_that_cannot_be_compiled_holds_nobody_else_up(grammars: CallGrammars) -> None:
    odd = make_tool("odd", {"a": {"not": {"type": "string"}}, "b": DAY}, "b")
    broken = {
        "name": "broken",
        "inputSchema": {"type": "object", "properties": {"a": {"$ref": "#/x"}}},
    }
    found = grammars.write_grammar([odd, broken, *TOOLS])
    assert set(found.quarantined) == {"odd", "broken"}
    assert "not" in found.quarantined["odd"]
    tools = [odd, broken, *TOOLS]
    assert read_text(grammars, write_call("odd", b=2), tools)
    assert not read_text(grammars, write_call("odd", b=99), tools)
    assert read_text(grammars, write_call("broken", a={"b": [1]}), tools)
    assert not read_text(grammars, write_call("toggle", on="yes"), tools)
    assert grammars.write_grammar([]).text == ""


def test_parameters_with_the_names_of_keywords(grammars: CallGrammars) -> None:
    tool = make_tool("odd", {"properties": {"type": "object"}, "items": {"type": "string"}})
    assert read_text(grammars, write_call("odd", properties={"any": 1}, items="x"), [tool])
    assert not read_text(grammars, write_call("odd", additionalProperties=False), [tool])


def test_a_small_model_writes_calls_that_fit(
    loaded: tuple[Any, Any], grammars: CallGrammars
) -> None:
    model, tokenizer = loaded
    shown = [render_tool_schema(tool) for tool in TOOLS]
    words = ("the forecast of Rome in kelvin for 99 days", "toggle it", "walk to the next node")
    prompts = [render_conversation(tokenizer, shown, word)[0] for word in words]
    grammar = grammars.write_grammar(TOOLS)

    def limit(places: Any, begun: int) -> Any:
        return grammars.make_processor([grammar for _ in places], begun)

    contracts = {tool["name"]: tool for tool in TOOLS}

    def count_fitting(texts: list[str]) -> int:
        calls = [call for text in texts for call in parse_calls(text).calls]
        return sum(
            call["name"] in contracts
            and not validate_call(contracts[call["name"]], call["arguments"])
            for call in calls
        )

    free = generate_completions(model, tokenizer, prompts)
    held = generate_completions(model, tokenizer, prompts, limit=limit)
    assert count_fitting(free) < len(prompts)
    assert count_fitting(held) == sum(parse_calls(text).kind == "call" for text in held) > 0


def test_a_template_without_json_arguments_is_told_with_the_fix(loaded: tuple[Any, Any]) -> None:
    class Tags:
        """Writes arguments as tags, as some templates do."""

        chat_template, all_special_tokens, name_or_path = "x", [], "tags"

        def apply_chat_template(self, messages: Any, tools: Any, **_: Any) -> str:
            text = json.dumps(tools) + "|".join(m["role"] + (m["content"] or "") for m in messages)
            calls = [c["function"] for m in messages for c in m.get("tool_calls", ())]
            return text + "".join(f"<{c['name']}><x>{c['arguments']!s}</x>" for c in calls)

    with pytest.raises(BadTemplate, match="without `constrained:`"):
        find_call_form(Tags())
    assert find_call_form(loaded[1]).before.endswith('"name": "')
