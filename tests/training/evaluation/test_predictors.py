"""Predictors: an adapter, an endpoint, and the baseline that copies slots."""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import cases
from tests.support.openai_endpoint import Endpoint, Say, openai_endpoint
from tests.synthesis.contracts import make_tool
from tests.training.evaluation.conftest import PLAN
from tests.training.small_base import TEMPLATE, make_base
from training.evaluation import adapter_predictor, caller_items, caller_summary, caller_table
from training.evaluation.baselines import (
    BaselinePredictor,
    complete_cut_call,
    copy_slots,
    ground_call,
    make_baseline_call,
)
from training.evaluation.caller_run import evaluate_predictors
from training.evaluation.endpoint_predictor import STAGE, EndpointPredictor
from training.evaluation.predictor import CannotPredict, PredictionRequest
from warehouse.errors import UnusableInput
from warehouse.llm.chat import write_wire_name
from warehouse.llm.roles import Role
from warehouse.store import Warehouse


def test_a_folder_of_an_adapter_is_asked_like_any_caller(adapter, items, tmp_path):
    some = items[:20]
    asked = adapter_predictor.AdapterPredictor(tmp_path, adapter, device="cpu", max_new=8, batch=8)
    progress: list[tuple[int, int]] = []
    rows = evaluate_predictors([BaselinePredictor(), asked], some, "set")
    mine = [row for row in rows if row["model"] == asked.label]
    assert len(caller_table.CALLER_EVALUATION.frame(rows)) == 40
    assert all(row["prompt_tokens"] > 0 and row["seconds"] > 0 for row in mine)
    assert all(row["completion_tokens"] <= 16 for row in mine)
    assert caller_summary.summarise_calls(rows, asked.label)["items"] == 20
    request = PredictionRequest("i", "Find it.", some[0].tools)
    answers = asked.predict([request], lambda *done: progress.append(done))
    assert progress == [(1, 1)]
    assert answers[0].shown == len(some[0].tools)


def test_a_conversation_that_the_template_refuses_is_an_answer_that_failed(made, tmp_path):
    items = caller_items.make_items(made.rows, made.pool, replace(PLAN, per_split=100))
    refuses = "{% if messages[-1].role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    base = make_base(tmp_path / "base", template=refuses + TEMPLATE)
    asked = adapter_predictor.AdapterPredictor(tmp_path, base, device="cpu", max_new=4)
    repaired = next(i for i in items if i.before and i.before[-1]["role"] == "tool")
    clarified = next(i for i in items if i.before and i.expected and i.before != repaired.before)
    rows = evaluate_predictors([asked, BaselinePredictor()], [repaired, clarified], "set")
    assert [row["error_kind"] for row in rows if row["failed"]] == [
        adapter_predictor.NOT_RENDERABLE
    ]
    answered = {row["item_id"] for row in rows if not row["failed"]}
    assert answered == {clarified.item_id, repaired.item_id}


def test_what_does_not_fit_the_context_is_dropped_or_counted(base, items, tmp_path):
    short = tmp_path / "short"
    shutil.copytree(base, short)
    config = json.loads((short / "config.json").read_text())
    (short / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 700}))
    many = next(item for item in items if item.candidates == 12 and item.expected)
    keep = frozenset([many.expected[0]["name"]])
    asked = adapter_predictor.AdapterPredictor(tmp_path, short, device="cpu", max_new=8)
    short_one = PredictionRequest("a", many.instruction, many.tools, keep=keep)
    fits, never = asked.predict([short_one, PredictionRequest("b", "find " * 2000, many.tools)])
    assert fits.shown is not None
    assert 1 <= fits.shown < 12
    assert fits.prompt_tokens <= 692
    assert never.error == adapter_predictor.TOO_LONG


