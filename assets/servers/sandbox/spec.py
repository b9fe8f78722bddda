"""What is to be started in a sandbox and within which limits: plain facts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

HOME = "/home/user"


@dataclass(frozen=True)
class SandboxSettings:
    """Limits of one sandbox, as a user can set them. memory_mb binds the tree's proportional set
    size and each process's private data; wall_s ends everything; stdout_mb and message_mb bound
    what is read back. Plain Python: the sandbox runs without any package.

    backend: `auto` takes bubblewrap, else docker, else refuses; `none` contains nothing, and every
    row is marked uncertified. engine: the program behind docker (`podman` takes the same words).
    image: of the engine; empty for the host's own /usr. scripts: `second` lets a fetch that failed
    run install scripts, inside."""

    backend: Literal["auto", "bubblewrap", "docker", "none"] = "auto"
    engine: str = "docker"
    image: str = ""
    memory_mb: int = 1024
    processes: int = 128  # threads count too
    open_files: int = 1024
    file_mb: int = 256
    tmp_mb: int = 512
    cpu_s: int = 120
    wall_s: float = 60.0
    stdout_mb: int = 64
    message_mb: int = 16
    network: Literal["none", "full"] = "none"
    scripts: Literal["never", "second"] = "never"


@dataclass(frozen=True)
class SandboxPolicy(SandboxSettings):
    """Limits of one sandbox. allow_loopback: bundles may be downloaded from this machine (the
    demo's are)."""

    allow_loopback: bool = False


@dataclass(frozen=True)
class Mount:
    """A host path shown inside at `inside`, read-only unless `writable`."""

    host: Path
    inside: str
    writable: bool = False

    @classmethod
    def same(cls, host: Path, *, writable: bool = False) -> "Mount":
        return cls(host, str(host), writable)


@dataclass(frozen=True)
class Launch:
    """A command and what it sees. `env` is its whole environment besides HOME and friends;
    `dirs` are empty writable folders below HOME made for it; `uid` fixes the user (root host)."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    cwd: str = HOME
    dirs: tuple[str, ...] = ()
    uid: int | None = None
