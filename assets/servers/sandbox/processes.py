"""The process table of this host, as the watchdogs read it."""

import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_PAGE = os.sysconf("SC_PAGE_SIZE")
_FRESH_S = 0.04


@dataclass(frozen=True)
class Stat:
    """What one reading of /proc/PID/stat says; `resident` in bytes, `ticks` of processor time.
    at_work: it runs, waits for a processor, or waits for a disk (states R and D)."""

    parent: int
    ticks: int
    threads: int
    resident: int
    at_work: bool = False


class _Table:
    """The process table, read once for all sandboxes that ask within a moment: on a machine with
    thousands of processes a scan takes tens of milliseconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_at = 0.0
        self._stats: dict[int, Stat] = {}
        self.cost_s = 0.0

    def stats(self) -> dict[int, Stat]:
        with self._lock:
            now = time.monotonic()
            if now - self._read_at > _FRESH_S:
                pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
                self._stats = {pid: stat for pid in pids if (stat := _read_stat(pid))}
                self._read_at = time.monotonic()
                self.cost_s = self._read_at - now
            return self._stats


PROCESSES = _Table()


def list_tree(pid: int, stats: Mapping[int, Stat]) -> list[int]:
    """The process and all its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for child, stat in stats.items():
        children.setdefault(stat.parent, []).append(child)
    found = [pid] if pid in stats else []
    for current in found:
        found.extend(children.get(current, []))
    return found


def _read_stat(pid: int) -> Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name before the last parenthesis may hold anything, spaces and brackets included.
            fields = file.read().rpartition(b")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        resident, at_work = int(fields[21]) * _PAGE, fields[0] in (b"R", b"D")
        return Stat(int(fields[1]), ticks, int(fields[17]), resident, at_work)
    except (OSError, ValueError, IndexError):
        return None


def read_proportional(pid: int, otherwise: int) -> int:
    """PSS bytes of one process, what was swapped out counted (it may ask for that itself), or
    `otherwise` where the kernel does not tell."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            counted = [line.split() for line in file if line.startswith(("Pss:", "SwapPss:"))]
        return sum(int(words[1]) * 1024 for words in counted) or otherwise
    except (OSError, ValueError, IndexError):
        return otherwise


def sum_memory_files(pids: Iterable[int]) -> int:
    """Bytes in files that live in memory only (memfd): written, they are in no process's set."""
    sizes: dict[int, int] = {}
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for name in names:
            path = f"/proc/{pid}/fd/{name}"
            try:
                if os.readlink(path).startswith("/memfd:"):
                    stat = os.stat(path)
                    sizes[stat.st_ino] = stat.st_blocks * 512
            except OSError:
                continue
    return sum(sizes.values())
