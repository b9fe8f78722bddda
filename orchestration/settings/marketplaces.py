"""What a user can set of each marketplace.

A package's own adapter is set the same way, under the name of its entry point:
`TOOLMILL_MARKETPLACES__ACME__BASE_URL`.
"""

from dataclasses import fields
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic.dataclasses import dataclass

from assets.marketplaces.installed import list_installed
from assets.marketplaces.policy import CrawlSettings

KEYS = ("api_key", "tenant_id", "client_id", "client_secret", "project_id")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Marketplace(CrawlSettings):
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
        """The keys that are set, in clear."""
        values = {name: getattr(self, name) for name in KEYS}
        return {name: key.get_secret_value() for name, key in values.items() if key}


class Marketplaces(BaseModel):
    """The marketplaces, one partition each."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Marketplace] = Field(init=False)

    registry: Marketplace = Marketplace(
        base_url="https://registry.modelcontextprotocol.io", page_cap=1000
    )
    smithery: Marketplace = Marketplace(
        base_url="https://api.smithery.ai", site_url="https://smithery.ai"
    )
    # 119,812 servers without a command stand behind 15,656 connectors with a URL.
    glama: Marketplace = Marketplace(base_url="https://glama.ai/api/mcp", scope=("connectors",))
    # 200 requests a minute, 5,000 an hour (its documentation).
    pulsemcp: Marketplace = Marketplace(
        base_url="https://api.pulsemcp.com", requests_per_second=1.0
    )
    mcpso: Marketplace = Marketplace(base_url="https://mcp.so", requests_per_second=1.0)
    mcphub: Marketplace = Marketplace(base_url="https://mcphub.com", requests_per_second=1.0)
    deepnlp: Marketplace = Marketplace(base_url="https://www.deepnlp.org", requests_per_second=1.0)
    pipedream: Marketplace = Marketplace(base_url="https://api.pipedream.com")
    docker: Marketplace = Marketplace(base_url="https://desktop.docker.com")
    private: Marketplace = Marketplace()

    @model_validator(mode="after")
    def _check_installed(self) -> Self:
        unknown = sorted(set(self.model_extra or ()) - set(list_installed()))
        if unknown:
            raise ValueError(
                f"no adapter {unknown[0]!r} is installed; known: {', '.join(list_installed())}"
            )
        return self

    def of(self, name: str) -> Marketplace:
        """The settings of a marketplace, defaults for one that nobody set."""
        return getattr(self, name, None) or Marketplace()


def list_extra_names() -> dict[str, Any]:
    """Dotted setting -> field of the installed marketplaces that are not ours."""
    others = [name for name in list_installed() if name not in Marketplaces.model_fields]
    return {f"{name}.{one.name}": one.name for name in others for one in fields(Marketplace)}
