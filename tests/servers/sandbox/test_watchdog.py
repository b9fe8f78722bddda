"""What the watchdog makes of samples: who is idle. Limits of real trees: the sandbox tests."""

import time
from dataclasses import replace
from typing import Any, cast

import pytest

from assets.servers.sandbox.spec import SandboxPolicy
from assets.servers.sandbox.watchdog import ProcessStat, SandboxWatchdog

RESTS = ProcessStat(parent=1, ticks=7, threads=1, resident=0)


@pytest.fixture
def watch():
    watched = SandboxWatchdog(cast(Any, None), SandboxPolicy())
    watched._note_activity([RESTS], time.monotonic())
    return watched


def seen(watch, stat, times, every_s):
    start = watch._seen_at
    for n in range(1, times + 1):
        watch._note_activity([stat], start + n * every_s)
    return watch.idle_s


def test_a_server_that_only_sleeps_is_idle_as_long_as_it_is_seen(watch):
    assert seen(watch, RESTS, 20, 0.05) == pytest.approx(1.0)


def test_processor_time_ends_idleness(watch):
    seen(watch, RESTS, 20, 0.05)
    assert seen(watch, replace(RESTS, ticks=8), 1, 0.05) == 0.0


def test_a_server_that_waits_for_a_processor_is_not_idle(watch):
    assert seen(watch, replace(RESTS, at_work=True), 100, 0.05) == 0.0


def test_a_pause_in_which_nobody_looked_is_not_held_against_the_server(watch):
    """Our own thread was starved for five seconds: the server may have been so, too."""
    assert seen(watch, RESTS, 1, 5.0) <= 4 * watch.every_s
