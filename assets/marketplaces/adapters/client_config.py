"""Configs of MCP clients: where each client's file holds its servers, and in which form.

Every entry becomes one of `mcpServers` (command, args, env, cwd, url, headers), so that one reader
reads them all. Nothing here opens a file.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import yaml

from assets.marketplaces.launch.js_literal import NotALiteral, read_all
from assets.marketplaces.launch.shell_words import make_text
from assets.marketplaces.server_json.inputs import as_object, list_objects
from warehouse.patterns import Match, compile_pattern
from warehouse.storage.digest import sha256

# Where files hold servers by name, or as a list of {name, ...}; all that a file has count.
_HOLDERS: tuple[tuple[str, ...], ...] = (
    ("mcpServers",),  # Claude, Cursor, Windsurf, Cline, Roo, LM Studio, Gemini CLI, Amazon Q, Junie
    ("servers",),  # VS Code's mcp.json
    ("mcp", "servers"),  # VS Code's settings, opencode
    ("mcp.servers",),
    ("mcp", "mcpServers"),
    ("mcp",),  # opencode, Crush
    ("mcp_servers",),  # Codex
    ("context_servers",),  # Zed
    ("extensions",),  # Goose; Claude Desktop's installed extensions
    ("experimental", "modelContextProtocolServers"),  # Continue before YAML
    ("amp.mcpServers",),
    *(("mcp", f"{kind}_servers") for kind in ("stdio", "sse", "shttp")),  # OpenHands
    ("settings", "mcp", "servers"),  # a workspace of VS Code
    ("customizations", "vscode", "mcp", "servers"),  # a development container
)
_FORMS = "servers, mcp, mcp_servers, context_servers, extensions, projects"
_SHARED = ("mcp", "extensions")  # members that other programs use for other things
_MARKS = {"command", "cmd", "url", "uri", "transport", "type", "manifest", "httpUrl", "serverUrl"}
_BUILT_IN = ("builtin", "platform", "frontend", "inline_python")  # Goose's own
SECRET = "${secrets."  # how a place begins that holds a secret, whatever its name
_OFF = (False, "false", 0)
_ON = (True, "true", 1)
# What the readers raise besides their own errors, as for `!!bool x` and `"\UFFFFFFFF"`.
_FAULTS = (yaml.YAMLError, RecursionError, TypeError, ArithmeticError, AttributeError, LookupError)
_MOST_NODES = 200_000  # of a YAML file, what an alias stands for counted wherever it stands
_LARGEST = 1 << 20  # bytes of YAML or TOML; JSON is read faster, and `~/.claude.json` is longer
_LONGEST_KEY = 32  # names of one TOML key: tomllib's work grows with their square
_LONG_KEY = compile_pattern(
    rf"""(?:(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*\.[ \t]*){{{_LONGEST_KEY}}}"""
)


@dataclass(frozen=True)
class ConfiguredServer:
    """One server of a file. key: within the file; member: where it stood; folder: the one that its
    relative paths are read in, from the file's own; refusal: why the file does not start it."""

    key: str
    name: str
    member: str
    entry: Any
    folder: str = "."
    refusal: str | None = None


def parse_config(data: bytes, suffix: str) -> Any:
    """The value of a file: TOML or YAML by its suffix, else JSON, with comments and trailing commas
    allowed. Raises ValueError, which quotes nothing: a secret may stand where the fault is."""
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    if suffix == ".xml":
        raise ValueError("XML, as a JetBrains IDE keeps it; give the servers as JSON")
    if suffix in (".yaml", ".yml", ".toml") and len(data) > _LARGEST:
        raise ValueError(f"more than 1 MiB of {'TOML' if suffix == '.toml' else 'YAML'}")
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from error
    try:
        if suffix in (".yaml", ".yml"):
            return _make_plain(_load_yaml(text))
        if suffix != ".toml":
            return read_all(text)
        if _LONG_KEY.search(text):
            raise ValueError(f"a key of more than {_LONGEST_KEY} names")
        return _make_plain(tomllib.loads(text))
    except yaml.MarkedYAMLError as error:
        line = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"not YAML{line}") from error
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"line \d{1,9}", str(error))
        raise ValueError(f"not TOML{f' at {at[0]}' if at else ''}") from error
    except NotALiteral as error:
        at = re.search(r"\d{1,9}", str(error))
        line = f" at line {text.count(chr(10), 0, int(at[0])) + 1}" if at else ""
        raise ValueError(f"not JSON{line}") from error
    except _FAULTS as error:
        raise ValueError(f"not {suffix.strip('.').upper() or 'JSON'}") from error


class _ConfigLoader(yaml.SafeLoader):
    """YAML 1.2, as clients read it: a server called `off` is no boolean."""


