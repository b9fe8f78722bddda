"""Names: of packages, images and addresses, each in the one form that identities are made of."""

import re
from urllib.parse import SplitResult, urlsplit, urlunsplit

from packaging.utils import canonicalize_name

from assets.marketplaces.launch.package_spec import is_exact, split_image
from assets.marketplaces.listing import Listing, Package

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_FORMS = {
    "npm": r"(@[a-z0-9~\-_][a-z0-9._~\-]*/)?[a-z0-9~_][a-z0-9._~\-]*",
    "pypi": r"[a-z0-9](?:[a-z0-9._\-]*[a-z0-9])?",
    "mcpb": r"https?://\S+",
    "oci": r"[a-z0-9][\w.\-/:]*(?:@sha256:[0-9a-f]{64})?",
}


def normalise_address(url: str) -> str:
    """A URL without query, fragment and credentials; on loopback also without the port, which is
    another at every start of a local marketplace."""
    try:
        parts = urlsplit(url)
    except ValueError:  # a broken IPv6 address
        return re.split(r"[?#]", url, maxsplit=1)[0].rstrip("/")
    host = (parts.hostname or "").lower()
    port = "" if host in _LOOPBACK else _find_port(parts)
    return urlunsplit((parts.scheme.lower(), host + port, parts.path.rstrip("/"), "", ""))


def _find_port(parts: SplitResult) -> str:
    """`:8443`, or as it stands where it is no number: `http://host:{port}/mcp` is to be filled."""
    try:
        return f":{parts.port}" if parts.port else ""
    except ValueError:
        return f":{parts.netloc.rpartition('@')[2].rpartition(':')[2]}"


def parse_image(package: Package) -> tuple[str, str | None, str | None]:
    """(name with its registry, tag, digest) of an image as Docker reads it: `redis` is
    `docker.io/library/redis`."""
    name, tag, pinned = split_image(package.identifier.strip())
    host, slash, rest = name.partition("/")
    if not slash or not (set(".:") & set(host) or host == "localhost"):
        host, rest = "docker.io", name
    host = "docker.io" if host in ("index.docker.io", "registry-1.docker.io") else host.lower()
    rest = f"library/{rest}" if host == "docker.io" and "/" not in rest else rest
    return f"{host}/{rest.lower()}", tag or package.version, pinned or package.digest


def identify_server(listing: Listing) -> str | None:
    """`npm:NAME`, `pypi:normalised-name`, `mcpb:URL`, `oci:IMAGE` (no tag), `remote:URL` (no
    query), `private:FILE#KEY` of a local server, or None.

    Behind some gateways all servers share one URL and a header names the server: there the header
    is part of the id (`remote:https://remote.mcp.pipedream.net/v3#x-pd-app-slug=zoom`).
    """
    package = listing.package
    if package and package.type == "npm":
        return f"npm:{package.identifier}"
    if package and package.type == "pypi":
        return f"pypi:{canonicalize_name(package.identifier)}"
    if package and package.type == "mcpb":
        return f"mcpb:{normalise_address(package.identifier)}"
    if package and package.type == "oci":
        return f"oci:{parse_image(package)[0]}"
    if package is None and listing.url:
        return f"remote:{normalise_address(listing.url)}{_describe_gateway(listing)}"
    return f"private:{listing.native_id}" if listing.is_local else None


def _describe_gateway(listing: Listing) -> str:
    if "hosted_gateway" not in listing.flags:
        return ""
    fixed = [
        f"{header.name}={header.default}"
        for header in listing.headers
        if header.required and header.default
    ]
    return "".join(f"#{one}" for one in sorted(fixed))


def find_exact_version(package: Package) -> str | None:
    """The version of a package when it names one release."""
    return package.version if is_exact(package.version) else None


def find_name_problem(package: Package) -> str | None:
    """Why a name must not reach a package manager, which could take it for an option, a path or a
    URL; None where it may."""
    if re.fullmatch(_FORMS[package.type], package.identifier, re.IGNORECASE):
        return None
    return f"{package.identifier[:80]!r} is no {package.type} name"
