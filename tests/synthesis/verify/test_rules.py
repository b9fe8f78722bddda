"""The rules: what they accept, what they reject, and what they leave to a judge."""

import json
from typing import Any

from assets.contracts.canonical import canonicalize_contract
from assets.contracts.validate import validate_call
from assets.synthesis.verify.grading import grade_value
from assets.synthesis.verify.numbers import TextNumbers
from assets.synthesis.verify.request_text import RequestText
from assets.synthesis.verify.rules import find_call_flaws, verify, verify_row
from assets.synthesis.verify.words import ABSENT, LIKELY, STATED
from tests.support.cases import cases
from tests.synthesis.contracts import (
    ADD_RELATIONS,
    CITY_TIME,
    CONVERT,
    CREATE_ISSUE,
    PING,
    READ_FILE,
)

# ruff: noqa: E501  (one case a line)


ISSUE = {"project_key": "SHOP", "title": "Cart total is wrong", "priority": "high"}


@cases(
    "tool, text, arguments",
    (CITY_TIME, "What time is it in Tokyo right now?", {"timezone": "Asia/Tokyo"}),
    (READ_FILE, "Show me /srv/app/notes.md, the first ten lines.", {"path": "/srv/app/notes.md", "head": 10}),
    (CREATE_ISSUE, "Open a high priority ticket 'Cart total is wrong' in SHOP.", ISSUE),
    (CREATE_ISSUE, "We need a high-priority ticket called 'Cart total is wrong' in SHOP by the 9th of June 2025.", {**ISSUE, "due_date": "2025-06-09"}),
    (ADD_RELATIONS, "Remember that Maya manages Omar.", {"relations": [{"from": "Maya", "to": "Omar"}]}),
    (CONVERT, "How many yen do I get for two hundred and fifty euros?", {"amount": 250, "source_currency": "EUR", "target_currency": "JPY"}),
    (PING, "Are you still there?", {}),
    ids=lambda value: value["name"] if isinstance(value, dict) and "name" in value else None,
)  # fmt: skip
def test_a_good_pair_is_accepted(tool, text, arguments):
    found = verify(canonicalize_contract(tool), text, arguments)
    assert found.verdict == "accept", found.findings


@cases(
    "kind, text, arguments",
    ("missing_required_argument", "Open a high priority ticket in SHOP.", {"project_key": "SHOP"}),
    ("wrong_type", "Open a high ticket 'A b' in SHOP.", {**ISSUE, "title": 5}),
    ("unknown_argument", "Open a high ticket 'Cart total is wrong' in SHOP.", {**ISSUE, "to": "x"}),
    ("bad_value", "Open an urgent ticket 'Cart total is wrong' in SHOP.", {**ISSUE, "priority": "urgent"}),
    ("names_the_tool", "Use jira_create_issue for SHOP: high, 'Cart total is wrong'.", ISSUE),
    ("names_the_tool", "Ask npm:jira-server for a high ticket 'Cart total is wrong' in SHOP.", ISSUE),
    ("not_an_instruction", "Sure! Here is a request: open a high ticket 'Cart total is wrong' in SHOP.", ISSUE),
    ("not_an_instruction", "The user wants a high ticket 'Cart total is wrong' in SHOP.", ISSUE),
    ("not_an_instruction", "The ticket 'Cart total is wrong' was created in SHOP with high priority.", ISSUE),
    ("not_an_instruction", "...", ISSUE),
)  # fmt: skip
def test_a_certain_flaw_is_rejected_with_its_kind(kind, text, arguments):
    found = verify(canonicalize_contract(CREATE_ISSUE), text, arguments, server="npm:jira-server")
    assert (found.verdict, kind in found.kinds) == ("reject", True)


