"""Serverjson: one `server.json` of the registry's five dated schemas as a listing.

What belongs here: packages, arguments, variables and remotes, in snake_case (2025-07-09) or
camelCase (2025-09-16, 09-29, 10-17, 12-11) as `$schema` says.
What does not: the envelope around it and its paging (`registry.py`).
"""

import re
from typing import Any

from pydantic import ValidationError

from assets.marketplaces.config import account_flags, bundle_facts, remote_facts, stdio_facts
from assets.marketplaces.config import unrunnable as _unrunnable
from assets.marketplaces.listing import EnvVar, Header, Listing
from assets.marketplaces.redact import MARK, is_secret_name, redact

_SNAKE_SCHEMA = "2025-07-09"
_RUNNERS = {"npm": "npx", "pypi": "uvx", "oci": "docker"}
_PREFERRED = ("npm", "pypi", "mcpb", "oci")


def server_listing(server: Any, marketplace: str) -> Listing:
    """The listing of one server.json. Raises ValueError where it has no name; any other fault
    makes a listing that is not runnable and says why."""
    if not isinstance(server, dict) or not isinstance(server.get("name"), str):
        raise ValueError("the record has no server.name")
    if _SNAKE_SCHEMA in str(server.get("$schema", "")):
        server = _camel(server)
    repository = server.get("repository")
    identity = {
        "marketplace": marketplace,
        "native_id": server["name"].strip(),
        "name": redact(str(server.get("title") or server["name"])),
        "description": redact(str(server.get("description") or "")),
        "repository": repository.get("url") if isinstance(repository, dict) else None,
    }
    try:
        return Listing(**identity, **_launch(server))
    except (ValidationError, TypeError, ValueError, AttributeError, KeyError) as error:
        first = f"no {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]
        return Listing(**identity, runnable=False, reason=f"malformed: {first}"[:300])


def _launch(server: dict[str, Any]) -> dict[str, Any]:
    """Launch fields from the first package that can be run here, else the first remote."""
    packages, remotes = server.get("packages") or [], server.get("remotes") or []
    if not isinstance(packages, list) or not isinstance(remotes, list):
        return _unrunnable("malformed: packages or remotes is not a list")
    kinds = [package["registryType"] for package in packages]
    for kind in _PREFERRED:
        if kind in kinds:
            at = kinds.index(kind)
            return _package(packages[at]) | {"evidence": f"packages[{at}]"}
    if remotes:
        return _remote(remotes[0]) | {"evidence": "remotes[0]"}
    if kinds:
        return _unrunnable(f"no way to run a package of type {kinds[0]!r}")
    return _unrunnable("the record names no package and no remote")


def _package(package: dict[str, Any]) -> dict[str, Any]:
    kind, identifier, version = (
        package["registryType"],
        package["identifier"],
        package.get("version"),
    )
    if not isinstance(identifier, str) or not identifier.strip():
        return _unrunnable("malformed: the package has no identifier")
    env = tuple(_input(one, EnvVar) for one in package.get("environmentVariables") or [])
    own = _arguments(package.get("packageArguments"))
    if kind == "mcpb":
        facts = bundle_facts(identifier, package.get("fileSha256"), version, env)
        return facts | {"args": own}
    spec = identifier
    if version:
        spec += {"npm": "@", "pypi": "==", "oci": ":"}[kind] + str(version)
    own_runner = _arguments(package.get("runtimeArguments"))
    command = package.get("runtimeHint") or _RUNNERS[kind]
    if kind == "npm" and command == "npx" and "-y" not in own_runner:
        own_runner = ("-y", *own_runner)
    if kind == "oci" and "run" not in own_runner:
        own_runner = ("run", "-i", "--rm", *own_runner)
    facts = stdio_facts(str(command), (*own_runner, spec, *own), env)
    transport = package.get("transport")
    if isinstance(transport, dict) and transport.get("type") not in (None, "stdio"):
        # It runs here but answers over HTTP; kept as said, the recipe decides.
        facts |= {"transport": transport["type"], "url": transport.get("url")}
    return facts


def _remote(remote: dict[str, Any]) -> dict[str, Any]:
    variables = remote.get("variables") or {}

    def filled(found: re.Match[str]) -> str:
        default = (variables.get(found[1]) or {}).get("default")
        return str(default) if default else found[0]

    url = re.sub(r"\{(\w+)\}", filled, str(remote.get("url") or ""))
    headers = tuple(_input(one, Header) for one in remote.get("headers") or [])
    facts = remote_facts(url, str(remote.get("type") or ""), headers)
    return facts | {"flags": tuple(sorted({*facts["flags"], *account_flags(headers)}))}


def _arguments(found: Any) -> tuple[str, ...]:
    """Arguments as typed words; one without a value stands as `{name:format}` if it is required
    and is left out if not."""
    words: list[str] = []
    for one in found or []:
        value = one.get("value") or one.get("default")
        name = str(one.get("name") or "")
        if value is None and one.get("isRequired"):
            hint = re.sub(r"\W+", "_", one.get("valueHint") or name.lstrip("-") or "value")
            value = f"{{{hint}:{one.get('format') or 'string'}}}"
        if one.get("type") == "named" and (value is not None or one.get("isRequired") is None):
            words.append(name)
        if value is not None:
            words.append(redact(str(value)))
    return tuple(words)


def _input(one: dict[str, Any], kind: Any) -> Any:
    """A variable or header; a secret, declared or by its name, never carries a value."""
    name, value = str(one["name"]), one.get("value") or one.get("default")
    secret = one.get("isSecret") is True or (
        one.get("isSecret") is None and is_secret_name(name) and not _harmless(value)
    )
    return kind(
        name=name,
        required=one.get("isRequired") is True,
        secret=secret,
        default=None if secret or value is None or MARK in str(value) else redact(str(value)),
        description=redact(str(one["description"])) if one.get("description") else None,
    )


def _harmless(value: Any) -> bool:
    return str(value).lower() in ("true", "false") or str(value).isdigit()


def _camel(value: Any, *, names: bool = False) -> Any:
    """snake_case members as camelCase. The keys of `variables` are the author's names and stay."""
    if isinstance(value, list):
        return [_camel(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key if names else _camel_name(key): _camel(item, names=key == "variables")
        for key, item in value.items()
    }


def _camel_name(key: str) -> str:
    return re.sub(r"(?<=[a-z0-9])_([a-z0-9])", lambda found: found[1].upper(), key)
