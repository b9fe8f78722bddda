"""The ladder: what each rung repairs, what it leaves, and what never happens."""

import copy
import json
import random

import pytest

from assets.contracts.rename_history import ContractHistory, ContractMove
from assets.contracts.validate import validate_call
from serving.repair.evidence import ConversationEvidence
from serving.repair.ladder import repair_draft, repair_drafts
from serving.repair.rungs import ABSTAINED, REPAIRED, RUNGS, VALID
from serving.repair.tools import ProposedCall, read_tool, read_toolset
from tests.support.cases import cases

TEXT, INTEGER = {"type": "string"}, {"type": "integer"}
SCHEMA = {
    "type": "object",
    "properties": {
        "city": TEXT,
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "when": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "timeout": {"type": "integer", "description": "Timeout in milliseconds"},
        "distance_km": {"type": "number"},
        "tags": {"type": "array", "items": TEXT},
        "place": {"type": "object", "properties": {"street": TEXT}},
    },
    "required": ["city"],
}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
MAILED = {
    "recipient": {"type": "string", "format": "email"},
    "subject": TEXT,
    "priority": {"type": "string", "enum": ["low", "normal", "urgent"]},
    "copies": INTEGER,
}
MAIL_SCHEMA = {"type": "object", "properties": MAILED, "required": list(MAILED)}
MAIL = {"name": "send_mail", "input_schema": MAIL_SCHEMA}
TOOLS = [WEATHER, MAIL]
ROME = {"city": "Rome"}


def climb(arguments, name="get_weather", **given):
    return repair_draft({"name": name, "arguments": arguments}, TOOLS, **given)


def make_tool(name, properties, **schema):
    return {"name": name, "inputSchema": {"properties": properties, **schema}}


