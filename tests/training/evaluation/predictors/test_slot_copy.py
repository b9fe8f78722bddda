"""The baseline: BM25 chooses, slots are copied by type and name."""

from hypothesis import given
from hypothesis import strategies as st

from training.evaluation.baselines import copy_slots, make_baseline_call


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
