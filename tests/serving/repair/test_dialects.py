"""Calls in the text of models, in the forms of their chat templates, and in vendors' JSON."""

import json
import random

import pytest

from serving.repair.drafts import read_drafts
from serving.repair.ladder import repair_drafts
from tests.support.cases import cases

TEXT = {"type": "string"}
PARAMETERS = {
    "get_weather": {"city": TEXT, "days": {"type": "integer"}},
    "write_note": {"path": TEXT, "content": TEXT},
    "send_mail": {"to": {"type": "array", "items": TEXT}, "urgent": {"type": "boolean"}},
    "now": {},
}
TOOLS = [
    {"name": name, "inputSchema": {"type": "object", "properties": properties,
                                   "required": list(properties)[:1]}}
    for name, properties in PARAMETERS.items()
]  # fmt: skip
ROME, OSLO = ("get_weather", {"city": "Rome"}), ("get_weather", {"city": "Oslo"})
LONG_ROME = ("get_weather", {"city": "Rome", "days": 3})
NOTE = (
    "write_note",
    {"path": "a.md", "content": "Close with </parameter> or </tool_call>.\n\nEnd"},
)
A_NOTE = f"<parameter=path>\na.md\n</parameter>\n<parameter=content>\n{NOTE[1]['content']}\n"
CALL = '{"name": "get_weather", "arguments": {"city": "Rome"}}'
OTHER = CALL.replace("Rome", "Oslo")
NOW = ("now", {})

