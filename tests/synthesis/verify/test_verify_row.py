# ruff: noqa: E501  (tables of rows read better unbroken)
"""What each task promises, and the rows that break the promise."""

import json
from typing import Any

import pytest

from assets.contracts.validate import validate_call
from assets.synthesis.tables import TASKS
from assets.synthesis.verify.rules import verify_row
from tests.synthesis.contracts import CITY_TIME, CONVERT, CREATE_ISSUE, READ_FILE

Json = Any
CONTRACTS = {"time": CITY_TIME, "file": READ_FILE, "issue": CREATE_ISSUE, "money": CONVERT}
ISSUE = {"project_key": "OPS", "title": "Printer on fire", "priority": "high"}


def call(tool: str, arguments: Json) -> Json:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    made = {"id": "c1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


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


def row(task: str, messages: list[Json], calls: list[Json], own: str = "issue", **more: Json):
    instruction = next((m["content"] for m in messages if m["role"] == "user"), "")
    return {
        "task": task, "server_id": "npm:demo", "contract_digest": own, "instruction": instruction,
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
LOOSE = {**ISSUE, "title": "disk full on db-7"}
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
        call("jira_create_issue", ISSUE),
    ],
    [golden("issue", ISSUE)],
)  # fmt: skip
WRONG = {"project_key": "OPS", "priority": "high"}
ERROR = validate_call(CREATE_ISSUE, WRONG)[0].message
RECOVERY = row(
    "recovery",
    [
        user("Open an issue in OPS, 'Printer on fire', priority high."),
        call("jira_create_issue", WRONG), result(f"Error: {ERROR}"),
        call("jira_create_issue", ISSUE),
    ],
    [golden("issue", ISSUE)],
)  # fmt: skip
GOOD = [SINGLE, {**SINGLE, "task": "lookalike"}, PARALLEL, SEQUENTIAL, NO_TOOL, MISSING, CLARIFY]


@pytest.mark.parametrize("good", [*GOOD, RECOVERY], ids=lambda row: row["task"])
def test_a_row_that_keeps_its_promise_is_accepted(good: Json) -> None:
    found = verify_row(good, CONTRACTS)
    assert (found.verdict, found.findings) == ("accept", ())


def messages(of: Json) -> list[Json]:
    return json.loads(of["messages"])


def changed(of: Json, at: int, message: Json) -> Json:
    turns = messages(of)
    turns[at] = message
    return {**of, "messages": json.dumps(turns)}


STATED = user("Open an issue titled Printer on fire in OPS, priority high.")


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        ({**PARALLEL, "calls": json.dumps([golden("time", TIME)])}, "missing_call"),
        ({**PARALLEL, "calls": json.dumps([golden("file", FILE), golden("time", TIME)])}, "messages_differ"),
        (changed(SEQUENTIAL, 2, result("")), "not_borrowed"),
        ({**SEQUENTIAL, "calls": json.dumps([golden("file", FILE, ("path",)), golden("issue", LOOSE, ("title",))])}, "not_borrowed"),
        ({**NO_TOOL, "calls": json.dumps([golden("issue", ISSUE)])}, "unexpected_call"),
        (changed(NO_TOOL, 0, user("Use the jira_create_issue tool to spell necessary")), "names_the_tool"),
        ({**NO_TOOL, "messages": json.dumps(messages(NO_TOOL)[:1])}, "no_reply"),
        (changed(MISSING, 1, assistant("Done.")), "no_question"),
        ({**MISSING, "messages": json.dumps([*messages(MISSING), call("jira_create_issue", ISSUE)])}, "unexpected_call"),
        (changed(CLARIFY, 0, STATED), "nothing_missing"),
        (changed(CLARIFY, 1, assistant("Sure.")), "no_question"),
        (changed(RECOVERY, 1, call("jira_create_issue", ISSUE)), "no_error"),
        (changed(RECOVERY, 2, result("Created.")), "no_error"),
        ({**RECOVERY, "calls": json.dumps([golden("issue", WRONG)])}, "missing_required_argument"),
        ({**SINGLE, "messages": "{"}, "unreadable_row"),
        ({**SINGLE, "calls": "[1]"}, "unreadable_row"),
        ({**SINGLE, "calls": "[]"}, "missing_call"),
        ({**SINGLE, "contract_digest": "gone"}, "unknown_contract"),
        ({**SINGLE, "task": "dance"}, "unreadable_row"),
    ],
)  # fmt: skip
def test_a_row_that_breaks_its_promise_is_rejected(bad: Json, kind: str) -> None:
    found = verify_row(bad, CONTRACTS)
    assert kind in found.kinds, found
    assert found.verdict == "reject"


def test_a_request_that_an_offered_tool_may_serve_is_left_open() -> None:
    odd = changed(NO_TOOL, 0, user("Why do people create a jira issue for everything?"))
    assert verify_row(odd, CONTRACTS).kinds == ["may_need_a_tool"]
    assert verify_row(odd, CONTRACTS).verdict == "unsure"


def test_every_task_has_its_rules() -> None:
    assert {good["task"] for good in [*GOOD, RECOVERY]} == set(TASKS)