MADE = {  # arguments -> what they become
    "double-encoded": ('"{\\"city\\": \\"Rome\\"}"', ROME),
    "code fence": ('```json\n{"city": "Rome"}\n```', ROME),
    "Python literals": ("{'city': 'Rome', 'days': None}", ROME),
    "mixed literals": ("{'city': 'Rome', 'days': null}", ROME),
    "trailing comma": ('{"city": "Rome, IT", "days": 2,}', {"city": "Rome, IT", "days": 2}),
    "comments": ('{"city": "http://x", // where\n "days": 2 /* two */}',
                 {"city": "http://x", "days": 2}),
    "NaN": ('{"city": "Rome", "days": NaN}', ROME),
    "Infinity": ('{"city": "Rome", "days": -Infinity}', ROME),
    "raw line break": ('{"city": "Ro\nme"}', {"city": "Ro\nme"}),
    "no quotes": ('{city: "Rome", days: 2}', {**ROME, "days": 2}),
    "missing brace": ('{"city": "Rome"', ROME),
    "cut in a choice": ('{"city": "Rome", "unit": "fahr', {**ROME, "unit": "fahrenheit"}),
    "said twice": ('{"city": "Rome"}{"city": "Rome"}', ROME),
    "types": ({**ROME, "days": "3"}, {**ROME, "days": 3}),
    "choice": ({**ROME, "unit": "Celsius"}, {**ROME, "unit": "celsius"}),
    "date in words": ({**ROME, "when": "March 5, 2026"}, {**ROME, "when": "2026-03-05"}),
    "a moment": ({**ROME, "at": "March 5, 2026 2:30pm"}, {**ROME, "at": "2026-03-05T14:30:00Z"}),
    "date, time and zone": ({**ROME, "at": "March 5, 2026 2:30pm UTC+2"},
                            {**ROME, "at": "2026-03-05T14:30:00+02:00"}),
    "day of a moment": ({**ROME, "when": "2026-03-05T00:00:00Z"}, {**ROME, "when": "2026-03-05"}),
    "seconds": ({**ROME, "timeout": "30s"}, {**ROME, "timeout": 30000}),
    "miles": ({**ROME, "distance_km": "2 miles"}, {**ROME, "distance_km": 3.218688}),
    "thousands": ({**ROME, "timeout": "1,500"}, {**ROME, "timeout": 1500}),
    "a list as text": ({**ROME, "tags": '["a"]'}, {**ROME, "tags": ["a"]}),
    "PHP's empty list": ({**ROME, "place": []}, {**ROME, "place": {}}),
    "the empty list as text": ({**ROME, "place": "[]"}, {**ROME, "place": {}}),
    "words after": ('{"city": "Rome"}\n\nNow I wait.', ROME),
    "a role after": ('{"city": "Rome"}assistant', ROME),
    "a comment after": ('{"city": "Rome"} // said the user', ROME),
    "a mark after": ('{"city": "Rome"}</tool_call><|im_end|>', ROME),
    "a thought before": ('<think>{"city": "Oslo"}?</think>{"city": "Rome"}', ROME),
    "the end of a thought before": ('Oslo? {}</think>\n{"city": "Rome"}', ROME),
    "one brace too many": ('{"city": "Rome"}}', ROME),
    "parameters of XML": ("<parameter=city>Rome</parameter>", ROME),
    "pairs": ("<arg_key>city</arg_key><arg_value>Rome</arg_value>", ROME),
    "assignments": ("city='Rome', days=2", {**ROME, "days": 2}),
    "one without a name": (["Rome"], ROME),
    "a set": ({**ROME, "tags": "{'a', 'b'}"}, {**ROME, "tags": ["a", "b"]}),
    "text in text within": (
        {**ROME, "place": '"{\\"street\\": \\"Via\\"}"'}, {**ROME, "place": {"street": "Via"}}),
    "closed too early": ('{"city": "Rome"}, "days": 2}', {**ROME, "days": 2}),
    "begun with nothing": ('{}{"city": "Rome"}', ROME),
    "flat": ({**ROME, "street": "Via"}, {**ROME, "place": {"street": "Via"}}),
    "dotted": ({"city": "Oslo", "place.street": "A"}, {"city": "Oslo", "place": {"street": "A"}}),
    "nested": ({"location": {"city": "Rome", "days": 2}}, {**ROME, "days": 2}),
    "related name": ({"city_name": "Rome"}, ROME),
    "undeclared": ({**ROME, "verbose": True}, ROME),
    "undeclared, a switch within": ({**ROME, "o": {"cache": True}}, ROME),
    "undeclared, nothing within": ({**ROME, "o": [None, {"a": {}}]}, ROME),
    "undeclared, beyond any float": ({**ROME, "z": [[10**400]]}, ROME),
}  # fmt: skip


@pytest.mark.parametrize("flaw", MADE)
def test_a_flaw_is_repaired(flaw):
    given, expected = MADE[flaw]
    result = climb(given)
    assert (result.outcome, result.arguments) == (REPAIRED, expected)
    assert json.loads(result.text) == expected
    assert result.steps
    assert [rung.rung for rung in result.rungs] == list(RUNGS)


