"""The core's sections of `toolmill.toml`, but for packages' policies. A package's marketplace goes
by its entry point: `TOOLMILL_MARKETPLACES__ACME__BASE_URL`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass

from assets.marketplaces.installed import list_installed
from assets.marketplaces.policy import CrawlSettings
from assets.servers.calls.result import WarmSettings
from assets.servers.deploy.grants import mount_folders
from assets.servers.sandbox.gateway import parse_host
from assets.servers.sandbox.spec import SandboxSettings
from assets.servers.secrets import ServerSecrets
from orchestration.settings.sections import add_sections
from serving.index.search_table import SEARCH_FROM
from serving.meta.policy import AddressSettings, LogSettings, MetaSettings
from training.caller.settings import CallerOptions
from training.retriever.settings import RetrieverRecipe, RetrieverSettings
from training.settings import (
    CurriculumPolicy,
    EvaluationOptions,
    PromotionPolicy,
    RetentionPolicy,
    RetrainPolicy,
    SplitSettings,
)
from warehouse.llm.roles import OPENAI, RoleSettings
from warehouse.network.egress import check_bucket_url

Section = TypeVar("Section", bound=BaseModel)

# What a server cannot start below; the sandbox's own module is plain Python and checks nothing.
_LEAST = {"memory_mb": 64, "processes": 4, "wall_s": 0.1, **dict.fromkeys(("file_mb", "tmp_mb"), 1)}


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class SandboxSection(SandboxSettings):
    concurrency: int = Field(default=3, ge=1)
    twice: bool = Field(
        default=True, description="ask each server again under another name and date"
    )
    remote: Literal["auto", "always", "never"] = Field(
        default="auto", description="probe remote servers; auto: live ones, and the demo's own"
    )
    start_s: float = Field(
        default=30.0,
        ge=1,
        description="seconds until a server answers, a third of them while it does nothing",
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
class ServerSection(ServerSecrets):
    network: Literal["none", "full"] | None = None
    folders: tuple[str, ...] = Field(
        default=(), description="of this host that it may read, or write with :rw behind the path"
    )
    hosts: tuple[str, ...] = Field(
        default=(), description="NAME or NAME:PORT, the only ones it reaches; 443 unless said"
    )
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
    def _check_sources(cls, sources: dict[str, str]) -> dict[str, str]:
        """A secret itself does not belong in a file that is copied and committed."""
        for name, source in sources.items():
            if not re.match(r"([A-Za-z][\w-]* )?(env|file):.", source):
                raise ValueError(f"{name}: expected env:NAME or file:PATH, not the secret itself")
        return sources


KEYS = ("api_key", "tenant_id", "client_id", "client_secret", "project_id")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class MarketplaceSection(CrawlSettings):
    """One marketplace: how it is read, with which keys, when in a run."""

    enabled: bool = True
    priority: int = Field(default=50, description="lower goes first in a run")
    api_key: SecretStr | None = None
    tenant_id: SecretStr | None = None
    client_id: SecretStr | None = None
    client_secret: SecretStr | None = None
    project_id: SecretStr | None = None
    approved: tuple[str, ...] = Field(
        default=(), description="private: endpoints its rows may be sent to"
    )

    @field_validator("requests_per_second")
    @classmethod
    def _stay_polite(cls, rate: float) -> float:
        """No limit is for replicas of our own."""
        if not rate > 0:
            raise ValueError("Input should be greater than 0")
        return rate

    def keys(self) -> dict[str, str]:
        values = {name: getattr(self, name) for name in KEYS}
        return {name: key.get_secret_value() for name, key in values.items() if key}


_DEFAULTS: dict[str, dict[str, Any]] = {  # of the marketplaces that ship
    "registry": {"base_url": "https://registry.modelcontextprotocol.io", "page_cap": 1000},
    "smithery": {"base_url": "https://api.smithery.ai", "site_url": "https://smithery.ai"},
    # 119,812 servers without a command stand behind 15,656 connectors with a URL.
    "glama": {"base_url": "https://glama.ai/api/mcp", "scope": ("connectors",)},
    # 200 requests a minute, 5,000 an hour (its documentation).
    "pulsemcp": {"base_url": "https://api.pulsemcp.com", "requests_per_second": 1.0},
    "mcpso": {"base_url": "https://mcp.so", "requests_per_second": 1.0},
    "mcphub": {"base_url": "https://mcphub.com", "requests_per_second": 1.0},
    "deepnlp": {"base_url": "https://www.deepnlp.org", "requests_per_second": 1.0},
    "pipedream": {"base_url": "https://api.pipedream.com"},
    "docker": {"base_url": "https://desktop.docker.com"},
    "private": {},
}


def _add_fields(fields_of: Mapping[str, Any]) -> Callable[[type[Section]], type[Section]]:
    """Class decorator: the section with a field for each name, (type, default) each."""

    def extend(model: type[Section]) -> type[Section]:
        return create_model(
            model.__name__, __base__=model, __doc__=model.__doc__, __module__=model.__module__,
            **fields_of,
        )  # fmt: skip

    return extend


@_add_fields(
    {name: (MarketplaceSection, MarketplaceSection(**given)) for name, given in _DEFAULTS.items()}
)
class MarketplacesSection(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, MarketplaceSection] = Field(init=False)

    if TYPE_CHECKING:
        private: MarketplaceSection = MarketplaceSection()

    @model_validator(mode="after")
    def _check_installed(self) -> Self:
        unknown = sorted(set(self.model_extra or ()) - set(list_installed()))
        if unknown:
            raise ValueError(
                f"no adapter {unknown[0]!r} is installed; known: {', '.join(list_installed())}"
            )
        return self

    def of(self, name: str) -> MarketplaceSection:
        """The settings of a marketplace, defaults for one that nobody set."""
        return getattr(self, name, None) or MarketplaceSection()


def list_extra_names() -> dict[str, Any]:
    """Dotted setting -> field of the installed marketplaces that are not ours."""
    others = [name for name in list_installed() if name not in MarketplacesSection.model_fields]
    return {
        f"{name}.{item.name}": item.name for name in others for item in fields(MarketplaceSection)
    }


class EmbedderSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: str = Field(
        default="general",
        description="general (MiniLM with the shipped adapter), minilm,"
        " sentence-transformers:MODEL (a folder or name@commit) or openai:MODEL@URL",
    )
    query_prompt: str | None = Field(
        default=None, description="words before a question, where the model does not bring its own"
    )
    document_prompt: str | None = Field(default=None, description="words before a tool's text")

    @field_validator("model")
    @classmethod
    def has_known_form(cls, model: str) -> str:
        """Whether such a model is there is seen when it is opened."""
        from assets.vectors.encoders.choose import check_spec

        check_spec(model)
        return model

    @field_validator("query_prompt", "document_prompt")
    @classmethod
    def has_known_length(cls, prompt: str | None, info: ValidationInfo) -> str | None:
        """Whether it leaves room for the text is seen when the model is opened."""
        from assets.vectors.encoders.embedder import Prompts

        Prompts(**{str(info.field_name).removesuffix("_prompt"): prompt})
        return prompt


_ROLES = {  # role -> (what it does, temperature)
    "generator": ("writes requests", 0.7),
    "reviser": ("puts every required value into the words", 0.7),
    "evolver": ("makes a request harder, a step at a time", 0.7),
    "caller": ("writes the golden call", 0.0),
    "checker_a": ("picks among look-alikes", 0.0),
    "checker_b": ("picks too, best another", 0.0),
    "judge": ("scores by the rubric", 0.0),
    "actor": ("plays a tool's answer in a conversation", 0.7),
}


@_add_fields(
    {
        name: (
            RoleSettings,
            Field(default=RoleSettings(temperature=temperature), description=about),
        )
        for name, (about, temperature) in _ROLES.items()
    }
)
class RolesSection(BaseModel):
    """The model roles of synthesis, each with its own model, endpoint, key, price and rate."""

    model_config = ConfigDict(extra="forbid")

    if TYPE_CHECKING:
        judge: RoleSettings = RoleSettings()

    @field_validator("*")
    @classmethod
    def has_installed_protocol(cls, role: RoleSettings) -> RoleSettings:
        """Whether the package's provider can be made is seen when the role is asked."""
        if role.protocol != OPENAI:
            from warehouse.llm.endpoint import GROUP, load_protocols

            protocols = (OPENAI, *load_protocols())
            if role.protocol not in protocols:
                raise ValueError(
                    f"protocol {role.protocol!r:.80}: expected one of {', '.join(protocols)};"
                    f" install the package that registers it under {GROUP}"
                )
        return role


