"""Offers: one package or one remote of a server.json as launch fields of a listing.

What belongs here: runners, command lines, transports.
What does not: which offer of a record is taken (`serverjson.py`), inputs (`inputs.py`), names and
versions of packages (`identifiers.py`).
"""

import re
from typing import Any

from assets.marketplaces.command import is_exact, placeholder, understand
from assets.marketplaces.config import account_flags, remote_facts, variables
from assets.marketplaces.identifiers import NO_RUNNER, identity
from assets.marketplaces.inputs import Arguments, arguments, declared, fill, objects, text
from assets.marketplaces.listing import EnvVar, Header, Package
from assets.marketplaces.redact import MARK, redact

Facts = dict[str, Any]

_KINDS = {"docker": "oci", "dxt": "mcpb", "crates": "cargo", "crates.io": "cargo"}
_LONGEST = 2000  # characters of a package's name or a bundle's URL
_RUNNERS = {"npm": ("npx", "bunx"), "pypi": ("uvx",), "oci": ("docker", "podman")}
_LOCAL_TRANSPORTS = {
    "": "stdio",
    "stdio": "stdio",
    "streamable-http": "streamable-http",
    "streamable_http": "streamable-http",
    "http": "streamable-http",
    "sse": "sse",
}


def package_facts(package: dict[str, Any]) -> Facts:
    """Launch fields of one package. Raises ValueError where it is malformed."""
    kind = text(package.get("registryType")).strip().lower()
    kind = _KINDS.get(kind, kind)
    identifier = package.get("identifier")
    if not kind:
        raise ValueError("the package has no registryType")
    if not isinstance(identifier, str) or not identifier.strip():
        raise ValueError("the package has no identifier")
    if len(identifier) > _LONGEST:
        raise ValueError(f"an identifier of {len(identifier):,} characters")
    found, spec = identity(kind, identifier.strip(), package)
    if found is None:
        return {"runnable": False, "reason": spec}
    env = _inputs(package.get("environmentVariables"), EnvVar, "environmentVariables")
    runtime = arguments(package.get("runtimeArguments"), "runtimeArguments")
    own = arguments(package.get("packageArguments"), "packageArguments")
    facts = _command(found, spec, text(package.get("runtimeHint")), runtime, own, env)
    named = {variable.name for variable in env}
    env = (*env, *(one for one in facts.pop("handed") if one.name not in named))
    flags = set(facts["flags"]) | account_flags(env)
    flags |= {"needs_account"} if runtime.needs_account or own.needs_account else set()
    flags |= set() if found.digest or is_exact(found.version) else {"unpinned"}
    served = _served(package)
    flags |= served.pop("flags")
    return facts | served | {"env": env, "package": found, "flags": tuple(sorted(flags))}


def remote_offer(remote: dict[str, Any]) -> Facts:
    """Launch fields of one remote. Raises ValueError where it is malformed."""
    variables = remote.get("variables")
    filled = fill(text(remote.get("url")).strip(), variables)
    headers = _inputs(remote.get("headers"), Header, "headers")
    if filled.text.startswith("{"):
        reason = f"the URL starts with a place to fill in: {filled.text[:80]!r}"
        return {
            "url": filled.text,
            "headers": headers,
            "flags": ("placeholder",),
            "runnable": False,
            "reason": reason,
        }
    facts = remote_facts(filled.text, text(remote.get("type")), headers)
    account = filled.secret and filled.required
    return facts | {"flags": _sorted(facts["flags"], {"needs_account"} if account else set())}