LEFT = {  # arguments -> kind of reason, a word of the question
    "cut in a text": ('{"city": "San Fran', "cut_off", "$.city"),
    "cut in a number": ('{"city": "Rome", "days": 1', "cut_off", "$.days"),
    "cut in a name": ('{"city": "Rome", "da', "cut_off", "next argument"),
    "cut in the name after a number": ('{"city": "Rome", "days": 2, "un', "cut_off", "next"),
    "cut after a comma": ('{"city": "Rome", ', "cut_off", "next argument"),
    "cut after a colon": ('{"city": "Rome", "days": ', "cut_off", "next argument"),
    "cut after a name": ('{"city": "Rome", "days"', "cut_off", "next argument"),
    "cut in a list": ('{"city": "Rome", "tags": ["a", ', "cut_off", "next argument"),
    "cut after a point": ('{"city": "Rome", "distance_km": -2.', "unreadable", "no JSON object"),
    "two calls": ('{"city": "Rome"}{"city": "Oslo"}', "several_calls", "2 calls"),
    "two calls with marks": (
        '{"city": "Rome"}</tool_call>\n<tool_call>\n{"city": "Oslo"}', "several_calls", "2 calls"),
    "two calls with words": ('{"city": "Rome"} or {"city": "Oslo"}', "several_calls", "2 calls"),
    "two calls on lines": ('{"city": "Rome"}\nThen:\n{"days": 2}', "several_calls", "2 calls"),
    "two of Python": ("{'city': 'Rome'} and {'city': 'Oslo'}", "unreadable", "no JSON"),
    "an argument in words": ('{"city": "Rome"} days=2', "unreadable", "no JSON"),
    "a name twice": ('{"city": "Rome", "city": "Oslo"}', "unreadable", "'city' stands there twice"),
    "a name twice in Python": ("{'city': 'Rome', 'city': 'Oslo'}", "unreadable", "twice"),
    "an object for a text": ({"city": {"not": "Rome"}}, "unfit_value", "$.city"),
    "missing": ({"days": 2}, "missing_value", "'city'"),
    "nothing": ("", "missing_value", "'city'"),
    "cut in a huge number": ('{"city": "Rome", "days": 1' + "0" * 400, "cut_off", "days"),
    "day or month first": ({**ROME, "when": "03/04/2026"}, "unfit_value", "$.when"),
    "a zone by its letters": ({"city": "R", "at": "March 5, 2026 2:30pm EST"}, "unfit_value", "at"),
    "no year": ({**ROME, "when": "March 5"}, "unfit_value", "$.when"),
    "unit unknown": ({**ROME, "days": "2 hours"}, "unfit_value", "$.days"),
    "megabytes": ({**ROME, "timeout": "10MB"}, "unfit_value", "$.timeout"),
    "out of range": ({**ROME, "days": 40}, "unfit_value", "at most 14"),
    "not JSON": ("rm -rf", "unreadable", "no JSON object"),
    "too large": ("{" * 3_000_000, "too_large", "3,000,000"),
    "deep": ('{"city":' * 80 + "1" + "}" * 80, "too_deep", "60 levels"),
    "never closed": ("[" * 100_000, "unreadable", "no JSON"),
}  # fmt: skip


@pytest.mark.parametrize("flaw", LEFT)
def test_what_takes_guessing_is_asked(flaw):
    given, kind, word = LEFT[flaw]
    result = climb(given)
    assert (result.outcome, result.reason.kind) == (ABSTAINED, kind)
    assert word in result.reason.question
    assert (result.arguments, result.steps) == (given, [])


@pytest.mark.parametrize("key", ["anyOf", "oneOf"])
@pytest.mark.parametrize("given", [{}, None, [], {"c": 1}])
def test_one_of_several_is_required(key, given):
    one_of = [{"required": ["a"]}, {"required": ["b"]}]
    tool = make_tool("t", {"a": TEXT, "b": {}}, type="object", **{key: one_of})
    result = repair_draft({"name": "t", "arguments": given}, [tool], conversation="a: hello")
    assert (result.outcome, result.reason is None) == (ABSTAINED, False)


def test_what_the_user_said_and_what_guards_a_call_is_not_dropped():
    delete = make_tool("delete_rows", {"table": TEXT})
    for name, value in {"dry_run": True, "rows": "id = 5", "batch": 400}.items():
        draft = {"name": "delete_rows", "arguments": {"table": "t", name: value}}
        result = repair_draft(draft, [delete], conversation="delete id = 5 of t, 400 at a time")
        assert (result.outcome, result.arguments) == (ABSTAINED, draft["arguments"])
        assert name in result.reason.question


def repair_missing(parameter, said, schema=None, name="act"):
    """What becomes of a call without its one required parameter, after what the user said."""
    about = {parameter: schema or TEXT}
    tool = make_tool(name, about, type="object", required=[parameter])
    return repair_draft({"name": name, "arguments": {}}, [tool], conversation=said)


@cases(
    "parameter, said",
    ("path", 'delete everything but keep path "/keep/me"'),
    ("path", 'never delete path "/keep/me"'),
    ("email", "do not send it to boss@x.com"),
    ("email", "Don’t write to boss@x.com, write to the other one"),
    ("email", "anyone except boss@x.com"),
    ("email", "schick es nicht an boss@x.com"),
    ("email", "Dont send it to boss@x.com"),
    ("email", "Do NOT mail these:\n- boss@x.com"),
    ("email", "anyone other than boss@x.com"),
    ("email", "niet naar boss@x.com"),
    ("email", "Не пиши на boss@x.com"),
    ("email", "不要发给 boss@x.com"),
    ("count", "no count: 5 please"),
)
def test_what_the_user_rules_out_fills_nothing(parameter, said):
    result = repair_missing(parameter, said)
    assert (result.outcome, result.reason.kind) == (ABSTAINED, "missing_value")


