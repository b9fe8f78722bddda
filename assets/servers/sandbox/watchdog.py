"""The watchdog of one sandbox: memory of the whole tree, wall clock, private disk, idleness."""

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from assets.servers.sandbox.spec import HOME, SandboxPolicy

_PAGE = os.sysconf("SC_PAGE_SIZE")
_FRESH_S = 0.04


@dataclass(frozen=True)
class ProcessStat:
    """What one reading of /proc/PID/stat says; `resident` in bytes, `ticks` of processor time.
    at_work: it runs, waits for a processor, or waits for a disk (states R and D)."""

    parent: int
    ticks: int
    threads: int
    resident: int
    at_work: bool = False


class _ProcessTable:
    """The process table, read once for all sandboxes that ask within a moment: on a machine with
    thousands of processes a scan takes tens of milliseconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_at = 0.0
        self._stats: dict[int, ProcessStat] = {}
        self.cost_s = 0.0

    def stats(self) -> dict[int, ProcessStat]:
        with self._lock:
            now = time.monotonic()
            if now - self._read_at > _FRESH_S:
                pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
                self._stats = {pid: stat for pid in pids if (stat := _read_stat(pid))}
                self._read_at = time.monotonic()
                self.cost_s = self._read_at - now
            return self._stats


PROCESSES = _ProcessTable()


def list_tree(pid: int, stats: Mapping[int, ProcessStat]) -> list[int]:
    """The process and all its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for child, stat in stats.items():
        children.setdefault(stat.parent, []).append(child)
    pids = [pid] if pid in stats else []
    for current in pids:
        pids.extend(children.get(current, []))
    return pids


def _read_stat(pid: int) -> ProcessStat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name before the last parenthesis may hold anything, spaces and brackets included.
            fields = file.read().rpartition(b")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        resident, at_work = int(fields[21]) * _PAGE, fields[0] in (b"R", b"D")
        return ProcessStat(int(fields[1]), ticks, int(fields[17]), resident, at_work)
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


_MIB = 1024 * 1024
_EVERY_S = 0.05
_MAX_INODES = 100_000
_INODE = 1024  # bytes of the kernel's memory that a file takes besides its contents, about
_OWN_THREADS = 3  # bubblewrap's own processes
_PRIVATE = ("/tmp", "/dev/shm", HOME)


@dataclass(frozen=True)
class LimitBreach:
    """Which limit ended the sandbox: `memory`, `processes`, `disk`, `wall`; and what was found."""

    limit: str
    found: str


class WatchedSandbox(Protocol):
    """A running sandbox: its tree's root, and how it is ended."""

    @property
    def pid(self) -> int: ...

    @property
    def process(self) -> Any: ...

    def kill(self) -> None: ...


class SandboxWatchdog:
    """Watches from `start` to `stop`. `peak_mb` is the largest proportional set size seen, in MiB;
    `idle_s` how long the tree has been seen to use no processor time and to wait for none, in
    seconds. `every_s`: the pause between two samples; who keeps a server without asking it anything
    makes it longer."""

    def __init__(self, jailed: WatchedSandbox, policy: SandboxPolicy) -> None:
        self._jailed = jailed
        self._policy = policy
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch_tree, daemon=True)
        self._cpu = -1
        self._seen_at = time.monotonic()
        self.idle_s = 0.0
        self._samples = 0
        self._disks: list[_PrivateDisk] = []
        self.breach: LimitBreach | None = None
        self.peak_mb = 0.0
        self.every_s = _EVERY_S

    def __enter__(self) -> "SandboxWatchdog":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def measure(self) -> None:
        """Takes one more sample of the memory, for a tree that lived too short to be met."""
        stats = PROCESSES.stats()
        self._find_memory_breach(list_tree(self._jailed.pid, stats), stats, always=True)

    def _watch_tree(self) -> None:
        end = time.monotonic() + self._policy.wall_s
        while not self._stop.wait(max(self.every_s, min(0.25, 4 * PROCESSES.cost_s))):
            if self._jailed.process.poll() is not None:
                return
            breach = self._take_sample()
            if time.monotonic() > end:
                breach = breach or LimitBreach("wall", f"{self._policy.wall_s:.0f} s")
            if breach:
                self.breach = breach
                self._jailed.kill()
                return

    def _take_sample(self) -> LimitBreach | None:
        stats = PROCESSES.stats()
        pids = list_tree(self._jailed.pid, stats)
        self._samples += 1
        self._note_activity([stats[pid] for pid in pids], time.monotonic())
        threads = sum(stats[pid].threads for pid in pids) - _OWN_THREADS
        if threads >= self._policy.processes - 1:
            return LimitBreach("processes", f"{threads} of {self._policy.processes}")
        return self._find_memory_breach(pids, stats) or self._find_disk_breach()

    def _note_activity(self, stats: Sequence[ProcessStat], now: float) -> None:
        """A machine under load starves the server, and us: one that waits for a processor is not
        idle, and a pause in which nobody looked says nothing about it (two cores at 100% made
        hangs of two sound servers in 5,800 tests)."""
        ticks, seen_s = sum(stat.ticks for stat in stats), now - self._seen_at
        self._seen_at = now
        if ticks != self._cpu or any(stat.at_work for stat in stats):
            self._cpu, self.idle_s = ticks, 0.0
        else:
            self.idle_s += min(seen_s, 4 * self.every_s)

    def _find_memory_breach(
        self, pids: list[int], stats: Mapping[int, ProcessStat], always: bool = False
    ) -> LimitBreach | None:
        """PSS is exact but walks every mapping: asked for now and then, and near the limit."""
        limit = self._policy.memory_mb
        self._disks = _read_private_disks(pids) or self._disks
        disks = sum(disk.size for disk in self._disks) / _MIB
        resident = sum(stats[pid].resident for pid in pids) / _MIB + disks
        if always or resident > limit * 0.7 or self._samples % 4 == 1:
            used = sum(read_proportional(pid, stats[pid].resident) for pid in pids) / _MIB
            used += sum_memory_files(pids) / _MIB + disks
            self.peak_mb = max(self.peak_mb, used)
            if used > limit:
                return LimitBreach("memory", f"{used:.0f} MB of {limit} MB")
        return None

    def _find_disk_breach(self) -> LimitBreach | None:
        """The size of the private file systems is capped by the mount; inodes are not."""
        for disk in self._disks:
            if disk.inodes > _MAX_INODES:
                return LimitBreach("disk", f"{disk.inodes} files in {disk.folder}")
        return None


@dataclass(frozen=True)
class _PrivateDisk:
    """A private file system: where, files in it, and the bytes of memory that it takes."""

    folder: str
    inodes: int
    size: int


def _read_private_disks(pids: Sequence[int]) -> list[_PrivateDisk]:
    """The private file systems as the last process of a tree sees them."""
    disks = []
    for folder in _PRIVATE:
        try:
            path = f"/proc/{pids[-1]}/root{folder}"
            if os.path.exists(folder) and os.path.samefile(path, folder):
                continue  # it has not left the host's tree yet: a /tmp of ours is no sin of its
            stat = os.statvfs(path)
        except (OSError, IndexError):
            continue
        inodes = stat.f_files - stat.f_ffree
        size = (stat.f_blocks - stat.f_bfree) * stat.f_frsize + inodes * _INODE
        disks.append(_PrivateDisk(folder, inodes, size))
    return disks
