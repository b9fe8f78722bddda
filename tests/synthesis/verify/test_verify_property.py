# ruff: noqa: E501  (tables of phrases read better unbroken)
"""What is said plainly is stated; a little lie about it is not. Over made-up values."""

from calendar import month_name
from datetime import date, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from assets.synthesis.verify.grading import grade_value
from assets.synthesis.verify.numbers import TextNumbers
from assets.synthesis.verify.request_text import RequestText
from assets.synthesis.verify.rules import verify
from assets.synthesis.verify.words import ABSENT, LIKELY, STATED
from tests.support.examples import examples

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
def test_a_number_said_plainly_is_stated_with_or_without_separators(frame: str, n: int) -> None:
    for spoken in (str(n), f"{n:,}"):
        assert grade_value(n, {}, "count", make_text(frame, spoken)) == STATED
        assert grade_value(str(n), {}, "count", make_text(frame, spoken)) == STATED


@EASY
@given(st.sampled_from(FRAMES), st.integers(2, 10**9), st.integers(1, 10**6))
def test_another_number_is_not_stated(frame: str, n: int, more: int) -> None:
    text = make_text(frame, f"{n} apples")
    other = n + more
    assume(float(other) not in TextNumbers(text.folded))
    assert grade_value(other, {}, "count", text) != STATED
    assert grade_value(str(other), {}, "count", text) != STATED


@EASY
@given(st.floats(-1e6, 1e6).map(lambda x: round(x, 3)))
def test_a_decimal_is_stated_and_its_opposite_sign_is_not(x: float) -> None:
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
def test_a_date_is_stated_in_every_order(frame: str, day: date) -> None:
    for spoken in spoken_days(day):
        text = make_text(frame, spoken)
        assert grade_value(day.isoformat(), {}, "date", text) == STATED, spoken
        assert grade_value(f"{day.isoformat()}T00:00:00Z", {}, "start", text) == STATED, spoken


@EASY
@given(DAYS, st.integers(1, 3000))
def test_another_date_is_not_stated(day: date, later: int) -> None:
    other = day + timedelta(days=later)
    for spoken in spoken_days(day):
        text = RequestText(f"Book it for {spoken}, please")
        if spoken[2:3] == "." and (other.day, other.month) == (day.month, day.day):
            continue  # 03.04.2025 is two dates
        if other.day in {day.month, day.year % 100} and other.month == day.month:
            continue  # figures of the same date: the rules read a bag of them
        if (
            spoken[:1].isdigit()
            or "年" in spoken
            or (day.month, day.year) != (other.month, other.year)
        ):
            assert grade_value(other.isoformat(), {}, "date", text) != STATED, (spoken, other)


@EASY
@given(st.sampled_from(FRAMES), IDS)
def test_an_id_is_stated_however_it_is_separated(frame: str, made: str) -> None:
    for spoken in (made, made.upper(), made.replace("-", "_"), f"'{made}'", made.replace("-", " ")):
        assert grade_value(made, {}, "id", make_text(frame, spoken)) == STATED, spoken


@EASY
@given(IDS, st.data())
def test_an_id_with_another_digit_is_not_stated(made: str, data: st.DataObject) -> None:
    places = [place for place, char in enumerate(made) if char.isdigit()]
    place = data.draw(st.sampled_from(places))
    digit = str((int(made[place]) + data.draw(st.integers(1, 9))) % 10)
    other = made[:place] + digit + made[place + 1 :]
    number = other.rsplit("-", 1)[1]
    assume(number[0] != "0")
    text = RequestText(f"Take {made} for me")
    assert grade_value(other, {}, "id", text) != STATED


@EASY
@given(WORDS, WORDS)
def test_a_name_is_stated_in_any_case_and_another_is_not(name: str, other: str) -> None:
    text = RequestText(f"It belongs to {name.title()}")
    assert grade_value(name, {}, "owner", text) == STATED
    assume(other[:4] not in text.folded and not set(text.tokens) & {other, other[:-1]})
    assume(not any(word in other or other in word for word in text.words))
    assert grade_value(other, {}, "owner", text) in (ABSENT, LIKELY)


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [
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
    ],
)  # fmt: skip
def test_a_value_is_stated_in_units_words_and_scripts(value: object, name: str, text: str) -> None:
    assert grade_value(value, {}, name, RequestText(text)) == STATED


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [
        ("5min", "timeframe", "on 15-minute bars"), (33.8568, "latitude", "at 33.8568 south, 151.2 east"),
        ("2025-07-10", "checkin", "from 10 to 14 June 2025"), ("2026-06-10", "date", "on 10 June 2025"),
        ("EUR", "to", "in Norwegian kroner"), ("1h", "granularity", "the last 50 four-hour candles"),
        ("https://a.example/v?q=Qm7", "url", "look at https://a.example/v?q=Qm4"), (600, "timeout", "wait a minute"),
        ("198.51.100.53", "ip", "look up 198.51.100.23"), (30000, "max", "the first 3000 characters"),
        ("asc", "order", "newest first"), ("2025-05-01", "to", "pay it out in May 3, 2025"),
    ],
)  # fmt: skip
def test_what_only_looks_alike_is_not_stated(value: object, name: str, text: str) -> None:
    assert grade_value(value, {}, name, RequestText(text)) != STATED


def test_ends_that_are_swapped_are_seen() -> None:
    flights = {
        "name": "flights", "description": "Find flights",
        "inputSchema": {"type": "object", "properties": {"departure_airport": {"type": "string"}, "arrival_airport": {"type": "string"}}},
    }  # fmt: skip
    text = "Look up flights from Madrid (MAD) to Bogotá (BOG), please."
    right = {"departure_airport": "MAD", "arrival_airport": "BOG"}
    assert verify(flights, text, right).verdict == "accept"
    swapped = {"departure_airport": "BOG", "arrival_airport": "MAD"}
    assert verify(flights, text, swapped).kinds == ["ungrounded_value"]


def test_ends_of_a_range_state_what_lies_between() -> None:
    text = RequestText("only grades 9 to 12 please")
    assert [grade_value(n, {}, "grade", text, listed=True) for n in (9, 10, 11, 12)] == [STATED] * 4
    assert grade_value(10, {}, "grade", text) != STATED
    assert grade_value(13, {}, "grade", text, listed=True) != STATED