@cases(
    "flaw, message",
    ("nothing", r"holds no model \(found notes\.txt\); expected adapter_config\.json"),
    ("no weights", "does not go onto"),
    ("broken weights", "does not go onto"),
    ("no base", "/no/such/base: no such folder"),
    ("another base", "does not go onto"),
)
def test_what_cannot_be_loaded_is_one_line(adapter, tmp_path, flaw, message):
    folder = shutil.copytree(adapter, tmp_path / "model")
    weights, settings = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    if flaw == "nothing":
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "notes.txt").write_text("nothing here")
    elif flaw == "no weights":
        weights.unlink()
    elif flaw == "broken weights":
        weights.write_bytes(b"\x08")
    else:
        other = make_base(tmp_path / "other", width=64) if "another" in flaw else "/no/such/base"
        config = json.loads(settings.read_text()) | {"base_model_name_or_path": str(other)}
        settings.write_text(json.dumps(config))
    with pytest.raises(UnusableInput, match=message) as error:
        adapter_predictor.AdapterPredictor(tmp_path, folder, device="cpu").load()
    assert "\n" not in str(error.value)


def test_a_base_without_a_chat_template_is_refused_when_it_is_asked(tmp_path, items):
    bare = make_base(tmp_path / "bare", template=None)
    asked = PredictionRequest("i", "Find it.", items[0].tools)
    with pytest.raises(CannotPredict, match="no chat template"):
        adapter_predictor.AdapterPredictor(tmp_path, bare, device="cpu").predict([asked])


def test_a_name_is_found_by_its_beginning(tmp_path):
    for name in ("abc1" * 16, "abc2" * 16):
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / "model.json").write_text(json.dumps({"role": "caller", "name": name}))
    assert adapter_predictor.resolve_model(tmp_path, "abc1") == "abc1" * 16
    assert adapter_predictor.resolve_model(tmp_path, str(tmp_path)) == tmp_path
    with pytest.raises(CannotPredict, match="2 of 2 callers"):
        adapter_predictor.resolve_model(tmp_path, "abc")
    with pytest.raises(CannotPredict, match=r"known: general, smollm2, abc1.*endpoint:ROLE"):
        adapter_predictor.resolve_model(tmp_path, "gpt")
    with pytest.raises(CannotPredict, match="0 of 0 sidecars"):
        adapter_predictor.resolve_model(tmp_path, "general", "sidecar")


@cases("torn", '{"role": "call', "[]", "")
def test_a_torn_card_is_named_where_it_is_asked_for_and_keeps_no_other_back(torn, tmp_path):
    for name, text in (("abc1", '{"role": "caller"}'), ("abd2", torn)):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "model.json").write_text(text)
    assert adapter_predictor.resolve_model(tmp_path, "abc") == "abc1"
    with pytest.raises(CannotPredict, match=r"abd2.model\.json is no card .*copy the model"):
        adapter_predictor.resolve_model(tmp_path, "abd2")


TEXT, INTEGER, BOOLEAN = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}


def tool(name: str, about: str = "", required: Sequence[str] | None = None, **of: dict) -> dict:
    """A tool that requires all of its properties, or those that are named."""
    return make_tool(name, about, of, *list(of if required is None else required))


TOOL = tool("files/find.one", "Finds a file.", required=(), title=TEXT)
ASKED = [PredictionRequest(f"i{n}", f"Please find the file number {n}.", [TOOL]) for n in range(6)]


def called(*calls: tuple[str, Any], content: str | None = None) -> Say:
    made = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": given}}
        for n, (name, given) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": content, "tool_calls": made}
    choices = [{"index": 0, "finish_reason": "tool_calls", "message": message}]
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return Say(raw=json.dumps({"model": "m", "choices": choices, "usage": usage}))


def obedient(body: dict[str, Any], number: int) -> Say:
    name = body["tools"][0]["function"]["name"]
    if number % 3 == 0:
        return Say(json.dumps({"name": name, "arguments": {"title": "a"}}))
    return called((name, '{"title": "a"}'))


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    return Warehouse(home=tmp_path, state=tmp_path / "state", budget_usd=1.0)


def predictor(endpoint: Endpoint, warehouse: Warehouse, **changed: Any) -> EndpointPredictor:
    from warehouse.llm.endpoint import OpenAIEndpoint as Wire

    held: dict[str, Any] = {"model": "m", "base_url": endpoint.url, "usd_in": 1.0, "usd_out": 2.0,
                            "temperature": 0.0, "attempts": 2} | changed  # fmt: skip
    wire = Wire(backoff_s=0.01)
    return EndpointPredictor(Role("evaluated", **held), warehouse.ledger, endpoint=wire)


