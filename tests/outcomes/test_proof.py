"""What an executed call proves: its effect against the request, and against other arguments."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from assets.contracts.canonical import contract_digest
from assets.outcomes.execution import CallExecution, ToolCall, keep_execution
from assets.outcomes.proof import CallEffect, find_contradiction, prove_call
from assets.servers.calls.result import CallResult
from assets.synthesis.verify.request_text import RequestText
from tests.outcomes.running import Executing, make_contract, open_executing

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "content": {"type": "string"},
        "mode": {"type": "string", "enum": ["plain", "loud"]},
        "x": {"type": "integer"},
    },
    "required": ["path", "content"],
}
CONTRACT = {"name": "write_note", "inputSchema": SCHEMA, "description": "Writes a note."}
WRITES = """
def do(m, _):
    a = m["params"]["arguments"]
    text = {what}
    open(os.path.join(DATA, {where}), "w").write(text)
    say(m, "written")
calls(do, TOOLS)
"""
HONEST = WRITES.format(what="a['content']", where="os.path.basename(a['path'])")
ARGUMENTS = {"path": "budget.txt", "content": "ask Marta"}
REQUEST = "Write 'ask Marta' into the file budget.txt"


@pytest.fixture
def executing(tmp_path, monkeypatch) -> Executing:
    return open_executing(tmp_path, monkeypatch)


def prove(executing: Executing, source: str, request: str = REQUEST, arguments=ARGUMENTS):
    server = executing.make_server(source, [CONTRACT])
    job = executing.make_job(server, CONTRACT, arguments, request)
    [row] = executing.run([job], prove=True)
    return row["proof"], row["proof_why"]


def test_a_call_whose_effect_is_the_one_asked_for_is_proved(executing):
    assert prove(executing, HONEST) == ("proved", "budget.txt as asked for")


def test_a_call_that_changes_what_is_not_asked_for_is_refuted(executing):
    wrong = {"path": "payroll.txt", "content": "ask Marta"}
    proof, why = prove(executing, HONEST, arguments=wrong)
    assert proof == "refuted"
    assert "payroll.txt" in why


def test_an_effect_without_a_value_of_the_call_is_neither_proof_nor_refutation(executing):
    other = WRITES.format(what="'hello'", where="'other.dat'")
    assert prove(executing, other) == ("unproved", "what changed holds no value of the call")


def test_an_argument_without_an_effect_leaves_it_unproved(executing):
    deaf = WRITES.format(what="'ask Marta'", where="a['path']")
    assert prove(executing, deaf) == ("unproved", "another content has the same effect")


def test_what_changes_nothing_that_can_be_read_is_unproved(executing):
    assert prove(executing, "calls(lambda m, x: say(m, 'done'), TOOLS)") == (
        "unproved",
        "nothing that can be read changed",
    )


def test_a_call_that_its_own_arguments_make_fail_is_refuted(executing):
    source = "calls(lambda m, x: say(m, 'budget.txt does not exist', isError=True), TOOLS)"
    proof, why = prove(executing, source)
    assert proof == "refuted"
    assert why.startswith("tool_error: budget.txt does not exist")


def test_a_fault_of_others_refutes_nothing(executing):
    source = "calls(lambda m, x: say(m, 'HTTP 503', isError=True), TOOLS)"
    assert prove(executing, source)[0] == "unproved"


def test_the_next_call_finds_the_world_as_it_was_whatever_was_tried(executing):
    server = executing.make_server(HONEST, [CONTRACT])
    jobs = [
        executing.make_job(server, CONTRACT, {"path": name, "content": "ask Marta"}, request)
        for name, request in (("a-b.txt", "Write 'ask Marta' into a-b.txt"), ("c-d.txt", "Hm"))
    ]
    rows = executing.run(jobs, prove=True)
    assert len({executing.read_kept(row)["before"] for row in rows}) == 1
    assert [row["changed"] for row in rows] == ['["a-b.txt"]', '["c-d.txt"]']


def test_a_key_names_what_was_asked_of_which_contract_in_which_state():
    def key(arguments, contract="c1:a", world="w"):
        return ToolCall("s", "t", make_contract(), contract, arguments).make_key(world)

    first = key({"a": 1, "b": 2})
    assert first == key({"b": 2, "a": 1})
    assert len({first, key({"a": 2}), key({"a": 1, "b": 2}, "c1:b"), key({}, world="v")}) == 4


Facts = dict[str, Any]
FIRST: Facts = {"notes/note-1.txt": "milk", "notes/note-12.txt": "eggs"}


def judge(tool: Callable[[Facts, Facts], None], arguments: Facts, request: str, **schemas: Any):
    """What a call of a tool proves that does this to the facts of a world: (world, arguments)."""
    properties = {name: {"type": "string"} for name in arguments} | schemas
    contract = {"name": "do", "inputSchema": {"type": "object", "properties": properties}}

    def run(inputs: Facts) -> tuple[CallExecution, Facts]:
        after = dict(FIRST)
        call_result = CallResult("ok", [{"type": "text", "text": "done"}])
        try:
            tool(after, inputs)
        except KeyError:
            output = [{"type": "text", "text": "no such note"}]
            call_result = CallResult("tool_error", output, error_kind="tool_error", blame="tool")
        except ConnectionError:
            output = [{"type": "text", "text": "HTTP 503"}]
            call_result = CallResult(
                "tool_error", output, error_kind="upstream_error", blame="upstream"
            )
        except TimeoutError:
            call_result = CallResult("failed", error_kind="timeout_call", blame="tool", hint="late")
        return keep_execution(
            call_result, inputs, "s1", "s1" if after == FIRST else "s2", []
        ), after

    async def run_perturbed(sent: Any) -> tuple[CallExecution, Facts]:
        return run(sent)

    call = ToolCall("s", "do", contract, contract_digest(contract), arguments)
    done, after = run(arguments)
    proof = asyncio.run(prove_call(call, request, CallEffect(done, FIRST, after), run_perturbed))
    return proof.verdict, proof.why


def delete(world: Facts, inputs: Facts) -> None:
    del world[inputs["path"]]


def write(world: Facts, inputs: Facts) -> None:
    world[inputs["path"]] = inputs["text"]


def test_what_is_asked_for_and_done_is_proved():
    note = {"path": "notes/note-1.txt"}
    assert judge(delete, note, "Delete notes/note-1.txt")[0] == "proved"
    assert judge(delete, note, "Please delete note-1 from the notes.")[0] == "proved"


@pytest.mark.parametrize("request_", ["Delete note-12.txt", "Delete note-1.csv of notes"])
def test_a_name_that_only_begins_as_the_asked_one_is_another(request_):
    assert judge(delete, {"path": "notes/note-1.txt"}, request_)[0] == "refuted"


def test_a_folder_that_is_not_named_leaves_it_unproved():
    inputs = {"path": "/home/user/data/inbox/plan.txt", "text": "ask Marta"}
    assert judge(write, inputs, "Write 'ask Marta' into plan.txt in archive") == (
        "unproved",
        "the request does not say where '/home/user/data/inbox/plan.txt' lies",
    )
    assert judge(write, inputs, "Write 'ask Marta' into plan.txt in the inbox")[0] == "proved"


def test_a_request_that_asks_to_look_is_proved_by_no_change():
    verdict, why = judge(delete, {"path": "notes/note-1.txt"}, "Read notes/note-1.txt")
    assert (verdict, why) == (
        "unproved",
        "the request asks to look, and the call changed something",
    )
    assert judge(delete, {"path": "notes/note-1.txt"}, "Copy notes/note-1.txt")[0] == "unproved"


def test_an_effect_that_differs_by_itself_shows_nothing_of_arguments():
    count = iter(range(99))

    def write_and_count(world: Facts, inputs: Facts) -> None:
        world["plan.txt"] = f"ask Marta {next(count)}"

    inputs = {"path": "plan.txt", "text": "ask Marta"}
    assert judge(write_and_count, inputs, "Write 'ask Marta' into plan.txt") == (
        "unproved",
        "the same call has another effect when it is made again",
    )


@pytest.mark.parametrize("error", [TimeoutError, ConnectionError])
def test_other_arguments_that_get_no_answer_show_nothing(error):
    def write_or_fail(world: Facts, inputs: Facts) -> None:
        if inputs["text"] != "ask Marta":
            raise error
        write(world, inputs)

    inputs = {"path": "plan.txt", "text": "ask Marta"}
    verdict, why = judge(write_or_fail, inputs, "Write 'ask Marta' into plan.txt")
    assert verdict == "unproved"
    assert why.startswith("another text was not answered: ")


def test_where_no_other_value_can_be_tried_nothing_is_proved():
    inputs, only = {"path": "plan.txt", "text": "ask Marta"}, {"enum": ["ask Marta"]}
    request = "Write 'ask Marta' into the plan"
    assert judge(write, inputs, request, text=only, path={"enum": ["plan.txt"]}) == (
        "unproved",
        "no other arguments can be tried",
    )
    strict = {"type": "string", "pattern": "^plan.txt$"}
    assert judge(write, inputs, request, text=only, path=strict) == (
        "unproved",
        "no other path was tried",
    )


def test_a_number_is_not_found_in_a_longer_one_nor_a_text_lost_in_json():
    def add(world: Facts, inputs: Facts) -> None:
        world["rows/1"] = {"text": inputs["text"], "total": 1001}

    inputs = {"text": 'say "hi"\nthen go', "limit": 100}
    request = 'Add a row that says: say "hi"\nthen go'
    assert judge(add, inputs, request, limit={"type": "integer"})[0] == "proved"


def test_what_is_asked_for_inside_a_list_has_to_show():
    def remember(world: Facts, inputs: Facts) -> None:
        for item in inputs["people"]:
            world[f"person/{item['name']}"] = {"note": item["note"]}

    def forget_the_note(world: Facts, inputs: Facts) -> None:
        world["person/" + inputs["people"][0]["name"]] = {}

    inputs = {"people": [{"name": "Marta", "note": "likes moss"}]}
    request, schema = "Remember Marta, who likes moss", {"type": "array"}
    assert judge(remember, inputs, request, people=schema)[0] == "proved"
    assert judge(forget_the_note, inputs, request, people=schema) == (
        "unproved",
        "what changed does not show people[0].note: 'likes moss'",
    )


NUMBER = {"type": "integer"}


def book(world: Facts, inputs: Facts) -> None:
    world[f"bookings/{inputs['room']}"] = {name: inputs[name] for name in inputs if name != "room"}


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [
        ({"room": "Aurora", "seats": 6, "day": "Monday"}, "proved"),
        ({"room": "Aurora", "seats": 8, "day": "Monday"}, "unproved"),  # 6 are asked for
        ({"room": "Aurora", "seats": 6, "day": "Monday", "floor": "B2"}, "unproved"),
    ],
)
def test_a_short_value_that_is_not_asked_for_and_decides_leaves_it_unproved(arguments, verdict):
    request = "Book the room Aurora on Monday for 6 people"
    assert judge(book, arguments, request, seats=NUMBER)[0] == verdict


def test_a_value_that_is_not_asked_for_and_decides_nothing_is_no_flaw():
    def add(world: Facts, inputs: Facts) -> None:
        world["tasks/1"] = inputs["title"]

    request = "Add a task: water the ferns"
    inputs = {"title": "water the ferns", "locale": "en", "level": 2}
    assert judge(add, inputs, request, level=NUMBER)[0] == "proved"

    def add_with_level(world: Facts, inputs: Facts) -> None:
        world["tasks/1"] = {"title": inputs["title"], "level": inputs["level"]}

    assert judge(add_with_level, inputs, request, level=NUMBER) == (
        "unproved",
        "the request does not state level: '2', and it decides what changes",
    )
    assert judge(add_with_level, inputs, request, level={**NUMBER, "default": 2})[0] == "proved"


@pytest.mark.parametrize(("text", "verdict"), [("Ivo is away", "proved"), ("Ida", "unproved")])
def test_values_of_json_in_a_text_are_values(text, verdict):
    def send(world: Facts, inputs: Facts) -> None:
        world["mail/1"] = {"to": "hr", "text": json.loads(inputs["body"])["text"]}
        if text == "Ida":
            world["mail/1"] = {"to": "hr", "text": "Ivo is away"}  # not what it was given

    inputs = {"body": json.dumps({"text": text, "channel": 7})}
    assert judge(send, inputs, "Tell channel 7 that Ivo is away", body={})[0] == verdict


def keep(world: Facts, inputs: Facts) -> None:
    world[inputs["to"]] = world[inputs["from"]]


def carry(world: Facts, inputs: Facts) -> None:
    world[inputs["to"]] = world.pop(inputs["from"])


@pytest.mark.parametrize(
    ("tool", "source", "request_", "verdict"),
    [
        (keep, "note-1", "Copy notes/note-1.txt to old/note-1.txt", "proved"),
        (keep, "note-1", "Keep a backup of notes/note-1.txt as old/note-1.txt", "proved"),
        (keep, "note-12", "Copy notes/note-1.txt to old/note-1.txt", "unproved"),
        (carry, "note-1", "Copy notes/note-1.txt to old/note-1.txt", "unproved"),
        (carry, "note-1", "Move notes/note-1.txt to old/note-1.txt", "proved"),
        (carry, "note-1", "Put notes/note-1.txt away as old/note-1.txt", "proved"),
        (keep, "note-1", "Move notes/note-1.txt to old/note-1.txt", "unproved"),
        (keep, "note-1", "Put notes/note-1.txt away as old/note-1.txt", "unproved"),
    ],
)
def test_a_copy_is_no_move_and_of_one_source_only(tool, source, request_, verdict):
    inputs = {"from": f"notes/{source}.txt", "to": "old/note-1.txt"}
    assert judge(tool, inputs, request_)[0] == verdict


def test_a_copy_that_keeps_its_name_in_what_it_holds_is_one():
    def keep_letter(world: Facts, inputs: Facts) -> None:
        world["inbox/17.eml"] = world["trash/17.eml"] = {"file": "17.eml", "subject": "milk"}

    inputs = {"from": "inbox/17.eml", "to": "trash/17.eml"}
    first = {**FIRST, "inbox/17.eml": {"file": "17.eml", "subject": "milk"}}
    done = keep_execution(CallResult("ok", []), inputs, "s1", "s2", [])
    after = dict(first)
    keep_letter(after, inputs)
    values = list(inputs.values())
    flaw = find_contradiction(
        CallEffect(done, first, after), values, RequestText("Put 17.eml into trash")
    )
    assert flaw == "the call made a copy, and the request asks for none"


def test_a_question_without_a_verb_that_changes_is_proved_by_no_change():
    note = {"path": "notes/note-1.txt"}
    assert judge(delete, note, "What stands in notes/note-1.txt?")[0] == "unproved"
    assert judge(delete, note, "Could you remove notes/note-1.txt?")[0] == "proved"


def test_a_whole_number_is_found_however_it_was_written():
    def price(world: Facts, inputs: Facts) -> None:
        price = inputs["price"]
        world[f"prices/{inputs['item']}"] = int(price) if price.is_integer() else price

    arguments, number = {"item": "kettle", "price": 4000.0}, {"type": "number"}
    assert judge(price, arguments, "Set the price of kettle to 40", price=number)[0] == "refuted"
    assert judge(price, arguments, "Set the price of kettle to 4000", price=number)[0] == "proved"