def test_a_name_that_was_used_before_is_no_statement_of_now():
    said = [{"role": "user", "content": "The weather please, city: Rome"},
            {"role": "assistant", "content": "Sunny."},
            {"role": "user", "content": "And the same for Oslo!"}]  # fmt: skip
    assert repair_missing("city", said).outcome == ABSTAINED
    result = {"role": "user", "content": [{"type": "tool_result", "content": "Oslo"}]}
    assert repair_missing("city", [*said[:2], result]).arguments == {"city": "Rome"}
    said[0]["content"] = "I am ann@x.com"
    assert repair_missing("email", said).outcome == ABSTAINED
    beside = "Send it to ann@x.com. Never send it to boss@x.com!"
    assert repair_missing("email", beside).arguments == {"email": "ann@x.com"}


@cases("parameter", "password", "api_key", "accessToken", "otp", "cardPin", "cvv", "key")
def test_a_secret_that_the_model_left_out_is_not_put_in(parameter):
    about = {"type": "string", "description": "The API's key"}
    said = f'my {parameter.replace("_", " ")} is "hunter2"'
    result = repair_missing(parameter, said, about if parameter == "key" else None)
    assert (result.outcome, result.reason.kind) == (ABSTAINED, "missing_value")
    assert repair_missing("key", 'key "a"', name="create_api_client").outcome == ABSTAINED
    assert repair_missing("key", 'get the key "theme"', name="kv_get").arguments == {"key": "theme"}


@cases(
    "parameter, schema",
    ("sure", {"const": True}),
    ("confirm", {"enum": ["YES, DELETE"]}),
    ("acceptTerms", {"type": "string", "enum": ["yes"]}),
    ("force", {"type": "integer", "enum": [1]}),
    ("confirm", {"enum": ["yes", "no"]}),
    ("confirm", {"type": "string"}),
    ("confirm", {"type": "boolean"}),
    ("force", {"type": "integer"}),
)
def test_nobody_confirms_in_the_place_of_the_model(parameter, schema):
    result = repair_missing(parameter, f'remove /x, yes, {parameter}: 1 "1"', schema)
    assert (result.outcome, result.reason.kind) == (ABSTAINED, "missing_value")


@cases(
    "name, outcome",
    ("get_weather", VALID),
    ("getWeather", REPAIRED),
    ("functions.get_weather", REPAIRED),
    ("mcp__sky__get_weather", REPAIRED),
    ("get_wether", REPAIRED),
    ("weather_forecast", ABSTAINED),
)
def test_a_tool_is_found_by_its_name(name, outcome):
    result = climb(ROME, name)
    assert result.outcome == outcome
    if outcome == ABSTAINED:
        assert result.reason.kind == "unknown_tool"
        assert "get_weather" in result.reason.question
    else:
        assert result.name == "get_weather"


@cases(
    "called, offered, found",
    ("mcp__notes__delete", "mcp__files__delete", False),
    ("notes.delete", "files.delete", False),
    ("functions.delete", "mcp__files__delete", True),
    ("default_api.files__delete", "mcp__files__delete", True),
    ("functions.mcp__files__delete", "mcp__files__delete", True),
    ("mcp__Files__Delete", "files__delete", True),
    ("delete", "mcp__files__delete", True),
    ("mcp__files__delete", "delete", True),
)
def test_a_prefix_that_names_another_server_is_another_tool(called, offered, found):
    tool = make_tool(offered, {"path": TEXT})
    report = repair_draft({"name": called, "arguments": {"path": "x"}}, [tool])
    assert (report.name == offered) is found
    assert report.outcome == (REPAIRED if found else ABSTAINED)