def test_tools_are_offered_by_names_that_endpoints_take_and_nothing_is_paid_twice(warehouse):
    with openai_endpoint(obedient) as endpoint:
        first = predictor(endpoint, warehouse).predict(ASKED)
        sent = len(endpoint.requests)
        again = predictor(endpoint, warehouse).predict(ASKED)
        assert len(endpoint.requests) == sent == 6
    body = endpoint.requests[0]
    assert body["tools"][0]["function"]["name"] == write_wire_name("files/find.one")
    assert body["tools"][0]["function"]["parameters"] == TOOL["inputSchema"]
    right = [{"name": "files/find.one", "arguments": {"title": "a"}}]
    assert [answer.calls for answer in first] == [right] * 6
    assert [answer.calls for answer in again] == [right] * 6
    assert {answer.seconds for answer in again} == {None}
    assert 0 < sum(answer.usd for answer in first) == pytest.approx(warehouse.ledger.spent())
    assert {cost["stage"] for cost in warehouse.ledger.costs()} == {STAGE}


def test_a_conversation_is_gone_on_with(warehouse):
    call = {"name": "files/find.one", "arguments": {"title": 1}}
    before = (
        {"role": "user", "content": "Please find a file."},
        {"role": "assistant", "content": "", "weight": 0,
         "tool_calls": [{"id": "c", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "c", "content": "title must be text"},
    )  # fmt: skip
    with openai_endpoint(obedient) as endpoint:
        predictor(endpoint, warehouse).predict([PredictionRequest("i", "", [TOOL], before=before)])
    system, user, wrong, error = endpoint.requests[0]["messages"]
    assert system["role"] == "system"
    assert (user, error) == (before[0], before[2])
    [made] = wrong["tool_calls"]
    assert "weight" not in wrong
    assert made["function"] == {
        "name": write_wire_name("files/find.one"), "arguments": '{"title": 1}',
    }  # fmt: skip


@cases(
    "say, kind, calls",
    (Say("No tool fits."), "prose", 0),
    (called(("files_find_one", "{broken")), "invalid_json", 0),
    (called(("files_find_one", "{}"), ("other", "{}")), "call", 2),
    (called(("files_find_one", '{"title": "a"}'), content="<think>x</think>"), "call", 1),
    (called(("invented", "[1]")), "invalid_json", 0),
    (Say(""), "no_call", 0),
)
def test_what_a_model_answers_is_an_outcome(warehouse, say, kind, calls):
    with openai_endpoint([say]) as endpoint:
        answer = predictor(endpoint, warehouse).predict(ASKED[:1])[0]
    assert (answer.kind, len(answer.calls), answer.error) == (kind, calls, None)


def test_faults_are_rows_that_are_counted_apart_and_asked_again(warehouse, items):
    some = [item for item in items if item.split == "unseen_server" and item.expected][:12]
    down = {"now": True}

    def say(body: dict[str, Any], number: int) -> Say:
        if down["now"] and "Blue Sky" in body["messages"][-1]["content"]:
            return Say("no such model", status=400)
        return obedient(body, 1)

    with openai_endpoint(say) as endpoint:
        both = [BaselinePredictor(), predictor(endpoint, warehouse)]
        rows = evaluate_predictors(both, some, "set")
        lost = [row for row in rows if row["failed"]]
        summary = caller_summary.summarise_calls(rows, "endpoint:m")
        assert 0 < len(lost) < len(some)
        assert summary["failures"] == {"candidate": {"bad_request": len(lost)}}
        assert summary["items"] == len(some) - len(lost)
        sent = len(endpoint.requests)
        down["now"] = False
        rows = evaluate_predictors([predictor(endpoint, warehouse)], some, "set")
        assert not any(row["failed"] for row in rows)
        assert len(endpoint.requests) == sent + len(lost)


def test_a_spent_budget_sends_nothing_and_no_endpoint_fails_every_row(tmp_path, warehouse):
    poor = Warehouse(home=tmp_path, state=tmp_path / "poor", budget_usd=0.0)
    with openai_endpoint(obedient) as endpoint:
        answers = predictor(endpoint, poor).predict(ASKED)
        assert endpoint.requests == []
    assert {answer.error for answer in answers} == {"budget_exceeded"}
    with openai_endpoint([Say(close=True)]) as endpoint:
        answers = predictor(endpoint, warehouse).predict(ASKED)
    assert {answer.error for answer in answers} == {"endpoint_down"}
    with pytest.raises(CannotPredict, match=r"roles\.caller\.model"):
        EndpointPredictor(Role("caller"), warehouse.ledger)


@cases(
    "properties, request_text, slots",
    (
        {"path": TEXT, "lines": INTEGER, "mode": {"enum": ["fast", "slow"]}, "pattern": TEXT},
        "In fast mode, read 5 lines of /var/log/app.log and find 'boom'.",
        {"path": "/var/log/app.log", "lines": 5, "mode": "fast", "pattern": "boom"},
    ),
    ({"a": TEXT, "b": TEXT}, "copy 'x' to 'y'", {"a": "x", "b": "y"}),
    (
        {"date": TEXT, "email": TEXT, "url": {"type": "string", "format": "uri"}},
        "On 2026-03-04 send https://example.com/a to ann@example.com.",
        {"date": "2026-03-04", "email": "ann@example.com", "url": "https://example.com/a"},
    ),
    ({"count": INTEGER, "mode": {"enum": ["x", "y"]}}, "do it", {}),
    (
        {"names": {"type": "array", "items": TEXT}, "on": {"type": "boolean"}},
        "add 'ann' without delay",
        {"names": ["ann"], "on": False},
    ),
    ({"number": INTEGER}, "Show -12.5 now", {"number": -12}),
    # An id, which no float holds; and more digits than are read, or than Python reads.
    ({"number": INTEGER}, "Show 1234567890123456789 now", {"number": 1234567890123456789}),
    *(({"number": INTEGER}, f"Show {'9' * digits} now", {}) for digits in (400, 5_000)),
    ids=[str(n) for n in range(9)],
)
def test_each_type_takes_the_span_that_fits_once(properties, request_text, slots):
    assert copy_slots(tool("t", **properties), request_text) == slots


def test_the_best_match_by_words_is_called():
    tools = [tool("send_email", "Send an email"), tool("get_time", "Tell the time")]
    assert make_baseline_call(tools, "what time is it?")["name"] == "get_time"
    deep: dict[str, Any] = TEXT
    for _ in range(2000):  # a list of lists without end is left out
        deep = {"type": "array", "items": deep}
    assert copy_slots(tool("add", rows=deep), 'Add "Brest".') == {}


@given(st.text(max_size=200))
def test_any_instruction_is_answered(text):
    every = {kind: {"type": kind} for kind in ("string", "integer", "number", "array", "boolean")}
    assert make_baseline_call([tool("a", **every), tool("b")], text)["name"] in ("a", "b")


STATIONS = {"type": "array", "items": TEXT}
TIDES = tool("tide_times", required=("port", "days"), port=TEXT, days=INTEGER, stations=STATIONS)
ASKED_OF_SLOTS = 'Tides at "Brest" for 3 days.'


@cases(
    "text, arguments",
    (
        '<tool_call>\n{"name": "tide_times", "arguments": {"port": "Brest", "days": 4, '
        '"stations": ["a", "a", "a", "a',
        {"port": "Brest", "days": 4},
    ),
    ('{"name": "tide_times", "arguments": {"port": "Bre', {"port": "Brest", "days": 3}),
    ('{"name": "tide_times", "arguments": {"days": 12', {"port": "Brest", "days": 3}),
    ('{"name": "tide_times", "argum', {"port": "Brest", "days": 3}),
    ('{"name": "tide_ti', None),
    ('{"name": "moon_phase", "arguments": {"days": 1, "port', None),
    ("[1, 2", None),
    ("No tool fits", None),
    ("", None),
)
def test_a_call_without_end_keeps_what_was_whole(text, arguments):
    call = complete_cut_call(text, [TIDES], ASKED_OF_SLOTS)
    assert (call and call["arguments"]) == arguments
    assert call is None or call["name"] == "tide_times"


SHIFTS = tool(
    "list_shifts", required=["ward"], ward=TEXT, nurse=TEXT, limit=INTEGER, night=BOOLEAN, note=TEXT
)
ASKED_OF_SHIFTS = 'Which shifts has "Ward 7" at night? At most 12.'


@cases(
    "arguments, grounded",
    ({"ward": "Ward 7"}, {"ward": "Ward 7"}),
    ({"ward": "Ward 7", "nurse": "Smith"}, {"ward": "Ward 7"}),  # nobody named one
    ({"ward": "Ward 7", "limit": 12}, {"ward": "Ward 7", "limit": 12}),
    ({"ward": "Ward 7", "limit": 40}, {"ward": "Ward 7"}),
    ({"ward": "Ward 7", "note": "Ward 7"}, {"ward": "Ward 7"}),  # said once, not twice
    ({"ward": "Ward 7", "limit": 7}, {"ward": "Ward 7"}),  # said only within another value
    ({"ward": "Ward 7", "note": "shifts Ward 7"}, {"ward": "Ward 7"}),  # in other words
    ({"ward": "Ward 7", "note": 'has "Ward 7" at night'}, {"ward": "Ward 7"}),  # around another
    ({"ward": "Ward 7", "night": True}, {"ward": "Ward 7", "night": True}),
    ({"ward": "emergency"}, {"ward": "Ward 7"}),
    ({"ward": "Dear all, the rota of next month is out. " * 3}, None),
    ({"ward": ["Ward 7"]}, None),
    ("Ward 7", None),
    (None, None),
)
def test_a_call_says_what_its_request_says(arguments, grounded):
    call = {"name": "list_shifts", "arguments": arguments}
    expected = arguments if grounded is None else grounded
    assert ground_call(call, [TIDES, SHIFTS], ASKED_OF_SHIFTS) == {**call, "arguments": expected}
    unknown = {**call, "name": "list_ships"}
    assert ground_call(unknown, [SHIFTS], ASKED_OF_SHIFTS) == unknown


@cases(
    "arguments, request_text, grounded",
    ({"page": 1, "open": True}, "Open page 1.", {"page": 1, "open": True}),  # 1 == True
    ({"page": 5, "size": 5}, "Five rows of page 5.", {"page": 5}),  # of two equal ones the first,
    ({"start": "York", "to": "New York"}, "From York to New York.", None),  # said by itself too
    ({"start": "a/plan.md", "title": "plan"}, "Read a/plan.md, titled Plan.", None),
    ({"path": "a/hosts"}, "Read /a/hosts.", {"path": "/a/hosts"}),
    ({"path": "b.md", "start": "r"}, "Copy ~/b.md to /r", {"path": "~/b.md", "start": "r"}),
    ({"path": "b.md"}, "Copy ./b.md, or b.md", None),
    ({"path": "a.com/b", "image_path": "r"}, "Get http://a.com/b of /r", None),  # of an enum
)
def test_values_that_python_calls_equal_stay_apart(arguments, request_text, grounded):
    texts = {"title": TEXT, "start": TEXT, "to": TEXT, "path": TEXT, "image_path": {"enum": ["r"]}}
    pages = tool("read", required=(), page=INTEGER, size=INTEGER, open=BOOLEAN, **texts)
    call = {"name": "read", "arguments": arguments}
    expected = arguments if grounded is None else grounded
    assert ground_call(call, [pages], request_text) == {**call, "arguments": expected}


@cases("part", "1-", "-", "a", "a-", "1", "a--1", "a.a", "1.", "a@", "~/.")
def test_slots_of_a_hostile_request_cost_bounded_work(part):
    """A pattern that starts again at each letter would take minutes here."""
    assert set(copy_slots(tool("show", value=TEXT), part * 20_000)) <= {"value"}


@cases("schema", None, [], {"properties": None})
def test_a_tool_without_a_schema_has_nothing_to_copy(schema):
    of = {"name": "list_shifts", "inputSchema": schema}
    call = {"name": "list_shifts", "arguments": {}}
    assert (copy_slots(of, "Ward 7"), ground_call(call, [of], "Ward 7")) == ({}, call)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=90)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=6
)


@given(st.dictionaries(st.sampled_from(sorted(SHIFTS["inputSchema"]["properties"])), values))
def test_grounding_adds_no_argument_and_loses_no_required_one(arguments):
    call = ground_call({"name": "list_shifts", "arguments": arguments}, [SHIFTS], "Ward 7")
    assert set(call["arguments"]) <= set(arguments)
    assert ("ward" in call["arguments"]) == ("ward" in arguments)
