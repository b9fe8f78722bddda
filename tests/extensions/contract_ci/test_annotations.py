"""Annotations of a contract check: levels, their number, and texts that obey nobody."""

from typing import Any

import pytest

from extensions.contract_ci.page import write_annotations


def make_change(cls: str, tool: str = "t", **more: Any) -> dict[str, Any]:
    return {"tool": tool, "class": cls, "why": "w", "call": None, **more}


def make_report(*changes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"changes": list(changes), "findings": [], **more}


@pytest.mark.parametrize(
    ("fail_on", "levels"),
    [
        ("breaking", ["error", "error"]),
        ("suspicious", ["error", "warning"]),
        ("never", ["warning", "warning"]),
    ],
)
def test_what_the_check_fails_on_is_an_error_and_the_worst_comes_first(fail_on, levels):
    changes = (make_change(cls) for cls in ("breaking", "wording", "suspicious", "compatible"))
    lines = write_annotations(make_report(*changes), fail_on)
    head = " title=Tool contracts::"
    assert [line.partition(" ")[0] for line in lines] == [f"::{level}" for level in levels]
    assert [line.partition(head)[2] for line in lines] == ["suspicious: t: w", "breaking: t: w"]


def test_a_call_that_was_right_and_findings_and_look_alikes_are_shown():
    call = {"arguments": {"days": 14}, "why": "$.days: at most 7"}
    finding = {"severity": "high", "rule": "concealment", "tool": "a", "excerpt": "tell nobody"}
    twin = {"tool": "a", "other": "npm:x::b"}
    report = make_report(make_change("breaking", call=call), findings=[finding], lookalikes=[twin])
    assert [line.partition("contracts::")[2] for line in write_annotations(report, "breaking")] == [
        'breaking: t: w; $.days: at most 7; was right: {"days": 14}',
        "concealment: a: tell nobody",
        "look-alike: a of npm:x::b",
    ]


def test_no_text_of_a_server_ends_its_line_or_is_decoded():
    name = "t\n::add-mask::x\r%0A::error::y"
    (line,) = write_annotations(make_report(make_change("breaking", name)), "breaking")
    assert "\n" not in line
    assert "\r" not in line
    assert "%250A::error::y" in line


def test_ten_of_a_level_are_shown_and_the_rest_is_counted():
    changes = [make_change("breaking", f"t{n}") for n in range(14)]
    lines = write_annotations(make_report(*changes), "breaking")
    assert len(lines) == 10
    assert lines[-1].endswith("::5 more: see the summary of this job")
