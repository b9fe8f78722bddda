"""Offers: one package or one remote of a server.json as launch fields of a listing."""

import re
from dataclasses import replace
from typing import Any

from assets.marketplaces.launch.command import parse_command
from assets.marketplaces.launch.mcp_config import add_flags, make_unrunnable, read_remote_facts
from assets.marketplaces.launch.runners import (
    find_word_flags,
    is_exact,
    is_pinned,
    parse_npm_spec,
    parse_pypi_spec,
    split_image,
)
from assets.marketplaces.launch.shell_words import strip_secrets
from assets.marketplaces.launch.variables import find_account_flags, read_variables
from assets.marketplaces.listing import EnvVar, HeaderVar, PackageRef
from assets.marketplaces.server_json.arguments import (
    PackageArguments,
    read_arguments,
    split_arguments,
)
from assets.marketplaces.server_json.inputs import (
    as_object,
    fill,
    read_declared,
    read_string,
    require_objects,
)
from warehouse.sanitize.redact import MARK, redact
from warehouse.sanitize.scrubber import find_placeholder, is_unfilled
from warehouse.storage.digest import read_sha256

NO_RUNNER = ("nuget", "cargo")

_DEFAULT_IMAGE_HOSTS = ("docker.io", "index.docker.io", "hub.docker.com", "registry-1.docker.io")
_RANGE = re.compile(r"\s*(?:[<>]=?|[!~]=|={2,3})\s*\S")


def read_identity(
    kind: str, identifier: str, package: dict[str, Any]
) -> tuple[PackageRef | None, str]:
    """(the package, the word that names it to a runner), or (None, why it cannot be read)."""
    version = read_string(package.get("version")).strip() or None
    digest = _read_digest(read_string(package.get("fileSha256")))
    if kind == "npm":
        npm = parse_npm_spec(identifier)
        if npm is None:
            return None, f"{redact(identifier)[:80]!r} is not an npm package name"
        name, version = npm[0], version or npm[1]
        package_ref = PackageRef(type="npm", identifier=name, version=version, digest=digest)
        return package_ref, f"{name}@{version}" if version else name
    if kind == "pypi":
        pypi = parse_pypi_spec(identifier)
        if pypi is None:
            return None, f"{redact(identifier)[:80]!r} is not a PyPI package name"
        package_ref = PackageRef(
            type="pypi", identifier=pypi[0], version=version or pypi[1], digest=digest
        )
        extras = re.search(r"\[[^\]]*\]", identifier)
        return package_ref, _make_pypi_requirement(
            pypi[0] + (extras[0] if extras else ""), package_ref.version
        )
    if kind == "oci":
        return _read_image(identifier, version, digest, read_string(package.get("registryBaseUrl")))
    if kind == "mcpb" and not identifier.startswith(("http://", "https://")):
        return None, f"the bundle {redact(identifier)[:80]!r} is not an http(s) URL"
    if kind == "mcpb" or kind in NO_RUNNER:
        package_ref = PackageRef(
            type=kind, identifier=redact(identifier), version=version, digest=digest
        )  # type: ignore[arg-type]
        return package_ref, identifier
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
) -> tuple[PackageRef | None, str]:
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
    package_ref = PackageRef(
        type="oci", identifier=path, version=tag or None, digest=_read_digest(pinned) or digest
    )
    return package_ref, path + (f":{tag}" if tag else "") + (f"@{pinned}" if pinned else "")


def _read_digest(text: str) -> str | None:
    sha256 = read_sha256(text)
    return f"sha256:{sha256}" if sha256 else None


_LOCAL_TRANSPORTS = {
    "": "stdio",
    "stdio": "stdio",
    "streamable-http": "streamable-http",
    "streamable_http": "streamable-http",
    "http": "streamable-http",
    "sse": "sse",
}


def read_served_facts(package: dict[str, Any]) -> dict[str, Any]:
    """Transport, URL and headers; the URL's `{names}` are inputs of the package."""
    transport = package.get("transport")
    transport = {"type": transport} if isinstance(transport, str) else transport
    if transport is not None and not isinstance(transport, dict):
        raise ValueError("transport is not an object")
    transport = transport or {}
    kind = _LOCAL_TRANSPORTS.get(read_string(transport.get("type")).lower())
    if kind is None:
        raise ValueError(f"transport type {read_string(transport.get('type'))[:40]!r}")
    if kind == "stdio":
        return {"transport": "stdio", "flags": set()}
    filled = fill(
        read_string(transport.get("url")).strip(),
        _read_names(package) | as_object(transport.get("variables")),
    )
    headers = read_inputs(transport.get("headers"), HeaderVar, "headers")
    flags = find_account_flags(headers)
    if filled.open or find_placeholder(filled.text) or MARK in filled.text:
        flags |= {"placeholder"}
    return {
        "transport": kind,
        "url": filled.text or None,
        "headers": headers,
        "flags": flags,
    }