@cases(
    "kind, text, arguments",
    ("missing_required_value", "Open a high priority ticket in SHOP.", ISSUE),
    ("ungrounded_value", "Open a high ticket 'Cart total is wrong' in SHOP, estimate 3.", {**ISSUE, "estimate": 8}),
    ("missing_required_value", "Open a low ticket 'Cart total is wrong' in SHOP.", ISSUE),
)  # fmt: skip
def test_a_value_that_is_not_in_the_text_is_left_to_the_judge(kind, text, arguments):
    found = verify(canonicalize_contract(CREATE_ISSUE), text, arguments)
    assert (found.verdict, found.kinds) == ("unsure", [kind])


def test_names_descriptions_and_arguments_that_are_no_object_are_told():
    text = "Ping the server again, will you?"
    assert verify(canonicalize_contract(PING), text, {}).verdict == "accept"
    assert verify(canonicalize_contract(PING), "Use the ping tool.", {}).kinds == ["names_the_tool"]
    for arguments in (None, [], "x", 3):
        assert verify(canonicalize_contract(PING), text, arguments).kinds == ["wrong_type"]
    text = "Please read the complete contents of the file /a/b.txt from the file system as text."
    found = verify(canonicalize_contract(READ_FILE), text, {"path": "/a/b.txt"})
    assert found.kinds == ["copies_description"]


@cases(
    "text, number",
    ("1,000,000 lamports", 1e6), ("1.000,5 euros", 1000.5), ("1,68 metros", 1.68),
    ("two hundred and six", 206), ("forty-two", 42), ("the twenty-first one", 21), ("5k users", 5000),
    ("nineteen ninety-six", 1996), ("drei Bilder", 3), ("half a dozen", 6), ("三十", 3), ("at 12x34", 34),
    ("minus five degrees", -5), ("temperature -3.5", -3.5), ("2.5 million", 2.5e6), ("both of them", 2),
)  # fmt: skip
def test_numbers_are_read_in_digits_and_words(text, number):
    assert number in TextNumbers(text.casefold())


@cases(
    "value, name, text, expected",
    ("2025-06-09", "date", "on June 9th, 2025", STATED),
    ("2025-06-09", "date", "am 9. Juni 2025", STATED),
    ("2025-06-09", "date", "next Friday", LIKELY),
    ("2025-06-09", "date", "the red one", ABSENT),
    ("m15", "interval", "in 15-minute steps", STATED),
    ("d1", "interval", "daily candles", STATED),
    ("pt", "lang", "translate it into Portuguese", STATED),
    (120000, "timeout", "kill it after two minutes", STATED),
    (0.8, "confidence", "I'm 80 percent sure", STATED),
    ("sensor_events", "table", "sensor events", STATED),
    (True, "fullPage", "the full page please", STATED),
    ("Café Zoë", "place", "a table at cafe zoe", STATED),
    ("quartz", "name", "the one we spoke of", ABSENT),
)
def test_values_are_found_in_other_spellings(value, name, text, expected):
    assert grade_value(value, {}, name, RequestText(text)) == expected


@cases(
    "value, schema, name, text, expected",
    (-33.87, {"type": "number"}, "latitude", "near latitude -33.87, longitude 151.21", STATED),
    (33.87, {"type": "number"}, "latitude", "near latitude -33.87, longitude 151.21", ABSENT),
    (-93.27, {"type": "number"}, "lon", "44.98 N, 93.27 W", STATED),
    ("yearly", {"enum": ["yearly", "quarterly"]}, "freq", "the quarterly cash flow", ABSENT),
    ("yearly", {"enum": ["yearly", "quarterly"]}, "freq", "the cash flow", LIKELY),
)
def test_a_sign_and_another_choice_decide(value, schema, name, text, expected):
    assert grade_value(value, schema, name, RequestText(text)) == expected


@cases(
    "name, about, right, wrong",
    ("fields", "(Optional) JSON string of fields to update", '{"a": 1}', "country"),
    ("content_base64", "", "aGVsbG8gd29ybGQ=", "Lunch is moved to noon"),
    ("data", "Base64-encoded content of the file", "data:text/plain;base64,aGk=", "see below"),
)
def test_a_value_in_another_form_than_its_description_says_is_a_flaw(name, about, right, wrong):
    schema = {"type": "object", "properties": {name: {"type": "string", "description": about}}}
    contract = {"name": "t", "description": "Do a thing.", "inputSchema": schema}
    assert list(find_call_flaws(contract, {name: right})) == []
    [flaw] = find_call_flaws(contract, {name: wrong})
    assert (flaw.kind, flaw.path, flaw.certain) == ("bad_value", name, True)


