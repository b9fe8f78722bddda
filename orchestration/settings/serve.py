"""The settings of the meta-server: `[serve]` in toolmill.toml, `TOOLMILL_SERVE__…`."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic.dataclasses import dataclass

from assets.servers.calls.result import WarmSettings
from serving.meta.policy import AddressSettings, LogSettings, MetaSettings

_FORBID = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_FORBID)
class Http(AddressSettings):
    """Where HTTP is served, and to whom."""

    tokens: Path | None = Field(default=None, description="TOML or JSON file of who may ask")
    token: SecretStr | None = Field(default=None, description="one token that may ask for all")


@dataclass(frozen=True, config=_FORBID)
class Calls(MetaSettings):
    """Whether tools may be called, and which without asking."""

    enabled: bool = True


@dataclass(frozen=True, config=_FORBID)
class Warm(WarmSettings):
    """Servers that are kept running between calls."""


@dataclass(frozen=True, config=_FORBID)
class Log(LogSettings):
    """What the log of calls keeps, and how long."""


class Serve(BaseModel):
    """The meta-server: where it listens, who may ask, and what it runs."""

    model_config = _FORBID

    http: Http = Http()
    calls: Calls = Calls()
    warm: Warm = Warm()
    log: Log = Log()
    unverified: bool = Field(
        default=False,
        description="find tools that marketplaces list and nobody launched, marked; never called",
    )
