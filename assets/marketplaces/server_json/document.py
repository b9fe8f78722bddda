"""Serverjson: one `server.json` of the registry's five dated schemas as a listing."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from assets.marketplaces.launch.mcp_config import (
    add_flags,
    make_malformed,
    make_unrunnable,
    read_remote_facts,
)
from assets.marketplaces.launch.runners import (
    find_word_flags,
    is_exact,
    is_pinned,
    parse_command,
    parse_npm_spec,
    parse_pypi_spec,
    split_image,
)
from assets.marketplaces.launch.shell_words import find_account_flags, read_variables, strip_secrets
from assets.marketplaces.listing import EnvVar, HeaderVar, Listing, PackageRef
from assets.marketplaces.server_json.inputs import (
    PackageArguments,
    as_object,
    fill,
    read_arguments,
    read_declared,
    read_string,
    require_objects,
)
from warehouse.patterns import compile_pattern
from warehouse.sanitize.redact import MARK, redact
from warehouse.sanitize.scrubber import find_placeholder, is_unfilled
from warehouse.storage.digest import read_sha256

Facts = dict[str, Any]

_SNAKE_SCHEMA = "2025-07-09"
_SNAKE_KEYS = {"registry_type", "transport_type", "environment_variables"}
_LAUNCHED_HERE = ("npm", "pypi", "mcpb")
_NO_RUNNER = ("nuget", "cargo")
_KINDS = {"docker": "oci", "dxt": "mcpb", "crates": "cargo", "crates.io": "cargo"}
_LONGEST = 2000  # characters of a package's name or a bundle's URL
_RUNNERS = {"npm": ("npx", "bunx"), "pypi": ("uvx",), "oci": ("docker", "podman")}
_NAME = re.compile(r"[A-Za-z_]\w{0,100}")  # of a variable
_DEFAULT_IMAGE_HOSTS = ("docker.io", "index.docker.io", "hub.docker.com", "registry-1.docker.io")
_RANGE = re.compile(r"\s*(?:[<>]=?|[!~]=|={2,3})\s*\S")
_EXTRAS = compile_pattern(r"\[[^\]]*\]")
_TRANSPORTS = {
    "": "stdio",
    "stdio": "stdio",
    "streamable-http": "streamable-http",
    "streamable_http": "streamable-http",
    "http": "streamable-http",
    "sse": "sse",
}


def make_server_listing(server: Any, marketplace: str) -> Listing:
    """The listing of one server.json. Raises ValueError where it has no name; any other fault
    makes a listing that is not runnable and says why."""
    name = server.get("name") if isinstance(server, dict) else None
    if not isinstance(name, str) or not name.strip():
        raise ValueError("the record has no server.name")
    repository = server.get("repository")
    address = repository if isinstance(repository, str) else as_object(repository).get("url")
    folder = as_object(repository).get("subfolder")
    identity: Facts = {
        "marketplace": marketplace,
        "native_id": name.strip(),
        "name": read_string(server.get("title")) or name,
        "description": read_string(server.get("description")),
        "repository": read_string(address) or None,
        "subfolder": read_string(folder).strip("/") or None,
    }
    try:
        offers = [
            (f"{key}[{at}]", _read_offer(reader, item))
            for key, reader in (("packages", read_package_facts), ("remotes", read_remote_offer))
            for at, item in enumerate(_normalise_list(server, key))
        ]
        if not offers:
            why = make_unrunnable("the record names no package and no remote")
            return Listing(**identity, **why)
        place, facts = min(offers, key=lambda offer: _rank_facts(offer[1]))
        return Listing(**identity, **facts, evidence=place)
    except (ValidationError, RecursionError, TypeError, ValueError, AttributeError) as error:
        return Listing(**identity, **make_malformed(error))


def _read_offer(reader: Callable[[dict[str, Any]], Facts], item: Any) -> Facts:
    """A malformed offer does not hide the others."""
    if not isinstance(item, dict):
        return make_unrunnable(f"malformed: {type(item).__name__}, not an object")
    try:
        return reader(item)
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
    items = server.get(key) or []
    if not isinstance(items, list):
        raise ValueError(f"{key} is not a list")
    dated = _SNAKE_SCHEMA in read_string(server.get("$schema"))
    if dated or any(isinstance(item, dict) and _SNAKE_KEYS & item.keys() for item in items):
        return _convert_to_camel(items)
    return items


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
    env = _read_inputs(package, "environmentVariables", EnvVar)
    arguments = package.get("runtimeArguments")
    items = [
        {"type": "named", "name": item.get("name")} if _is_switched_on(item) else item
        for item in require_objects(arguments, "runtimeArguments")
    ]
    runtime = read_arguments(items, "runtimeArguments")
    arguments = read_arguments(package.get("packageArguments"), "packageArguments")
    address = read_string(package.get("downloadUrl"))  # of a bundle, in July 2025
    if kind == "mcpb" and "://" not in identifier and "://" in address:
        identifier = address
    package_ref, spec = _read_identity(kind, identifier.strip(), package)
    if package_ref is None:
        return make_unrunnable(spec)
    command = PackageCommand(package_ref, spec, env, runtime, arguments)
    facts = command.read_facts(read_string(package.get("runtimeHint")))
    names = {variable.name for variable in env}
    declared = {variable.name: variable for variable in _list_handed_variables(package)}
    handed: tuple[EnvVar, ...] = facts.pop("handed")
    env = (*env, *(declared.get(item.name, item) for item in handed if item.name not in names))
    is_bundle = package_ref.type == "mcpb"
    is_draft = is_unfilled(package_ref.version or "") or (is_bundle and is_unfilled(identifier))
    served = _read_served_facts(package)
    flags = facts["flags"] | find_account_flags(env) | served.pop("flags")
    flags |= {"needs_account"} if runtime.needs_account or arguments.needs_account else set()
    flags |= set() if is_pinned(package_ref) else {"unpinned"}
    flags |= {"placeholder"} if is_draft else set()
    return facts | served | {"env": env, "package": package_ref, "flags": flags}


def read_remote_offer(remote: dict[str, Any]) -> Facts:
    """Launch fields of one remote. Raises ValueError where it is malformed."""
    filled = fill(read_string(remote.get("url")).strip(), remote.get("variables"))
    headers = _read_inputs(remote, "headers", HeaderVar)
    if filled.text.startswith("{"):
        reason = f"the URL starts with a place to fill in: {filled.text[:80]!r}"
        facts = make_unrunnable(reason) | {"url": filled.text, "headers": headers}
        return add_flags(facts, ["placeholder"])
    inner = as_object(remote.get("transport"))  # some write `transport` for `type`
    kinds = (remote.get("type"), remote.get("transport"), remote.get("transportType"))
    kind = next(filter(None, map(read_string, (*kinds, inner.get("type")))), "")
    facts = read_remote_facts(filled.text, kind, headers)
    return add_flags(facts, ["needs_account"] if filled.secret and filled.required else ())


def _read_inputs(holder: dict[str, Any], key: str, kind: Any) -> tuple[Any, ...]:
    """Declared variables or headers, one for each name."""
    inputs: dict[str, Any] = {}
    for item in require_objects(holder.get(key), key):
        declared = read_declared(item, kind)
        inputs.setdefault(declared.name, declared)
    return tuple(inputs.values())


def _is_switched_on(item: dict[str, Any]) -> bool:
    is_switch = item.get("type") == "named" and item.get("format") == "boolean"
    return is_switch and read_string(item.get("value") or item.get("default")).lower() == "true"


def _read_identity(
    kind: str, identifier: str, package: dict[str, Any]
) -> tuple[PackageRef | None, str]:
    """(the package, the word that names it to a runner), or (None, why it cannot be read)."""
    version = read_string(package.get("version")).strip() or None
    digest = _read_digest(read_string(package.get("fileSha256")))
    excerpt = f"{redact(identifier)[:80]!r}"
    if kind == "npm":
        npm = parse_npm_spec(identifier)
        if npm is None:
            return None, f"{excerpt} is not an npm package name"
        name, version = npm[0], version or npm[1]
        package_ref = PackageRef(type="npm", identifier=name, version=version, digest=digest)
        return package_ref, f"{name}@{version}" if version else name
    if kind == "pypi":
        pypi = parse_pypi_spec(identifier)
        if pypi is None:
            return None, f"{excerpt} is not a PyPI package name"
        name, version = pypi[0], version or pypi[1]
        package_ref = PackageRef(type="pypi", identifier=name, version=version, digest=digest)
        extras = _EXTRAS.search(identifier)
        return package_ref, _make_requirement(name + (extras[0] if extras else ""), version)
    if kind == "oci":
        return _read_image(identifier, version, digest, read_string(package.get("registryBaseUrl")))
    if kind == "mcpb" and not identifier.startswith(("http://", "https://")):
        return None, f"the bundle {excerpt} is not an http(s) URL"
    if kind == "mcpb" or kind in _NO_RUNNER:
        facts: Facts = {"type": kind, "identifier": redact(identifier), "version": version}
        return PackageRef(**facts, digest=digest), identifier
    return None, f"no way to run a package of type {kind[:40]!r}"


def _make_requirement(name: str, version: str | None) -> str:
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
    tag, digest = tag or version or "", _read_digest(pinned) or digest
    package_ref = PackageRef(type="oci", identifier=path, version=tag or None, digest=digest)
    return package_ref, path + (f":{tag}" if tag else "") + (f"@{pinned}" if pinned else "")


def _read_digest(text: str) -> str | None:
    sha256 = read_sha256(text)
    return f"sha256:{sha256}" if sha256 else None


def _read_served_facts(package: dict[str, Any]) -> Facts:
    """Transport, URL and headers; the URL's `{names}` are inputs of the package."""
    transport = package.get("transport")
    transport = {"type": transport} if isinstance(transport, str) else transport
    if transport is not None and not isinstance(transport, dict):
        raise ValueError("transport is not an object")
    transport = transport or {}
    kind = _TRANSPORTS.get(read_string(transport.get("type")).lower())
    if kind is None:
        raise ValueError(f"transport type {read_string(transport.get('type'))[:40]!r}")
    if kind == "stdio":
        return {"transport": "stdio", "flags": set()}
    result: dict[str, Any] = {}
    for key in ("runtimeArguments", "packageArguments", "environmentVariables"):
        for item in require_objects(package.get(key), key):
            for name in (read_string(item.get("valueHint")), read_string(item.get("name"))):
                result |= {label: item for label in (name, name.lstrip("-")) if label}
            result |= as_object(item.get("variables"))
    variables = result | as_object(transport.get("variables"))
    filled = fill(read_string(transport.get("url")).strip(), variables)
    headers = _read_inputs(transport, "headers", HeaderVar)
    flags = find_account_flags(headers)
    if filled.open or find_placeholder(filled.text) or MARK in filled.text:
        flags |= {"placeholder"}
    return {"transport": kind, "url": filled.text or None, "headers": headers, "flags": flags}


