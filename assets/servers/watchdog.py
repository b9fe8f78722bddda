"""The watchdog of one sandbox: memory of the whole tree, wall clock, private disk, idleness.

Belongs here: sampling /proc for a process tree and ending the sandbox when a limit that no
RLIMIT can express is passed. The first breach is kept as the reason.
Does not belong here: limits the kernel enforces alone (`sandbox.py`), names of failures
(`taxonomy.py`).
"""

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from assets.servers.sandbox import HOME, Jailed, SandboxPolicy

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MIB = 1024 * 1024
_EVERY_S = 0.05
_MAX_INODES = 100_000


@dataclass(frozen=True)
class Breach:
    """Which limit ended the sandbox: `memory`, `processes`, `disk`, `wall`; and what was found."""

    limit: str
    found: str


class Watchdog:
    """Watches from `start` to `stop`. `peak_mb` is the largest proportional set size seen, in MiB;
    `idle_s` how long the tree has used no processor time, in seconds."""

    def __init__(self, jailed: Jailed, policy: SandboxPolicy) -> None:
        self._jailed = jailed
        self._policy = policy
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._cpu = -1
        self._busy_at = time.monotonic()
        self._samples = 0
        self.breach: Breach | None = None
        self.peak_mb = 0.0

    def __enter__(self) -> "Watchdog":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def idle_s(self) -> float:
        return time.monotonic() - self._busy_at

    def _watch(self) -> None:
        end = time.monotonic() + self._policy.wall_s
        while not self._stop.wait(_EVERY_S):
            if self._jailed.process.poll() is not None:
                return
            breach = self._sample()
            if time.monotonic() > end:
                breach = breach or Breach("wall", f"{self._policy.wall_s:.0f} s")
            if breach:
                self.breach = breach
                self._jailed.kill()
                return

    def _sample(self) -> Breach | None:
        pids = tree(self._jailed.pid)
        self._samples += 1
        self._note_activity(pids)
        limit = self._policy.memory_mb
        resident = sum(_resident(pid) for pid in pids) / _MIB
        # PSS is exact but walks every mapping: ask for it now and then, and always near the limit.
        if resident > limit * 0.7 or self._samples % 8 == 1:
            used = sum(_proportional(pid) for pid in pids) / _MIB
            self.peak_mb = max(self.peak_mb, used)
            if used > limit:
                return Breach("memory", f"{used:.0f} MB of {limit} MB")
        if self._samples % 8 == 2:
            return self._disk_breach(pids)
        return None

    def _note_activity(self, pids: list[int]) -> None:
        spent = sum(_processor_ticks(pid) for pid in pids)
        if spent != self._cpu:
            self._cpu, self._busy_at = spent, time.monotonic()

    def _disk_breach(self, pids: list[int]) -> Breach | None:
        """The size of the private file systems is capped by the mount; inodes are not."""
        for folder in ("tmp", HOME.lstrip("/"), "dev/shm"):
            try:
                stat = os.statvfs(f"/proc/{pids[-1]}/root/{folder}")
            except (OSError, IndexError):
                continue
            used = stat.f_files - stat.f_ffree
            if used > _MAX_INODES:
                return Breach("disk", f"{used} files in /{folder}")
        return None


def tree(pid: int) -> list[int]:
    """The process and all its descendants, parents first; those that are gone are left out."""
    children: dict[int, list[int]] = {}
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for name in names:
        parent = _parent(int(name))
        if parent is not None:
            children.setdefault(parent, []).append(int(name))
    found = [pid] if Path(f"/proc/{pid}").exists() else []
    for current in found:
        found.extend(children.get(current, []))
    return found


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on (the name before it may hold anything)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except (OSError, ValueError):
        return []


def _parent(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else None


def _processor_ticks(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12]) if len(fields) > 12 else 0


def _resident(pid: int) -> int:
    """Resident bytes of one process; shared pages are counted in each."""
    fields = _stat(pid)
    return int(fields[21]) * _PAGE if len(fields) > 21 else 0


def _proportional(pid: int) -> int:
    """PSS bytes of one process, or its resident bytes where the kernel does not tell."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return _resident(pid)
