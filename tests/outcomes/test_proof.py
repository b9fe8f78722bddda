"""What an executed call proves: its effect against the request, and against other arguments."""

import pytest

from assets.outcomes.execution import ToolCall
from assets.outcomes.proof import perturb_argument
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


def test_a_tool_that_does_something_else_refutes_the_call(executing):
    other = WRITES.format(what="'hello'", where="'other.dat'")
    assert prove(executing, other) == ("refuted", "what changed holds no value of the call")


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


@pytest.mark.parametrize(
    ("value", "schema", "other"),
    [
        ("notes/budget.txt", {"type": "string"}, "notes/ohqtrg.txt"),
        ("plain", {"enum": ["plain", "loud"]}, "loud"),
        (3, {"type": "integer", "maximum": 3}, 2),
        (True, {"type": "boolean"}, False),
        (["abc"], {"type": "array", "items": {"type": "string"}}, ["nop"]),
        ({"a": 1}, {"type": "object"}, {"a": 2}),
        ("only", {"enum": ["only"]}, None),
    ],
)
def test_an_argument_is_changed_to_another_that_its_contract_takes(value, schema, other):
    contract = {
        "name": "do",
        "inputSchema": {"type": "object", "properties": {"v": schema, "w": {}}},
    }
    found = perturb_argument(contract, {"v": value, "w": 1}, "v")
    assert found == (None if other is None else {"v": other, "w": 1})


def test_a_key_names_what_was_asked_of_which_contract_in_which_state():
    def key(arguments, contract="c1:a", world="w"):
        return ToolCall("s", "t", make_contract(), contract, arguments).make_key(world)

    first = key({"a": 1, "b": 2})
    assert first == key({"b": 2, "a": 1})
    assert len({first, key({"a": 2}), key({"a": 1, "b": 2}, "c1:b"), key({}, world="v")}) == 4
