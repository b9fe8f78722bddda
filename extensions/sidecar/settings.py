"""Hyper-parameters of the sidecar: the caller's, by the same profiles, and what its data is."""

from collections.abc import Mapping
from dataclasses import asdict, field, replace
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from extensions.sidecar.grpo.settings import TINY_GRPO, GrpoOptions, GrpoSettings
from training.caller.settings import MCP_FLOW, TINY, CallerOptions, CallerSettings
from training.caller.settings import PROFILES as CALLER_PROFILES
from training.runtime.settings import Whole, read_hyper_parameters

ROLE = "sidecar"
Algorithm = Literal["sft", "grpo", "sft+grpo"]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class SidecarSettings(CallerSettings):
    """The caller's, and: rows: drafts that are learned from, at most. algorithm: how. grpo: None
    where it is not used, so that it names no model that it has no part in."""

    rows: Whole = 20_000
    algorithm: Algorithm = "sft"
    grpo: GrpoSettings | None = None


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class SidecarOptions(CallerOptions):
    """What a user sets of the sidecar; the other hyper-parameters are as its profile says."""

    rows: Annotated[Whole | None, Field(description="drafts learned from, at most")] = None
    algorithm: Algorithm | None = None
    grpo: GrpoOptions = field(default_factory=GrpoOptions)
    items: Annotated[
        Whole | None, Field(description="drafts of unseen servers that a run measures")
    ] = None

    def count_items(self) -> int:
        """How many drafts a run measures: few where a first run is to be short."""
        return self.items or (24 if get_sidecar_profile(self.base).profile == TINY else 400)

    def resolve(self, **common: Any) -> SidecarSettings:
        """The hyper-parameters in force; `common`: those that other models share."""
        chosen = {name: value for name, value in asdict(self).items() if value is not None}
        base, profile = chosen.pop("base"), chosen.pop("profile", None)
        chosen.pop("items", None)
        found = get_sidecar_profile(base, profile)
        rewarded = "grpo" in (self.algorithm or found.algorithm)
        chosen["grpo"] = self.grpo.resolve(GRPO[found.profile]) if rewarded else None
        return replace(found, **{**common, **chosen})


def _take_profile(of: CallerSettings, **changed: Any) -> SidecarSettings:
    return SidecarSettings(**{**asdict(of), **changed})


PROFILES: dict[str, SidecarSettings] = {
    MCP_FLOW: _take_profile(CALLER_PROFILES[MCP_FLOW]),
    # What a first run on two cores has time for: it proves that the path works, no more.
    TINY: _take_profile(CALLER_PROFILES[TINY], rows=96),
}


GRPO = {MCP_FLOW: GrpoSettings(), TINY: TINY_GRPO}


def get_sidecar_profile(base: str, profile: str | None = None) -> SidecarSettings:
    """The profile that a base is trained with unless another is asked for."""
    return PROFILES[profile or (TINY if base.partition(":")[0] == TINY else MCP_FLOW)]


def read_settings(values: Mapping[str, Any]) -> SidecarSettings:
    """Settings out of a job. Raises TrainingFailed naming the value that cannot be used."""
    return read_hyper_parameters(ROLE, SidecarSettings, values)
