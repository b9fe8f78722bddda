"""Docker: Docker's MCP catalogue, one file, and the `server.yaml` files it is made of."""

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import yaml

from assets.marketplaces.crawl.result import make_problem
from assets.marketplaces.launch.mcp_config import (
    add_flags,
    make_unrunnable,
    read_remote_facts,
    read_text,
)
from assets.marketplaces.launch.runners import is_exact, parse_image
from assets.marketplaces.launch.variables import find_account_flags, read_variables
from assets.marketplaces.listing import EnvVar, HeaderVar, Listing, dump_tools
from assets.marketplaces.payload import FIX, parse_json
from assets.marketplaces.policy import (
    CrawlError,
    FactEvidence,
    FetchedPage,
    FetchPage,
    MarketplaceAdapter,
    RecordPage,
    RecordRef,
)
from assets.marketplaces.server_json.inputs import as_object, list_objects, read_string
from warehouse.sanitize.redact import MARK, redact
from warehouse.sanitize.scrubber import is_local, is_unfilled, make_template

_DEEPEST = 8


@dataclass(frozen=True)
class DockerParameter:
    """What the entry says about one of its parameters."""

    required: bool = False
    default: str | None = None


def find_parameter(path: str, stated: dict[str, DockerParameter]) -> DockerParameter:
    """The parameter of `{{server.path}}`; the server's own name in front is no part of it."""
    return stated.get(path.partition(".")[2]) or stated.get(path) or DockerParameter()


def read_parameters(entry: Mapping[str, Any]) -> dict[str, DockerParameter] | None:
    """Parameters by their paths; None where none are stated."""
    schemas = [item for item in list_objects(entry.get("config")) if item.get("properties")]
    made: dict[str, DockerParameter] = {}
    for schema in schemas:
        _collect(schema, "", True, made, 0)
    return made if schemas else None


def _collect(
    schema: Mapping[str, Any],
    above: str,
    needed: bool,
    made: dict[str, DockerParameter],
    depth: int,
) -> None:
    """What is required of an object that is itself optional is not required."""
    required = schema.get("required")
    names = required if needed and isinstance(required, list) else []
    for name, member in as_object(schema.get("properties")).items():
        one, path = as_object(member), f"{above}{name}"
        default = redact(read_string(one.get("default")))
        made[path] = DockerParameter(name in names, None if MARK in default else default or None)
        if one.get("properties") and depth < _DEEPEST:
            _collect(one, f"{path}.", name in names, made, depth + 1)


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
        headers = read_variables({key: _make_place(str(text)) for key, text in stated}, HeaderVar)
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
    for item in list_objects(entry.get("env")):
        name, value = read_text(item.get("name")), str(item.get("value") or "")
        if name and name not in made:
            made[name] = _make_variable(name, value, stated)
    return tuple(made[name] for name in sorted(made))


def _make_variable(name: str, value: str, stated: dict[str, DockerParameter] | None) -> EnvVar:
    """A variable with a fixed value, or one that takes a parameter."""
    match = _PARAMETER.search(value)
    if match is None:
        return read_variables({name: _make_place(value)}, EnvVar)[0]
    result: EnvVar = read_variables({name: "{parameter}"}, EnvVar)[0]
    if stated is None:
        return result
    parameter = find_parameter(match[1], stated)
    whole = match[0] == value.strip() and not result.secret
    default = parameter.default if whole else None
    return result.model_copy(update={"required": parameter.required, "default": default})


def _open(entry: Mapping[str, Any]) -> bool:
    """Whether a variable takes a parameter that the user gives, for want of a default."""
    stated = read_parameters(entry) or {}
    asked = [_PARAMETER.findall(str(item.get("value"))) for item in list_objects(entry.get("env"))]
    return any(find_parameter(path, stated).default is None for paths in asked for path in paths)


def _list_providers(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list_objects(as_object(entry.get("oauth")).get("providers"))


def _make_place(text: str) -> str:
    """`{{server.path|volume|into}}` -> `{server.path}`; no secret in the rest."""
    return make_template(_PARAMETER.sub(lambda match: f"{{{match[1]}}}", text))


def _list_texts(entry: Mapping[str, Any], key: str) -> list[str]:
    found = entry.get(key)
    texts = found if isinstance(found, list) else []
    return [str(text) for text in texts if isinstance(text, str | int | float)]


_DEEPEST_YAML = 40
_MOST_EVENTS = 3_000_000
_LARGEST = 16 * 1024 * 1024
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: str) -> Any:
    """The value of a YAML document as JSON has it: keys are texts, and so are dates. Raises
    ValueError where it is none or could do harm."""
    if len(text) > _LARGEST:
        raise ValueError(f"YAML of {len(text):,} characters, at most {_LARGEST:,}")
    try:
        _refuse_harm(text)
        return _convert_plain(yaml.load(text, Loader=_Loader))  # the safe loader, in C
    except yaml.YAMLError as error:
        first = str(error).splitlines()[0]
        raise ValueError(f"YAML that cannot be read: {first}") from error


def _refuse_harm(text: str) -> None:
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ValueError("YAML with an anchor or alias")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST_YAML or number > _MOST_EVENTS:
            raise ValueError(f"YAML nested deeper than {_DEEPEST_YAML} levels or of too many parts")


def _convert_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _convert_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_convert_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


