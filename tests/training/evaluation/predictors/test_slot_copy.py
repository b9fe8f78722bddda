"""The baseline: BM25 chooses, slots are copied by type and name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.evaluation.baselines import complete_cut_call, copy_slots, make_baseline_call


def tool(name: str, about: str = "", **properties: dict) -> dict:
    return {
        "name": name,
        "description": about,
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": list(properties),
        },
    }


def test_each_type_takes_the_span_that_fits() -> None:
    reader = tool(
        "read",
        path={"type": "string"},
        lines={"type": "integer"},
        mode={"enum": ["fast", "slow"]},
        pattern={"type": "string"},
    )
    request = "In fast mode, read 5 lines of /var/log/app.log and find 'boom'."
    assert copy_slots(reader, request) == {
        "path": "/var/log/app.log", "lines": 5, "mode": "fast", "pattern": "boom",
    }  # fmt: skip


def test_a_span_is_used_once() -> None:
    copier = tool("copy", a={"type": "string"}, b={"type": "string"})
    assert copy_slots(copier, "copy 'x' to 'y'") == {"a": "x", "b": "y"}


def test_urls_mails_and_dates_go_to_parameters_of_that_name() -> None:
    mailer = tool(
        "mail",
        date={"type": "string"},
        email={"type": "string"},
        url={"type": "string", "format": "uri"},
    )
    request = "On 2026-03-04 send https://example.com/a to ann@example.com."
    assert copy_slots(mailer, request) == {
        "date": "2026-03-04", "email": "ann@example.com", "url": "https://example.com/a",
    }  # fmt: skip


def test_what_is_not_said_is_left_out() -> None:
    assert copy_slots(tool("t", count={"type": "integer"}), "do it") == {}
    assert copy_slots(tool("t", mode={"enum": ["x", "y"]}), "do it") == {}


def test_lists_and_booleans() -> None:
    lister = tool("t", names={"type": "array", "items": {"type": "string"}}, on={"type": "boolean"})
    assert copy_slots(lister, "add 'ann' without delay") == {"names": ["ann"], "on": False}


def test_the_best_match_by_words_is_called() -> None:
    tools = [tool("send_email", "Send an email"), tool("get_time", "Tell the time")]
    assert make_baseline_call(tools, "what time is it?")["name"] == "get_time"


@given(st.text(max_size=200))
def test_any_instruction_is_answered(text: str) -> None:
    every = {kind: {"type": kind} for kind in ("string", "integer", "number", "array", "boolean")}
    called = make_baseline_call([tool("a", **every), tool("b")], text)
    assert called["name"] in ("a", "b")


TIDES = {
    "name": "tide_times",
    "inputSchema": {
        "type": "object",
        "properties": {
            "port": {"type": "string"},
            "days": {"type": "integer"},
            "stations": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["port", "days"],
    },
}
ASKED = 'Tides at "Brest" for 3 days.'


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
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
    ],
)
def test_a_call_without_end_keeps_what_was_whole(text: str, arguments: dict | None) -> None:
    call = complete_cut_call(text, [TIDES], ASKED)
    assert (call and call["arguments"]) == arguments
    assert call is None or call["name"] == "tide_times"
