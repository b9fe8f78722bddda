"""Docker: Docker's MCP catalogue, one file."""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

from assets.marketplaces.crawl.result import make_problem
from assets.marketplaces.launch.mcp_config import (
    add_flags,
    make_unrunnable,
    read_remote_facts,
    read_text,
)
from assets.marketplaces.launch.runners import is_exact, parse_image
from assets.marketplaces.launch.shell_words import find_account_flags, read_variables
from assets.marketplaces.listing import EnvVar, HeaderVar, Listing, dump_tools
from assets.marketplaces.payload import FIX, parse_json_object
from assets.marketplaces.policy import (
    CrawlError,
    FetchedPage,
    FetchPage,
    MarketplaceAdapter,
    RecordPage,
    RecordRef,
)
from assets.marketplaces.server_json.inputs import as_object, list_objects, read_string
from warehouse.patterns import compile_pattern
from warehouse.sanitize.redact import MARK, redact
from warehouse.sanitize.scrubber import is_local, is_unfilled, make_template

_DEEPEST = 8
_PARAMETER = compile_pattern(r"\{\{\s*([\w.\- ]{1,200}?)\s*(?:\|[^{}]{0,200})?\}\}")
Parameters = dict[str, tuple[bool, str | None]]  # path -> whether it is required, its default