def test_a_number_is_the_text_that_was_written_and_several_values_are_none():
    version = make_tool("t", {"version": TEXT})
    for written in ("3.10", "1e5", "12345678901234567890123.5", "0.30"):
        result = repair_draft({"name": "t", "arguments": f'{{"version": {written}}}'}, [version])
        assert result.arguments == {"version": written}
    tools = [make_tool("t", {"a": {"type": "number"}, "b": INTEGER})]
    good = '{"a": 1e999, "b": 5}'
    assert repair_draft({"name": "t", "arguments": good}, tools).text == good
    for broken in ('{"a": 1e999, "b": "5"}', "{'a': 1e999, 'b': 5}", '{"a": 1e999, "b": 5,}'):
        result = repair_draft({"name": "t", "arguments": broken}, tools)
        assert (result.outcome, result.text) == (ABSTAINED, broken)
    draft = {"name": "rm", "arguments": {"path": ["a", "b"]}}
    result = repair_draft(draft, [make_tool("rm", {"path": TEXT})])
    assert (result.outcome, result.reason.kind) == (ABSTAINED, "unfit_value")
    about = {"type": "string", "description": "A JSON array of paths"}
    result = repair_draft(draft, [make_tool("rm", {"path": about})])
    assert result.arguments == {"path": '["a", "b"]'}


@pytest.mark.parametrize("draft", ["hello", None, 5, [], {}, "(((", {"tool_calls": []}])
def test_what_holds_no_call_is_told(draft):
    result = repair_draft(draft, TOOLS)
    assert (result.outcome, result.reason.kind) == (ABSTAINED, "no_call")
    json.dumps(result.as_dict())


def test_each_call_is_repaired_by_itself_a_valid_one_kept_and_no_draft_changed():
    both = {"name": "get_weather", "arguments": '{"city": "Rome"}{"city": 5}'}
    assert [each.arguments["city"] for each in repair_drafts(both, TOOLS)] == ["Rome", "5"]
    text = '{ "city":"Rome",\t"days" : 2.0, "place": {}}'
    assert climb(text).text == text
    assert climb(text, history=HISTORY, revise=pytest.fail).rungs[-1].rung == "validate"
    draft = {"name": "get_weather", "arguments": {"city": "Rome", "place": {}, "street": "x"}}
    before = copy.deepcopy(draft)
    assert (repair_draft(draft, TOOLS).outcome, draft) == (REPAIRED, before)


def test_missing_values_come_from_the_conversation_or_are_the_only_ones_or_asked_for():
    said = "Mail ana@example.com with the subject 'Fees', urgent, 2 copies."
    result = climb({}, "send_mail", conversation=said)
    mail = {"recipient": "ana@example.com", "subject": "Fees", "priority": "urgent", "copies": 2}
    assert (result.outcome, result.arguments) == (REPAIRED, mail)
    two = climb({}, "send_mail", conversation=said.replace("Mail", "Mail bo@example.com and"))
    assert (two.outcome, two.reason.path) == (ABSTAINED, "$.recipient")
    assert repair_missing("type", "x", {"const": "text"}).arguments == {"type": "text"}
    assert repair_missing("version", "x", {"const": 2}).arguments == {"version": 2}
    assert repair_missing("recursive", "x", {"const": True}).outcome == ABSTAINED


HISTORY = ContractHistory(
    (
        ContractMove("npm:sky", "weather_now", "forecast", {"town": "place"}),
        ContractMove("npm:sky", "get_weather", "weather_now", {"place": "city"}),
    )
)


