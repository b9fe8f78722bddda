"""What is tried on a server, and what its answers teach: values, matches, proposed calls, edges."""

import json
import random
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.repair.problems import find_problems
from assets.outcomes import call_proposer, execution, exploration
from assets.servers.deploy.grants import LocalSite
from assets.synthesis.role_schemas import CallProposals
from tests.support.cases import cases
from tests.support.examples import json_values
from tests.synthesis import contracts


def make_tool(name: str, required: list[str], about: str = "", **properties: Any) -> dict[str, Any]:
    return contracts.make_tool(name, about, properties, *required)


TEXT = {"type": "string"}
READ_SHEET = make_tool("read_sheet", ["path", "sheet"], "Reads a sheet.", path=TEXT, sheet=TEXT)


def propose(
    tool: dict[str, Any], pool: exploration.ValuePool, count: int = 3
) -> list[exploration.ProposedCall]:
    return exploration.propose_calls(tool, pool, count, random.Random(1))


def test_what_an_answer_lists_fills_the_parameter_of_its_name_and_a_folder_one_with_a_pattern():
    pool = exploration.ValuePool()
    pool.add_world({"sales.xlsx": b"", "drafts": None, ".git/HEAD": b""}, {}, "/data")
    pool.add_answer({"sheets": [{"name": "Staff"}, {"name": "Sales"}]}, "describe_workbook")
    calls = propose(READ_SHEET, pool, 2)
    assert {call.arguments["path"] for call in calls} == {"/data/sales.xlsx"}
    assert [call.arguments["sheet"] for call in calls] == ["Staff", "Sales"]
    assert calls[0].sources == {"path": exploration.WORLD, "sheet": "describe_workbook"}
    edges = exploration.count_edges((call.tool, call.sources) for call in calls)
    assert edges == {"describe_workbook -> read_sheet.sheet": 2}
    pool = exploration.ValuePool()
    pool.add_world({"a.txt": b"", "drafts": None}, {}, "/data")
    lister = make_tool("list_directory", ["path"], "Lists the files of a directory.", path=TEXT)
    assert {call.arguments["path"] for call in propose(lister, pool)} == {"/data", "/data/drafts"}
    finder = make_tool("search_files", ["path", "pattern"], path=TEXT, pattern=TEXT)
    [call, *_] = propose(finder, pool)
    assert call.arguments == {"path": "/data", "pattern": "**/*.txt"}


def test_few_of_many_values_are_held_against_a_schema(monkeypatch):
    held, pool = list[Any](), exploration.ValuePool()
    monkeypatch.setattr(exploration, "fits_schema", lambda value, _: held.append(value))
    for at in range(600):
        pool.add("sheet", f"value {at}", "list_sheets")
    slots = {f"sheet_{at}": TEXT for at in range(20)}
    propose(make_tool("add_sheets", [*slots], **slots), pool)
    assert 0 < len(held) <= 20 * 20


def test_a_page_of_the_world_is_given_where_an_address_is_asked_for(tmp_path):
    pool, sites = exploration.ValuePool(), [LocalSite("site.example", tmp_path)]
    pool.add_world({}, {"page/about": "Us", "products/3": {"id": 3}}, "/data", sites)
    calls = propose(make_tool("fetch", ["url"], url=TEXT), pool)
    assert {call.arguments["url"] for call in calls} == {
        f"http://site.example/{path}" for path in ("", "about", "products/3")
    }


def test_members_words_counts_and_choices_are_filled_in_as_the_schema_says():
    pool = exploration.ValuePool()
    pool.add_answer({"entities": [{"name": "Rosa"}]}, "read_graph")
    contents = {"type": "array", "items": TEXT}
    named = make_tool("", ["entityName", "contents"], entityName=TEXT, contents=contents)
    note = named["inputSchema"]
    adder = make_tool("add_notes", ["notes"], notes={"type": "array", "items": note})
    [call, *_] = propose(adder, pool)
    assert call.arguments["notes"][0]["entityName"] == "Rosa"  # type: ignore[index]
    assert call.sources == {"notes": exploration.INVENTED}  # its contents were
    pool = exploration.ValuePool()
    pool.add_answer({"title": "Minutes of the harbour board"}, "list_notes")
    finder = make_tool("search_notes", ["query"], query=TEXT)
    [call, *_] = propose(finder, pool)
    assert (call.arguments, call.sources) == ({"query": "board"}, {"query": "list_notes"})
    pool.add_answer({"count": ["--5", "\u0665", "9" * 60, "7"]}, "list_notes")
    counter = make_tool("take", ["count"], count={"type": "integer"})
    assert {call.arguments["count"] for call in propose(counter, pool)} == {7}
    tool = make_tool("draw", ["kind", "label"], kind={"enum": ["bar"]}, label=TEXT)
    [call, *_] = propose(tool, exploration.ValuePool())
    sources = {"kind": exploration.SCHEMA, "label": exploration.INVENTED}
    assert (call.arguments["kind"], call.sources) == ("bar", sources)
    pool, date = exploration.ValuePool(), {**TEXT, "description": "As YYYY-MM-DD"}
    pool.add_answer({"date": ["2025-06-02", "2025-07-20"]}, "list_days")
    between = make_tool("days_between", ["start", "end"], start=date, end=date)
    assert {len({*call.arguments.values()}) for call in propose(between, pool)} == {2}


