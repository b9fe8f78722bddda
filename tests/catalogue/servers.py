"""Invented listings of invented servers."""

from typing import Any

from assets.marketplaces.listing import Listing, PackageRef


def listing(native_id: str, marketplace: str = "registry", **facts: Any) -> Listing:
    """`npm=`, `pypi=`, `oci=` name a package, `version` its version; the rest are fields."""
    version = facts.pop("version", "1.0.0")
    for kind in ("npm", "pypi", "oci", "mcpb"):
        if name := facts.pop(kind, None):
            facts["package"] = PackageRef(type=kind, identifier=name, version=version)
            facts.setdefault("transport", "stdio")
    facts.setdefault("name", native_id)
    facts.setdefault("description", "Does things.")
    facts.setdefault("runnable", True)
    return Listing(marketplace=marketplace, native_id=native_id, **facts)