@cases(
    "about, value",
    ("User to assign (email or name), or a JSON object", "Ann"),
    ("The value of suggestions/value json object that an earlier call returned", "paris"),
    ("path to a PFX/PEM file, a base64 encoded PFX, or raw text", "./certs/site.pfx"),
    ("Text to encode in Base64", "hello, world!"),
    ("Path of the JSON text file to read", "a.json"),
    ("JSON text output, plain text otherwise", "text"),
)
def test_a_description_that_means_another_form_holds_no_value_to_it(about, value):
    of = {"type": "string", "description": about, "enum": ["Ann", "json", value]}
    if "otherwise" not in about:
        del of["enum"]
    schema = {"type": "object", "properties": {"who": of}}
    contract = {"name": "t", "description": "Do a thing.", "inputSchema": schema}
    assert list(find_call_flaws(contract, {"who": value})) == []


Json = Any
CONTRACTS = {"time": CITY_TIME, "file": READ_FILE, "issue": CREATE_ISSUE, "money": CONVERT}
ISSUE_CONTRACT = {"project_key": "OPS", "title": "Printer on fire", "priority": "high"}


def call(tool: str, arguments: Json) -> Json:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    answer = {"id": "c1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [answer]}


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def assistant(text: str) -> Json:
    return {"role": "assistant", "content": text}


def result(text: str) -> Json:
    return {"role": "tool", "tool_call_id": "c1", "content": text}


def golden(digest: str, arguments: Json, borrowed: tuple[str, ...] = ()) -> Json:
    return {
        "server_id": "npm:demo", "tool": CONTRACTS[digest]["name"], "contract_digest": digest,
        "arguments": arguments, "borrowed": list(borrowed),
    }  # fmt: skip


def row(task: str, messages: list[Json], calls: list[Json], base: str = "issue", **more: Json):
    instruction = next((m["content"] for m in messages if m["role"] == "user"), "")
    return {
        "task": task, "server_id": "npm:demo", "contract_digest": base, "instruction": instruction,
        "messages": json.dumps(messages), "calls": json.dumps(calls), "offered": "[]", **more,
    }  # fmt: skip


TIME = {"timezone": "Asia/Tokyo"}
FILE = {"path": "/srv/notes.md"}
BOTH = "What time is it in Tokyo, and what does /srv/notes.md say?"
SINGLE = row(
    "single",
    [user("What time is it in Tokyo?"), call("get_current_time", TIME)],
    [golden("time", TIME)],
    "time",
)
PARALLEL = row(
    "parallel",
    [user(BOTH), call("get_current_time", TIME), call("read_text_file", FILE)],
    [golden("time", TIME), golden("file", FILE)],
)
LOOSE = {**ISSUE_CONTRACT, "title": "disk full on db-7"}
SEQUENTIAL = row(
    "sequential",
    [
        user("Read /srv/notes.md and open a high priority issue in OPS with its first line as title"),
        call("read_text_file", FILE), result("disk full on db-7\nsince noon"),
        call("jira_create_issue", LOOSE),
    ],
    [golden("file", FILE), golden("issue", LOOSE, ("title",))],
)  # fmt: skip
NO_TOOL = row(
    "no_tool",
    [user("How do you spell necessary?"), assistant("n-e-c-e-s-s-a-r-y.")],
    [],
    offered=json.dumps(["issue", "money"]),
)
MISSING = row(
    "missing_parameter",
    [user("Open a high priority issue about the printer on fire."), assistant("In which project?")],
    [],
)
CLARIFY = row(
    "clarification",
    [
        user("Please open an issue titled Printer on fire, priority high."),
        assistant("Which project should it go into?"), user("The one with the key OPS."),
        call("jira_create_issue", ISSUE_CONTRACT),
    ],
    [golden("issue", ISSUE_CONTRACT)],
)  # fmt: skip
WRONG = {"project_key": "OPS", "priority": "high"}
ERROR = validate_call(CREATE_ISSUE, WRONG)[0].message
RECOVERY = row(
    "recovery",
    [
        user("Open an issue in OPS, 'Printer on fire', priority high."),
        call("jira_create_issue", WRONG), result(f"Error: {ERROR}"),
        call("jira_create_issue", ISSUE_CONTRACT),
    ],
    [golden("issue", ISSUE_CONTRACT)],
)  # fmt: skip
GOOD = [SINGLE, {**SINGLE, "task": "lookalike"}, PARALLEL, SEQUENTIAL, NO_TOOL, MISSING, CLARIFY]


@cases("good", *GOOD, RECOVERY, ids=lambda row: row["task"])
def test_a_row_that_keeps_its_promise_is_accepted(good):
    found = verify_row(good, CONTRACTS)
    assert (found.verdict, found.findings) == ("accept", ())


def messages(of: Json) -> list[Json]:
    return json.loads(of["messages"])


def changed(of: Json, at: int, message: Json) -> Json:
    turns = messages(of)
    turns[at] = message
    return {**of, "messages": json.dumps(turns)}


STATED_REQUEST = user("Open an issue titled Printer on fire in OPS, priority high.")


@cases(
    "bad, kind",
    ({**PARALLEL, "calls": json.dumps([golden("time", TIME)])}, "missing_call"),
    ({**PARALLEL, "calls": json.dumps([golden("file", FILE), golden("time", TIME)])}, "messages_differ"),
    (changed(SEQUENTIAL, 2, result("")), "not_borrowed"),
    ({**SEQUENTIAL, "calls": json.dumps([golden("file", FILE, ("path",)), golden("issue", LOOSE, ("title",))])}, "not_borrowed"),
    ({**NO_TOOL, "calls": json.dumps([golden("issue", ISSUE_CONTRACT)])}, "unexpected_call"),
    (changed(NO_TOOL, 0, user("Use the jira_create_issue tool to spell necessary")), "names_the_tool"),
    ({**NO_TOOL, "messages": json.dumps(messages(NO_TOOL)[:1])}, "no_reply"),
    (changed(MISSING, 1, assistant("Done.")), "no_question"),
    ({**MISSING, "messages": json.dumps([*messages(MISSING), call("jira_create_issue", ISSUE_CONTRACT)])}, "unexpected_call"),
    (changed(CLARIFY, 0, STATED_REQUEST), "nothing_missing"),
    (changed(CLARIFY, 1, assistant("Sure.")), "no_question"),
    (changed(RECOVERY, 1, call("jira_create_issue", ISSUE_CONTRACT)), "no_error"),
    (changed(RECOVERY, 2, result("Created.")), "no_error"),
    ({**RECOVERY, "calls": json.dumps([golden("issue", WRONG)])}, "missing_required_argument"),
    ({**SINGLE, "messages": "{"}, "unreadable_row"),
    ({**SINGLE, "calls": "[1]"}, "unreadable_row"),
    ({**SINGLE, "calls": "[]"}, "missing_call"),
    ({**SINGLE, "contract_digest": "gone"}, "unknown_contract"),
    ({**SINGLE, "task": "dance"}, "unreadable_row"),
)  # fmt: skip
def test_a_row_that_breaks_its_promise_is_rejected(bad, kind):
    found = verify_row(bad, CONTRACTS)
    assert kind in found.kinds, found
    assert found.verdict == "reject"


def test_a_request_that_an_offered_tool_may_serve_is_left_open():
    odd = changed(NO_TOOL, 0, user("Why do people create a jira issue for everything?"))
    found = verify_row(odd, CONTRACTS)
    assert (found.kinds, found.verdict) == (["may_need_a_tool"], "unsure")
