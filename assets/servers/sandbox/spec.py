"""What is to be started in a sandbox and within which limits: plain facts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

HOME = "/home/user"


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class SandboxSettings:
    """Limits of one sandbox, as a user can set them. memory_mb binds the tree's proportional set
    size and each process's private data; stdout_mb and message_mb bound what is read back."""

    backend: Literal["auto", "bubblewrap", "docker", "none"] = Field(
        default="auto",
        description="auto: bubblewrap, else docker, else refuse; none: no isolation, every row is"
        " marked uncertified",
    )
    engine: str = Field(default="docker", description="its program; podman takes the same words")
    image: str = Field(default="", description="of the engine; empty: the host's own /usr")
    memory_mb: int = Field(default=1024, ge=64)
    processes: int = Field(default=128, ge=4, description="threads count too")
    open_files: int = Field(default=1024, ge=16)
    file_mb: int = Field(default=256, ge=1, description="of one file")
    tmp_mb: int = Field(default=512, ge=1)
    cpu_s: int = Field(default=120, ge=1)
    wall_s: float = Field(default=60.0, gt=0, description="ends everything")
    stdout_mb: int = Field(default=64, ge=1)
    message_mb: int = Field(default=16, ge=1)
    network: Literal["none", "full"] = "none"
    scripts: Literal["never", "second"] = Field(
        default="never", description="second: a fetch that failed may run install scripts, inside"
    )


@pydantic_dataclass(frozen=True)
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
    """A command and the world it sees. `env` is its whole environment besides HOME and friends;
    `dirs` are empty writable folders below HOME made for it; `uid` fixes the user (root host)."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    cwd: str = HOME
    dirs: tuple[str, ...] = ()
    uid: int | None = None
