"""Dockerentry: one entry of Docker's catalogue as launch facts.

The catalogue states a secret by the variable that carries it, and a parameter as `{{name}}`; the
listing names the first and leaves a place `{name}` for the second.
"""

import re
from collections.abc import Mapping
from typing import Any

from assets.marketplaces.adapters.support.docker_parameters import (
    Parameter,
    named,
    object_of,
    objects_of,
    parameters,
)
from assets.marketplaces.launch.mcp_config import account_flags, remote_facts, unrunnable, variables
from assets.marketplaces.launch.mcp_servers import text_of
from assets.marketplaces.launch.package_spec import image_package, is_exact
from assets.marketplaces.listing import EnvVar, Header
from warehouse.sanitize.placeholders import is_local, templated, unfilled

_PARAMETER = re.compile(r"\{\{\s*([\w.\- ]{1,200}?)\s*(?:\|[^{}]{0,200})?\}\}")


def as_entry(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A server.yaml as the catalogue would hold it; an entry of the catalogue as it is."""
    about, source = object_of(raw.get("about")), object_of(raw.get("source"))
    if not about and not source and not isinstance(raw.get("config"), Mapping):
        return dict(raw)
    run, config = object_of(raw.get("run")), object_of(raw.get("config"))
    said = [{"name": name, "value": value} for name, value in object_of(run.get("env")).items()]
    return {
        **{key: raw.get(key) for key in ("name", "type", "image", "remote")},
        "title": about.get("title"),
        "description": about.get("description"),
        "upstream": source.get("upstream") or source.get("project"),
        "directory": source.get("directory"),
        "secrets": config.get("secrets"),
        "env": [*objects_of(config.get("env")), *said],
        "config": [config.get("parameters")],
        "oauth": {"providers": raw.get("oauth")},
        **{key: run.get(key) for key in ("command", "volumes", "user", "disableNetwork")},
    }


def entry_facts(entry: Mapping[str, Any]) -> dict[str, Any]:
    env, headers = _environment(entry), object_of(object_of(entry.get("remote")).get("headers"))
    url = text_of(object_of(entry.get("remote")).get("url")) or text_of(entry.get("sseEndpoint"))
    account = account_flags(env) | ({"needs_account"} if _providers(entry) else set())
    if url:
        kind = text_of(object_of(entry.get("remote")).get("transport_type"))
        kind = kind or ("sse" if entry.get("sseEndpoint") else "")
        named = tuple(variables({key: _place(str(text)) for key, text in headers.items()}, Header))
        facts = remote_facts(_place(url), kind, named) | {"env": env, "evidence": "remote.url"}
        return facts | {"flags": tuple(sorted({*facts["flags"], *account}))}
    if entry.get("type") == "poci":
        return unrunnable("each tool is a container of its own (type poci)")
    image = text_of(entry.get("image"))
    if not image:
        return unrunnable("the entry names no image and no remote")
    package = image_package(image)
    if package is None:
        return unrunnable(f"malformed: {image[:80]!r} is not an image name")
    words = tuple(_words(entry, env, image))
    flags = account | (set() if package.digest or is_exact(package.version) else {"unpinned"})
    flags |= {"placeholder"} if any(unfilled(word) for word in words) or _open(entry) else set()
    flags |= {"local_path"} if any(is_local(host) for host in _texts(entry, "volumes")) else set()
    return {
        "transport": "stdio",
        "command": "docker",
        "args": words,
        "env": env,
        "package": package,
        "flags": tuple(sorted(flags)),
        "evidence": "image",
        "runnable": True,
    }


def _words(entry: Mapping[str, Any], env: tuple[EnvVar, ...], image: str) -> list[str]:
    """What a person would type to run the image; variables are passed on by their names."""
    words = ["run", "-i", "--rm"]
    if entry.get("disableNetwork") is True:
        words += ["--network", "none"]
    if user := text_of(entry.get("user")):
        words += ["-u", _place(user)]
    for variable in env:
        words += ["-e", variable.name]
    for volume in _texts(entry, "volumes"):
        words += ["-v", _place(volume)]
    return [*words, image, *(_place(word) for word in _texts(entry, "command"))]


def _environment(entry: Mapping[str, Any]) -> tuple[EnvVar, ...]:
    """Secrets and variables. A secret is required unless the entry says that it is not; a variable
    that takes a parameter is required where the parameters say so, or where they are not stated."""
    made: dict[str, EnvVar] = {}
    for secret in objects_of(entry.get("secrets")):
        name, about = text_of(secret.get("env")), text_of(secret.get("description"))
        required = secret.get("required") is not False
        if name:
            made[name] = EnvVar(
                name=name, required=required, secret=True, description=about or None
            )
    for provider in _providers(entry):
        if name := text_of(provider.get("env")):
            made.setdefault(name, EnvVar(name=name, required=True, secret=True))
    stated = parameters(entry)
    for one in objects_of(entry.get("env")):
        name, value = text_of(one.get("name")), str(one.get("value") or "")
        if name and name not in made:
            made[name] = _variable(name, value, stated)
    return tuple(made[name] for name in sorted(made))


def _variable(name: str, value: str, stated: dict[str, Parameter] | None) -> EnvVar:
    """A variable with a fixed value, or one that takes a parameter."""
    asked = _PARAMETER.search(value)
    if asked is None:
        return variables({name: _place(value)}, EnvVar)[0]
    made: EnvVar = variables({name: "{parameter}"}, EnvVar)[0]
    if stated is None:
        return made
    parameter = named(asked[1], stated)
    whole = asked[0] == value.strip() and not made.secret
    default = parameter.default if whole else None
    return made.model_copy(update={"required": parameter.required, "default": default})


def _open(entry: Mapping[str, Any]) -> bool:
    """Whether a variable takes a parameter that the user gives, for want of a default."""
    stated = parameters(entry) or {}
    asked = [_PARAMETER.findall(str(one.get("value"))) for one in objects_of(entry.get("env"))]
    return any(named(path, stated).default is None for paths in asked for path in paths)


def _providers(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return objects_of(object_of(entry.get("oauth")).get("providers"))


def _place(text: str) -> str:
    """`{{server.path|volume|into}}` -> `{server.path}`; no secret in the rest."""
    return templated(_PARAMETER.sub(lambda found: f"{{{found[1]}}}", text))


def _texts(entry: Mapping[str, Any], key: str) -> list[str]:
    found = entry.get(key)
    return (
        [str(one) for one in found if isinstance(one, str | int | float)]
        if isinstance(found, list)
        else []
    )
