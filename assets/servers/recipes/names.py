"""Names: of packages, images and addresses, each in the one form that identities are made of."""

import re
from urllib.parse import urlsplit, urlunsplit

from assets.marketplaces.listing import Package

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_FORMS = {
    "npm": r"(@[a-z0-9~\-_][a-z0-9._~\-]*/)?[a-z0-9~_][a-z0-9._~\-]*",
    "pypi": r"[a-z0-9](?:[a-z0-9._\-]*[a-z0-9])?",
    "mcpb": r"https?://\S+",
    "oci": r"[a-z0-9][\w.\-/:]*(?:@sha256:[0-9a-f]{64})?",
}


def normalise_name(name: str) -> str:
    """PEP 503: runs of `-`, `_` and `.` are one `-`, lower case."""
    return re.sub(r"[-_.]+", "-", name).lower()


def normalise_address(url: str) -> str:
    """A URL without query, fragment and credentials; on loopback also without the port, which is
    another at every start of a local marketplace."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    port = f":{parts.port}" if parts.port and host not in _LOOPBACK else ""
    return urlunsplit((parts.scheme.lower(), host + port, parts.path.rstrip("/"), "", ""))


def parse_image(package: Package) -> tuple[str, str | None, str | None]:
    """(name with its registry, tag, digest) of an image as Docker reads it: `redis` is
    `docker.io/library/redis`."""
    name, _, pinned = package.identifier.strip().partition("@")
    head, colon, tag = name.rpartition(":")
    name, tag = (head, tag) if colon and "/" not in tag else (name, "")
    host, slash, rest = name.partition("/")
    if not slash or not (set(".:") & set(host) or host == "localhost"):
        host, rest = "docker.io", name
    host = "docker.io" if host in ("index.docker.io", "registry-1.docker.io") else host.lower()
    rest = f"library/{rest}" if host == "docker.io" and "/" not in rest else rest
    return f"{host}/{rest.lower()}", tag or package.version, pinned or package.digest


def find_name_problem(package: Package) -> str | None:
    """Why a name must not reach a package manager, which could take it for an option, a path or a
    URL; None where it may."""
    if re.fullmatch(_FORMS[package.type], package.identifier, re.IGNORECASE):
        return None
    return f"{package.identifier[:80]!r} is no {package.type} name"
