"""Facts: the form in which the demo's own servers are written down."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Literal

from demo.world.record import Input

REAL: frozenset[str] = frozenset({"standard", "large"})
EVERY: frozenset[str] = frozenset({"small", "standard", "large"})
_BOTH_DAYS = frozenset({1, 2})


@dataclass(frozen=True)
class Server:
    """One server of the demo world. `versions` gives the version listed from a day on."""

    slug: str
    title: str
    description: str
    kind: Literal["npm", "pypi", "mcpb", "remote", "none"]
    identifier: str
    versions: Mapping[int, str]
    on: frozenset[str]  # marketplaces: registry, mcpso
    args: tuple[Any, ...] = ()  # texts, or {name, format, description} for the user to fill in
    env: tuple[Input, ...] = ()
    repository: str = "https://github.com/modelcontextprotocol/servers"
    scales: frozenset[str] = REAL
    days: frozenset[int] = _BOTH_DAYS
    odd: str | None = None  # the way in which its listing is broken

    @property
    def registry_name(self) -> str:
        """Reverse-DNS name, as the official registry wants it."""
        owner = self.repository.removeprefix("https://github.com/").split("/")[0]
        return f"io.github.{owner.lower()}/{self.slug}"

    def find_version(self, day: int) -> str:
        return self.versions[max(known for known in self.versions if known <= day)]

    def find_revised_at(self, day: int, scale: str) -> str:
        """RFC 3339 time of the last edit. Its clock comes from the content, so that an edited
        catalogue never looks unchanged to a crawler that trusts it."""
        edited = max((known for known in self.versions if known <= day), default=1)
        if day not in self.days or (1 not in self.days):
            edited = day
        # Sets are sorted: their order in `repr` is another in every process.
        facts = json.dumps([asdict(self), self.find_version(day), scale], default=sorted)
        seconds = int(sha256(facts.encode()).hexdigest(), 16) % 86_400
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return f"2026-11-{19 + edited}T{clock}Z"


def make_npm_server(slug: str, identifier: str, version: str, **facts: Any) -> Server:
    return _make_server(slug, "npm", identifier, version, **facts)


def make_pypi_server(slug: str, identifier: str, version: str, **facts: Any) -> Server:
    return _make_server(slug, "pypi", identifier, version, **facts)


def make_local_server(name: str, version: str, **facts: Any) -> Server:
    facts = {"repository": "https://github.com/toolmill/demo", "scales": EVERY} | facts
    return _make_server(name.replace("_", "-"), "mcpb", name, version, **facts)


def _make_server(slug: str, kind: Any, identifier: str, version: str, **facts: Any) -> Server:
    facts["on"] = frozenset(facts["on"].split())
    facts["versions"] = {1: version, **facts.pop("later", {})}
    return Server(slug=slug, kind=kind, identifier=identifier, **facts)
