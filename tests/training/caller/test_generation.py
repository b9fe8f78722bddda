"""Constrained and fast generation: no call that does not fit can be written."""

import json
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assets.contracts.validate import validate_call
from tests.training.conftest import raw_tool
from training.caller import bases, fast_generation
from training.caller.generation import CallGrammar, CallGrammars, generate_completions
from training.evaluation.loaded_model import TorchGeneration
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
    return bases.load_base(str(small_caller), "cpu")


def test_loading_what_lies_on_the_disk_prints_nothing(small_caller, capfd, recwarn):
    bases.load_base(str(small_caller), "cpu")
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


@pytest.fixture(scope="module")
def grammars(loaded: tuple[Any, Any]) -> CallGrammars:
    model, tokenizer = loaded
    return CallGrammars(tokenizer, model.config.vocab_size)


def read_text(
    grammars: CallGrammars, text: str, tools: Any = TOOLS, *, must_call: bool = False
) -> bool:
    ids = grammars.tokenizer(text, add_special_tokens=False)["input_ids"]
    matcher = grammars.make_matcher(grammars.write_grammar(tools, must_call=must_call))
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def write_call(name: str, **arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def test_calls_that_fit_or_text_can_be_written_or_one_call_where_asked(grammars):
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
    fits, other = write_call("toggle", on=True), write_call("walk", node={})
    assert read_text(grammars, fits, must_call=True)
    for wrong in (NO_CALL, "", f"Now: {fits}", f"{fits} {other}", write_call("toggle", on=3)):
        assert not read_text(grammars, wrong, must_call=True)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_a_model_prefers_its_calls_fit(grammars, seed):
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
        [call] = parse_calls(tokenizer.decode(row[: row.index(last)])).calls
        assert validate_call(contracts[call["name"]], call["arguments"]) == []


def test_a_schema_that_cannot_be_compiled_holds_nobody_else_up_nor_do_names_of_keywords(grammars):
    odd = make_tool("odd", {"a": {"not": {"type": "string"}}, "b": DAY}, "b")
    tools = [odd, make_tool("broken", {"a": {"$ref": "#/x"}}), *TOOLS]
    quarantined = grammars.write_grammar(tools).quarantined
    assert set(quarantined) == {"odd", "broken"}
    assert "not" in quarantined["odd"]
    assert read_text(grammars, write_call("odd", b=2), tools)
    assert not read_text(grammars, write_call("odd", b=99), tools)
    assert read_text(grammars, write_call("broken", a={"b": [1]}), tools)
    assert not read_text(grammars, write_call("toggle", on="yes"), tools)
    assert grammars.write_grammar([]).text == ""
    tool = make_tool("odd", {"properties": {"type": "object"}, "items": {"type": "string"}})
    assert read_text(grammars, write_call("odd", properties={"any": 1}, items="x"), [tool])
    assert not read_text(grammars, write_call("odd", additionalProperties=False), [tool])


def test_a_small_model_writes_calls_that_fit(loaded, grammars):
    model, tokenizer = loaded
    shown = [render_tool_schema(tool) for tool in TOOLS]
    words = ("the forecast of Rome in kelvin for 99 days", "toggle it", "walk to the next node")
    prompts = [render_conversation(tokenizer, shown, word)[0] for word in words]
    grammar = grammars.write_grammar(TOOLS)

    def limit(places: Any, begun: int) -> Any:
        return grammars.make_processor([grammar for _ in places], begun)

    contracts = {tool["name"]: tool for tool in TOOLS}

    def fits(call: dict[str, Any]) -> bool:
        contract = contracts.get(call["name"])
        return contract is not None and not validate_call(contract, call["arguments"])

    def count_fitting(texts: list[str]) -> int:
        return sum(fits(call) for text in texts for call in parse_calls(text).calls)

    free = generate_completions(model, tokenizer, prompts)
    held = generate_completions(model, tokenizer, prompts, limit=limit)
    assert count_fitting(free) < len(prompts)
    assert count_fitting(held) == sum(parse_calls(text).kind == "call" for text in held) > 0


def test_a_template_without_json_arguments_is_told_with_the_fix(loaded):
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


TOOL = raw_tool("make", "file")
ENDED = "over <|im_end|> and out"  # a text of a contract with a special token in it


@pytest.fixture(scope="module")
def copy(loaded: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert fast_generation.has_fast_runtime()
    folder = fast_generation.find_fast_copy(tmp_path_factory.mktemp("home"), "ab" * 32)
    fast_generation.build_fast_copy(folder, loaded[0].float(), loaded[1])
    return folder


def write_prompts(tokenizer: Any) -> list[str]:
    schemas = [render_tool_schema(TOOL)]
    texts = [f"Please make {n} files called '{name}'." for n in (2, 3) for name in ("Old Oak", "é")]
    return [render_conversation(tokenizer, schemas, text)[0] for text in texts]


def test_the_copy_writes_what_the_model_writes_up_to_its_limit(loaded, copy):
    model, tokenizer = loaded
    prompts = write_prompts(tokenizer)
    slow = TorchGeneration(model, tokenizer, "small", batch=1)(prompts, None, None, max_new=40)
    fast = fast_generation.FastModel(copy, tokenizer)(prompts, None, None, max_new=40)
    assert sum(a == b for a, b in zip(slow, fast, strict=True)) >= 3
    assert not any("<|im_end|>" in text for text in fast)
    model = fast_generation.FastModel(copy, tokenizer, threads=1)
    prompt = tokenizer("Say it again and again.", add_special_tokens=False)["input_ids"]
    assert len(model.generate(prompt, max_new=7)) <= 7
    asked: Iterator[int] = count()
    assert len(model.generate(prompt, max_new=50, is_over=lambda: next(asked) >= 3)) <= 3


def test_a_grammar_holds_the_copy_and_a_bad_one_does_not_stop_it(loaded, copy):
    tokenizer = loaded[1]
    grammars = CallGrammars(tokenizer, len(tokenizer))
    odd = {**TOOL, "inputSchema": {**TOOL["inputSchema"], "required": ["title", "count"]}}
    held = [grammars.write_grammar([odd], must_call=True)] * 3 + [CallGrammar("start: (((")]
    write = fast_generation.FastModel(copy, tokenizer)
    answers = write(write_prompts(tokenizer), grammars, held, max_new=120)
    for text in answers[:3]:
        call = json.loads(text)
        assert (call["name"], validate_call(odd, call["arguments"])) == ("make_file", [])
    assert answers[3]
    # What must be written is longer than what may be: it is cut, and the runtime not overrun.
    for value, most in (("ab " * 999, 1), ("ab " * 999, 7), ("ab " * 999, 40), (ENDED, 90)):
        schema = {"properties": {"title": {"enum": [value]}}, "required": ["title"]}
        forced = {**TOOL, "inputSchema": {"type": "object", **schema}}
        cut, asked = [grammars.write_grammar([forced], must_call=True)], write_prompts(tokenizer)
        [text] = write(asked[:1], grammars, cut, max_new=most)
        assert f'{{"name": "make_file", "arguments": {{"title": "{value}"}}}}'.startswith(text)
        assert write(asked[:1], grammars, cut, max_new=most, is_over=lambda: True) == [""]


@pytest.mark.slow  # a process that imports torch and the builder
def test_a_model_that_the_builder_does_not_know_is_refused(loaded, tmp_path):
    def save_other(folder: str) -> None:
        Path(folder).mkdir()
        Path(folder, "config.json").write_text('{"model_type": "other"}')

    model = SimpleNamespace(save_pretrained=save_other)
    with pytest.raises(fast_generation.FastCopyFailed, match="builds no fast copy"):
        fast_generation.build_fast_copy(tmp_path / "copy", model, loaded[1])
    assert list(tmp_path.iterdir()) == []


def test_copies_used_long_ago_go(tmp_path):
    for at in range(6):
        (folder := tmp_path / str(at)).mkdir()
        (folder / "genai_config.json").write_text("{}")
        os.utime(folder / "genai_config.json", (at, at))
    fast_generation._remove_old_copies(tmp_path)
    left = {path.name for path in tmp_path.iterdir() if fast_generation.is_built(path)}
    assert left == set("2345")
