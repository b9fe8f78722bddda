"""A process is told from any other by what no clock moves."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from warehouse import process_identity
from warehouse.process_identity import describe_owner, identify_process, is_abandoned


def test_a_living_process_has_one_identity_and_another_one_another() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert identify_process(other.pid) == identify_process(other.pid) is not None
        assert identify_process(other.pid) != identify_process() == identify_process(os.getpid())
        other.kill()


def test_the_dead_and_those_that_wait_to_be_reaped_have_none() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert identify_process(process.pid) is None, "a zombie"
    process.wait()
    assert identify_process(process.pid) is None


def test_a_step_of_the_clock_moves_no_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel derives `btime` from the wall clock, and psutil a process's start from `btime`."""
    before, real = identify_process(), time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    monkeypatch.setattr(psutil.Process, "create_time", lambda _: 0.0)
    monkeypatch.setattr(psutil, "boot_time", lambda: 0.0)
    assert identify_process() == before


def test_a_name_with_brackets_and_a_restart_are_read_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = b" ".join(str(number).encode() for number in range(4, 30))
    for pid in ("self", "7"):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "stat").write_bytes(b"7 (a) R (b c) S " + fields)
    boot = tmp_path / "sys" / "kernel" / "random" / "boot_id"
    boot.parent.mkdir(parents=True)
    monkeypatch.setattr(process_identity, "_PROC", tmp_path)
    observed = []
    for name in ("one", "two"):
        boot.write_text(f"{name}\n")
        process_identity._read_boot.cache_clear()
        observed.append(identify_process(7))
    process_identity._read_boot.cache_clear()
    assert observed == ["one:22", "two:22"], "field 22 is the start, in ticks since that boot"


def test_an_owner_is_gone_only_where_we_can_know_it() -> None:
    pid, identity, place = describe_owner().split("@")
    assert not is_abandoned(describe_owner())
    with subprocess.Popen(["sleep", "60"]) as other:
        owner = f"{other.pid}@{identify_process(other.pid)}@{place}"
        assert not is_abandoned(owner)
        other.kill()
    assert is_abandoned(owner)
    assert is_abandoned(f"{pid}@{identity}0@{place}"), "its pid has another process now"
    for elsewhere in (
        "",
        pid,
        f"{pid}@{identity}0",
        f"999999999@{identity}@other:1",
        "@@",
        "a@b@c",
    ):
        assert not is_abandoned(elsewhere)


def test_it_is_read_by_plain_python() -> None:
    """The sandbox has the standard library alone."""
    source = "import sys, warehouse.process_identity as p; p.describe_owner(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not {"psutil", "polars", "dagster"} & set(done.stdout.split())