FORMS: dict[str, tuple[str, list]] = {
    "Hermes": (f"I look.\n<tool_call>\n{CALL}\n</tool_call>", [ROME]),
    "Hermes, two": (f"<tool_call>{CALL}</tool_call>\n<tool_call>{OTHER}</tool_call>", [ROME, OSLO]),
    "Hermes, a tick in the call before": (
        '<tool_call>{"name": "write_note", "arguments": {"path": "`"}}</tool_call>'
        f"<tool_call>{CALL}</tool_call>", [("write_note", {"path": "`"}), ROME]),
    "a fence in the end of a thought": (
        f"a\n```\n</think><tool_call>{CALL}</tool_call>", [ROME]),
    "a tick in a thought before": (f"<think>a `</think><tool_call>{CALL}</tool_call>", [ROME]),
    "Hermes, two in one": (f"<tool_call>\n{CALL}\n{OTHER}\n</tool_call>", [ROME, OSLO]),
    "Hermes, not closed": (f"<tool_call>\n{CALL}", [ROME]),
    "Hermes, closed alone": (f"leton\n{CALL}\n</tool_call>", [ROME]),
    "Hermes, closed alone behind a thought": (
        f"<think>a</think> <think>b</think>\n{CALL}\n</tool_call>", [ROME]),
    "Hermes, waves in a line before": (f"About ~~~5: <tool_call>{CALL}</tool_call>", [ROME]),
    "Hermes, a fence shown in a fence": (
        f"So:\n~~~\n```\n~~~\nThen <tool_call>{CALL}</tool_call>", [ROME]),
    "Hermes, apostrophes": (
        "<tool_call>{'name': 'get_weather', 'arguments': {'city': 'Rome'}}</tool_call>", [ROME]),
    "Hermes, a mark in a text": (
        '<tool_call>{"name": "write_note", "arguments": {"path": "x", "content": "</tool_call>"}}'
        "</tool_call>", [("write_note", {"path": "x", "content": "</tool_call>"})]),
    "Qwen XML": (
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>", [LONG_ROME]),
    "Qwen XML, marks in a text": (
        f"<tool_call>\n<function=write_note>\n{A_NOTE}</parameter>\n</function>\n</tool_call>",
        [NOTE]),
    "Qwen XML, a list": (
        "<function=send_mail>\n<parameter=to>\n['a@x.de', 'b@x.de']\n</parameter>\n"
        "<parameter=urgent>\nTrue\n</parameter>\n</function>",
        [("send_mail", {"to": ["a@x.de", "b@x.de"], "urgent": True})]),
    "Qwen XML, no end of parameters": (
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n<parameter=days>\n3\n"
        "</function>\n</tool_call>", [LONG_ROME]),
    "Qwen XML, two": (
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n"
        "</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>", [ROME, NOW]),
    "Qwen XML, none": ("<function=now>\n</function>\n</tool_call>", [NOW]),
    "Hermes, the first mark left out": (
        f"{CALL}\n</tool_call>\n<tool_call>\n{OTHER}\n</tool_call>", [ROME, OSLO]),
    "Seed": (
        "<seed:think>Hm.</seed:think><seed:tool_call><function=get_weather><parameter=city>Rome"
        "</parameter></function></seed:tool_call>", [ROME]),
    "DeepSeek V3": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        '{"city": "Rome"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n'
        "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", [ROME, NOW]),
    "DeepSeek V3.1": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Rome"}'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>", [ROME]),
    "DeepSeek V3.2": (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter'
        ' name="city" string="true">Rome</｜DSML｜parameter>\n<｜DSML｜parameter name="days"'
        ' string="false">3'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>", [LONG_ROME]),
    "DeepSeek, no opening": (
        '<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>', [NOW]),
    "Kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
        '<|tool_call_argument_begin|>{"city": "Rome"}<|tool_call_end|><|tool_call_begin|>'
        "functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        [ROME, NOW]),
    "Mistral": (f"[TOOL_CALLS] [{CALL}, {OTHER}]</s>", [ROME, OSLO]),
    "Mistral, names": ('[TOOL_CALLS]get_weather{"city": "Rome"}[TOOL_CALLS]now{}', [ROME, NOW]),
    "Mistral, ids": (
        '[THINK]Hm {"name": "now"}[/THINK][TOOL_CALLS]get_weather[CALL_ID]Zx1[ARGS]'
        '{"city": "Rome"}',
        [ROME]),
    "Llama": (f"<|python_tag|>{CALL.replace('arguments', 'parameters')}; {OTHER}", [ROME, OSLO]),
    "Llama, function": ('<function=get_weather>{"city": "Rome"}</function><|eot_id|>', [ROME]),
    "Llama, code": ('<|python_tag|>get_weather.call(city="Rome")<|eom_id|>', [ROME]),
    "Llama 4": ('<|python_start|>[get_weather(city="Rome"), now()]<|python_end|>', [ROME, NOW]),
    "code": ("[get_weather(city='Rome', days=3), now()]", [LONG_ROME, NOW]),
    "code in lines": ("<function_calls>\nget_weather(city='Rome')\nnow()\n</function_calls>",
                      [ROME, NOW]),
    "code in a fence": ("```tool_code\nprint(default_api.get_weather(city='Rome'))\n```", [ROME]),
    "LFM": ('<|tool_call_start|>[get_weather(city="Rome")]<|tool_call_end|>', [ROME]),
    "Anthropic": (
        '<function_calls>\n<invoke name="get_weather">\n<parameter name="city">Rome</parameter>\n'
        '<parameter name="days">3</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n'
        "</function_calls>", [LONG_ROME, NOW]),
    "Anthropic, early": (
        "<function_calls>\n<invoke>\n<tool_name>get_weather</tool_name>\n<parameters>\n"
        "<city>Rome</city>\n<days>3</days>\n</parameters>\n</invoke>\n</function_calls>",
        [LONG_ROME]),
    "MiniMax": (
        '<minimax:tool_call>\n<invoke name="send_mail">\n<parameter name="to">["a@x.de"]'
        "</parameter>\n</invoke>\n</minimax:tool_call>", [("send_mail", {"to": ["a@x.de"]})]),
    "MiniMax M1": (f"<tool_calls>\n{CALL}\n{OTHER}\n</tool_calls>", [ROME, OSLO]),
    "Cline": (
        "<use_mcp_tool>\n<server_name>sky</server_name>\n<tool_name>get_weather</tool_name>\n"
        '<arguments>\n{"city": "Rome"}\n</arguments>\n</use_mcp_tool>', [ROME]),
    "GLM": (
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>", [LONG_ROME]),
    "GLM 4": ('get_weather\n{"city": "Rome"}', [ROME]),
    "Harmony": (
        '<|channel|>analysis<|message|>{"city": "Oslo"}?<|end|><|start|>assistant<|channel|>'
        "commentary to=functions.get_weather <|constrain|>json<|message|>"
        '{"city": "Rome"}<|call|>', [ROME]),
    "Harmony, begun in the prompt": (
        ' to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome"}<|call|>', [ROME]),
    "Harmony, recipient first": (
        '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>'
        '{"city": "Rome"}<|call|>', [ROME]),
    "Granite": (f"<|tool_call|>[{CALL}]", [ROME]),
    "Granite, early": (f"<function_call> {CALL}", [ROME]),
    "Cohere": (
        'Action: ```json\n[{"tool_name": "get_weather", "parameters": {"city": "Rome"}}]\n```',
        [ROME]),
    "Cohere R7B": (
        "<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n{\"tool_call_id\": \"0\","
        ' "tool_name": "get_weather", "parameters": {"city": "Rome"}}]<|END_ACTION|>', [ROME]),
    "Phi": (f"functools[{CALL}]", [ROME]),
    "Phi, marks": (f"<|tool_call|>[{CALL}]<|/tool_call|>", [ROME]),
    "InternLM": (f"<|action_start|><|plugin|>\n{CALL}<|action_end|>", [ROME]),
    "Nemotron": (f"<TOOLCALL>[{CALL}]</TOOLCALL>", [ROME]),
    "Apertus": ('<|tools_prefix|>[{"get_weather": {"city": "Rome"}}]<|tools_suffix|>', [ROME]),
    "Functionary": ('>>>get_weather\n{"city": "Rome"}', [ROME]),
    "Gemma": (
        "<start_function_call>call:get_weather{city:<escape>Rome<escape>,days:3}"
        "<end_function_call>", [LONG_ROME]),
    "Gemma 4": (
        '<|tool_call>call:get_weather{city:<|"|>Rome<|"|>,days:3}<tool_call|>', [LONG_ROME]),
    "Nova": ("<__function=get_weather><__parameter=city>Rome</__parameter></__function>", [ROME]),
    "Llama, half a mark": ('<function=get_weather{"city": "Rome"}</function>', [ROME]),
    "Llama, brackets": ('<function(get_weather){"city": "Rome"}</function>', [ROME]),
    "a name as attribute": ('<tool_call name="get_weather">{"city": "Rome"}</tool_call>', [ROME]),
    "words, then code": ("I look.\n[get_weather(city='Rome')]", [ROME]),
    "code without names": ("get_weather('Rome')", [ROME]),
    "DeepSeek, other bars": (
        "<|tool▁calls▁begin|><|tool▁call▁begin|>function<|tool▁sep|>get_weather\n```json\n"
        '{"city": "Rome"}\n```<|tool▁call▁end|>', [ROME]),
    "Hermes, in a fence": (f"<tool_call>\n```json\n{CALL}\n```\n</tool_call>", [ROME]),
    "Hermes, arguments as text": (
        '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Rome\\"}"}</tool_call>',
        [ROME]),
    "Hermes, a brace missing": (f"<tool_call>\n{CALL[:-1]}\n</tool_call>", [ROME]),
    "ReAct": (
        'Thought: I look.\nAction: get_weather\nAction Input: {"city": "Rome"}\nObservation: 5 C',
        [ROME]),
    "a call as it was written down": (
        '[Called function "get_weather" with args: {"city": "Rome"}]\n'
        '[Called function "now" with args: {}]', [ROME, NOW]),
    "a thought before": (f"<think>{OTHER}?</think>\n{CALL}", [ROME]),
    "the end of a thought before": (f"<tool_call>{OTHER}</tool_call>?</think>\n{CALL}", [ROME]),
    "a thought without an end": (f"<think>I look.\n<tool_call>{CALL}</tool_call>", [ROME]),
    "a thought in a text": (
        '<tool_call>{"name": "write_note", "arguments": {"path": "<think>x</think>"}}</tool_call>',
        [("write_note", {"path": "<think>x</think>"})]),
    "a fence that is all": (f"```xml\n<tool_call>{CALL}</tool_call>\n```", [ROME]),
    "prose": (f"I call {CALL} now", [ROME]),
    "lines of JSON": (f"{CALL}\n{OTHER}", [ROME, OSLO]),
    "several tools at once": (
        '{"tool_uses": [{"recipient_name": "functions.get_weather", "parameters": {"city": "Rome"}'
        '}, {"recipient_name": "functions.now", "parameters": {}}]}', [ROME, NOW]),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_a_model_is_read(form):
    text, calls = FORMS[form]
    reports = repair_drafts(text, TOOLS)
    assert [(report.name, report.arguments) for report in reports] == calls
    assert all(report.outcome != "abstained" for report in reports)


@cases(
    "text",
    f"Write `<tool_call>{CALL}</tool_call>` to call it.",
    f"Hermes writes calls so:\n```xml\n<tool_call>\n{CALL}\n</tool_call>\n```\nParse them.",
    f"Hermes writes calls so:\n~~~\n<tool_call>\n{CALL}\n</tool_call>\n~~~\nParse them.",
    f"You wrote:\n> <tool_call>{CALL}</tool_call> <tool_call>{CALL}</tool_call>\nWhy?",
    "The model wraps a call in <tool_call> and </tool_call>.",
    "Use <function=NAME> with <parameter=KEY> inside.",
    "It begins with [TOOL_CALLS] and then the name.",
    '<｜DSML｜invoke name="now">is what it writes',
    "In Python: >>> now()",
    "functools is a module; to=me",
    '{"action": "Final Answer", "action_input": "It rains."}',
    '{"name": "now", "description": "The time.", "parameters": {"type": "object"}}',
    "I would call get_weather(city='Rome') here.",
    'It prints `[Called function "now" with args: {}]` then.',
)
def test_prose_that_shows_a_form_is_no_call(text):
    assert read_drafts(text) == []


@cases(
    "text, count",
    (f'<tool_call>{CALL}</tool_call><tool_call>{{"name": "now", "argu', 2),
    (f'<tool_call>{CALL}</tool_call><tool_call>{{"name" "now" 5}}</tool_call>', 2),
    (f'[{CALL}, {{"name": "now", "arguments": {{"a": }}}}]', 2),
    (f'{CALL}\n{{"name": "now", "arguments": {{"a": }}}}', 2),
    (f'{{"tool_calls": [{CALL}, {{"index": 1}}]}}', 2),
    ("<function=get_weather>\n<parameter=city>\nRo", 1),
    ("[get_weather(city='Rome'), now(at=clock())]", 2),
    ("now(at={'a': 1, 'a': 2})", 1),
    ("<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Ro", 1),
)
def test_a_call_that_cannot_be_read_is_not_lost(text, count):
    reports = repair_drafts(text, TOOLS)
    assert len(reports) == count
    last = reports[-1]
    assert (last.outcome, last.reason is not None) == ("abstained", True)
    if count == 2:
        assert (reports[0].name, reports[0].arguments) == ROME


def test_damaged_text_yields_reports_of_calls_that_fit_or_a_reason():
    draw = random.Random(11)
    texts = [text for text, _ in FORMS.values()]
    pieces = [*'"{}[]<>(),:=\\', "</parameter>", "<tool_call>", "```", "</think>", "\ud800", *texts]
    for _ in range(300):
        text = draw.choice(texts)
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(text) + 1)
            text = text[:at] + draw.choice(pieces) + text[at + draw.randrange(9) :]
        for report in repair_drafts(text, TOOLS):
            assert (report.reason is None) == (report.outcome != "abstained")


ARGUMENTS = {"city": "Rome"}
SHAPES = {
    "Chat": {"choices": [{"message": {"content": None, "tool_calls": [
        {"id": "c", "type": "function",
         "function": {"name": "get_weather", "arguments": json.dumps(ARGUMENTS)}}]}}]},
    "Chat, text": {"choices": [{"message": {"content": f"<tool_call>{CALL}</tool_call>"}}]},
    "legacy": {"message": {"function_call": {"name": "get_weather", "arguments": ARGUMENTS}}},
    "Responses": {"output": [{"type": "reasoning", "summary": []}, {
        "type": "function_call", "call_id": "c", "name": "get_weather",
        "arguments": '{"city": "Rome"}'}]},
    "Anthropic": {"role": "assistant", "content": [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c", "name": "get_weather", "input": ARGUMENTS}]},
    "Gemini": {"candidates": [{"content": {"parts": [
        {"text": "ok"}, {"functionCall": {"name": "get_weather", "args": ARGUMENTS}}]}}]},
    "Gemini, Python": {"function_call": {"name": "get_weather", "args": ARGUMENTS}},
    "Bedrock": {"output": {"message": {"role": "assistant", "content": [
        {"toolUse": {"toolUseId": "c", "name": "get_weather", "input": ARGUMENTS}}]}}},
    "Cohere": {"tool_calls": [{"name": "get_weather", "parameters": ARGUMENTS}]},
    "LangChain": {"content": "", "additional_kwargs": {}, "tool_calls": [
        {"name": "get_weather", "args": ARGUMENTS, "id": "c", "type": "tool_call"}],
        "invalid_tool_calls": []},
    "LangChain, serialised": {"lc": 1, "kwargs": {"content": [], "tool_calls": [
        {"name": "get_weather", "args": ARGUMENTS}]}},
    "LangChain, invalid": {"tool_calls": [], "invalid_tool_calls": [
        {"name": "get_weather", "args": "{'city': 'Rome'}", "error": "no JSON"}]},
    "LangChain, agent": {"action": "get_weather", "action_input": ARGUMENTS},
    "Vercel": {
        "type": "tool-call", "toolCallId": "c", "toolName": "get_weather", "args": ARGUMENTS},
    "LlamaIndex": {"tool_id": "c", "tool_name": "get_weather", "tool_kwargs": ARGUMENTS},
    "Ollama": {"message": {"content": "", "tool_calls": [
        {"function": {"index": 0, "name": "get_weather", "arguments": ARGUMENTS}}]}},
    "MCP": {"method": "tools/call", "params": {"name": "get_weather", "arguments": ARGUMENTS}},
    "Assistants": {"required_action": {"submit_tool_outputs": {"tool_calls": [
        {"function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}]}}},
    "a call of several": {"name": "multi_tool_use.parallel", "arguments": json.dumps(
        {"tool_uses": [{"recipient_name": "functions.get_weather", "parameters": ARGUMENTS}]})},
    "flat": {"name": "get_weather", "city": "Rome"},
    "under a tool": {"tool": {"name": "get_weather", "arguments": ARGUMENTS}},
    "a call as arguments": {"name": "", "arguments": json.dumps(
        {"name": "get_weather", "arguments": ARGUMENTS})},
    "text in parts": {"content": [{"type": "text", "text": f"<tool_call>{CALL}</tool_call>"}]},
    "Semantic Kernel": {"items": [
        {"functionName": "get_weather", "pluginName": "sky", "arguments": ARGUMENTS}]},
    "Bedrock, agents": {"actionGroup": "sky", "function": "get_weather", "parameters": [
        {"name": "city", "type": "string", "value": "Rome"}]},
    "code in a list": ["get_weather(city='Rome')"],
    "names and values": {"name": "get_weather", "parameters": [
        {"name": "city", "type": "string", "value": "Rome"}]},
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_of_a_vendor_is_read(shape):
    [report] = repair_drafts(SHAPES[shape], TOOLS)
    assert (report.name, report.arguments, report.reason) == (*ROME, None)
    [report] = repair_drafts(json.dumps(SHAPES[shape]), TOOLS)
    assert (report.name, report.arguments) == ROME


@cases(
    "name",
    *("functions.get_weather:0", "`get_weather`", '"get_weather"', "get_weather()"),
    *("tool_get_weather", "get_weather<|channel|>commentary", "get_weather_tool"),
    *(" get_weather\n", "**get_weather**", "default_api.get_weather", "function_get_weather"),
    *("functions:get_weather:12", "assistant<|channel|>get_weather", "mcp_sky_get_weather"),
)
def test_marks_around_a_name_are_left_out(name):
    [report] = repair_drafts({"name": name, "arguments": ARGUMENTS}, TOOLS)
    assert (report.name, report.outcome) == ("get_weather", "repaired")
