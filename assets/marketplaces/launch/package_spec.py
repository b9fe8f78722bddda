"""Spec: the package that one word names: an npm or PyPI spec, a container image, a version."""

import re

from assets.marketplaces.listing import Package

_NPM_NAME = re.compile(r"(@[a-z0-9~\-][\w.~\-]*/)?[a-z0-9~\-][\w.~\-]*", re.IGNORECASE)
_PYPI_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._\-]*[A-Za-z0-9])?")
_IMAGE = re.compile(r"[a-z0-9][a-z0-9._\-]*(?::\d+)?(?:/[a-z0-9][a-z0-9._\-]*)*", re.IGNORECASE)
_EXACT = re.compile(r"v?\d+(?:\.\d+)*(?:[.\-+]?[A-Za-z0-9.\-+]+)?")


def parse_npm_spec(spec: str) -> tuple[str, str | None] | None:
    """(name, version or tag) of an npm package spec, or None where it is a URL, path or git."""
    name, at, version = spec.rpartition("@")
    if not at or not name:  # "pkg" and "@scope/pkg"
        name, version = spec, ""
    return (name, version or None) if _NPM_NAME.fullmatch(name) else None


def parse_pypi_spec(spec: str) -> tuple[str, str | None] | None:
    """(name, version) of a PyPI requirement, extras dropped; None where it is a URL or path."""
    found = re.fullmatch(r"\s*([^\s\[\]@=<>!~;]+)(?:\[[^\]]*\])?\s*(?:(==|@)\s*(\S+)|\S*)\s*", spec)
    if not found or "/" in spec or not _PYPI_NAME.fullmatch(found[1]):
        return None
    return found[1], found[3]


def parse_image(image: str) -> Package | None:
    """The package of a container image `name[:tag][@sha256:…]`; None where it is no image name."""
    base, tag, digest = split_image(image)
    if not _IMAGE.fullmatch(base):
        return None
    exact = re.fullmatch(r"sha256:[0-9a-f]{64}", digest)
    return Package(
        type="oci", identifier=base, version=tag or None, digest=digest if exact else None
    )


def split_image(image: str) -> tuple[str, str, str]:
    """(name, tag, digest) of `name[:tag][@digest]`, "" where there is none; a colon before a slash
    is one of a port."""
    name, _, digest = image.partition("@")
    base, colon, tag = name.rpartition(":")
    return (base, tag, digest) if colon and "/" not in tag else (name, "", digest)


def is_pinned(package: Package) -> bool:
    """Whether a package is one release for good: by its digest, or by its version. npm reads `1`
    and `1.2` as ranges."""
    if package.digest:
        return True
    parts = (package.version or "").lstrip("v=").split(".")
    return is_exact(package.version) and (package.type != "npm" or len(parts) > 2)


def is_exact(version: str | None) -> bool:
    """Whether a version names one release: no range, no tag, no wildcard."""
    return bool(version and _EXACT.fullmatch(version) and not re.search(r"[*xX](?:$|\.)", version))