@dataclass(frozen=True)
class PackageCommand:
    """What a package's command line is made of; `spec` names the package to its runner."""

    package: PackageRef
    spec: str
    env: tuple[EnvVar, ...]
    runtime: PackageArguments
    arguments: PackageArguments

    def read_facts(self, hint: str) -> Facts:
        """Launch fields of the command line. A bundle's stands in its manifest; NuGet and Cargo
        have none we know. hint: the runner that the record names."""
        kind, words = self.package.type, self.arguments.words
        asks_secret = strip_secrets(list(words))[1]
        if kind not in _RUNNERS:
            reason = f"no runner here for a package of type {kind!r}"
            flags = find_word_flags(words) | ({"needs_account"} if asks_secret else set())
            stuck = kind in _NO_RUNNER
            facts = {"args": words, "flags": flags, "handed": ()}
            return facts | {"runnable": not stuck, "reason": reason if stuck else None}
        hinted = hint.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".cmd").lower()
        is_known = hinted in _RUNNERS[kind]
        command = hinted if is_known else _RUNNERS[kind][0]
        # Arguments meant for another program, such as `node`, say nothing to the package runner.
        before = list(self.runtime.words) if is_known or not hint else []
        if command == "npx" and not {"-y", "--yes"} & set(before):
            before.insert(0, "-y")
        if kind == "oci":
            before = self._make_container_options(before)
        launch = parse_command(command, (*self._add_spec(before), *words))
        # Variables of a container say themselves whether they are required.
        own_flags = {"unpinned"} | (
            {"needs_account"} if kind == "oci" and not asks_secret else set()
        )
        return {
            "command": command,
            "args": launch.args,
            "launch": launch.facts,
            "flags": launch.flags - own_flags,
            "handed": tuple(read_variables(dict(launch.env), EnvVar)),  # `-e NAME=value`
            "runnable": launch.reason is None,
            "reason": launch.reason,
        }

    def _make_container_options(self, words: list[str]) -> list[str]:
        """`run -i --rm` where it is not said, and each variable handed through by its name."""
        if "run" not in words:
            words = ["run", "-i", "--rm", *words]
        for name in (variable.name for variable in self.env):
            handed = (name, f"--env={name}", f"-e={name}")
            if not any(word in handed or word.startswith(f"{name}=") for word in words):
                words += ["-e", name]
        return words

    def _add_spec(self, words: list[str]) -> list[str]:
        """The runner's arguments followed by the package; some records name it among them
        already."""
        identifier, spec = self.package.identifier, self.spec
        for at, word in enumerate(words):
            name = word.removeprefix("--package=").removeprefix("--from=")
            if len(word) > _LONGEST:
                continue
            if re.split(r"(?<=.)@|==|(?<!/):(?=[^/]*$)|\[", name)[0] == identifier:
                extras = _EXTRAS.search(name)
                if extras and "[" not in spec:
                    spec = spec.replace(identifier, identifier + extras[0], 1)
                return [*words[:at], word.replace(name, spec), *words[at + 1 :]]
        return [*words, spec]


def _list_handed_variables(package: dict[str, Any]) -> list[EnvVar]:
    """Variables that a container's arguments set, as `-e NAME={place}` declares them."""
    results = []
    for item in require_objects(package.get("runtimeArguments"), "runtimeArguments"):
        name, equals, value = read_string(item.get("value")).partition("=")
        if equals and _NAME.fullmatch(name) and isinstance(item.get("variables"), dict):
            results.append(read_declared({**item, "name": name, "value": value}, EnvVar))
    return results
