"""The settings of running third-party servers: `[sandbox]` and `[servers."<server id>"]`."""

import re
from typing import Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator
from pydantic.dataclasses import dataclass

from assets.servers.deploy.grants import mount_folders
from assets.servers.sandbox.granted_hosts import parse_host
from assets.servers.sandbox.spec import SandboxSettings
from assets.servers.secrets import ServerSecrets

# What a server cannot start below; the sandbox's own module is plain Python and checks nothing.
_LEAST = {
    "memory_mb": 64,
    "processes": 4,
    "open_files": 16,
    "wall_s": 0.1,
    **dict.fromkeys(("file_mb", "tmp_mb", "volume_mb", "cpu_s", "stdout_mb", "message_mb"), 1),
}


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Sandbox(SandboxSettings):
    """How third-party servers are run, and the limits of one server's run."""

    concurrency: int = Field(default=3, ge=1)
    twice: bool = Field(
        default=True, description="ask each server again under another name and date"
    )
    remote: Literal["auto", "always", "never"] = Field(
        default="auto", description="probe remote servers; auto: live ones, and the demo's own"
    )

    @field_validator(*_LEAST)
    @classmethod
    def _check_least(cls, value: float, field: ValidationInfo) -> float:
        least = _LEAST[str(field.field_name)]
        if value < least:
            raise ValueError(f"expected {least} or more")
        return value

    @field_validator("fetch_hosts")
    @classmethod
    def _check_hosts(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not re.fullmatch(r"[A-Za-z0-9.-]+(:\d{1,5})?", name):
                raise ValueError(f"{name!r}: expected `host` or `host:port`")
        return names


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Server(ServerSecrets):
    """What one server is given: where its secrets are, its account, its network."""

    network: Literal["none", "full"] | None = None
    folders: tuple[str, ...] = Field(
        default=(), description="of this host that it may read, or write with :rw behind the path"
    )
    hosts: tuple[str, ...] = Field(
        default=(), description="NAME or NAME:PORT, the only ones it reaches; 443 unless said"
    )
    volume: bool = Field(default=False, description="its home outlives its sessions")
    confirmed: tuple[str, ...] = Field(
        default=(), description="digests of recipes whose arguments and variables you confirmed"
    )
    stateless: bool = Field(
        default=False, description="it remembers nothing between calls: tokens may share it"
    )

    @field_validator("folders")
    @classmethod
    def _check_folders(cls, folders: tuple[str, ...]) -> tuple[str, ...]:
        """What the disk holds is looked at when the server is launched."""
        mount_folders(folders)
        return folders

    @field_validator("hosts")
    @classmethod
    def _check_named_hosts(cls, hosts: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for host in hosts:
            parse_host(host)
        if hosts and info.data.get("network") == "full":
            raise ValueError('`network = "full"` reaches every host: leave one of the two out')
        return hosts

    @field_validator("env", "headers")
    @classmethod
    def _check_sources(cls, given: dict[str, str]) -> dict[str, str]:
        """A secret itself does not belong in a file that is copied and committed."""
        for name, source in given.items():
            if not re.match(r"([A-Za-z][\w-]* )?(env|file):.", source):
                raise ValueError(f"{name}: expected env:NAME or file:PATH, not the secret itself")
        return given
