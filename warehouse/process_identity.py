"""Which process a number means, though pids are reused and wall clocks step. The sandbox reads this
on plain system Python, with the standard library alone where there is /proc."""

import os
import platform
from functools import cache
from pathlib import Path

_PROC = Path("/proc")


def identify_process(pid: int | None = None) -> str | None:
    """What tells a process (default: this one) from all others of its pid, also after a reboot;
    None if it is gone or a zombie. On Linux "<boot id>:<clock ticks from boot to its start>": wall
    time moves with the clock, and a live payment passed for dead."""
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


def describe_owner() -> str:
    """This process as an owner of containers and groups: "<pid>@<identity>@<pid namespace>"."""
    return f"{os.getpid()}@{identify_process()}@{_describe_place()}"


def is_abandoned(owner: str) -> bool:
    """Whether `owner` is a process of this boot and pid namespace that is no more, whoever has its
    pid now. What another machine or container started is not ours to judge."""
    pid, identity, place = (*owner.split("@"), "", "", "")[:3]
    if not (pid.isdecimal() and len(pid) < 20) or place != _describe_place():
        return False
    return identify_process(int(pid)) != identity


def is_of_here(owner: str) -> bool:
    """Whether `owner` is, or was, a process whose pid counts where ours does."""
    return (*owner.split("@"), "", "")[2] == _describe_place()


def _describe_place() -> str:
    try:
        return f"{_read_boot()}:{(_PROC / 'self' / 'ns' / 'pid').stat().st_ino}"
    except OSError:
        return platform.node()


@cache
def _read_boot() -> str:
    return (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()


def _identify_elsewhere(pid: int) -> str | None:
    """Where there is no /proc: the start as psutil has it, to the second."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return f"{process.create_time():.0f}"
    except psutil.NoSuchProcess:
        return None
