"""A control group of one sandbox, where the host lets us make one: then the kernel holds its memory
as a whole, pipes and socket buffers included. Version 2 only."""

import os
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from assets.servers.sandbox.environment import cap_memory
from assets.servers.sandbox.spec import SandboxPolicy
from warehouse.process_identity import describe_owner, is_abandoned

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_NAME = "toolmill"


@dataclass(frozen=True)
class ControlGroup:
    """A group with a memory limit of its own, ended with its sandbox."""

    folder: Path

    def wrap(self, argv: Sequence[str]) -> list[str]:
        """The command that joins the group and becomes `argv`: nothing of it starts outside."""
        join = ["sh", "-c", 'echo 0 >"$0" && exec "$@"', str(self.folder / "cgroup.procs")]
        return [*join, *argv]

    def has_overrun(self) -> bool:
        """Whether the kernel ended it for its memory."""
        try:
            words = (self.folder / "memory.events").read_text().split()
        except OSError:
            return False
        return dict(zip(words[::2], words[1::2], strict=False)).get("oom_kill", "0") != "0"

    def end(self) -> None:
        """Ends what is left in it and removes it; the kernel needs a moment for both."""
        with suppress(OSError):
            (self.folder / "cgroup.kill").write_text("1")
        for _ in range(20):
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.01)


def make_control_group(policy: SandboxPolicy) -> ControlGroup | None:
    """A group with the policy's memory; None where this host allows none."""
    parent = find_parent_group()
    return _make_within(parent, cap_memory(policy)) if parent else None


def _make_within(parent: Path, limit: int) -> ControlGroup | None:
    group = ControlGroup(parent / f"{_NAME}-{uuid.uuid4().hex}-{describe_owner()}")
    try:
        group.folder.mkdir()
        (group.folder / "memory.max").write_text(str(limit))
        (group.folder / "memory.oom.group").write_text("1")
    except OSError:
        group.end()
        return None
    with suppress(OSError):  # a kernel without swap has no such file
        (group.folder / "memory.swap.max").write_text("0")
    return group


@lru_cache(maxsize=1)
def find_parent_group() -> Path | None:
    """The group in which we may make others with a memory limit: our own, or the one above it. Made
    sure of by a process that joins one."""
    own = _find_own_group(_OWN)
    for parent in (own, own.parent) if own and own != _ROOT else (own,):
        if parent and "memory" in _read_words(parent / "cgroup.subtree_control"):
            _sweep_groups(parent)
            group = _make_within(parent, 1 << 28)
            if group and _can_join(group):
                return parent
    return None


def _find_own_group(file: Path) -> Path | None:
    """Our own group of version 2, whose line begins with `0::`."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    path = next((line[3:] for line in lines if line.startswith("0::/")), None)
    return _ROOT / path.lstrip("/") if path and ".." not in path else None


def _can_join(group: ControlGroup) -> bool:
    try:
        pid = os.posix_spawn("/bin/sh", group.wrap(["true"]), {"PATH": os.defpath})
        return os.waitpid(pid, 0)[1] == 0
    except OSError:
        return False
    finally:
        group.end()


def _sweep_groups(parent: Path) -> None:
    """Removes the groups of owners that died; their pids may be others' now."""
    for folder in parent.glob(f"{_NAME}-*-*"):
        if is_abandoned(folder.name.split("-", 2)[2]):
            ControlGroup(folder).end()


def _read_words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
