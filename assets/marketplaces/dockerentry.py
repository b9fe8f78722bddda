"""Dockerentry: one entry of Docker's catalogue as launch facts.

What belongs here: a server.yaml in the catalogue's form, the command that runs an image, secrets,
variables and parameters.
What does not: the file they stand in (`docker.py`), names of images (`spec.py`) and remote
endpoints (`config.py`).

The catalogue states a secret by the variable that carries it, and a parameter as `{{name}}`; the
listing names the first and leaves a place `{name}` for the second.
"""

import re
from collections.abc import Mapping
from typing import Any

from assets.marketplaces.config import account_flags, remote_facts, unrunnable, variables
from assets.marketplaces.listing import EnvVar, Header
from assets.marketplaces.places import is_local, templated, unfilled
from assets.marketplaces.servers import text_of
from assets.marketplaces.spec import image_package, is_exact

_PARAMETER = re.compile(r"\{\{\s*([\w.\- ]{1,200}?)\s*(?:\|[^{}]{0,200})?\}\}")


def as_entry(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A server.yaml as the catalogue would hold it; an entry of the catalogue as it is."""
    about, source = _object(raw.get("about")), _object(raw.get("source"))
    if not about and not source and not isinstance(raw.get("config"), Mapping):
        return dict(raw)
    run, config = _object(raw.get("run")), _object(raw.get("config"))
    said = [{"name": name, "value": value} for name, value in _object(run.get("env")).items()]
    return {
        **{key: raw.get(key) for key in ("name", "type", "image", "remote")},
        "title": about.get("title"),
        "description": about.get("description"),
        "upstream": source.get("upstream") or source.get("project"),
        "secrets": config.get("secrets"),
        "env": [*_objects(config.get("env")), *said],
        "config": [config.get("parameters")],
        "oauth": {"providers": raw.get("oauth")},
        **{key: run.get(key) for key in ("command", "volumes", "user", "disableNetwork")},
    }


def entry_facts(entry: Mapping[str, Any]) -> dict[str, Any]:
    env, headers = _environment(entry), _object(_object(entry.get("remote")).get("headers"))
    url = text_of(_object(entry.get("remote")).get("url")) or text_of(entry.get("sseEndpoint"))
    account = account_flags(env) | ({"needs_account"} if _providers(entry) else set())
    if url:
        kind = text_of(_object(entry.get("remote")).get("transport_type"))
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
    """What runs the image by hand; variables are passed on by their names."""
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
    for secret in _objects(entry.get("secrets")):
        name, about = text_of(secret.get("env")), text_of(secret.get("description"))
        required = secret.get("required") is not False
        if name:
            made[name] = EnvVar(
                name=name, required=required, secret=True, description=about or None
            )
    for provider in _providers(entry):
        if name := text_of(provider.get("env")):
            made.setdefault(name, EnvVar(name=name, required=True, secret=True))
    required = _required(entry)
    for one in _objects(entry.get("env")):
        name, value = text_of(one.get("name")), str(one.get("value") or "")
        if not name or name in made:
            continue
        made[name] = variables({name: _place(value)}, EnvVar)[0]
        if (asked := _PARAMETER.search(value)) and required is not None:
            needed = asked[1].partition(".")[2] in required or asked[1] in required
            made[name] = made[name].model_copy(update={"required": needed})
    return tuple(made[name] for name in sorted(made))


def _required(entry: Mapping[str, Any]) -> set[str] | None:
    """Paths of the required parameters; None where no parameters are stated."""
    schemas = [one for one in _objects(entry.get("config")) if one.get("properties")]
    return {path for schema in schemas for path in _paths(schema, "", 0)} if schemas else None


def _paths(schema: Mapping[str, Any], above: str, depth: int) -> list[str]:
    required = schema.get("required")
    properties = _object(schema.get("properties"))
    found = []
    for name in required if isinstance(required, list) and depth < 8 else []:
        inner = _object(properties.get(name) if isinstance(name, str) else None)
        deeper = _paths(inner, f"{above}{name}.", depth + 1) if inner.get("properties") else []
        found += [f"{above}{name}", *deeper]
    return found


def _open(entry: Mapping[str, Any]) -> bool:
    """Whether a variable takes a parameter that the user gives."""
    return any(_PARAMETER.search(str(one.get("value"))) for one in _objects(entry.get("env")))


def _providers(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _objects(_object(entry.get("oauth")).get("providers"))


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


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
