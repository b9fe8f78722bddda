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
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from orchestration.settings.marketplaces import Marketplaces, extra_names
from orchestration.settings.training import Training
from warehouse.home import check_home

PREFIX = "TOOLMILL_"
CONFIG = "TOOLMILL_CONFIG"  # the path of toolmill.toml, when it is not in the working directory
WORKDIR = "TOOLMILL_WORKDIR"  # set by `toolmill dev` for the code location: the user's directory
INTERNAL = {CONFIG, WORKDIR}


class SettingsError(ValueError):
    """A setting has an unknown name or an unusable value."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Demo(_Part):
    """The loopback replicas that `toolmill run` and `toolmill dev` start when source is demo."""

    registry_port: int = 8931
    mcpso_port: int = 8932
    files_port: int = Field(default=8933, description="where the demo's own bundles are served")
    smithery_port: int = 8934
    glama_port: int = 8935
    pulsemcp_port: int = 8936
    mcphub_port: int = 8937
    deepnlp_port: int = 8938
    pipedream_port: int = 8939
    docker_port: int = 8940
    scale: Literal["small", "standard", "large"] = "standard"
    day: Literal[1, 2] = 1

    def ports(self) -> dict[str, int]:
        """Site -> port."""
        suffix = "_port"
        found = self.model_dump()
        return {k.removesuffix(suffix): v for k, v in found.items() if k.endswith(suffix)}


class Sandbox(_Part):
    """How strangers' servers are run, and the limits of one server's run."""

    backend: Literal["auto", "bubblewrap", "docker", "none"] = Field(
        default="auto", description="none: no isolation, every row is marked uncertified"
    )
    engine: str = Field(default="docker", description="its program; podman takes the same words")
    image: str = Field(default="", description="of the engine; empty: the host's own /usr")
    concurrency: int = Field(default=3, ge=1)
    memory_mb: int = Field(default=1024, ge=64)
    processes: int = Field(default=128, ge=4)
    wall_s: float = Field(default=60.0, gt=0)
    network: Literal["none", "full"] = "none"
    scripts: Literal["never", "second"] = Field(
        default="never", description="second: a fetch that failed may run install scripts, inside"
    )
    twice: bool = Field(
        default=True, description="ask each server again under another name and date"
    )
    remote: Literal["auto", "always", "never"] = Field(
        default="auto", description="probe remote servers; auto: live ones, and the demo's own"
    )


class OAuth(_Part):
    """The account of one remote server; `toolmill login` gets the tokens of the first grant."""

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    client_id: str | None = None
    client_secret: str | None = Field(default=None, description="env:NAME or file:PATH")
    scope: str | None = None
    issuer: str | None = Field(
        default=None, description="the authorization server that may see the client's secret"
    )


class Server(_Part):
    """What one server is given: where its secrets are, its account, its network."""

    env: dict[str, str] = Field(default={}, description="variable -> env:NAME or file:PATH")
    headers: dict[str, str] = Field(default={}, description="header -> `Bearer env:NAME`")
    provider: str | None = Field(default=None, description="module:Class that knows its secrets")
    oauth: OAuth | None = None
    network: Literal["none", "full"] | None = None

    @field_validator("env", "headers")
    @classmethod
    def _sources(cls, given: dict[str, str]) -> dict[str, str]:
        """A secret itself does not belong in a file that is copied and committed."""
        for name, source in given.items():
            if not re.match(r"([A-Za-z][\w-]* )?(env|file):.", source):
                raise ValueError(f"{name}: expected env:NAME or file:PATH, not the secret itself")
        return given


class Role(_Part):
    """Who answers for one role: `offline` (rules and grammar, no model) or a model's name."""

    model: str = "offline"
    base_url: str | None = None
    api_key: SecretStr | None = None
    usd_in: float = Field(default=0.0, ge=0, description="USD per million prompt tokens")
    usd_out: float = Field(
        default=0.0, ge=0, description="US dollars per million completion tokens"
    )
    concurrency: int = Field(default=8, ge=1)
    requests_per_minute: float = Field(default=0.0, ge=0, description="0: no limit")
    tokens_per_minute: float = Field(default=0.0, ge=0, description="0: no limit")
    timeout_s: float = Field(default=60.0, gt=0)
    max_tokens: int = Field(default=1024, ge=16)
    temperature: float = Field(default=0.7, ge=0)


class Roles(_Part):
    """The model roles of synthesis, each with its own model, endpoint, key, price and rate."""

    generator: Role = Field(default=Role(), description="writes requests")
    reviser: Role = Field(default=Role(), description="puts every required value into the words")
    evolver: Role = Field(default=Role(), description="makes a request harder, a step at a time")
    caller: Role = Field(default=Role(temperature=0.0), description="writes the golden call")
    checker_a: Role = Field(default=Role(temperature=0.0), description="picks among look-alikes")
    checker_b: Role = Field(default=Role(temperature=0.0), description="picks too, best another")
    judge: Role = Field(default=Role(temperature=0.0), description="scores by the rubric")
    actor: Role = Field(default=Role(), description="plays a tool's answer in a conversation")


