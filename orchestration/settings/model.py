"""Settings: one `toolmill.toml`, overridden by `TOOLMILL_*`, printed without secrets.

Nested names are joined by two underscores: `TOOLMILL_ROLES__GENERATOR__MODEL=gpt-5-mini`.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.dataclasses import dataclass
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from assets.servers.calls.result import CallLimits
from assets.servers.credentials.secrets import ServerSecrets
from assets.servers.sandbox.spec import SandboxSettings
from assets.synthesis.common.policy import SynthesisPolicy
from demo.ports import PORTS
from orchestration.settings.marketplaces import Marketplaces, list_extra_names
from orchestration.settings.training import Training
from serving.meta.access.policy import Consent, HttpSettings, MetaPolicy
from warehouse.home import check_home
from warehouse.llm.roles import RoleSettings

PREFIX = "TOOLMILL_"
CONFIG = "TOOLMILL_CONFIG"  # the path of toolmill.toml, when it is not in the working directory
_UNKNOWN = ("Extra inputs", "Unexpected keyword")  # how Pydantic begins such a message
WORKDIR = "TOOLMILL_WORKDIR"  # set by `toolmill dev` for the code location: the user's directory
INTERNAL = {CONFIG, WORKDIR}


class SettingsError(ValueError):
    """A setting has an unknown name or an unusable value."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Demo(_Part):
    """The loopback replicas that `toolmill run` and `toolmill dev` start when source is demo."""

    registry_port: int = PORTS["registry"]
    mcpso_port: int = PORTS["mcpso"]
    files_port: int = Field(
        default=PORTS["files"], description="where the demo's own bundles are served"
    )
    smithery_port: int = PORTS["smithery"]
    glama_port: int = PORTS["glama"]
    pulsemcp_port: int = PORTS["pulsemcp"]
    mcphub_port: int = PORTS["mcphub"]
    deepnlp_port: int = PORTS["deepnlp"]
    pipedream_port: int = PORTS["pipedream"]
    docker_port: int = PORTS["docker"]
    scale: Literal["small", "standard", "large"] = "standard"
    day: Literal[1, 2] = 1

    def ports(self) -> dict[str, int]:
        """Site -> port."""
        suffix = "_port"
        found = self.model_dump()
        return {k.removesuffix(suffix): v for k, v in found.items() if k.endswith(suffix)}


