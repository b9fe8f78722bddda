"""Identifiers: which package a package of a server.json is, and the words its runner takes."""

import re
from typing import Any

from assets.marketplaces.launch.package_spec import (
    is_exact,
    parse_npm_spec,
    parse_pypi_spec,
    split_image,
)
from assets.marketplaces.listing import Package
from assets.marketplaces.server_json.inputs import read_string
from warehouse.sanitize.redact import redact
from warehouse.storage.digest import read_sha256

NO_RUNNER = ("nuget", "cargo")

_DEFAULT_IMAGE_HOSTS = ("docker.io", "index.docker.io", "hub.docker.com", "registry-1.docker.io")
_RANGE = re.compile(r"\s*(?:[<>]=?|[!~]=|={2,3})\s*\S")


def read_identity(
    kind: str, identifier: str, package: dict[str, Any]
) -> tuple[Package | None, str]:
    """(the package, the word that names it to a runner), or (None, why it cannot be read)."""
    version = read_string(package.get("version")).strip() or None
    digest = _read_digest(read_string(package.get("fileSha256")))
    if kind == "npm":
        npm = parse_npm_spec(identifier)
        if npm is None:
            return None, f"{redact(identifier)[:80]!r} is not an npm package name"
        name, version = npm[0], version or npm[1]
        made = Package(type="npm", identifier=name, version=version, digest=digest)
        return made, f"{name}@{version}" if version else name
    if kind == "pypi":
        pypi = parse_pypi_spec(identifier)
        if pypi is None:
            return None, f"{redact(identifier)[:80]!r} is not a PyPI package name"
        made = Package(type="pypi", identifier=pypi[0], version=version or pypi[1], digest=digest)
        extras = re.search(r"\[[^\]]*\]", identifier)
        return made, _make_pypi_requirement(pypi[0] + (extras[0] if extras else ""), made.version)
    if kind == "oci":
        return _read_image(identifier, version, digest, read_string(package.get("registryBaseUrl")))
    if kind == "mcpb" and not identifier.startswith(("http://", "https://")):
        return None, f"the bundle {redact(identifier)[:80]!r} is not an http(s) URL"
    if kind == "mcpb" or kind in NO_RUNNER:
        made = Package(type=kind, identifier=redact(identifier), version=version, digest=digest)  # type: ignore[arg-type]
        return made, identifier
    return None, f"no way to run a package of type {kind[:40]!r}"


def _make_pypi_requirement(name: str, version: str | None) -> str:
    """The requirement that uvx takes: an exact one, a range that is one, or none at all."""
    if version == "latest":
        return f"{name}@latest"
    if version and _RANGE.match(version):
        return name + version.replace(" ", "")
    if version and (is_exact(version) or re.fullmatch(r"[\d.]+\*", version)):
        return f"{name}=={version}"
    return name  # npm's `^1.2` and the like mean nothing to it


def _read_image(
    identifier: str, version: str | None, digest: str | None, base_url: str
) -> tuple[Package | None, str]:
    """An image with its tag and digest, wherever the record puts them."""
    path, tag, pinned = split_image(identifier)
    if version and version.startswith("sha256:"):
        pinned, version = pinned or version, None
    host = re.sub(r"^https?://", "", base_url).split("/")[0].lower()
    first = path.split("/")[0]
    if host and host not in _DEFAULT_IMAGE_HOSTS and "." not in first and ":" not in first:
        path = f"{host}/{path}"
    if not re.fullmatch(r"[A-Za-z0-9][\w.\-:/]{0,250}", path, re.ASCII):
        return None, f"{redact(identifier)[:80]!r} is not the name of an image"
    tag = tag or version or ""
    made = Package(
        type="oci", identifier=path, version=tag or None, digest=_read_digest(pinned) or digest
    )
    return made, path + (f":{tag}" if tag else "") + (f"@{pinned}" if pinned else "")


def _read_digest(text: str) -> str | None:
    found = read_sha256(text)
    return f"sha256:{found}" if found else None
