"""Settings: `toolmill.toml`, overridden by variables
(`TOOLMILL_ROLES__GENERATOR__MODEL=gpt-5-mini`), printed without secrets."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

import demo.world
from assets.outcomes.policy import ExecutionPolicy, ReliabilityPolicy
from assets.synthesis.policy import SynthesisPolicy
from demo.ports import BASE_PORT, list_ports
from orchestration.settings.schema import (
    EmbedderSettings,
    MarketplacesSection,
    RolesSection,
    SandboxSection,
    ServerSection,
    ServeSection,
    TrainingSection,
    WorldsSection,
)
from orchestration.settings.sections import add_sections
from training.retriever.settings import find_other_shape
from warehouse.fleet import FleetSettings
from warehouse.home import check_home
from warehouse.network.egress import is_loopback

PREFIX = "TOOLMILL_"
CONFIG = "TOOLMILL_CONFIG"  # the path of toolmill.toml, when it is not in the working directory
WORKDIR = "TOOLMILL_WORKDIR"  # set by `toolmill dev` for the code location: the user's directory


class DemoSection(BaseModel):
    """The loopback replicas that `toolmill run` and `toolmill dev` start when source is demo."""

    model_config = ConfigDict(extra="forbid")

    base_port: int = Field(
        default=BASE_PORT, ge=0, le=65_000, description="of the first replica; 0: any free ports"
    )
    scale: Literal["small", "standard", "large"] = "standard"
    # A variable gives text, which a literal of numbers does not take.
    day: Annotated[
        Literal[1, 2], BeforeValidator(lambda day: int(day) if day in ("1", "2") else day)
    ] = 1

    def ports(self) -> dict[str, int]:
        return list_ports(self.base_port)


class AlertsSection(BaseModel):
    model_config = ConfigDict(extra="forbid")

    webhook: SecretStr | None = Field(
        default=None, description='a URL that takes {"text": …}, as of Slack; it is a secret'
    )

    @field_validator("webhook")
    @classmethod
    def is_address(cls, webhook: SecretStr | None) -> SecretStr | None:
        """https, or http on this host."""
        if webhook is not None:
            url = urlsplit(webhook.get_secret_value())
            plain = url.scheme == "http" and is_loopback(url.hostname or "")
            if not url.hostname or not (url.scheme == "https" or plain):
                raise ValueError("expected an https URL (http on loopback alone)")
        return webhook


@add_sections()
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
    marketplaces: MarketplacesSection = MarketplacesSection()
    demo: DemoSection = DemoSection()
    sandbox: SandboxSection = SandboxSection()
    fleet: FleetSettings = FleetSettings()
    servers: dict[str, ServerSection] = Field(
        default={}, description="by server id, as npm:@scope/name or remote:https://host/mcp"
    )
    embedder: EmbedderSettings = EmbedderSettings()
    roles: RolesSection = RolesSection()
    synthesis: SynthesisPolicy = SynthesisPolicy()
    executions: ExecutionPolicy = ExecutionPolicy()
    reliability: ReliabilityPolicy = ReliabilityPolicy()
    training: TrainingSection = TrainingSection()
    serve: ServeSection = ServeSection()
    worlds: WorldsSection = WorldsSection()
    alerts: AlertsSection = AlertsSection()
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
        return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls, config_path()))

    @field_validator("home", "state", "chromium", mode="before")
    @classmethod
    def is_named(cls, path: Any) -> Any:
        """Empty would be the working directory."""
        if isinstance(path, str) and not path.strip():
            raise ValueError("expected a path, or nothing at all for the default")
        return path

    @field_validator("training")
    @classmethod
    def fits_the_start(cls, training: TrainingSection, info: ValidationInfo) -> TrainingSection:
        """Whether an adapter as it is set can go on from the shipped one, where trainings do."""
        kind = info.data["embedder"].model.partition(":")[0] if "embedder" in info.data else ""
        other = find_other_shape(training.retriever)
        if other and kind == "general":
            raise ValueError(f"retriever.{other}")
        return training

    def home_path(self) -> Path:
        """The folder of all that is made. Raises HomeUnavailable where another version made it."""
        home = self.home.resolve()
        check_home(home)
        return home

    def world_paths(self) -> tuple[Path, ...]:
        """World files and folders besides the shipped ones; the demo brings one of its own."""
        own = (Path(demo.world.__file__).with_name("worlds"),) if self.source == "demo" else ()
        return (*self.worlds.paths, *own)

    def state_path(self) -> Path:
        return (self.state or self.home / "state").resolve()

    def public(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    def changed(self) -> dict[str, Any]:
        return _keep_changed(self.public(), type(self).model_construct().public())


def config_path() -> Path:
    return Path(os.environ.get(CONFIG, "toolmill.toml"))


def _keep_changed(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    changed = {}
    for name, value in values.items():
        default = defaults.get(name)
        if isinstance(value, dict) and isinstance(default, dict):
            value = _keep_changed(value, default)
            default = {}
        if value != default:
            changed[name] = value
    return changed