_ConfigLoader.yaml_implicit_resolvers = {
    first: [(tag, words) for tag, words in rows if first in "tTfF" or not tag.endswith(":bool")]
    for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _load_yaml(text: str) -> Any:
    """The value of a YAML file. Its nodes are counted before anything is made of them, because
    merge keys copy what they name; a number in base 60, which YAML 1.2 does not have, is a text."""
    loader = _ConfigLoader(text)
    root = loader.get_single_node()
    nodes = [] if root is None else [root]
    count = len(nodes)
    while nodes:
        node = nodes.pop()
        inner = node.value
        if isinstance(node, yaml.ScalarNode):
            if ":" in inner and node.tag.endswith((":int", ":float")):
                node.tag = loader.DEFAULT_SCALAR_TAG
            continue
        inner = list(chain(*inner)) if isinstance(node, yaml.MappingNode) else inner
        count += len(inner)
        if count > _MOST_NODES:
            raise ValueError(f"more than {_MOST_NODES:,} values")
        nodes += inner
    try:
        return loader.construct_document(root) if root else None
    except ValueError as error:  # it may quote the text
        raise yaml.YAMLError("a text that its tag does not fit") from error


def _make_plain(value: Any) -> Any:
    """A value of YAML or TOML as JSON has it: dates are texts."""
    return json.loads(json.dumps(value, default=str))


def read_servers(value: Any) -> list[ConfiguredServer] | None:
    """The servers of a file's value; None where it has no form that a client writes. Raises
    ValueError where it is a client's file that names none by its nature."""
    pairs = _list_pairs(value) or []
    bare = pairs and all({"command", "url"} & set(as_object(entry)) for _, entry in pairs)
    value = {"mcpServers": value} if bare else value
    root = as_object(value)
    groups = list(_iter_groups(root, ""))
    for path, project in as_object(root.get("projects")).items():  # Claude Code's ~/.claude.json
        groups += _iter_groups(as_object(project), str(path).replace("\\", "/").rstrip("/"))
    if "mcp_config" in as_object(root.get("server")):  # a bundle's manifest
        groups.append([_read_manifest(str(root.get("name")), {"manifest": root}, "server", ".")])
    if not groups and ("isEnabled" in root or "userConfig" in root):
        raise ValueError(
            "settings of a Claude Desktop extension, which name no server: give"
            " `extensions-installations.json` in their place"
        )
    servers: dict[str, ConfiguredServer] = {}
    for server in (server for group in groups for server in group):
        place = f"{server.member} {server.folder}"
        taken = server.key in servers
        key = f"{server.key}~{sha256(place.encode())[:8]}" if taken else server.key
        servers[key] = replace(server, key=key)
    return list(servers.values()) if groups else None


def describe_forms() -> str:
    """What is missing in a file that names no servers."""
    return f"no `mcpServers`, and none of {_FORMS}"


def _iter_groups(root: Mapping[str, Any], project: str) -> Iterator[list[ConfiguredServer]]:
    """The servers of every holder that a value has, a list each. project: folder of Claude Code."""
    gemini = as_object(root.get("mcp"))
    defaults = _read_defaults(root.get("inputs")) | _read_defaults(gemini.get("inputs"))
    off = {*_read_list(root.get("disabledMcpServers")), *_read_list(gemini.get("excluded"))}
    off |= {*_read_list(root.get("disabledMcpjsonServers"))}
    allowed = _read_list(gemini.get("allowed"))
    label = project.rpartition("/")[2] or "project"
    for path in _HOLDERS:
        servers: Any = root
        for step in path:
            servers = as_object(servers).get(step)
        pairs = _list_pairs(servers)
        if len(path) == 1 and path[0] in _SHARED:
            pairs = [pair for pair in pairs or () if _MARKS & set(as_object(pair[1]))] or None
        if pairs is None:
            continue
        member = ".".join((*(("projects", label) if project else ()), *path))
        group = []
        for key, entry in ((str(key), entry) for key, entry in pairs):
            if isinstance(as_object(entry).get("manifest"), Mapping):
                server = _read_manifest(key, entry, member, f"Claude Extensions/{key}")
            else:
                ready = normalise_entry(entry, defaults)
                place = f"{label}/{key}" if project else key
                server = ConfiguredServer(place, key, member, ready, project or ".")
            read = as_object(entry)
            own = read.get("source") == "extension" and not {"command", "url"} & set(read)
            if _is_disabled(read) or key in off or (allowed and key not in allowed):
                server = replace(server, refusal="the file says that it is disabled")
            elif own or read.get("type") in _BUILT_IN:
                why = "its client starts it, and the file does not say how"
                server = replace(server, refusal=why)
            group.append(server)
        yield group


def _list_pairs(servers: Any) -> list[tuple[str, Any]] | None:
    """(key, entry) of servers by name, or of a list of {name, ...}; None for anything else."""
    if isinstance(servers, Mapping):
        return list(servers.items())
    if not isinstance(servers, list) or not all(isinstance(each, Mapping) for each in servers):
        return None
    return [
        (str(each.get("name") or each.get("id") or f"server {place}"), each)
        for place, each in enumerate(servers, 1)
    ]


def _is_disabled(entry: Mapping[str, Any]) -> bool:
    if any(entry.get(name) in _ON for name in ("disabled", "isDisabled")):
        return True
    names = [name for name in ("enabled", "isEnabled", "isActive", "active") if name in entry]
    return any(entry[name] in _OFF and entry[name] is not None for name in names)


def _read_manifest(
    key: str, installed: Mapping[str, Any], member: str, folder: str
) -> ConfiguredServer:
    """The server of an extension or bundle, with what its user configured."""
    manifest = as_object(installed.get("manifest"))
    settings = as_object(installed.get("userConfig"))
    defaults = {"__dirname": "${workspaceFolder}"}
    for name, about in {**settings, **as_object(manifest.get("user_config"))}.items():
        value = settings.get(name, as_object(about).get("default"))
        if as_object(about).get("sensitive"):
            defaults[f"user_config.{name}"] = f"{SECRET}{name}}}"
        elif value is not None:
            defaults[f"user_config.{name}"] = make_text(value)
    name = str(manifest.get("name") or key)
    config = as_object(as_object(manifest.get("server")).get("mcp_config"))
    entry = normalise_entry({"cwd": "${__dirname}", **config}, defaults)
    return ConfiguredServer(key, name, member, entry, folder)


def normalise_entry(entry: Any, defaults: Mapping[str, str] | None = None) -> Any:
    """An entry in the form of `mcpServers`. defaults: values of `${input:x}` and the like."""
    if not isinstance(entry, Mapping):
        return entry
    out = {str(name): value for name, value in entry.items()}
    transport = out.get("transport")
    if isinstance(transport, Mapping) and ("command" in transport or "url" in transport):
        out = {**transport, **{name: value for name, value in out.items() if name != "transport"}}
    command = out.get("command", out.pop("cmd", None))
    if isinstance(command, Mapping):  # Zed before 2025
        out.update({name: command[name] for name in ("args", "env") if name in command})
        command = command.get("path")
    if isinstance(command, list):
        args = out.get("args")
        out["args"] = [*command[1:], *(args if isinstance(args, list) else ())]
        command = command[0] if command else None
    if command is not None:
        out["command"] = command
    if out.get("type") in ("local", "remote"):
        del out["type"]
    cwd = next((out[name] for name in ("workingDirectory", "working_dir") if name in out), None)
    if cwd is not None:
        out.setdefault("cwd", cwd)
    named = [*_read_list(out.get("env_keys")), *_read_list(out.get("env_vars"))]
    names = [str(as_object(each).get("name", each)) for each in named]
    for name in ("environment", "envs"):
        if name in out:
            out.setdefault("env", out.pop(name))
    if names:
        out["env"] = {name: f"${{{name}}}" for name in names} | as_object(out.get("env"))
    headers = dict(as_object(out.get("headers") or out.get("http_headers")))
    headers |= as_object(as_object(out.get("requestOptions")).get("headers"))
    for header, name in as_object(out.get("env_http_headers")).items():
        headers[header] = f"${{{name}}}"
    if token := out.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{token}}}"
    if headers:
        out["headers"] = headers
    return _replace_texts(out, lambda text: _write_places(text, defaults or {}))


