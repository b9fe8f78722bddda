"""A call is repaired where that takes no guessing, and left alone elsewhere."""

import json
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.contracts.repair import values as values_module
from assets.contracts.repair.names import count_slips, find_nearest, find_same_name, fold_name
from assets.contracts.repair.problems import find_problems
from assets.contracts.repair.repair import repair_call
from assets.contracts.validate import validate_call
from tests.contracts.strategies import calls, values
from tests.support.cases import cases

PLACE = {"lat": {"type": "number"}, "label": {"type": "string"}}
SCHEMA = {
    "type": "object",
    "properties": {
        "userId": {"type": "integer"},
        "units": {"type": "string", "enum": ["metric", "imperial"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "where": {"type": "object", "properties": PLACE, "required": ["lat"]},
        "live": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
        "level": {"type": "integer", "enum": [1, 2, 3]},
        "date1": {"type": "string"},
    },
    "required": ["userId"],
}
TOOL = {"name": "look", "inputSchema": SCHEMA}
CLOSED = {"name": "look", "inputSchema": {**SCHEMA, "additionalProperties": False}}

REPAIRED = {
    "JSON text": ('{"userId": 5}', {"userId": 5}),
    "JSON text in a fence": ('```json\n{"userId": 5}\n```', {"userId": 5}),
    "a list of one": ([{"userId": 5}], {"userId": 5}),
    "wrapped in arguments": ({"arguments": {"userId": 5}}, {"userId": 5}),
    "wrapped with its name": ({"name": "look", "arguments": {"userId": 5}}, {"userId": 5}),
    "wrapped in the tool's name": ({"look": {"userId": 5}}, {"userId": 5}),
    "wrapped as text": ({"arguments": '{"userId": 5}'}, {"userId": 5}),
    "text for a whole number": ({"userId": " 5 "}, {"userId": 5}),
    "a list of one for a value": ({"userId": [5]}, {"userId": 5}),
    "a wrapped value": ({"userId": {"value": "5"}}, {"userId": 5}),
    "a value under its own name": ({"userId": {"userId": 5}}, {"userId": 5}),
    "names and values": ([{"name": "userId", "value": "5"}], {"userId": 5}),
    "a word for nothing": ({"userId": 5, "level": "None", "live": "null"}, {"userId": 5}),
    "an empty text": ({"userId": 5, "tags": "", "units": ""}, {"userId": 5}),
    "a name by separators": ({"user_id": 5}, {"userId": 5}),
    "a name by spelling": ({"usreId": 5}, {"userId": 5}),
    "an optional name": ({"userId": 5, "Unit": "metric"}, {"userId": 5, "units": "metric"}),
    "null for what is optional": ({"userId": 5, "units": None}, {"userId": 5}),
    "all at once": (
        '{"arguments": {"user_id": "5", "Units": "Metric", "live": "no", "tags": null}}',
        {"userId": 5, "units": "metric", "live": False},
    ),
}
SENTENCE = "It rains, so we stay at home today."
ONE_ARGUMENT = {  # beside a sound userId: (which argument, what is given, what becomes of it)
    "text for a boolean": ("live", "True", True),
    "1 for a boolean": ("live", 1, True),
    "text for a list": ("tags", '["a"]', ["a"]),
    "one value for a list": ("tags", "a b", ["a b"]),
    "words with commas": ("tags", "a, b c", ["a", "b c"]),
    "sentences with commas": ("tags", SENTENCE, [SENTENCE]),
    "numbers with commas": ("sizes", "1, 2", [1, 2]),
    "text for an object": ("where", '{"lat": 1}', {"lat": 1}),
    "text with faults": ("where", '{"Lat": "1.5", "label": 7}', {"lat": 1.5, "label": "7"}),
    "a number for text": ("note", 1.5, "1.5"),
    "a value with its type": ("date1", {"type": "text", "text": "May"}, "May"),
    "wrapped items": ("tags", [{"tag": "a"}], ["a"]),
    "items by place": ("sizes", {"0": 1, "1": 2}, [1, 2]),
    "a wrapped list": ("sizes", {"items": [1]}, [1]),
    "a list with apostrophes": ("tags", "['a', 'it']", ["a", "it"]),
    "a tuple": ("sizes", "(1, 2)", [1, 2]),
    "a comma too many": ("tags", '["a", "b",]', ["a", "b"]),
    "words in brackets": ("tags", "[a, b c]", ["a", "b c"]),
    "quoted words": ("tags", "'a', 'b'", ["a", "b"]),
    "elements": ("tags", "<i>a</i>\n<i>b</i>", ["a", "b"]),
    "points": ("tags", "- a\n- b c d e f", ["a", "b c d e f"]),
    "an object of Python": ("where", "{'lat': 1}", {"lat": 1}),
    "a choice by case": ("units", "METRIC", "metric"),
    "a choice by spelling": ("units", "imperail", "imperial"),
    "a choice cut short": ("units", "imp", "imperial"),
    "a choice as text": ("level", "2", 2),
    "a name within": ("where", {"LAT": 1}, {"lat": 1}),
}
REPAIRED |= {
    name: ({"userId": 5, key: before}, {"userId": 5, key: after})
    for name, (key, before, after) in ONE_ARGUMENT.items()
}
LEFT = {
    "an object for text": {"userId": 5, "note": {"a": "é"}},
    "an object among texts": {"userId": 5, "tags": ["a", {"b": "c"}]},
    "a list that breaks off": {"userId": 5, "tags": '["a", "b'},
    "a list in a list": {"userId": 5, "tags": [["a", "b"]]},
    "what excludes a value": {"userId": 5, "date1": {"not": "May"}},
    "null for a required list": {"userId": "None"},
    "a word for a number": {"userId": "five"},
    "what is required is missing": {"units": "metric"},
    "null for what is required": {"userId": None},
    "a choice that is none": {"userId": 5, "units": "kelvin"},
    "a half number": {"userId": 5.5},
    "a name like none": {"userId": 5, "colour": "red"},
    "a name that is there already": {"userId": 5, "user_id": 6},
    "two that mean one": {"user_id": 5, "USERID": 6},
    "another number in a name": {"userId": 5, "date2": "x"},
    "too large": {"userId": "1" * 40},
    "not a number": {"userId": 5, "where": {"lat": "NaN"}},
}


CHOSEN = {  # value -> choices, the one that is meant
    "C#": (["C++", "Python"], None),
    "C": (["C++", "Java"], None),
    "1": (["-1", "0"], None),
    "-5": (["5", "10"], None),
    "1.5": (["15", "30"], None),
    "3.10": (["31.0", "3.9"], None),
    "USD": (["USDT", "EUR"], None),
    "all": (["allow", "deny"], None),
    "utf8": (["utf-8", "latin-1"], "utf-8"),
    "gpt4o": (["gpt-4o", "gpt-4.1"], "gpt-4o"),
    "c ++": (["C++", "Java"], "C++"),
    "prod": (["production", "staging"], "production"),
    "fri": (["friday", "monday"], "friday"),
    "`asc`": (["asc", "desc"], "asc"),
    "[asc]": (["asc", "desc"], "asc"),
    "**high**": (["high", "low"], "high"),
    "1,000": (["1000", "100"], "1000"),
    "[C#]": (["C++", "C"], None),
    "1,00": (["100", "10"], None),
}


@pytest.mark.parametrize("value", CHOSEN)
def test_a_choice_is_taken_for_its_form_not_for_another_value(value):
    choices, meant = CHOSEN[value]
    tool = {"name": "t", "inputSchema": {"properties": {"a": {"enum": choices}}}}
    assert repair_call(tool, {"a": value}).arguments == {"a": meant or value}


NUMBERS = {  # what the parameter is, what was given -> what becomes of it
    "a thing that is counted": ({"name": "max_results"}, "10 results", None),
    "separators": ({"name": "price"}, "1,500", 1500),
    "its own unit": ({"name": "delay_seconds"}, "20 s", 20),
    "another unit of its kind": ({"name": "timeout_ms"}, "2 min", 120_000),
    "the unit of its description": ({"name": "t", "description": "Time in seconds"}, "1 h", 3600),
    "a length for a time": ({"name": "seconds"}, "2 m", None),
    "a multiple": ({"name": "amount"}, "3 million", None),
    "months for days": ({"name": "days"}, "3 months", None),
    "another unit": ({"name": "temperature_f"}, "20 celsius", None),
    "tonnes for kilograms": ({"name": "weight_kg"}, "2 tonnes", None),
    "a currency": ({"name": "amount_usd"}, "50 euros", None),
    "a share": ({"name": "share"}, "50%", None),
    "yes for an amount": ({"name": "amount"}, True, None),
    "yes for a choice of 0 and 1": ({"name": "live", "type": "integer", "enum": [0, 1]}, True, 1),
    "yes for a choice of more": ({"name": "live", "enum": [0, 1, 2]}, True, None),
    "yes for a switch of numbers": ({"name": "live", "minimum": 0, "maximum": 1}, True, 1),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_a_number_is_read_in_its_own_unit_or_not_at_all(case):
    about, value, meant = NUMBERS[case]
    name, by_name = about["name"], {"type": "number", **about}
    by_name.pop("name")
    schema = {"type": "object", "properties": {name: by_name}}
    result = repair_call({"name": "t", "inputSchema": schema}, {name: value})
    assert result.arguments == {name: value if meant is None else meant}
    assert bool(result.problems_left) is (meant is None)


PAIRED = {  # given name -> (the tool, what is missing, its description, whether it is meant)
    "from_account": ("transfer", "to_account", "The account that money goes to, from yours", False),
    "start_at": ("plan", "end_at", "End of it, after start at", False),
    "src_path": ("copy", "dst_path", "", False),
    "cc": ("send", "bcc", "", False),
    "x1": ("draw", "x2", "", False),
    "user_id": ("add", "group_id", "", False),
    "page": ("create", "parent_page", "", False),
    "min_size": ("find", "max_size", "", False),
    "userId": ("get_user", "id", "", True),
    "id": ("get_user", "user_id", "", True),
    "city_name": ("weather", "city", "", True),
    "location": ("weather", "city", "City or other location", True),
    "path": ("read_file", "file_path", "", True),
    "desc": ("note", "description", "", True),
}


@pytest.mark.parametrize("name", PAIRED)
def test_the_only_name_that_is_missing_is_meant_where_nothing_speaks_against_it(name):
    tool, missing, about, meant = PAIRED[name]
    properties = {missing: {"type": "string", "description": about}}
    schema = {"properties": properties, "required": [missing]}
    result = repair_call({"name": tool, "inputSchema": schema}, {name: "v"})
    assert result.arguments == {missing if meant else name: "v"}


@pytest.mark.parametrize("name", REPAIRED)
def test_what_takes_no_guessing_is_repaired_and_told_and_not_changed_in_place(name):
    given_, expected = REPAIRED[name]
    before = deepcopy(given_)
    result = repair_call(TOOL, given_)
    assert (given_, result.arguments, result.problems_left) == (before, expected, [])
    assert [*map(type, result.arguments.values())] == [*map(type, expected.values())]
    assert result.steps


@pytest.mark.parametrize("name", LEFT)
def test_what_would_be_a_guess_is_left_and_told(name):
    result = repair_call(TOOL, LEFT[name])
    assert (result.arguments, result.steps) == (LEFT[name], [])
    assert result.problems_left


@cases("value", "15-March-2024", "15-Mar-2024", "2024-Mar-15")
def test_a_month_between_dashes_is_no_zone(value):
    day = {"properties": {"a": {"type": "string", "format": "date"}}}
    result = repair_call({"name": "t", "inputSchema": day}, {"a": value})
    assert result.arguments == {"a": "2024-03-15"}


def test_the_signs_of_a_value_are_read_once(monkeypatch):
    read, list_signs = [], values_module._list_signs
    monkeypatch.setattr(
        values_module, "_list_signs", lambda text: read.append(len(text)) or list_signs(text)
    )
    choices = {"properties": {"a": {"enum": [f"choice {n}" for n in range(200)]}}}
    for value in ("x!", "x!" * 500_000):
        call = {"a": value}
        assert repair_call({"name": "t", "inputSchema": choices}, call).arguments == call
    assert read.count(2) == 1
    assert max(read) < 1000


def test_what_nobody_declared_is_dropped_where_the_contract_forbids_it_but_not_what_was_said():
    extra = {"userId": 5, "colour": "red"}
    assert repair_call(TOOL, extra).arguments == extra
    result = repair_call(CLOSED, extra)
    assert result.arguments == {"userId": 5}
    assert result.steps == ["dropped $.colour, which the contract forbids"]
    given_ = {"userId": 5, "colour": "red", "shade": "dark", "zq": True}
    result = repair_call(TOOL, given_, drop_undeclared=True, is_said=lambda value: value == "red")
    assert result.arguments == {"userId": 5, "colour": "red"}


def test_a_wrapper_of_the_tools_name_is_taken_off_and_one_part_keeps_no_other_from_repair():
    names = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    wrapped = {"name": "look", "arguments": {"name": "x"}}
    assert repair_call({"name": "look", "inputSchema": names}, wrapped).arguments == {"name": "x"}
    assert repair_call({"name": "find", "inputSchema": names}, wrapped).arguments == wrapped
    result = repair_call(TOOL, {"userId": "five", "live": "true"})
    assert result.arguments == {"userId": "five", "live": True}
    assert [item["path"] for item in result.problems_left] == ["$.userId"]


NESTED = {w: {"properties": {"id": {}}} for w in ("from", "to")}
LIST_NEEDED = {"name": "look", "inputSchema": {**SCHEMA, "required": ["tags"]}}
KEPT = [  # (schema or contract, what is given), whatever may be dropped
    (CLOSED, {"colour": "red"}),  # something required is missing
    *(
        (CLOSED, {"userId": 5, "units": "metric", "tags": [], "where": {"lat": 1}, name: 1})
        for name in ("uni", "userIds", "unit_s", "tag", "whre")  # may have been meant
    ),
    (CLOSED, {"userId": 5, "user_id": 6}),
    (CLOSED, {"user_id": 5, "USERID": 6}),
    *(
        (CLOSED, {"userId": 5, name: True})  # guards or narrows the call
        for name in ("dry_run", "dryRun", "filter", "confirm", "only_unread")
    ),
    ({"type": "object"}, {"query": "x"}),  # any object, or none: nobody knows
    ({}, {"query": "x"}),
    ({"properties": {"data": {"properties": {"a": {}}}}}, {"data": {"a": 1, "b": 2}}),
    ({"properties": {"rows": {"items": {"properties": {"a": {}}}}}}, {"rows": [{"b": 2}]}),
    ({"properties": NESTED}, {"id": "5"}),
    *((TOOL, {name: {"userId": 5}}) for name in ("except", "not", "dryRun")),  # rules it out
    *((LIST_NEEDED, {"tags": nothing}) for nothing in ("", " ", "null", "None")),
]


@pytest.mark.parametrize(("tool", "given_"), KEPT)
def test_what_may_be_meant_guards_the_call_or_is_data_is_not_dropped(tool, given_):
    tool = tool if "name" in tool else {"name": "t", "inputSchema": tool}
    assert repair_call(tool, given_, drop_undeclared=True).arguments == given_


@given(calls())
def test_a_call_that_fits_is_given_back_as_it_is_and_so_is_its_text_or_wrapper(call):
    schema, arguments = call
    tool = {"name": "t", "inputSchema": schema}
    result = repair_call(tool, arguments)
    assert result.arguments is arguments
    assert (result.steps, result.problems_left) == ([], [])
    assert repair_call(tool, json.dumps(arguments)).arguments == arguments
    if arguments and "arguments" not in schema["properties"]:
        assert repair_call(tool, {"arguments": arguments}).arguments == arguments


@st.composite
def broken_calls(draw):
    """A call that fits, broken in one of the ways in which callers do."""
    schema, arguments = draw(calls())
    way = draw(st.sampled_from(["json", "wrap", "text", "rename", "list", "null"]))
    if way == "json":
        return schema, json.dumps(arguments)
    if way == "wrap":
        return schema, {"arguments": arguments}
    if not arguments:
        return schema, arguments
    name = draw(st.sampled_from(sorted(arguments)))
    value = arguments[name]
    if way == "rename":
        remainder = {key: item for key, item in arguments.items() if key != name}
        return schema, {**remainder, name.upper() + "-": value}
    broken = {"null": None, "list": [value]}
    return schema, {**arguments, name: broken[way] if way in broken else json.dumps(value)}


@given(broken_calls() | st.tuples(calls().map(lambda call: call[0]), values))
def test_repair_is_idempotent_never_adds_a_flaw_and_tells_each_step(call):
    schema, arguments = call
    tool = {"name": "t", "inputSchema": schema}
    first = repair_call(tool, arguments)
    again = repair_call(tool, first.arguments)
    assert (again.arguments, again.steps) == (first.arguments, [])
    if isinstance(arguments, dict):
        before, after = validate_call(tool, arguments), validate_call(tool, first.arguments)
        assert len(after) < len(before) if first.steps else after == before
    assert bool(first.steps) == (first.arguments != arguments)
    assert first.problems_left == find_problems(tool, first.arguments)


@settings(max_examples=25)
@given(values, values)
def test_nothing_raises_whatever_schema_and_arguments_are(schema, arguments):
    tool = {"name": "t", "inputSchema": schema}
    done = repair_call(tool, arguments)
    assert bool(done.problems_left) == bool(validate_call(tool, done.arguments))
    assert repair_call({}, arguments).arguments == arguments


def test_thousands_of_names_and_wrong_arguments_end():
    many = {"type": "object", "properties": {f"name_{n}": {"type": "integer"} for n in range(800)}}
    wrong = {f"nome_{n}": "x" for n in range(100)}
    assert repair_call({"name": "t", "inputSchema": many}, wrong).problems_left


@cases(
    "name, among, meant",
    ("user-id", ["userId", "id"], "userId"),
    ("USER ID", ["user_id", "userId"], None),
    ("---", ["-"], None),
)
def test_the_same_but_for_case_and_separators(name, among, meant):
    assert find_same_name(name, among) == meant


@cases(
    "name, among, meant",
    ("adress", ["address", "city"], "address"),
    ("qurey", ["query"], "query"),
    ("lat", ["lot"], None),
    ("date2", ["date1"], None),
    ("item", ["items", "itemz"], None),
    ("x" * 65, ["x" * 64], None),
    ("usr_id", ["user_id"], "user_id"),
    ("organisation_id", ["organization_id"], "organization_id"),
    ("größse", ["größe"], "größe"),
    ("add_umbers", ["add_numbers"], "add_numbers"),
    ("symmetric_key", ["asymmetric_key"], None),
    ("lock_card", ["block_card"], None),
    ("undelete_file", ["delete_file"], None),
    ("subscribe", ["unsubscribe"], None),
    ("import_data", ["export_data"], None),
    ("charge_card", ["change_card"], None),
    ("inactive", ["active"], None),
    ("latitude", ["altitude"], None),
    ("min_price", ["max_price"], None),
    ("minprice", ["maxprice"], None),
    ("port_1_12", ["port_11_2"], None),
)
def test_the_nearest_name_is_close_and_alone(name, among, meant):
    assert find_nearest(name, among) == meant


short = st.text("abc", max_size=6)


@given(short, short)
def test_slips_are_a_distance(a, b):
    assert count_slips(a, b, 9) == count_slips(b, a, 9)
    assert (count_slips(a, b, 9) == 0) == (a == b)
    assert abs(len(a) - len(b)) <= count_slips(a, b, 9) <= max(len(a), len(b))
    assert count_slips(a, b, 1) == min(count_slips(a, b, 9), 2)
    assert fold_name(a) == a


TEXT = {"type": "string"}
KIND_A = {"properties": {"kind": {"const": "a"}, "path": TEXT}, "required": ["kind", "path"]}
KIND_B = {"properties": {"kind": {"const": "b"}, "url": TEXT}, "required": ["kind", "url"]}
FORMS = {
    "required": {"properties": {"id": TEXT, "name": TEXT, "email": TEXT},
                 "anyOf": [{"required": ["id"]}, {"required": ["name", "email"]}]},
    "kinds": {"oneOf": [KIND_A, KIND_B]},
    "references": {"$defs": {"a": KIND_A, "b": KIND_B},
                   "oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]},
}  # fmt: skip


@cases(
    "form, given_, made, expected",
    ("required", {}, None, "either $.id: string, or $.name: string and $.email: string"),
    ("required", {"name": "x"}, None, "either $.id: string, or $.email: string"),
    ("kinds", {}, None, '$.kind: one of "a" and $.path: string, or $.kind: one of "b" and $.url'),
    ("references", {"kind": "b"}, None, "or $.url: string"),
    ("kinds", {"kind": "a", "url": "x"}, None, ""),
    ("kinds", {"kind": "a", "path": 5}, {"kind": "a", "path": "5"}, None),
    ("references", {"kind": "B", "url": "x"}, {"kind": "b", "url": "x"}, None),
    ("required", {"email": "e", "Name": "n"}, {"email": "e", "name": "n"}, None),
)
def test_of_several_forms_the_only_one_that_can_be_meant_is_made_or_each_told(
    form, given_, made, expected
):
    result = repair_call({"name": "t", "inputSchema": {"type": "object", **FORMS[form]}}, given_)
    assert result.arguments == (made or given_)
    assert bool(result.problems_left) is (made is None)
    assert made or expected in result.problems_left[0]["expected"]


@settings(max_examples=150, deadline=None)
@given(values, st.sampled_from(["tags", "note", "date1", "sizes"]))
def test_no_text_is_made_of_structure(value, name):
    """A text of the result stands in the call, or is a scalar of it."""
    call = {"userId": 5, name: value}
    result = repair_call(TOOL, deepcopy(call))
    if not result.problems_left:
        given_texts = [leaf for leaf in list_leaves(call) if isinstance(leaf, str)]
        for text in (leaf for leaf in list_leaves(result.arguments) if isinstance(leaf, str)):
            assert any(text in item for item in given_texts) or not text.startswith(("{", "["))


WRITTEN = st.lists(st.text("abc'\" ,[]{}:-\n", min_size=1, max_size=6), min_size=1, max_size=4)


@settings(max_examples=300, deadline=None)
@given(WRITTEN, st.sampled_from([json.dumps, repr, lambda items: repr(tuple(items))]))
def test_a_list_written_as_text_is_that_list_or_asked_for(items, write):
    result = repair_call(TOOL, {"userId": 5, "tags": write(items)})
    assert result.problems_left or result.arguments["tags"] == items


def list_leaves(value):
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from list_leaves(item)
    else:
        yield value