def _read_names(package: dict[str, Any]) -> dict[str, Any]:
    """Inputs of a package by the names its URL may use: hint, option or variable."""
    result: dict[str, Any] = {}
    for key in ("runtimeArguments", "packageArguments", "environmentVariables"):
        for item in require_objects(package.get(key), key):
            for name in (read_string(item.get("valueHint")), read_string(item.get("name"))):
                result |= {label: item for label in (name, name.lstrip("-")) if label}
            result |= as_object(item.get("variables"))
    return result


def read_inputs(found: Any, kind: Any, what: str) -> tuple[Any, ...]:
    """Declared variables or headers, one for each name."""
    made: dict[str, Any] = {}
    for item in require_objects(found, what):
        read = read_declared(item, kind)
        made.setdefault(read.name, read)
    return tuple(made.values())


Facts = dict[str, Any]

_KINDS = {"docker": "oci", "dxt": "mcpb", "crates": "cargo", "crates.io": "cargo"}
_LONGEST = 2000  # characters of a package's name or a bundle's URL
_RUNNERS = {"npm": ("npx", "bunx"), "pypi": ("uvx",), "oci": ("docker", "podman")}
_NAME = re.compile(r"[A-Za-z_]\w{0,100}")  # of a variable


def read_package_facts(package: dict[str, Any]) -> Facts:
    """Launch fields of one package. Raises ValueError where it is malformed."""
    kind = read_string(package.get("registryType")).strip().lower()
    kind = _KINDS.get(kind, kind)
    identifier = package.get("identifier")
    if not kind:
        raise ValueError("the package has no registryType")
    if not isinstance(identifier, str) or not identifier.strip():
        raise ValueError("the package has no identifier")
    if len(identifier) > _LONGEST:
        raise ValueError(f"an identifier of {len(identifier):,} characters")
    env = read_inputs(package.get("environmentVariables"), EnvVar, "environmentVariables")
    runtime = read_arguments(
        _normalise_switches(package.get("runtimeArguments")), "runtimeArguments"
    )
    own = read_arguments(package.get("packageArguments"), "packageArguments")
    reason = None
    address = read_string(package.get("downloadUrl"))  # of a bundle, in July 2025
    if kind == "mcpb" and "://" not in identifier and "://" in address:
        identifier = address
    if "registryName" in package:  # older than the first dated schema
        old = split_arguments(kind, identifier.strip(), own.words)
        runtime = replace(runtime, words=(*runtime.words, *old.runtime))
        own, reason = replace(own, words=old.own), old.reason
        if old.image:
            identifier, package = old.image, {**package, "version": None}
    found, spec = read_identity(kind, identifier.strip(), package)
    if found is None:
        return make_unrunnable(spec)
    facts = _make_command(found, spec, read_string(package.get("runtimeHint")), runtime, own, env)
    if reason:
        facts |= {"runnable": False, "reason": redact(reason)}
    named = {variable.name for variable in env}
    stated = {
        handed_variable.name: handed_variable for handed_variable in _list_handed_variables(package)
    }
    found_there: list[EnvVar] = list(facts.pop("handed"))
    handed = [stated.get(item.name, item) for item in found_there]
    env = (*env, *(item for item in handed if item.name not in named))
    flags = facts["flags"] | find_account_flags(env)
    flags |= {"needs_account"} if runtime.needs_account or own.needs_account else set()
    flags |= set() if is_pinned(found) else {"unpinned"}
    drafted = is_unfilled(found.version or "") or (found.type == "mcpb" and is_unfilled(identifier))
    flags |= {"placeholder"} if drafted else set()
    served = read_served_facts(package)
    flags |= served.pop("flags")
    return facts | served | {"env": env, "package": found, "flags": flags}