def read_entry_facts(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The launch fields of one entry of the catalogue."""
    schemas = [item for item in list_objects(entry.get("config")) if item.get("properties")]
    parameters: Parameters = {}
    for schema in schemas:
        _collect_parameters(schema, "", True, parameters, 0)
    env = _read_environment(entry, parameters if schemas else None)
    remote = as_object(entry.get("remote"))
    url = read_text(remote.get("url")) or read_text(entry.get("sseEndpoint"))
    account = find_account_flags(env) | ({"needs_account"} if _list_providers(entry) else set())
    if url:
        kind = read_text(remote.get("transport_type"))
        kind = kind or ("sse" if entry.get("sseEndpoint") else "")
        pairs = as_object(remote.get("headers")).items()
        headers = read_variables({key: _make_place(str(text)) for key, text in pairs}, HeaderVar)
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
    volumes = _list_texts(entry, "volumes")
    # What a person would type to run the image; variables are passed on by their names.
    words = ["run", "-i", "--rm"]
    if entry.get("disableNetwork") is True:
        words += ["--network", "none"]
    if user := read_text(entry.get("user")):
        words += ["-u", _make_place(user)]
    words += [word for variable in env for word in ("-e", variable.name)]
    words += [word for volume in volumes for word in ("-v", _make_place(volume))]
    words += [image, *(_make_place(word) for word in _list_texts(entry, "command"))]
    # A variable takes a parameter that the user gives, for want of a default.
    values = (str(item.get("value")) for item in list_objects(entry.get("env")))
    paths = [path for value in values for path in _PARAMETER.findall(value)]
    is_open = any(_find_parameter(path, parameters)[1] is None for path in paths)
    flags = account | (set() if package.digest or is_exact(package.version) else {"unpinned"})
    flags |= {"placeholder"} if is_open or any(map(is_unfilled, words)) else set()
    flags |= {"local_path"} if any(map(is_local, volumes)) else set()
    return {
        "transport": "stdio",
        "command": "docker",
        "args": tuple(words),
        "env": env,
        "package": package,
        "flags": flags,
        "evidence": "image",
        "runnable": True,
    }


def _collect_parameters(
    schema: Mapping[str, Any], above: str, needed: bool, parameters: Parameters, depth: int
) -> None:
    """What is required of an object that is itself optional is not required."""
    required = schema.get("required")
    names = required if needed and isinstance(required, list) else []
    for name, member in as_object(schema.get("properties")).items():
        member = as_object(member)
        default = read_string(member.get("default"))
        clean = default if default and MARK not in redact(default) else None
        parameters[f"{above}{name}"] = (name in names, clean)
        if member.get("properties") and depth < _DEEPEST:
            _collect_parameters(member, f"{above}{name}.", name in names, parameters, depth + 1)


def _find_parameter(path: str, parameters: Parameters) -> tuple[bool, str | None]:
    """The parameter of `{{server.path}}`; the server's own name in front is no part of it."""
    return parameters.get(path.partition(".")[2]) or parameters.get(path) or (False, None)


def _read_environment(
    entry: Mapping[str, Any], parameters: Parameters | None
) -> tuple[EnvVar, ...]:
    """Secrets and variables. A secret is required unless the entry says that it is not; a variable
    that takes a parameter is required where the parameters say so, or where they are not stated."""
    env: dict[str, EnvVar] = {}
    for secret in list_objects(entry.get("secrets")):
        if name := read_text(secret.get("env")):
            required = secret.get("required") is not False
            about = read_text(secret.get("description")) or None
            env[name] = EnvVar(name=name, required=required, secret=True, description=about)
    for provider in _list_providers(entry):
        if name := read_text(provider.get("env")):
            env.setdefault(name, EnvVar(name=name, required=True, secret=True))
    for item in list_objects(entry.get("env")):
        name, value = read_text(item.get("name")), str(item.get("value") or "")
        if not name or name in env:
            continue
        match = _PARAMETER.search(value)
        if match is None:
            [env[name]] = read_variables({name: _make_place(value)}, EnvVar)
            continue
        [env[name]] = read_variables({name: "{parameter}"}, EnvVar)
        if parameters is not None:
            required, default = _find_parameter(match[1], parameters)
            whole = match[0] == value.strip() and not env[name].secret
            changes = {"required": required, "default": default if whole else None}
            env[name] = env[name].model_copy(update=changes)
    return tuple(env[name] for name in sorted(env))


def _list_providers(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list_objects(as_object(entry.get("oauth")).get("providers"))


def _make_place(text: str) -> str:
    """`{{server.path|volume|into}}` -> `{server.path}`; no secret in the rest."""
    return make_template(_PARAMETER.sub(lambda match: f"{{{match[1]}}}", text))


def _list_texts(entry: Mapping[str, Any], key: str) -> list[str]:
    texts = entry.get(key)
    texts = texts if isinstance(texts, list) else []
    return [str(text) for text in texts if isinstance(text, str | int | float)]


_FILE = "/mcp/catalog/v3/catalog.json"
_TREE = re.compile(r"(https://github\.com/[^/]+/[^/]+)/tree/[^/]+/?(.*)")


class DockerAdapter(MarketplaceAdapter):
    """The whole catalogue in one request."""

    name: ClassVar[str] = "docker"
    robots: ClassVar[bool] = False

    async def refs(self, get: FetchPage) -> AsyncIterator[RecordPage]:
        base = self.policy.base_url.rstrip("/")
        url = base if base.endswith(".json") else base.removesuffix("/mcp/catalog/v3") + _FILE
        refs, problems = _list_refs(await get(url, _read_registry), url)
        yield RecordPage(refs, ended=True, problems=problems)

    def parse(self, raw: Any, ref: RecordRef) -> list[Listing]:
        """The listing of one entry of the catalogue."""
        if not isinstance(raw, Mapping):
            raise ValueError(f"the record is {type(raw).__name__}, not an object")
        links = [read_text(raw.get(key)) for key in ("upstream", "source")]
        tree = _TREE.fullmatch(links[1])  # the catalogue says the folder only so
        links = [tree[1] if tree and link == tree[0] else link for link in links]
        return [
            Listing(
                marketplace=self.name,
                native_id=ref.native_id,
                name=read_text(raw.get("title")) or read_text(raw.get("name")) or ref.native_id,
                description=read_text(raw.get("description")),
                repository=next((link for link in links if "://" in link), None),
                subfolder=(tree[2].strip("/") if tree else "") or None,
                tools=dump_tools(raw.get("tools")),
                **read_entry_facts(raw),
            )
        ]


def _read_registry(page: FetchedPage) -> dict[str, Any]:
    """The entries of a catalogue. Raises CrawlError where it has none."""
    registry = parse_json_object(page, "registry")["registry"]
    if not isinstance(registry, dict):
        problem = f"`registry` of type {type(registry).__name__}"
        raise CrawlError("missing_key", page.url, problem, "an object `registry`", FIX)
    if not registry:
        raise CrawlError("empty", page.url, "an empty `registry`", "at least one server", FIX)
    return registry


def _list_refs(
    registry: Mapping[str, Any], url: str
) -> tuple[list[RecordRef], list[dict[str, Any]]]:
    refs, problems = [], []
    for slug, entry in registry.items():
        if isinstance(entry, Mapping) and slug.strip():
            refs.append(RecordRef(slug.strip(), url, None, entry))
        else:
            hint = f"the entry is {type(entry).__name__}, not an object"
            problems.append(make_problem(slug, url, "malformed", hint))
    return refs, problems