def test_tools_that_list_come_first_and_an_answer_without_end_teaches_a_little():
    delete = make_tool("delete_file", ["path"], "Deletes a file.", path=TEXT)
    tools = [delete, READ_SHEET, make_tool("list_files", [], "Lists files.")]
    ordered = sorted(tools, key=exploration.rank_tool)
    assert [tool["name"] for tool in ordered] == ["list_files", "read_sheet", "delete_file"]
    pool = exploration.ValuePool()
    deep: Any = "x"
    for _ in range(500):
        deep = {"a": deep}
    pool.add_answer(deep, "t")
    pool.add_answer([{"id": n} for n in range(100_000)], "t")
    odd = {"id": "y" * 10_000, "line": "two\nlines", "on": True, "none": None, "n": float("nan")}
    pool.add_answer(odd, "t")
    assert 0 < len(pool.values) <= 60


@cases(
    "text, structured, expected",
    ('{"a": 1}', None, {"a": 1}),
    ("one\n\n two ", None, {"line": ["one", "two"]}),
    ("ignored", {"b": [2]}, {"b": [2]}),
    ("[" * 100_000, None, {"line": ["[" * 100_000]}),
    ("", None, {"line": []}),
)
def test_an_answer_is_read_as_json_or_by_lines(text, structured, expected):
    facts = ("useful", None, "", "ok", None, None, "", text, structured, len(text), 0.1, "", "")
    assert exploration.read_answer(execution.CallExecution(*facts)) == expected  # type: ignore[arg-type]


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30)
answers = json_values(leaves=20)
schemas = st.sampled_from(
    [
        TEXT,
        {"type": "integer", "minimum": 3},
        {"type": "array", "items": TEXT},
        {"type": "object", "properties": {"id": TEXT}, "required": ["id"]},
        {"type": "array", "items": {"type": "object", "properties": {"path": TEXT}}},
        {"enum": ["a", 1, None]},
        {"type": "string", "pattern": "^[a-z]+$"},
        {"anyOf": [{"type": "null"}, TEXT]},
    ]
)
names = st.sampled_from(["path", "id", "query", "sheet", "title", "user_id", "folder"])


@given(answers, st.dictionaries(names, schemas, max_size=4), st.integers(1, 4))
def test_whatever_was_answered_the_proposed_calls_fit_and_differ(answer, properties, count):
    pool = exploration.ValuePool()
    pool.add_answer(answer, "other")
    tool = make_tool("t", list(properties), **properties)
    calls = propose(tool, pool, count)
    assert len(calls) <= count
    assert len({json.dumps(call.arguments, sort_keys=True) for call in calls}) == len(calls)
    for call in calls:
        assert not [p for p in find_problems(tool, call.arguments) if p["kind"] != "bad_schema"]
        assert set(call.sources) == set(call.arguments)


def answer(tool: str, arguments: dict[str, Any], told: Any) -> exploration.AnsweredCall:
    return exploration.read_answered(f"o1:{tool}", tool, arguments, told)


def test_a_value_comes_from_the_answer_that_told_it_and_a_misspelt_call_has_another():
    book = answer("describe_workbook", {"path": "/a.xlsx"}, {"sheets": [{"name": "Staff"}]})
    find = {"path": "/a.xlsx", "sheet": "Staff"}
    assert exploration.find_origins(READ_SHEET, find, [book]) == {
        "sheet": ("o1:describe_workbook", "sheet")
    }
    echo = answer("echo_sheet", {"sheet": "Staff"}, {"sheet": "Staff"})
    assert exploration.find_origins(READ_SHEET, find, [echo]) == {}
    own = answer("read_sheet", {}, {"sheet": "Staff"})
    assert exploration.find_origins(READ_SHEET, find, [own]) == {}
    second = answer("describe_workbook", {}, {"sheets": [{"name": "Sales"}, {"name": "Staff"}]})
    assert (
        exploration.find_origins(READ_SHEET, find, [second]) == {}
    )  # nobody says which of the two
    call = exploration.ProposedCall(
        "read_sheet", {"path": "/a.xlsx", "sheet": "x"}, {"path": exploration.WORLD}
    )
    wrong = exploration.misspell_call(READ_SHEET, call)
    assert wrong is not None
    assert wrong.arguments == {"path": "/ax.xlsx", "sheet": "x"}
    made_up = exploration.ProposedCall(
        "read_sheet", call.arguments, {"path": exploration.INVENTED, "sheet": exploration.SCHEMA}
    )
    assert exploration.misspell_call(READ_SHEET, made_up) is None


@cases(
    "properties, value",
    ({"kind": {"enum": ["Staff"]}}, "Staff"),
    ({"kind": {"type": "boolean"}}, True),
    ({"kind": {"type": "integer"}}, 7),
    ({"text": TEXT}, "Staff"),
    ({"author": TEXT}, "Staff"),
)
def test_what_two_places_share_by_chance_is_not_passed_on(properties, value):
    [name] = properties
    told = answer("describe", {}, {"kind": value, "text": value, "sheet": value})
    tool = make_tool("draw", [name], **properties)
    assert exploration.find_origins(tool, {name: value}, [told]) == {}


async def test_half_a_pair_in_an_answer_keeps_no_model_from_proposing():
    async def complete(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(value=CallProposals(calls=[{"q": "x"}]))

    pool, llm = exploration.ValuePool(), cast("Any", SimpleNamespace(complete=complete))
    pool.add_answer({"\ud800": "v"}, "list")
    contract = make_tool("look", ["q"], q={"type": "string"})
    [proposed] = await call_proposer.CallProposer(llm, 7).propose(contract, pool, [], 3)
    assert proposed.arguments == {"q": "x"}