def test_history_the_contract_and_the_server_decide_which_tool_is_meant():
    result = climb({"town": "Rome"}, "forecast", history=HISTORY)
    assert (result.outcome, result.name) == (REPAIRED, "get_weather")
    assert result.arguments == {"city": "Rome"}
    assert [rung.rung for rung in result.rungs if rung.what] == ["history"]
    assert climb({"town": "Rome"}, "forecast").outcome == ABSTAINED
    wrong = ContractHistory((ContractMove("npm:sky", "get_weather", "forecast", {"town": "days"}),))
    denied = climb({"town": "Rome"}, "forecast", history=wrong)
    assert (denied.outcome, denied.reason.kind) == (ABSTAINED, "missing_value")
    crm = make_tool("get", {"id": INTEGER}, type="object", required=["id"])
    sky, sea = ({"inputSchema": SCHEMA, "server": server} for server in ("sky", "sea"))
    finders = [{"name": "find", **sky}, {"name": "find", **sea}]
    tools = [{"name": "get", **sky}, {**crm, "server": "crm"}, *finders]
    draft = {"name": "get", "arguments": {"id": 5}}
    assert repair_draft(draft, tools).server == "crm"
    draft = {"name": "find", "arguments": {"city": "Rome"}}
    assert repair_draft(draft, tools).reason.kind == "ambiguous_tool"
    assert repair_draft(draft, tools, conversation="ask the sea server").server == "sea"


def test_a_model_may_ask_and_revise_but_not_make_up_a_required_value():
    def revise(request):
        assert [problem["kind"] for problem in request.problems] == ["missing_required"]
        return ProposedCall(request.name, {"city": "Rome", "days": "2"})

    said = climb({"days": 2}, revise=revise, conversation="the weather of rome")
    assert (said.outcome, said.arguments) == (REPAIRED, {"city": "Rome", "days": 2})
    unsaid = climb({"days": 2}, revise=revise)
    assert (unsaid.outcome, unsaid.reason.kind) == (ABSTAINED, "missing_value")
    assert "made up 'city'" in unsaid.rungs[-2].why
    result = climb({}, revise=lambda _: ProposedCall("", {}, question="Which city?"))
    assert result.reason.question == "Which city?"


@cases(
    "answer", None, ProposedCall("rm", {}), ProposedCall("get_weather", {"city": []}), ValueError
)
def test_what_a_model_gets_wrong_leaves_the_draft(answer):
    def revise(_):
        if answer is ValueError:
            raise answer
        return answer and ProposedCall(*answer)

    result = climb({"days": 2}, revise=revise)
    assert (result.outcome, result.arguments) == (ABSTAINED, {"days": 2})
    assert result.rungs[-2].outcome == "failed"


@pytest.mark.parametrize("required", [["path"], ["path", "force"]])
def test_a_model_that_revises_may_confirm_nothing(required):
    known = {"path": {"type": "string"}, "force": {"type": "boolean"}, "deep": {"type": "boolean"}}
    tool = make_tool("rm", known, required=required)
    draft = {"name": "rm", "arguments": {"deep": True}}
    proposed_call = ProposedCall("rm", {"path": "/x", "force": True, "deep": True})
    given = {"conversation": "remove all of /x", "revise": lambda _: proposed_call}
    result = repair_draft(draft, [tool], **given)
    assert (result.outcome, "made up 'force'" in result.rungs[-2].why) == (ABSTAINED, True)
    draft["arguments"]["force"] = True
    assert repair_draft(draft, [tool], **given).arguments == proposed_call.arguments


@cases(
    "given, made, refused",
    ({}, {"path": "/x", "yes": True}, "yes"),
    ({}, {"path": "/x", "options": {"force": True}}, "options.force"),
    ({"options": {"force": True}}, {"path": "/x", "options": {"force": True}}, ""),
    ({}, {"path": "/x", "options": {"accept": "text/html"}}, ""),
    ({"dry_run": True}, {"path": "/x"}, "dry_run"),
    ({"dry_run": True}, {"path": "/x", "dry_run": False}, "dry_run"),
    ({"dry_run": True}, {"path": "/x", "dryRun": True}, ""),
    ({"dry_run": False}, {"path": "/x"}, ""),
    ({"options": {"where": "a"}}, {"path": "/x", "options": {}}, "options.where"),
    ({"limit": {"before": "x"}}, {"path": "/x", "limit": {"before": 5}}, ""),
    ({"limit": {"before": "x"}}, {"path": "/x", "limit": {}}, "limit.before"),
    ({"options": {"where": {"old": False}}}, {"path": "/x"}, "options.where"),
)
def test_a_model_that_revises_keeps_what_guards_the_call(given, made, refused):
    switch = {"type": "boolean"}
    known = {"path": TEXT, "yes": switch, "dry_run": switch, "options": {"type": "object"}}
    known["limit"] = {"type": "object", "properties": {"before": INTEGER}}
    tool = make_tool("rm", known, required=["path"])
    draft, call = {"name": "rm", "arguments": given}, ProposedCall("rm", made)
    result = repair_draft(draft, [tool], conversation="remove all of /x", revise=lambda _: call)
    assert result.outcome == (ABSTAINED if refused else REPAIRED)
    assert f"{refused!r}" in result.rungs[-2].why or not refused


