"""Dockerentry: one entry of Docker's catalogue as launch facts.

The catalogue states a secret by the variable that carries it, and a parameter as `{{name}}`; the
listing names the first and leaves a place `{name}` for the second.
"""

import re
from collections.abc import Mapping
from typing import Any

from assets.marketplaces.adapters.support.docker_parameters import (
    Parameter,
    find_parameter,
    read_parameters,
)
from assets.marketplaces.launch.mcp_config import (
    add_flags,
    make_unrunnable,
    read_remote_facts,
)
from assets.marketplaces.launch.mcp_servers import read_text
from assets.marketplaces.launch.package_spec import is_exact, parse_image
from assets.marketplaces.launch.variables import find_account_flags, read_variables
from assets.marketplaces.listing import EnvVar, Header
from assets.marketplaces.server_json.inputs import as_object, list_objects
from warehouse.sanitize.placeholders import is_local, is_unfilled, make_template

_PARAMETER = re.compile(r"\{\{\s*([\w.\- ]{1,200}?)\s*(?:\|[^{}]{0,200})?\}\}")


def make_entry(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A server.yaml as the catalogue would hold it; an entry of the catalogue as it is."""
    about, source = as_object(raw.get("about")), as_object(raw.get("source"))
    if not about and not source and not isinstance(raw.get("config"), Mapping):
        return dict(raw)
    run, config = as_object(raw.get("run")), as_object(raw.get("config"))
    variables = [
        {"name": name, "value": value} for name, value in as_object(run.get("env")).items()
    ]
    return {
        **{key: raw.get(key) for key in ("name", "type", "image", "remote")},
        "title": about.get("title"),
        "description": about.get("description"),
        "upstream": source.get("upstream") or source.get("project"),
        "directory": source.get("directory"),
        "secrets": config.get("secrets"),
        "env": [*list_objects(config.get("env")), *variables],
        "config": [config.get("parameters")],
        "oauth": {"providers": raw.get("oauth")},
        **{key: run.get(key) for key in ("command", "volumes", "user", "disableNetwork")},
    }


def read_entry_facts(entry: Mapping[str, Any]) -> dict[str, Any]:
    env, remote = _read_environment(entry), as_object(entry.get("remote"))
    url = read_text(remote.get("url")) or read_text(entry.get("sseEndpoint"))
    account = find_account_flags(env) | ({"needs_account"} if _list_providers(entry) else set())
    if url:
        kind = read_text(remote.get("transport_type"))
        kind = kind or ("sse" if entry.get("sseEndpoint") else "")
        stated = as_object(remote.get("headers")).items()
        headers = read_variables({key: _make_place(str(text)) for key, text in stated}, Header)
        facts = read_remote_facts(_make_place(url), kind, tuple(headers))
        return add_flags(facts, account) | {"env": env, "evidence": "remote.url"}
    if entry.get("type") == "poci":
        return make_unrunnable("each tool is a container of its own (type poci)")
    image = read_text(entry.get("image"))
    if not image:
        return make_unrunnable("the entry names no image and no remote")
    package = parse_image(image)
    if package is None:
        return make_unrunnable(f"malformed: {image[:80]!r} is not an image name")
    words = tuple(_make_words(entry, env, image))
    flags = account | (set() if package.digest or is_exact(package.version) else {"unpinned"})
    flags |= {"placeholder"} if any(is_unfilled(word) for word in words) or _open(entry) else set()
    flags |= {"local_path"} if any(map(is_local, _list_texts(entry, "volumes"))) else set()
    return {
        "transport": "stdio",
        "command": "docker",
        "args": words,
        "env": env,
        "package": package,
        "flags": flags,
        "evidence": "image",
        "runnable": True,
    }


def _make_words(entry: Mapping[str, Any], env: tuple[EnvVar, ...], image: str) -> list[str]:
    """What a person would type to run the image; variables are passed on by their names."""
    words = ["run", "-i", "--rm"]
    if entry.get("disableNetwork") is True:
        words += ["--network", "none"]
    if user := read_text(entry.get("user")):
        words += ["-u", _make_place(user)]
    for variable in env:
        words += ["-e", variable.name]
    for volume in _list_texts(entry, "volumes"):
        words += ["-v", _make_place(volume)]
    return [*words, image, *(_make_place(word) for word in _list_texts(entry, "command"))]


def _read_environment(entry: Mapping[str, Any]) -> tuple[EnvVar, ...]:
    """Secrets and variables. A secret is required unless the entry says that it is not; a variable
    that takes a parameter is required where the parameters say so, or where they are not stated."""
    made: dict[str, EnvVar] = {}
    for secret in list_objects(entry.get("secrets")):
        name, about = read_text(secret.get("env")), read_text(secret.get("description"))
        required = secret.get("required") is not False
        if name:
            made[name] = EnvVar(
                name=name, required=required, secret=True, description=about or None
            )
    for provider in _list_providers(entry):
        if name := read_text(provider.get("env")):
            made.setdefault(name, EnvVar(name=name, required=True, secret=True))
    stated = read_parameters(entry)
    for one in list_objects(entry.get("env")):
        name, value = read_text(one.get("name")), str(one.get("value") or "")
        if name and name not in made:
            made[name] = _make_variable(name, value, stated)
    return tuple(made[name] for name in sorted(made))


def _make_variable(name: str, value: str, stated: dict[str, Parameter] | None) -> EnvVar:
    """A variable with a fixed value, or one that takes a parameter."""
    asked = _PARAMETER.search(value)
    if asked is None:
        return read_variables({name: _make_place(value)}, EnvVar)[0]
    made: EnvVar = read_variables({name: "{parameter}"}, EnvVar)[0]
    if stated is None:
        return made
    parameter = find_parameter(asked[1], stated)
    whole = asked[0] == value.strip() and not made.secret
    default = parameter.default if whole else None
    return made.model_copy(update={"required": parameter.required, "default": default})


def _open(entry: Mapping[str, Any]) -> bool:
    """Whether a variable takes a parameter that the user gives, for want of a default."""
    stated = read_parameters(entry) or {}
    asked = [_PARAMETER.findall(str(one.get("value"))) for one in list_objects(entry.get("env"))]
    return any(find_parameter(path, stated).default is None for paths in asked for path in paths)


def _list_providers(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list_objects(as_object(entry.get("oauth")).get("providers"))


def _make_place(text: str) -> str:
    """`{{server.path|volume|into}}` -> `{server.path}`; no secret in the rest."""
    return make_template(_PARAMETER.sub(lambda found: f"{{{found[1]}}}", text))


def _list_texts(entry: Mapping[str, Any], key: str) -> list[str]:
    found = entry.get(key)
    texts = found if isinstance(found, list) else []
    return [str(text) for text in texts if isinstance(text, str | int | float)]