def _command(
    package: Package,
    spec: str,
    hint: str,
    runtime: Arguments,
    own: Arguments,
    env: tuple[EnvVar, ...],
) -> Facts:
    """The command line. A bundle's stands in its manifest; NuGet and Cargo have none we know."""
    if package.type not in _RUNNERS:
        stuck = package.type in NO_RUNNER
        reason = f"no runner here for a package of type {package.type!r}" if stuck else None
        flags = understand("npx", ("-y", "x@1.0.0", *own.words)).flags
        facts = {"args": own.words, "flags": flags, "handed": ()}
        return facts | {"runnable": reason is None, "reason": reason}
    hinted = hint.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".cmd").lower()
    known = hinted in _RUNNERS[package.type]
    command = hinted if known else _RUNNERS[package.type][0]
    # Arguments meant for another program, such as `node`, say nothing to the package runner.
    before = list(runtime.words) if known or not hint else []
    if package.type == "npm" and command == "npx" and not {"-y", "--yes"} & set(before):
        before.insert(0, "-y")
    if package.type == "oci":
        before = _container_options(before, env)
    words = _with_spec(before, spec, package)
    launch = understand(command, (*words, *own.words))
    return {
        "command": command,
        "args": launch.args,
        "flags": launch.flags - {"unpinned"},
        "handed": tuple(variables(dict(launch.env), EnvVar)),  # `-e NAME=value` of a container
        "runnable": launch.reason is None,
        "reason": launch.reason and redact(launch.reason),
    }


def _container_options(words: list[str], env: tuple[EnvVar, ...]) -> list[str]:
    """`run -i --rm` where it is not said, and each variable handed through by its name."""
    if "run" not in words:
        words = ["run", "-i", "--rm", *words]
    for variable in env:
        handed = (variable.name, f"--env={variable.name}", f"-e={variable.name}")
        if not any(w in handed or w.startswith(f"{variable.name}=") for w in words):
            words += ["-e", variable.name]
    return words


def _with_spec(words: list[str], spec: str, package: Package) -> list[str]:
    """The runner's arguments followed by the package; some records name it among them already."""
    for at, word in enumerate(words):
        if len(word) > _LONGEST:
            continue
        name = word.removeprefix("--package=").removeprefix("--from=")
        if re.split(r"(?<=.)@|==|(?<!/):(?=[^/]*$)|\[", name)[0] == package.identifier:
            return [*words[:at], word.replace(name, spec), *words[at + 1 :]]
    return [*words, spec]


def _served(package: dict[str, Any]) -> Facts:
    """Transport, URL and headers; the URL's `{names}` are inputs of the package."""
    said = package.get("transport")
    said = {"type": said} if isinstance(said, str) else said
    if said is not None and not isinstance(said, dict):
        raise ValueError("transport is not an object")
    said = said or {}
    kind = _LOCAL_TRANSPORTS.get(text(said.get("type")).lower())
    if kind is None:
        raise ValueError(f"transport type {text(said.get('type'))[:40]!r}")
    if kind == "stdio":
        return {"transport": "stdio", "flags": set()}
    filled = fill(text(said.get("url")).strip(), _names(package) | _mapping(said.get("variables")))
    headers = _inputs(said.get("headers"), Header, "headers")
    flags = account_flags(headers)
    if filled.open or placeholder(filled.text) or MARK in filled.text:
        flags |= {"placeholder"}
    return {
        "transport": kind,
        "url": filled.text or None,
        "headers": headers,
        "flags": flags,
    }


def _names(package: dict[str, Any]) -> dict[str, Any]:
    """Inputs of a package by the names its URL may use: hint, option or variable."""
    made: dict[str, Any] = {}
    for key in ("runtimeArguments", "packageArguments", "environmentVariables"):
        for one in objects(package.get(key), key):
            for name in (text(one.get("valueHint")), text(one.get("name"))):
                made |= {label: one for label in (name, name.lstrip("-")) if label}
            made |= _mapping(one.get("variables"))
    return made


def _inputs(found: Any, kind: Any, what: str) -> tuple[Any, ...]:
    """Declared variables or headers, one for each name."""
    made: dict[str, Any] = {}
    for one in objects(found, what):
        read = declared(one, kind)
        made.setdefault(read.name, read)
    return tuple(made.values())


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _sorted(*flags: Any) -> tuple[str, ...]:
    return tuple(sorted(set().union(*flags)))