_FILE = "/mcp/catalog/v3/catalog.json"
_TREE = re.compile(r"(https://github\.com/[^/]+/[^/]+)/tree/[^/]+/?(.*)")


class DockerAdapter(MarketplaceAdapter):
    """The whole catalogue in one request."""

    name: ClassVar[str] = "docker"
    robots: ClassVar[bool] = False
    evidence: ClassVar[Mapping[str, FactEvidence]] = {
        "list": FactEvidence(
            "documented", "catalog/v3/catalog.json, read from outside, 2026-08-13"
        ),
        "paging": FactEvidence("documented", "one file holds the whole catalogue"),
        "launch": FactEvidence("captured", "server.yaml of docker/mcp-registry, 2026-07-08"),
        "package": FactEvidence(
            "documented", "image@sha256 of the catalogue; its types of 2026-07"
        ),
        "env": FactEvidence("captured", "secrets and env of server.yaml, 2026-07-08"),
        "headers": FactEvidence("documented", "remote.headers, the catalogue's types of 2026-07"),
        "tools": FactEvidence("documented", "names alone, in `tools` of the catalogue, 2026-07"),
    }

    async def refs(self, get: FetchPage, since: str | None = None) -> AsyncIterator[RecordPage]:
        base = self.policy.base_url.rstrip("/")
        named = base.endswith((".json", ".yaml", ".yml"))
        url = base if named else base.removesuffix("/mcp/catalog/v3") + _FILE
        catalogue = await get(url, _read_catalogue)
        refs, problems = _list_refs(catalogue["registry"], url)
        yield RecordPage(refs, ended=True, problems=problems)

    def parse(self, raw: Any, ref: RecordRef) -> list[Listing]:
        """The listing of one entry of the catalogue or of one server.yaml."""
        if not isinstance(raw, Mapping):
            raise ValueError(f"the record is {type(raw).__name__}, not an object")
        entry = make_entry(raw)
        links = [read_text(entry.get(key)) for key in ("upstream", "source")]
        tree = _TREE.fullmatch(links[1])  # the catalogue says the folder only so
        links = [tree[1] if tree and link == tree[0] else link for link in links]
        folder = read_text(entry.get("directory")) or (tree[2] if tree else "")
        identity = {
            "marketplace": self.name,
            "native_id": ref.native_id,
            "name": read_text(entry.get("title")) or read_text(entry.get("name")) or ref.native_id,
            "description": read_text(entry.get("description")),
            "repository": next((link for link in links if "://" in link), None),
            "subfolder": folder.strip("/") or None,
        }
        tools = dump_tools(raw.get("tools"))
        return [Listing(**identity, tools=tools, **read_entry_facts(entry))]

    def saved(self, page: FetchedPage) -> list[RecordRef]:
        """The catalogue, as JSON or YAML, or one server.yaml."""
        body = parse_json(page) if "json" in page.content_type else _read_yaml(page)
        if isinstance(body, Mapping) and isinstance(body.get("registry"), Mapping):
            refs, _ = _list_refs(body["registry"], page.url)
            if refs:
                return refs
        name = read_text(body.get("name")) if isinstance(body, Mapping) else ""
        if not name or not (_is_server_entry(body) and ("about" in body or "type" in body)):
            keys = sorted(map(str, body))[:6] if isinstance(body, Mapping) else type(body).__name__
            raise CrawlError("missing_key", page.url, f"{keys}", "`registry` or a server.yaml", FIX)
        return [RecordRef(name, page.url, None, dict(body))]


def _read_catalogue(page: FetchedPage) -> dict[str, Any]:
    """The catalogue of a response. Raises CrawlError where it has none or an empty one."""
    body = parse_json(page) if "json" in page.content_type else _read_yaml(page)
    registry = body.get("registry") if isinstance(body, Mapping) else None
    if not isinstance(registry, Mapping):
        found = f"{type(body).__name__} without an object `registry`"
        raise CrawlError("missing_key", page.url, found, "an object `registry`", FIX)
    if not registry:
        raise CrawlError("empty", page.url, "an empty `registry`", "at least one server", FIX)
    return {"registry": registry}


def _read_yaml(page: FetchedPage) -> Any:
    if not page.body.strip():
        raise CrawlError("empty", page.url, "an empty body with status 200", "YAML or JSON", FIX)
    if page.body.lstrip()[:1] == b"<" or "html" in page.content_type:
        raise CrawlError("wrong_type", page.url, page.content_type, "YAML or JSON", FIX)
    try:
        return parse_yaml(page.decode_text())
    except ValueError as error:
        raise CrawlError("truncated", page.url, str(error)[:200], "YAML or JSON", FIX) from error


def _list_refs(
    registry: Mapping[str, Any], url: str
) -> tuple[list[RecordRef], list[dict[str, Any]]]:
    refs, problems = [], []
    for slug, entry in registry.items():
        if isinstance(entry, Mapping) and str(slug).strip():
            refs.append(RecordRef(str(slug).strip(), url, None, dict(entry)))
        else:
            hint = f"the entry is {type(entry).__name__}, not an object"
            problems.append(make_problem(str(slug), url, "malformed", hint))
    return refs, problems


def _is_server_entry(body: Mapping[str, Any]) -> bool:
    return any(isinstance(body.get(key), str | Mapping) for key in ("image", "remote", "about"))