class Tasks(_Part):
    """Of how many tools a task beyond the single call is written, as a share from 0 to 1."""

    lookalike: float = Field(default=0.5, ge=0, le=1, description="of tools that have look-alikes")
    parallel: float = Field(default=0.1, ge=0, le=1)
    sequential: float = Field(default=0.1, ge=0, le=1)
    no_tool: float = Field(default=0.1, ge=0, le=1)
    missing_parameter: float = Field(default=0.1, ge=0, le=1)
    clarification: float = Field(default=0.1, ge=0, le=1)
    recovery: float = Field(default=0.1, ge=0, le=1)


class Synthesis(_Part):
    """How many pairs are written, of what kinds, and how strictly they are filtered and judged."""

    pairs_per_tool: int = Field(default=3, ge=1, le=20)
    seed: int = 7
    evolve_depth: int = Field(default=1, ge=0, le=5, description="steps of evolution a request")
    evolve_share: float = Field(default=0.34, ge=0, le=1, description="of requests that evolve")
    languages: tuple[str, ...] = Field(default=("en",), description="drawn for each request")
    tasks: Tasks = Tasks()
    checks: bool = Field(default=True, description="two checkers pick the tool among look-alikes")
    distractors: int = Field(default=4, ge=1, le=20, description="look-alikes a checker chooses by")
    copies_above: float = Field(
        default=0.8, ge=0, le=1, description="cosine at which a request rewords the description"
    )
    twins_above: float = Field(
        default=0.95, ge=0, le=1, description="cosine at which a request repeats another"
    )
    judge_threshold: float = Field(default=6.0, ge=1, le=10)
    judge_votes: int = Field(default=1, ge=1, le=9)


class Serve(_Part):
    """The meta-server: where it listens, who may ask, and what it runs."""

    host: str = Field(default="127.0.0.1", description="beyond this machine only with tokens")
    port: int = Field(default=8930, ge=0, le=65535)
    tokens: Path | None = Field(default=None, description="TOML or JSON file of who may ask")
    token: SecretStr | None = Field(default=None, description="one token that may ask for all")
    hosts: tuple[str, ...] = Field(default=(), description="`Host` headers besides loopback's")
    origins: tuple[str, ...] = Field(default=(), description="`Origin` headers that may ask")
    consent: Literal["ask", "never", "always"] = Field(
        default="ask", description="of a tool that writes, where the client cannot ask its user"
    )
    trust_read_only: bool = Field(
        default=True, description="a server's word that a tool only reads lets it run unasked"
    )
    calls: bool = Field(default=True, description="whether tools may be called at all")
    call_timeout_s: float = Field(default=120.0, gt=0)
    warm_servers: int = Field(default=4, ge=1, description="kept running between calls")
    warm_s: float = Field(default=300.0, ge=0, description="how long after its last call")


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
    synthesis: Synthesis = Synthesis()
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
    """The settings in force. Raises SettingsError that names each unusable setting and the mend."""
    _refuse_unknown_variables(os.environ)
    try:
        return Settings()  # type: ignore[call-arg]
    except ValidationError as error:
        lines = [_explain(item["loc"], item["msg"], item.get("input")) for item in error.errors()]
        raise SettingsError("\n".join(lines)) from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{config_path()}: not TOML: {error}") from error


@lru_cache
def known_names() -> dict[str, str]:
    """Every setting's dotted name -> the environment variable that sets it."""
    extra = {
        f"marketplaces.{name}": PREFIX + f"marketplaces.{name}".replace(".", "__").upper()
        for name in extra_names()
    }
    return dict(_names(Settings, ())) | extra


def _names(model: type[BaseModel], path: tuple[str, ...]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, field in model.model_fields.items():
        here = (*path, name)
        kind = field.annotation
        alias = field.validation_alias
        variable = PREFIX + "__".join(here).upper()
        if isinstance(alias, AliasChoices):
            variable = str(alias.choices[0])
        found.append((".".join(here), variable))
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found += _names(kind, here)
    return found


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    known = set(known_names().values()) | INTERNAL
    unknown = sorted(
        name
        for name in environment
        if name.upper().startswith(PREFIX) and name.upper() not in known
    )
    if unknown:
        raise SettingsError("\n".join(_unknown_line(name, sorted(known)) for name in unknown))


def _unknown_line(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "`toolmill settings` lists every name"
    return f"{name}: no such setting; {hint}"


def _explain(location: tuple[int | str, ...], message: str, found: Any) -> str:
    dotted = ".".join(str(part) for part in location)
    variable = known_names().get(dotted)
    if location[:1] == ("servers",) and not message.startswith("Extra inputs"):
        return f"{dotted} in {config_path().name}: {message}"  # what was found may be a secret
    if variable is None:
        return _unknown_line(f"setting {dotted!r}", sorted(known_names()))
    shown = "" if "key" in dotted else f" (found {found!r})"
    return f"{variable} ({dotted} in {config_path().name}): {message}{shown}"
