"""The result of one deployment, as the ledger keeps it."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from assets.servers.probe.failure_kinds import Failure
from assets.servers.probe.probe import ProbeResult


@dataclass(frozen=True)
class Deployed:
    """The result of one recipe: the probe's result, what was made up, what was installed.

    behaviour: rows of `asker.Behaviour`, None without a differential probe. certificate: facts of
    the sandbox it ran in, None for a server elsewhere. license: as the package states it. launched:
    `recipe_facts` of the launch that counted, None where it was the planned one.
    """

    probe: ProbeResult
    placeholders: tuple[str, ...] = ()
    locked: str | None = None
    megabytes: float = 0.0
    built_with_scripts: bool = False
    behaviour: list[dict[str, str]] | None = None
    certificate: dict[str, Any] | None = None
    license: str | None = None
    launched: dict[str, Any] | None = None

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "Deployed":
        facts = json.loads(data)
        result = ProbeResult(**facts.pop("probe"))
        return cls(probe=result, **{**facts, "placeholders": tuple(facts["placeholders"])})


def make_failed(failure: Failure) -> Deployed:
    """The result of a recipe that was never launched."""
    return Deployed(ProbeResult(status="failed", error_kind=failure.kind, hint=failure.hint))
