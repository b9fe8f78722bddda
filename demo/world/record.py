"""Record: what a replica knows of one server, in a form that no marketplace uses."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Literal

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
    deleted: bool = False
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
