"""What a replica knows of one server, and the demo's own servers as `servers.yaml` lists them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import yaml

# The registry's dated schemas: old records keep their old one.
DATES = ("2025-07-09", "2025-09-16", "2025-09-29", "2025-10-17", "2025-12-11")
FOUNDED = "2026-01-05T00:00:00Z"

PackageKind = Literal["npm", "pypi", "mcpb", "oci"]


@dataclass(frozen=True, slots=True)
class RecordInput:
    """Something the user gives: an environment variable, a header or a configuration key."""

    name: str
    description: str = ""
    required: bool = False
    secret: bool = False
    default: str | None = None


@dataclass(frozen=True, slots=True)
class RecordPackage:
    """What to install, at one version. A bundle (mcpb) has a `url` and its `sha256`."""

    kind: PackageKind
    identifier: str
    version: str
    url: str | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class RecordRemote:
    """A server that somebody else runs."""

    url: str
    transport: Literal["streamable-http", "sse"] = "streamable-http"
    auth: Literal["none", "api_key", "oauth2"] = "none"


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """One server as one marketplace lists it. `slug` is unique within a marketplace.

    `args` are texts, or {name, format, description} for the user to fill in. `odd` is the way in
    which the listing is broken: malformed, shell, unpinned, local_path, multi, no_config.
    """

    slug: str
    namespace: str
    title: str
    description: str
    repository: str | None
    version: str
    package: RecordPackage | None = None
    remote: RecordRemote | None = None
    inputs: tuple[RecordInput, ...] = ()
    args: tuple[Any, ...] = ()
    tools: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    created_at: str = FOUNDED
    revised_at: str = FOUNDED
    schema: str = DATES[-1]
    odd: str | None = None

    @property
    def registry_name(self) -> str:
        """Reverse-DNS name, as the official registry wants it."""
        return f"io.github.{self.namespace.lower()}/{self.slug}"

    @property
    def digest(self) -> str:
        """The SHA-256 in hex that stands for the image of this version."""
        return sha256(f"{self.registry_name}:{self.version}".encode()).hexdigest()

    def make_digits(self, length: int) -> str:
        """An identifier of the kind that marketplaces make up, the same on every day."""
        return sha256(self.registry_name.encode()).hexdigest()[:length]


def revise_record(record: ServerRecord, when: str) -> ServerRecord:
    """The record after its author edited it: the next patch version, other words."""
    version = make_next_version(record.version)
    package = record.package and replace(
        record.package, version=make_next_version(record.package.version)
    )
    description = f"{record.description} Revised for {version}."
    return replace(
        record, version=version, package=package, description=description, revised_at=when
    )


def make_next_version(version: str) -> str:
    head, dot, patch = version.rpartition(".")
    return f"{head}{dot}{int(patch) + 1}" if patch.isdigit() else version


# Not secret: whoever reads this file may use them.
KEYS: Mapping[str, Mapping[str, str]] = {
    "glama": {"api_key": "demo-key"},
    "pulsemcp": {"api_key": "demo-key", "tenant_id": "demo-tenant"},
    "pipedream": {"client_id": "demo-client", "client_secret": "demo-client-secret"},
}


@dataclass(frozen=True)
class DemoServer:
    """One server of the demo world. `versions` gives the version listed from a day on."""

    slug: str
    title: str
    description: str
    kind: Literal["npm", "pypi", "mcpb", "remote", "none"]
    identifier: str
    versions: Mapping[int, str]
    on: frozenset[str]  # marketplaces: registry, mcpso
    args: tuple[Any, ...] = ()  # texts, or {name, format, description} for the user to fill in
    env: tuple[RecordInput, ...] = ()
    repository: str = "https://github.com/modelcontextprotocol/servers"
    scales: frozenset[str] = frozenset({"standard", "large"})
    days: frozenset[int] = frozenset({1, 2})
    odd: str | None = None  # the way in which its listing is broken

    @property
    def registry_name(self) -> str:
        """Reverse-DNS name, as the official registry wants it."""
        owner = self.repository.removeprefix("https://github.com/").split("/")[0]
        return f"io.github.{owner.lower()}/{self.slug}"

    def find_version(self, day: int) -> str:
        return self.versions[max(version for version in self.versions if version <= day)]

    def find_revised_at(self, day: int, scale: str) -> str:
        """RFC 3339 time of the last edit. Its clock comes from the content, so that an edited
        catalogue never looks unchanged to a crawler that trusts it."""
        edited = max((version for version in self.versions if version <= day), default=1)
        if day not in self.days or (1 not in self.days):
            edited = day
        # Sets are sorted: their order in `repr` is another in every process.
        facts = json.dumps([asdict(self), self.find_version(day), scale], default=sorted)
        seconds = int(sha256(facts.encode()).hexdigest(), 16) % 86_400
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return f"2026-11-{19 + edited}T{clock}Z"


@cache
def load_servers() -> tuple[DemoServer, ...]:
    """All servers of the demo, in the order of `servers.yaml`."""
    return tuple(_make_server(item) for item in _load_file()["servers"])


@cache
def load_other_marketplaces() -> Mapping[str, tuple[tuple[str, Mapping[str, Any]], ...]]:
    """Marketplace -> (slug of a server, what this marketplace says instead)."""
    return {
        name: tuple((entry.pop("server"), _make_changes(entry)) for entry in entries)
        for name, entries in _load_file()["others"].items()
    }


def _load_file() -> dict[str, Any]:
    text = Path(__file__).with_name("servers.yaml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _make_server(facts: dict[str, Any]) -> DemoServer:
    facts["on"] = facts.pop("marketplaces")
    facts |= {name: frozenset(facts[name]) for name in ("on", "scales", "days") if name in facts}
    env = tuple(RecordInput(**item) for item in facts.pop("env", ()))
    args = tuple(facts.pop("args", ()))
    return DemoServer(**facts, args=args, env=env)


def _make_changes(facts: dict[str, Any]) -> dict[str, Any]:
    """Values of a record's fields."""
    converters = {"remote": lambda fields: RecordRemote(**fields), "inputs": tuple, "tools": tuple}
    return {name: converters.get(name, lambda value: value)(value) for name, value in facts.items()}
