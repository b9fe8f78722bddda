"""."""

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from assets.servers.calls.result import CallResult
from benchmarks.outcomes.noise.endpoints import ToolEndpoint, rename_arguments
from benchmarks.outcomes.noise.proxy import (
    CUT,
    EMPTY,
    FAULTS,
    RANDOM,
    RATES,
    SLOW,
    STALE,
    TRUNCATED,
    UNIT,
    ProxyAnswer,
    ProxyPool,
    change_answer,
    change_arguments,
    is_hit,
)
from tests.benchmarks.outcomes.noise.stages import make_endpoint

TEXT = f"size: 7 {'and more ' * 20}"


def call_proxy(
    endpoint: ToolEndpoint, times: int, phase: int = 0
) -> tuple[list[ProxyAnswer], list[Any]]:
    """The answers over MCP, and what reached the tool behind the proxy."""
    reached: list[Any] = []

    async def forward(tool: str, arguments: dict[str, Any]) -> CallResult:
        reached.append((tool, arguments))
        return CallResult("ok", [{"type": "text", "text": TEXT}])

    async def run() -> list[ProxyAnswer]:
        async with ProxyPool(forward) as proxies:
            arguments = endpoint.write_call({"path": "/a"}, phase)
            assert arguments is not None
            return [
                await proxies.call(endpoint, phase, dict(arguments), Random(seed))
                for seed in range(times)
            ]

    return asyncio.run(run()), reached


def test_without_a_fault_the_answer_passes_through() -> None:
    answers, reached = call_proxy(make_endpoint("s", direct=False), 2)
    assert [(answer.texts, answer.kind) for answer in answers] == [((TEXT,), "ok")] * 2
    assert reached == [("read_text_file", {"path": "/a"})] * 2


@pytest.mark.parametrize(
    ("fault", "kind", "texts"),
    [
        (RANDOM, "tool_error", ("Error: upstream request failed",)),
        (EMPTY, "ok", ("",)),
        (SLOW, "timeout", ()),
    ],
)
def test_a_call_that_is_hit_does_not_reach_the_tool(
    fault: str, kind: str, texts: tuple[str, ...]
) -> None:
    answers, reached = call_proxy(make_endpoint("s", faults=(fault, fault), direct=False), 6)
    hit = [answer for answer in answers if answer.texts != (TEXT,)]
    assert hit
    assert [(one.kind, one.texts) for one in hit] == [(kind, texts)] * len(hit)
    assert len(reached) == 6 - len(hit) > 0


def test_a_stale_answer_is_one_that_was_given_before() -> None:
    answers, reached = call_proxy(make_endpoint("s", faults=(STALE, STALE), direct=False), 8)
    seen = {answer.texts for answer in answers[-4:]}
    assert seen == {(TEXT,)}
    assert len(reached) < 8


@pytest.mark.parametrize(("fault", "start"), [(TRUNCATED, TEXT[:80]), (UNIT, "size: 70")])
def test_an_answer_that_is_spoilt_comes_from_the_tool(fault: str, start: str) -> None:
    [answer], reached = call_proxy(make_endpoint("s", faults=(fault, fault), direct=False), 1)
    assert answer.texts[0].startswith(start)
    assert answer.texts[0] != TEXT
    assert len(reached) == 1


def test_a_changed_contract_takes_its_new_names_only() -> None:
    endpoint = replace(make_endpoint("s", direct=False))
    changed = rename_arguments(endpoint, {"path": "ref"}, "now otherwise")
    _, reached = call_proxy(changed, 1, phase=1)
    assert reached == [("read_text_file", {"path": "/a"})]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_strikes_as_often_as_it_says(fault: str) -> None:
    rng = Random(1)
    assert sum(is_hit(fault, rng) for _ in range(2000)) / 2000 == pytest.approx(
        RATES[fault], abs=0.04
    )


def test_no_fault_never_strikes() -> None:
    assert not is_hit(None, Random(1))


def test_a_truncated_answer_has_eighty_characters() -> None:
    assert change_answer(TRUNCATED, "x" * 200, Random(1)) == "x" * CUT


def test_another_unit_changes_numbers_but_no_dates_and_paths() -> None:
    changed = change_answer(UNIT, "price: 12.5 on 2026-01-02 in /a/7", Random(1))
    assert "2026-01-02" in changed
    assert "/a/7" in changed
    assert "12.5 " not in changed


def test_another_unit_asks_for_other_numbers_only() -> None:
    given = {"quantity": 3, "rows": [[2]], "name": "3", "force": True}
    changed = change_arguments(UNIT, given, Random(1))
    assert changed["quantity"] in (30, 300, 3000)
    assert changed["rows"] != [[2]]
    assert (changed["name"], changed["force"]) == ("3", True)
    assert given["quantity"] == 3
