"""Serverjson: one `server.json` of the registry's five dated schemas as a listing."""

import re
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from assets.marketplaces.launch.mcp_config import make_malformed, make_unrunnable
from assets.marketplaces.listing import Listing
from assets.marketplaces.server_json.inputs import read_string
from assets.marketplaces.server_json.packages import Facts, read_package_facts, read_remote_offer
from warehouse.sanitize.redact import redact

_SNAKE_SCHEMA = "2025-07-09"
_SNAKE_KEYS = {"registry_type", "registry_name", "transport_type", "environment_variables"}
# Names of the records before the first dated schema.
_OLD_NAMES = {"registryName": "registryType", "transportType": "type"}
_LAUNCHED_HERE = ("npm", "pypi", "mcpb")


def make_server_listing(server: Any, marketplace: str) -> Listing:
    """The listing of one server.json. Raises ValueError where it has no name; any other fault
    makes a listing that is not runnable and says why."""
    name = server.get("name") if isinstance(server, dict) else None
    if not isinstance(name, str) or not name.strip():
        raise ValueError("the record has no server.name")
    repository = server.get("repository")
    address = repository.get("url") if isinstance(repository, dict) else repository
    folder = repository.get("subfolder") if isinstance(repository, dict) else None
    identity: Facts = {
        "marketplace": marketplace,
        "native_id": name.strip(),
        "name": redact(read_string(server.get("title")) or name),
        "description": redact(read_string(server.get("description"))),
        "repository": redact(read_string(address)) or None,
        "subfolder": redact(read_string(folder)).strip("/") or None,
    }
    try:
        return Listing(**identity, **_choose_launch(server))
    except (ValidationError, RecursionError, TypeError, ValueError, AttributeError) as error:
        return Listing(**identity, **make_malformed(error))


def _choose_launch(server: dict[str, Any]) -> Facts:
    """Launch fields of the best offer, and which one it was."""
    packages, remotes = _normalise_list(server, "packages"), _normalise_list(server, "remotes")
    offers = [
        (f"packages[{at}]", _read(read_package_facts, one)) for at, one in enumerate(packages)
    ]
    offers += [(f"remotes[{at}]", _read(read_remote_offer, one)) for at, one in enumerate(remotes)]
    if not offers:
        return make_unrunnable("the record names no package and no remote")
    place, facts = min(offers, key=lambda offer: _rank_facts(offer[1]))
    return facts | {"evidence": place}


def _read(reader: Callable[[dict[str, Any]], Facts], one: Any) -> Facts:
    """A malformed offer does not hide the others."""
    if not isinstance(one, dict):
        return make_unrunnable(f"malformed: {type(one).__name__}, not an object")
    try:
        return reader(one)
    except (ValidationError, TypeError, ValueError, AttributeError) as error:
        return make_malformed(error)


def _rank_facts(facts: Facts) -> int:
    """What starts here over stdio comes first, then what starts here, images, remotes and what
    cannot be run; among equals the first of the record."""
    package = facts.get("package")
    if not facts["runnable"]:
        return 4 if package else 5
    if package is None:
        return 3
    if package.type not in _LAUNCHED_HERE:
        return 2
    return 0 if facts["transport"] == "stdio" else 1


def _normalise_list(server: dict[str, Any], key: str) -> list[Any]:
    """Packages or remotes in camelCase. Raises ValueError where they are not a list. Nothing else
    of a record is looked at: a README of 30 KB may stand in its `_meta`."""
    result = server.get(key) or []
    if not isinstance(result, list):
        raise ValueError(f"{key} is not a list")
    dated = _SNAKE_SCHEMA in read_string(server.get("$schema"))
    if not dated and not any(
        isinstance(item, dict) and _SNAKE_KEYS & item.keys() for item in result
    ):
        return result
    made = _convert_to_camel(result)
    for one in made:
        if isinstance(one, dict):
            one |= {new: one[old] for old, new in _OLD_NAMES.items() if old in one}
            one.setdefault("identifier", one.get("name"))
    return made


def _convert_to_camel(value: Any, *, names: bool = False) -> Any:
    """snake_case members as camelCase. The keys of `variables` are the author's names and stay."""
    if isinstance(value, list):
        return [_convert_to_camel(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key if names else make_camel_name(key): _convert_to_camel(item, names=key == "variables")
        for key, item in value.items()
    }


def make_camel_name(key: str) -> str:
    """`is_latest` as `isLatest`."""
    return re.sub(r"(?<=[a-z0-9])_([a-z0-9])", lambda match: match[1].upper(), key)