# What a server cannot start below; the sandbox's own module is plain Python and checks nothing.
_LEAST = {
    "memory_mb": 64,
    "processes": 4,
    "open_files": 16,
    "wall_s": 0.1,
    **dict.fromkeys(("file_mb", "tmp_mb", "cpu_s", "stdout_mb", "message_mb"), 1),
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


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Server(ServerSecrets):
    """What one server is given: where its secrets are, its account, its network."""

    network: Literal["none", "full"] | None = None

    @field_validator("env", "headers")
    @classmethod
    def _check_sources(cls, given: dict[str, str]) -> dict[str, str]:
        """A secret itself does not belong in a file that is copied and committed."""
        for name, source in given.items():
            if not re.match(r"([A-Za-z][\w-]* )?(env|file):.", source):
                raise ValueError(f"{name}: expected env:NAME or file:PATH, not the secret itself")
        return given


class Roles(_Part):
    """The model roles of synthesis, each with its own model, endpoint, key, price and rate."""

    generator: RoleSettings = Field(default=RoleSettings(), description="writes requests")
    reviser: RoleSettings = Field(
        default=RoleSettings(), description="puts every required value into the words"
    )
    evolver: RoleSettings = Field(
        default=RoleSettings(), description="makes a request harder, a step at a time"
    )
    caller: RoleSettings = Field(
        default=RoleSettings(temperature=0.0), description="writes the golden call"
    )
    checker_a: RoleSettings = Field(
        default=RoleSettings(temperature=0.0), description="picks among look-alikes"
    )
    checker_b: RoleSettings = Field(
        default=RoleSettings(temperature=0.0), description="picks too, best another"
    )
    judge: RoleSettings = Field(
        default=RoleSettings(temperature=0.0), description="scores by the rubric"
    )
    actor: RoleSettings = Field(
        default=RoleSettings(), description="plays a tool's answer in a conversation"
    )


class Serve(_Part):
    """The meta-server: where it listens, who may ask, and what it runs."""

    host: str = Field(default=HttpSettings.host, description="beyond this machine only with tokens")
    port: int = Field(default=HttpSettings.port, ge=0, le=65535)
    tokens: Path | None = Field(default=None, description="TOML or JSON file of who may ask")
    token: SecretStr | None = Field(default=None, description="one token that may ask for all")
    hosts: tuple[str, ...] = Field(default=(), description="`Host` headers besides loopback's")
    origins: tuple[str, ...] = Field(default=(), description="`Origin` headers that may ask")
    consent: Consent = Field(
        default=MetaPolicy.consent,
        description="of a tool that writes, where the client cannot ask its user",
    )
    trust_read_only: bool = Field(
        default=MetaPolicy.trust_read_only,
        description="a server's word that a tool only reads lets it run unasked",
    )
    calls: bool = Field(default=True, description="whether tools may be called at all")
    call_timeout_s: float = Field(default=MetaPolicy.timeout_s, gt=0)
    warm_servers: int = Field(
        default=CallLimits.sessions, ge=1, description="kept running between calls"
    )
    warm_s: float = Field(
        default=CallLimits.idle_s, ge=0, description="how long after its last call"
    )


class Settings(BaseSettings):
    """All settings. Unknown names are refused, in the file and in the environment alike."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        env_ignore_empty=True,
        # Setting one name of a role or a marketplace keeps that one's other defaults.
        nested_model_default_partial_update=True,
    )

    home: Path = Field(Path("var"), description="everything Toolmill makes")
    state: Path | None = Field(default=None, description="local state; default <home>/state")
    source: Literal["demo", "live"] = Field(
        default="demo", description="replicas here, or the real sites"
    )
    user_agent: str = Field(
        default="toolmill/0.1 (MCP catalogue)",
        description="add a contact before you crawl live sites",
    )
    chromium: Path | None = Field(
        default=None, description="a Chromium binary; default: found on PATH"
    )
    budget_usd: float = Field(
        default=5.0, ge=0, description="most US dollars all model calls may cost"
    )
    marketplaces: Marketplaces = Marketplaces()
    demo: Demo = Demo()
    sandbox: Sandbox = Sandbox()
    servers: dict[str, Server] = Field(
        default={}, description="by server id, as npm:@scope/name or remote:https://host/mcp"
    )
    roles: Roles = Roles()
    synthesis: SynthesisPolicy = SynthesisPolicy()
    training: Training = Training()
    serve: Serve = Serve()
    openai_base_url: str | None = Field(
        default=None,
        description="endpoint of every role that names a model and no base_url",
        validation_alias=AliasChoices("OPENAI_BASE_URL", "openai_base_url"),
    )
    openai_api_key: SecretStr | None = Field(
        default=None,
        description="key of that endpoint",
        validation_alias=AliasChoices("OPENAI_API_KEY", "openai_api_key"),
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = TomlConfigSettingsSource(settings_cls, config_path())
        return (init_settings, env_settings, file)

    def home_path(self) -> Path:
        """The folder of all that is made. Raises HomeUnavailable where another version made it."""
        home = self.home.resolve()
        check_home(home)
        return home

    def state_path(self) -> Path:
        """The folder of the ledger and of Dagster's runs."""
        return (self.state or self.home / "state").resolve()

    def public(self) -> dict[str, Any]:
        """All settings as JSON values; secrets show only whether they are set."""
        return self.model_dump(mode="json")


def config_path() -> Path:
    return Path(os.environ.get(CONFIG, "toolmill.toml"))


def load_settings() -> Settings:
    """The settings in force. Raises SettingsError that names each unusable setting and the fix."""
    _refuse_unknown_variables(os.environ)
    try:
        return Settings()  # type: ignore[call-arg]
    except ValidationError as error:
        lines = [
            _explain_error(item["loc"], item["msg"], item.get("input")) for item in error.errors()
        ]
        raise SettingsError("\n".join(lines)) from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{config_path()}: not TOML: {error}") from error


@lru_cache
def list_known_names() -> dict[str, str]:
    """Every setting's dotted name -> the environment variable that sets it."""
    extra = {
        f"marketplaces.{name}": PREFIX + f"marketplaces.{name}".replace(".", "__").upper()
        for name in list_extra_names()
    }
    return dict(_list_names(Settings, ())) | extra


def _list_names(model: type, path: tuple[str, ...]) -> list[tuple[str, str]]:
    """Of a model or a dataclass of Pydantic's."""
    found: list[tuple[str, str]] = []
    for name, field in model.__pydantic_fields__.items():
        here = (*path, name)
        kind = field.annotation
        alias = field.validation_alias
        variable = PREFIX + "__".join(here).upper()
        if isinstance(alias, AliasChoices):
            variable = str(alias.choices[0])
        found.append((".".join(here), variable))
        if isinstance(kind, type) and hasattr(kind, "__pydantic_fields__"):
            found += _list_names(kind, here)
    return found


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    known = set(list_known_names().values()) | INTERNAL
    unknown = sorted(
        name
        for name in environment
        if name.upper().startswith(PREFIX) and name.upper() not in known
    )
    if unknown:
        raise SettingsError("\n".join(_explain_unknown(name, sorted(known)) for name in unknown))


def _explain_unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "`toolmill settings` lists every name"
    return f"{name}: no such setting; {hint}"


def _explain_error(location: tuple[int | str, ...], message: str, found: Any) -> str:
    dotted = ".".join(str(part) for part in location)
    variable = list_known_names().get(dotted)
    if location[:1] == ("servers",) and not message.startswith(_UNKNOWN):
        return f"{dotted} in {config_path().name}: {message}"  # what was found may be a secret
    if variable is None:
        return _explain_unknown(f"setting {dotted!r}", sorted(list_known_names()))
    shown = "" if "key" in dotted else f" (found {found!r})"
    return f"{variable} ({dotted} in {config_path().name}): {message}{shown}"
