"""Which process a number means: pids are reused, and wall clocks step while a process lives."""

import os
from functools import cache
from pathlib import Path

import psutil

_PROC = Path("/proc")


def identify_process(pid: int | None = None) -> str | None:
    """What tells a living process (default: this one) from every other that has its pid, before or
    after a restart of the machine; None for one that is gone or only waits to be reaped.

    On Linux "<boot id>:<clock ticks from boot to its start>". Not its start in wall time: that is
    computed from the clock, so a step of one hour moved it, and a live payment passed for dead.
    """
    number = os.getpid() if pid is None else pid
    if not (_PROC / "self" / "stat").exists():
        return _identify_elsewhere(number)
    try:
        # The name in brackets may hold spaces and brackets of its own.
        fields = (_PROC / str(number) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    state, start_ticks = fields[0], fields[19]  # fields 3 and 22 of proc_pid_stat(5)
    return None if state in (b"Z", b"X") else f"{_read_boot()}:{start_ticks.decode()}"


@cache
def _read_boot() -> str:
    return (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()


def _identify_elsewhere(pid: int) -> str | None:
    """Where there is no /proc: the start as psutil has it, to the second."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return f"{process.create_time():.0f}"
    except psutil.NoSuchProcess:
        return None