SUBPROCESS, RAY, KUBERNETES = "subprocess", "ray", "kubernetes"


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class TrainingPlace:
    runs_on: Literal["subprocess", "ray", "kubernetes"] = SUBPROCESS
    processes: Annotated[int, Field(ge=1, description="that train one model together")] = 1
    gpus: Annotated[int, Field(ge=0, description="that a Ray job or a pod asks for")] = 0
    ray_address: Annotated[str | None, Field(description="of the Ray cluster's job server")] = None
    image: Annotated[str | None, Field(description="of pods, with toolmill[train]")] = None
    namespace: Annotated[str | None, Field(description="of Kubernetes pods")] = None
    python: Annotated[str, Field(description="on the other machine; here it is this one")] = (
        "python"
    )
    pod: Annotated[
        Mapping[str, Any], Field(description="base pod spec: volumes, node selector")
    ] = field(default_factory=dict)
    bucket: Annotated[
        Annotated[str, AfterValidator(check_bucket_url)] | None,
        Field(description="s3://BUCKET/PREFIX in place of a shared disk"),
    ] = None


class WorldsSection(BaseModel):
    model_config = ConfigDict(extra="forbid")

    paths: tuple[Path, ...] = Field(
        default=(), description="world files, or folders that hold them (worlds.md)"
    )