def test_a_long_list_is_not_searched_for():
    evidence = ConversationEvidence("alpha beta, 7")
    assert evidence.is_said(["alpha beta", {"n": 7}] * 50)
    assert not evidence.is_said(["alpha beta"] * 101)
    assert not evidence.is_said([" ", {"a": [None, False]}])


DOUBLING = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(24)}
DOUBLING["d24"] = {"type": "object"}
HOSTILE = {
    "cycle": {"$ref": "#/properties/a", "properties": {"a": {"$ref": "#/properties/a"}}},
    "slow pattern": {"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}},
    "doubling": {"$defs": DOUBLING, "properties": {"a": {"$ref": "#/$defs/d0"}}},
    "no schema": {"type": "array"},
    "many": {"properties": {f"p{n}": {"type": "integer"} for n in range(1000)}},
}  # fmt: skip


@pytest.mark.parametrize("schema", HOSTILE)
def test_hostile_schemas_end_with_a_report(schema):
    tool = {"name": "t", "inputSchema": {"type": "object", **HOSTILE[schema]}}
    many = {f"p{n}": "1" for n in range(100)}
    for arguments in ({"a": "a" * 40 + "!"}, {"a": "x" * 1_000_000}, many):
        result = repair_draft({"name": "t", "arguments": arguments}, [tool])
        assert result.outcome in (VALID, REPAIRED, ABSTAINED)
        assert (result.reason is not None) == (result.outcome == ABSTAINED)


def test_ten_thousand_tools_are_read_once():
    tools = read_toolset({"name": f"tool_{n}", "inputSchema": SCHEMA} for n in range(10_000))
    result = repair_draft({"name": "tool_9999", "arguments": {"city": 5}}, tools)
    assert result.arguments == {"city": "5"}
    assert repair_draft({"name": "none", "arguments": {}}, tools).reason.kind == "unknown_tool"


def test_random_damage_loses_no_word():
    """What is repaired holds all words of the text that was sent, or it is asked for."""
    draw = random.Random(7)
    text = json.dumps({"city": "Rome", "tags": ["fast", "red"], "place": {"street": "Via"}})
    marks = ['"', "{", "}", ",", "'", ":", "]", "[", '}{"city": "Oslo"', "\n", "'], '"]
    for _ in range(400):
        at, mark = draw.randrange(len(text)), draw.choice(marks)
        damaged = text[:at] + mark + text[at + draw.randrange(2) :]
        result = climb(damaged)
        if result.outcome == REPAIRED:
            sent = [word for word in ("Rome", "fast", "red", "Via", "Oslo") if word in damaged]
            assert [word for word in sent if word not in result.text] == [], damaged


def test_random_damage_never_yields_an_invalid_call_nor_changes_a_valid_one():
    draw, contract = random.Random(5), read_tool(WEATHER).contract
    good = {"city": "Rome", "days": 2, "tags": ["a", "b"], "place": {"street": "Via"}}
    text = json.dumps(good | {"unit": "celsius"})
    for _ in range(300):
        given = list(text)
        for _ in range(draw.randrange(4)):
            at = draw.randrange(len(given))
            given[at : at + draw.randrange(3)] = draw.choice(["", *"\"{},'x9"])
        arguments = "".join(given)
        found, again = climb(arguments), climb(arguments)
        assert (found.outcome, found.text) == (again.outcome, again.text)
        if found.outcome == ABSTAINED:
            assert found.reason.question
        else:
            assert validate_call(contract, found.arguments) == []
        if found.outcome == VALID:
            assert found.text == arguments