def read_remote_offer(remote: dict[str, Any]) -> Facts:
    """Launch fields of one remote. Raises ValueError where it is malformed."""
    variables = remote.get("variables")
    filled = fill(read_string(remote.get("url")).strip(), variables)
    headers = read_inputs(remote.get("headers"), HeaderVar, "headers")
    if filled.text.startswith("{"):
        reason = f"the URL starts with a place to fill in: {filled.text[:80]!r}"
        facts = make_unrunnable(reason) | {"url": filled.text, "headers": headers}
        return add_flags(facts, ["placeholder"])
    facts = read_remote_facts(filled.text, _read_remote_type(remote), headers)
    return add_flags(facts, ["needs_account"] if filled.secret and filled.required else ())


def _make_command(
    package: PackageRef,
    spec: str,
    hint: str,
    runtime: PackageArguments,
    own: PackageArguments,
    env: tuple[EnvVar, ...],
) -> Facts:
    """The command line. A bundle's stands in its manifest; NuGet and Cargo have none we know."""
    if package.type not in _RUNNERS:
        stuck = package.type in NO_RUNNER
        reason = f"no runner here for a package of type {package.type!r}" if stuck else None
        words, account = strip_secrets(list(own.words))
        flags = find_word_flags(tuple(words)) | ({"needs_account"} if account else set())
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
        before = _make_container_options(before, env)
    words = _add_spec(before, spec, package)
    launch = parse_command(command, (*words, *own.words))
    return {
        "command": command,
        "args": launch.args,
        "launch": launch.facts,
        "flags": (launch.flags - {"unpinned"}) - _find_asked_flags(package, own),
        "handed": tuple(read_variables(dict(launch.env), EnvVar)),  # `-e NAME=value` of a container
        "runnable": launch.reason is None,
        "reason": launch.reason and redact(launch.reason),
    }


def _normalise_switches(found: Any) -> Any:
    """A runner's arguments, where `--rm` with the value `true` is the option alone."""
    if not isinstance(found, list):
        return found
    return [
        {"type": "named", "name": item.get("name")} if _is_switched_on(item) else item
        for item in found
    ]


def _is_switched_on(one: Any) -> bool:
    is_switch = (
        isinstance(one, dict) and one.get("type") == "named" and one.get("format") == "boolean"
    )
    return is_switch and read_string(one.get("value") or one.get("default")).lower() == "true"


def _find_asked_flags(package: PackageRef, own: PackageArguments) -> set[str]:
    """{"needs_account"} where only the variables of a container may ask for a secret: they say
    themselves whether they are required."""
    asked = package.type == "oci" and not strip_secrets(list(own.words))[1]
    return {"needs_account"} if asked else set()


def _list_handed_variables(package: dict[str, Any]) -> list[EnvVar]:
    """Variables that a container's arguments set, as `-e NAME={place}` declares them."""
    results = []
    for item in require_objects(package.get("runtimeArguments"), "runtimeArguments"):
        name, equals, value = read_string(item.get("value")).partition("=")
        if equals and _NAME.fullmatch(name) and isinstance(item.get("variables"), dict):
            results.append(read_declared({**item, "name": name, "value": value}, EnvVar))
    return results


def _make_container_options(words: list[str], env: tuple[EnvVar, ...]) -> list[str]:
    """`run -i --rm` where it is not said, and each variable handed through by its name."""
    if "run" not in words:
        words = ["run", "-i", "--rm", *words]
    for variable in env:
        handed = (variable.name, f"--env={variable.name}", f"-e={variable.name}")
        if not any(w in handed or w.startswith(f"{variable.name}=") for w in words):
            words += ["-e", variable.name]
    return words


def _add_spec(words: list[str], spec: str, package: PackageRef) -> list[str]:
    """The runner's arguments followed by the package; some records name it among them already."""
    for at, word in enumerate(words):
        if len(word) > _LONGEST:
            continue
        name = word.removeprefix("--package=").removeprefix("--from=")
        if re.split(r"(?<=.)@|==|(?<!/):(?=[^/]*$)|\[", name)[0] == package.identifier:
            extras = re.search(r"\[[^\]]*\]", name)
            if extras and "[" not in spec:
                spec = spec.replace(package.identifier, package.identifier + extras[0], 1)
            return [*words[:at], word.replace(name, spec), *words[at + 1 :]]
    return [*words, spec]


def _read_remote_type(remote: dict[str, Any]) -> str:
    """The transport of a remote; some write `transport` for `type`."""
    inner = as_object(remote.get("transport"))
    return (
        read_string(remote.get("type"))
        or read_string(remote.get("transport"))
        or read_string(inner.get("type"))
    )