# `${X:-default}`, `${env:X}`, `${input:x}`, `{env:X}`, `{file:x}`, `${{ secrets.X }}`, `$env:X`
_PLACES = compile_pattern(
    r"\$\{\{\s*(?:[a-z]+\.)?(?P<secret>[\w.\-]+)\s*\}\}"
    r"|\$\{(?P<kind>env:|input:|env\.)?(?P<name>[\w.\-]*\w)(?::[-=](?P<default>[^{}]*))?\}"
    r"|\$?\{(?P<source>env|file):(?P<of>[^{}]{1,300})\}|\$env:(?P<shell>\w+)"
)


def _write_places(text: str, defaults: Mapping[str, str]) -> str:
    """A text with the defaults of its places; one without becomes `${NAME}`."""

    def write(match: Match) -> str:
        if match["secret"] or match["source"] == "file":
            return f"{SECRET}{match['secret'] or 'file'}}}"
        if match["default"] is not None:
            return str(match["default"])
        if match["kind"] in ("input:", None) and match["name"]:
            return defaults.get(match["name"], match[0])
        return f"${{{match['name'] or match['of'] or match['shell']}}}"

    return _PLACES.sub(write, text)


def _read_defaults(inputs: Any) -> dict[str, str]:
    """Id -> default of VS Code's inputs; one that is typed like a password is a secret."""
    return {
        str(item.get("id")): f"{SECRET}{item.get('id')}}}"
        if item.get("password") is True
        else make_text(item["default"])
        for item in list_objects(inputs)
        if item.get("default") not in (None, "") or item.get("password") is True
    }


def _replace_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_replace_texts(item, change) for item in value]
    if isinstance(value, Mapping):
        return {key: _replace_texts(item, change) for key, item in value.items()}
    return value


def _read_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