_FORBID = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_FORBID)
class HttpSection(AddressSettings):
    tokens: Path | None = Field(default=None, description="TOML or JSON file of who may ask")
    token: SecretStr | None = Field(default=None, description="one token that may ask for all")


@dataclass(frozen=True, config=_FORBID)
class CallsSection(MetaSettings):
    enabled: bool = True


@dataclass(frozen=True, config=_FORBID)
class WarmSection(WarmSettings):
    """Servers that are kept running between calls."""


@dataclass(frozen=True, config=_FORBID)
class LogSection(LogSettings):
    """What the log of calls keeps, and how long."""


class ServeSection(BaseModel):
    model_config = _FORBID

    http: HttpSection = HttpSection()
    calls: CallsSection = CallsSection()
    warm: WarmSection = WarmSection()
    log: LogSection = LogSection()
    unverified: bool = Field(
        default=False,
        description="find tools that marketplaces list and nobody launched, marked; never called",
    )
    search_from: int = Field(
        default=SEARCH_FROM,
        ge=1,
        description="tools from which an index is searched through LanceDB; smaller ones in memory",
    )


@add_sections("training.")
class TrainingSection(BaseModel):
    """What is trained, where and how long; each block is declared by the package that reads it."""

    model_config = ConfigDict(extra="forbid")

    device: Literal["auto", "cpu", "cuda"] = "auto"
    seed: int = RetrieverSettings.seed
    place: TrainingPlace = TrainingPlace()
    split: SplitSettings = SplitSettings()
    retriever: RetrieverRecipe = RetrieverRecipe()
    caller: CallerOptions = CallerOptions()
    evaluation: EvaluationOptions = EvaluationOptions()
    drift: RetrainPolicy = RetrainPolicy()
    releases: RetentionPolicy = RetentionPolicy()
    promotion: PromotionPolicy = PromotionPolicy()
    curriculum: CurriculumPolicy = CurriculumPolicy()

    @field_validator("promotion")
    @classmethod
    def _check_roles(cls, policy: PromotionPolicy) -> PromotionPolicy:
        if not policy.by_hand:
            return policy
        from training.role import list_roles

        if unknown := [name for name in policy.by_hand if name not in list_roles()]:
            raise ValueError(
                f"by_hand: unknown roles {unknown}; expected some of {list(list_roles())}"
            )
        return policy
