"""Texts and calls written to hang the rules, to exhaust them, or to make them raise."""

import json
from calendar import month_name
from datetime import date, timedelta
from functools import reduce
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from assets.synthesis.tables import TASKS
from assets.synthesis.verify.grading import MOST_LEAVES, grade_value, walk_leaves
from assets.synthesis.verify.numbers import TextNumbers
from assets.synthesis.verify.request_text import RequestText
from assets.synthesis.verify.rules import verify, verify_row
from assets.synthesis.verify.words import ABSENT, LIKELY, STATED
from tests.support.cases import cases
from tests.support.examples import examples, json_values
from tests.synthesis.contracts import ALL, CITY_TIME, CONVERT

# ruff: noqa: E501  (tables of texts read better unbroken)


OPEN = {
    "name": "note",
    "description": "Keep a note",
    "inputSchema": {"type": "object", "properties": {"a": {}}},
}
VERDICTS = {"accept", "unsure", "reject"}


MEGABYTE = 1_000_000
TEXTS = {
    "digits": "7" * MEGABYTE, "numbers": "1,2 " * 250_000, "words": "twenty " * 140_000,
    "commas": "1," * 500_000, "month": "9 june " * 140_000, "dates": "2025-06-09 " * 90_000,
    "han": "三百" * 300_000, "hangul": "두 " * 300_000, "marks": "e\u0301" * 300_000,
    "half": "a b and a half " * 60_000, "point": "one point " * 100_000, "from": "from a to b " * 80_000,
    "surrogates": "\ud800" * 1000, "controls": "\0\x1b" * 1000, "joiners": "a\u200d" * 100_000,
    "identifiers": "a_b_" * 200_000, "steps": "15m " * 200_000, "powers": "1e9" * 300_000,
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_a_megabyte_of_anything_gets_a_verdict(name):
    text = TEXTS[name]
    call = {
        "from_city": "a", "to_city": "b", "when": "2025-06-09", "n": 7, "step": "15m", "a": text,
    }  # fmt: skip
    assert verify(OPEN, text, call).verdict == "reject"
    assert verify({**OPEN, "description": text}, "Keep a note of it", {"a": 1}).verdict in VERDICTS
    row = {"task": "single", "contract_digest": "a", "instruction": text}
    assert verify_row(row, {"a": OPEN}).verdict == "reject"


CALLS = {
    "ten thousand elements": {"a": list(range(10_000))},
    "ten thousand words": {"a": [f"w{n}" for n in range(10_000)]},
    "ten thousand names": {f"p{n}": n for n in range(10_000)},
    "deep list": {"a": reduce(lambda inner, _: [inner], range(5_000), "x")},
    "deep object": {"a": json.loads('{"a":' * 400 + "1" + "}" * 400)},
    "a megabyte": {"a": "word 9 " * 150_000},
    "huge number": {"a": 10**5000}, "tiny": {"a": 5e-324}, "infinite": {"a": float("inf")},
    "nan": {"a": float("nan")}, "epoch": {"a": 10**12 + 0.5}, "zeros": {"a": "0" * 5000},
    "names": {"": 1, "\ud800": 2, "a" * 100_000: 3, ".[0]": 4},
    "dates": {"a": ["2025-02-31", "9999-99-99", "0000-00-00", "2025-06", "00000101"]},
    "odd": {"a": [None, True, "", " ", "*", "é", "\0", [], {}, [[]], {"": {}}]},
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_no_call_stops_the_rules(name):
    text = "Keep a note of 12 words from a to b by the ninth of June 2025, please."
    for contract in (OPEN, CITY_TIME):
        assert verify(contract, text, CALLS[name]).verdict in VERDICTS


SCHEMAS: list[Any] = [
    None, [], "x", {}, {"properties": []}, {"properties": {"a": []}}, {"required": 7},
    {"required": [["a"], 7, None], "properties": {"a": True}}, {"required": {"a": 1}},
    {"properties": {"a": {"enum": 7, "default": [], "items": 3, "properties": []}}},
    {"properties": {"a": {"enum": [{"x": []}, None, 1.5]}}},
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
def test_no_schema_stops_the_rules(schema):
    odd = {"name": 7, "description": [], "inputSchema": schema}
    for contract in ({"inputSchema": schema}, odd):
        for call in ({"a": "b"}, {"a": [1]}, [], None, 7, "a"):
            assert verify(contract, "Keep a note of b, please", call).verdict in VERDICTS


JSON = json_values()


@examples(150)
@given(
    st.sampled_from([*ALL, OPEN]),
    st.text(max_size=200),
    st.dictionaries(st.text(), JSON, max_size=4),
)
def test_verify_never_raises(contract, text, call):
    declared = list((contract["inputSchema"].get("properties") or {}).keys())
    names = dict(zip(declared, call.values(), strict=False))
    for arguments in (call, names):
        assert verify(contract, text, arguments, server=text[:9]).verdict in VERDICTS


@examples(150)
@given(
    st.sampled_from([*TASKS, "x", None]),
    st.dictionaries(
        st.sampled_from(["messages", "calls", "offered", "contract_digest", "instruction"]),
        JSON | JSON.map(lambda value: json.dumps(value, default=str)),
    ),
)
def test_verify_row_never_raises(task, columns):
    row = {"task": task, "contract_digest": "a", "instruction": "Keep a note", **columns}
    assert verify_row(row, {"a": OPEN, "b": CONVERT}).verdict in VERDICTS


EASY = examples(120)
FRAMES = ("Take {} for me.", "{} it is, please.", "I was thinking of {}, if that works")
MONTHS = list(month_name)[1:]
DAYS = st.dates(date(1995, 1, 1), date(2035, 12, 31))
WORDS = st.text("abcdefghijklmnopqrstuvwxyz", min_size=4, max_size=12)
IDS = st.builds(lambda word, n: f"{word}-{n}", WORDS, st.integers(10, 10**9))


def make_text(frame: str, spoken: object) -> RequestText:
    return RequestText(frame.format(spoken))


@EASY
@given(st.sampled_from(FRAMES), st.integers(-(10**9), 10**12))
def test_a_number_said_plainly_is_stated_with_or_without_separators(frame, n):
    for spoken in (str(n), f"{n:,}"):
        assert grade_value(n, {}, "count", make_text(frame, spoken)) == STATED
        assert grade_value(str(n), {}, "count", make_text(frame, spoken)) == STATED


@EASY
@given(st.sampled_from(FRAMES), st.integers(2, 10**9), st.integers(1, 10**6))
def test_another_number_is_not_stated(frame, n, more):
    text = make_text(frame, f"{n} apples")
    other = n + more
    assume(float(other) not in TextNumbers(text.folded))
    assert grade_value(other, {}, "count", text) != STATED
    assert grade_value(str(other), {}, "count", text) != STATED


@EASY
@given(st.floats(-1e6, 1e6).map(lambda x: round(x, 3)))
def test_a_decimal_is_stated_and_its_opposite_sign_is_not(x):
    text = RequestText(f"Use {x} as the factor")
    assert grade_value(x, {}, "factor", text) == STATED
    if x > 0:
        assert grade_value(-x, {}, "factor", text) != STATED


def spoken_days(day: date) -> list[str]:
    month = MONTHS[day.month - 1]
    return [
        day.isoformat(), f"{day.day} {month} {day.year}", f"{month} {day.day}, {day.year}",
        f"the {day.day}th of {month} {day.year}", f"{day.year}年{day.month}月{day.day}日",
        f"{day.day:02}.{day.month:02}.{day.year}", f"{month[:3]} {day.day} {day.year}",
    ]  # fmt: skip


@EASY
@given(st.sampled_from(FRAMES), DAYS)
def test_a_date_is_stated_in_every_order(frame, day):
    for spoken in spoken_days(day):
        text = make_text(frame, spoken)
        assert grade_value(day.isoformat(), {}, "date", text) == STATED, spoken
        assert grade_value(f"{day.isoformat()}T00:00:00Z", {}, "start", text) == STATED, spoken


@EASY
@given(DAYS, st.integers(1, 3000))
def test_another_date_is_not_stated(day, later):
    other = day + timedelta(days=later)
    for spoken in spoken_days(day):
        text = RequestText(f"Book it for {spoken}, please")
        if spoken[2:3] == "." and (other.day, other.month) == (day.month, day.day):
            continue  # 03.04.2025 is two dates
        if other.day in {day.month, day.year % 100} and other.month == day.month:
            continue  # figures of the same date: the rules read a bag of them
        moved = (day.month, day.year) != (other.month, other.year)
        if moved or spoken[:1].isdigit() or "年" in spoken:
            assert grade_value(other.isoformat(), {}, "date", text) != STATED, (spoken, other)


@EASY
@given(st.sampled_from(FRAMES), IDS)
def test_an_id_is_stated_however_it_is_separated(frame, answer):
    ways = (answer, answer.upper(), f"'{answer}'", *(answer.replace("-", by) for by in "_ "))
    for spoken in ways:
        assert grade_value(answer, {}, "id", make_text(frame, spoken)) == STATED, spoken


@EASY
@given(IDS, st.data())
def test_an_id_with_another_digit_is_not_stated(answer, data):
    places = [place for place, char in enumerate(answer) if char.isdigit()]
    place = data.draw(st.sampled_from(places))
    digit = str((int(answer[place]) + data.draw(st.integers(1, 9))) % 10)
    other = answer[:place] + digit + answer[place + 1 :]
    number = other.rsplit("-", 1)[1]
    assume(number[0] != "0")
    text = RequestText(f"Take {answer} for me")
    assert grade_value(other, {}, "id", text) != STATED


@EASY
@given(WORDS, WORDS)
def test_a_name_is_stated_in_any_case_and_another_is_not(name, other):
    text = RequestText(f"It belongs to {name.title()}")
    assert grade_value(name, {}, "owner", text) == STATED
    assume(other[:4] not in text.folded and not set(text.tokens) & {other, other[:-1]})
    assume(not any(word in other or other in word for word in text.words))
    assert grade_value(other, {}, "owner", text) in (ABSENT, LIKELY)


@cases(
    "value, name, text",
    (90, "duration_seconds", "wait a minute and a half"), (1209600, "ttl", "keep it for two weeks"),
    (0.27, "rate", "at 27 percent"), (1_500_000, "bytes", "up to 1.5 MB"), (2e15, "f", "at 2.0e15 rad/s"),
    (1.75, "height_m", "I'm 175 cm tall"), (65.4, "fmin", "about sixty-five point four hertz"),
    ("+12025550164", "phone", "call 202-555-0164"), ("10178", "zip", "PLZ eins-null-eins-sieben-acht"),
    (1735689600000, "since", "since 1 January 2025"), ("NOK", "to", "3,480 Norwegian kroner"),
    ("PL", "country", "somewhere in Poland"), ("Europe/Oslo", "tz", "the time in Norway"),
    ("tbsp", "unit", "how many tablespoons is that"), ("15m", "interval", "15 分钟 K 线"),
    ("1day", "timeframe", "on daily bars"), ("desc", "order", "newest first"), ("true", "words", "with the words"),
    ("https://youtu.be/a9XcVf3LmTe", "url", "watch youtu.be/a9XcVf3LmTe"), (25, "limit", "fünfundzwanzig Treffer"),
    (320, "n", "三百二十个"), (7, "n", "семь отелей"), (5, "n", "خمسة فنادق"), (21, "n", "eenentwintig foto's"),
    (8, "max", "八つ教えてください"),
    ("18:30", "time", "half past six in the evening"), ("18:30", "time", "6:30 pm"), ("PT15M", "for", "15 minutes"),
    ("7d", "range", "the last week"), ("v2.3.1", "tag", "version 2.3.1"), ("Asia/Kolkata", "tz", "what time is it in India"),
    ("2025-03-31", "end", "all of March 2025"), ("2019-12-31", "to", "during the whole of 2019"),
)  # fmt: skip
def test_a_value_is_stated_in_units_words_and_scripts(value, name, text):
    assert grade_value(value, {}, name, RequestText(text)) == STATED


@cases(
    "value, name, text",
    ("5min", "timeframe", "on 15-minute bars"), (33.8568, "latitude", "at 33.8568 south, 151.2 east"),
    ("2025-07-10", "checkin", "from 10 to 14 June 2025"), ("2026-06-10", "date", "on 10 June 2025"),
    ("EUR", "to", "in Norwegian kroner"), ("1h", "granularity", "the last 50 four-hour candles"),
    ("https://a.example/v?q=Qm7", "url", "look at https://a.example/v?q=Qm4"), (600, "timeout", "wait a minute"),
    ("198.51.100.53", "ip", "look up 198.51.100.23"), (30000, "max", "the first 3000 characters"),
    ("asc", "order", "newest first"), ("2025-05-01", "to", "pay it out in May 3, 2025"),
)  # fmt: skip
def test_what_only_looks_alike_is_not_stated(value, name, text):
    assert grade_value(value, {}, name, RequestText(text)) != STATED


def test_ends_of_a_range_state_what_lies_between_swapped_ends_are_seen_and_reading_has_a_limit():
    text = RequestText("only grades 9 to 12 please")
    assert [grade_value(n, {}, "grade", text, listed=True) for n in (9, 10, 11, 12)] == [STATED] * 4
    assert grade_value(10, {}, "grade", text) != STATED
    assert grade_value(13, {}, "grade", text, listed=True) != STATED
    assert grade_value("quartz", {}, "name", RequestText("word " * 2000 + "quartz")) == STATED
    assert grade_value("quartz", {}, "name", RequestText("word " * 200_000 + "quartz")) != STATED
    leaves = list(walk_leaves({"a": list(range(100_000))}))
    assert (len(leaves), leaves[:2]) == (MOST_LEAVES, [("a[0]", 0), ("a[1]", 1)])
    flights = {
        "name": "flights", "description": "Find flights",
        "inputSchema": {"type": "object", "properties": {"departure_airport": {"type": "string"}, "arrival_airport": {"type": "string"}}},
    }  # fmt: skip
    text = "Look up flights from Madrid (MAD) to Bogotá (BOG), please."
    right = {"departure_airport": "MAD", "arrival_airport": "BOG"}
    assert verify(flights, text, right).verdict == "accept"
    swapped = {"departure_airport": "BOG", "arrival_airport": "MAD"}
    assert verify(flights, text, swapped).kinds == ["ungrounded_value"]
