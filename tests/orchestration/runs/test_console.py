"""What a run prints: one line a stage, progress now and then, nothing per record."""

import io
import logging
import re
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from orchestration.runs.console import (
    FAILED,
    MADE,
    NOTE,
    PROGRESS,
    START,
    WARNING,
    ConsoleLine,
    RunView,
    read_record,
)
from warehouse.progress import ProgressLines


def record(text: str, level: int = logging.INFO, **meta: Any) -> logging.LogRecord:
    log_record = logging.LogRecord("dagster", level, __file__, 1, text, None, None)
    log_record.dagster_meta = {"step_key": "pairs", "orig_message": text, **meta}
    return log_record


def event(kind: str, **data: Any) -> SimpleNamespace:
    return SimpleNamespace(event_type_value=kind, **data)


def view(*, terminal: bool = False, times: list[float] | None = None) -> tuple[RunView, Console]:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    clock = iter(times or [])
    return RunView(console, (lambda: next(clock)) if times else lambda: 0.0), console


def shown(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
    return [" ".join(line.split()) for line in text.splitlines()]


def test_what_pipes_says_of_itself_is_left_out():
    assert (
        read_record(record("[pipes] external process successfully opened dagster pipes.")) is None
    )


def test_records_are_told_apart_and_book_keeping_is_left_out():
    rows = {"dagster/row_count": SimpleNamespace(value=7), "other": SimpleNamespace(value=1)}
    simple_namespace = SimpleNamespace(materialization=SimpleNamespace(metadata=rows))
    part = {**rows, "dagster/partition_row_count": SimpleNamespace(value=0)}
    of_one = SimpleNamespace(materialization=SimpleNamespace(metadata=part))
    failed = SimpleNamespace(user_failure_data=SimpleNamespace(description="no rows"), error=None)
    cause = SimpleNamespace(message="TypeError: no model\n", cause=None, cls_name="TypeError")
    outer = SimpleNamespace(message="resource failed", cause=cause, cls_name="Dagster")
    outside = event("PIPELINE_FAILURE", event_specific_data=SimpleNamespace(error=outer))
    assert read_record(
        record("", step_key=None, job_name="train", dagster_event=outside)
    ) == ConsoleLine(FAILED, "train", "TypeError: no model")
    of_a_step = event("PIPELINE_FAILURE", event_specific_data=SimpleNamespace(error=None))
    assert read_record(record("", dagster_event=of_a_step)) is None
    assert read_record(record("", dagster_event=event("STEP_START")), "glama") == ConsoleLine(
        START, "glama pairs", ""
    )
    assert read_record(
        record(
            "",
            dagster_event=event(
                "ASSET_MATERIALIZATION", step_materialization_data=simple_namespace
            ),
        )
    ) == ConsoleLine(MADE, "pairs", "count=7")
    assert read_record(
        record("", dagster_event=event("ASSET_MATERIALIZATION", step_materialization_data=of_one))
    ) == ConsoleLine(MADE, "pairs", "count=0")
    assert read_record(
        record("", dagster_event=event("STEP_FAILURE", step_failure_data=failed))
    ) == ConsoleLine(FAILED, "pairs", "no rows")
    assert read_record(record("", dagster_event=event("HANDLED_OUTPUT"))) is None
    assert read_record(record("debug", logging.DEBUG)) is None
    assert read_record(record("pairs 3/9 usd=0.0")) == ConsoleLine(
        PROGRESS, "pairs", "pairs 3/9 usd=0.0"
    )
    assert read_record(record("0 tools are held")) == ConsoleLine(NOTE, "pairs", "0 tools are held")
    assert read_record(record("set a key", logging.WARNING)) == ConsoleLine(
        WARNING, "pairs", "set a key"
    )


def test_a_run_that_failed_is_told_in_our_own_words():
    group = SimpleNamespace(message="ExceptionGroup: 1 sub-exception", cause=None, cls_name="E")
    said = "dagster._core.definitions.events.Failure: listings is not published: empty\n"
    ours = SimpleNamespace(message=said, cause=group, cls_name="Failure")
    outer = SimpleNamespace(message="step failed", cause=ours, cls_name="Dagster")
    ended = event("PIPELINE_FAILURE", event_specific_data=SimpleNamespace(error=outer))
    assert read_record(record("", step_key=None, dagster_event=ended), "docker") == ConsoleLine(
        FAILED, "docker", "listings is not published: empty"
    )


def test_stages_that_wait_for_a_failed_one_are_named_and_those_after_them_are_not():
    waits = "Dependencies for step pairs failed: ['listings', 'snapshots']. Not executing."
    assert read_record(record(waits, logging.ERROR)) == ConsoleLine(
        WARNING, "pairs", "not run: it needs listings, snapshots"
    )
    after = "Dependencies for step pairs were not executed: ['deployments']. Not executing."
    assert read_record(record(after, logging.ERROR)) is None


def test_without_a_terminal_progress_is_rare_and_each_stage_ends_in_a_line():
    # begun; then each progress line asks the time once, and so does each printed line
    plain, console = view(times=[0.0, 1.0, 5.0, 30.0, 30.0, 31.0])
    plain.show(ConsoleLine(START, "pairs", ""))
    for done in (1, 2, 3):
        plain.show(ConsoleLine(PROGRESS, "pairs", f"pairs {done}/3"))
    plain.show(ConsoleLine(MADE, "pairs", "count=3"))
    assert shown(console) == ["30.0s pairs pairs 3/3", "31.0s pairs count=3"]


def test_on_a_terminal_what_is_at_work_is_a_block_and_what_ended_stays():
    live, console = view(terminal=True)
    with live.open():
        live.show(ConsoleLine(START, "glama pairs", ""))
        live.show(ConsoleLine(PROGRESS, "glama pairs", "pairs 1/3"))
        live.show(ConsoleLine(MADE, "glama pairs", "count=3"))
        live.show(ConsoleLine(FAILED, "glama judgements", "no judge"))
    text = "\n".join(shown(console))
    assert "glama pairs count=3" in text
    assert "glama judgements no judge" in text


def test_a_total_that_grows_with_what_is_done_makes_no_line_per_record():
    lines: list[str] = []
    progress = ProgressLines(lines.append, every_s=3.0, clock=lambda: 0.0)
    for count in range(1, 50):
        progress.update("records", count, count)
    assert lines == ["records 1/1"]
    progress.update("deployments", 1, 2)
    progress.update("deployments", 2, 2)
    assert lines[1:] == ["deployments 1/2", "deployments 2/2"]


def test_what_a_stage_says_cannot_steer_the_terminal():
    run, console = view()
    run.show(ConsoleLine(FAILED, "pairs", "\x1b[2J\x9b1m\u202enpm said\nso"))
    assert isinstance(console.file, io.StringIO)
    first, second = console.file.getvalue().splitlines()
    assert first.isprintable()
    assert "\\u{1b}[2J" in first
    assert second.strip() == "so"
