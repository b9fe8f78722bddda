"""Private: the user's own configuration files as a marketplace that never leaves this machine.

Nothing here opens the network. A native id holds the file's name, never where it lies.
"""

import os
import re
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import anyio

from assets.marketplaces.adapters.client_config import (
    SECRET,
    describe_forms,
    parse_config,
    read_servers,
)
from assets.marketplaces.crawl.result import make_problem
from assets.marketplaces.launch.mcp_config import (
    add_flags,
    read_launch_facts,
    read_text,
    record_digest,
)
from assets.marketplaces.launch.runners import FOLDER_OPTIONS, ParsedCommand, parse_command
from assets.marketplaces.launch.shell_words import make_text
from assets.marketplaces.listing import PRIVATE, LaunchFacts, Listing
from assets.marketplaces.normalise import clean
from assets.marketplaces.policy import (
    CrawlPolicy,
    FetchPage,
    MarketplaceAdapter,
    RecordPage,
    RecordRef,
)
from assets.marketplaces.server_json.inputs import as_object
from warehouse.sanitize.redact import MARK, redact
from warehouse.storage.untrusted_files import read_file

# As clients call the folder that a file belongs to.
_WORKSPACES = ("${workspaceFolder}", "${workspaceRoot}", "${CLAUDE_PROJECT_DIR}")
_PROJECT = (
    *("pyproject.toml", "uv.lock", "setup.py", "requirements.txt", "package.json"),
    *("deno.json", "Cargo.toml", "go.mod", ".git"),
)
_HIGHEST = 2  # parts of the shortest path that is taken for a project: / and one folder


def read_local_entry(entry: Any, base: Path) -> dict[str, Any] | None:
    """{entry, directory} of an entry that starts a command of this host; None for any other. base:
    the folder that the entry's file belongs to; the entry that is returned names it where
    `${workspaceFolder}` stood. Looks for files, opens none."""
    resolved = _replace_workspace(entry, str(base))
    launch = _parse_entry(resolved)
    if launch is None or read_launch_facts(resolved).get("url"):
        return None
    if launch.package or not launch.local:
        return None
    cwd = resolved.get("cwd")
    words = (launch.command or "", *launch.args)
    directory = _find_directory(words, cwd if isinstance(cwd, str) and cwd else None, base)
    return {"entry": resolved, "directory": directory}


def read_local_facts(entry: Any, directory: str) -> dict[str, Any]:
    """The launch fields of a Listing of what `read_local_entry` returned."""
    facts = read_launch_facts(entry)
    launch = _parse_entry(entry)
    if launch is None or (launch.reason and not launch.local):
        return facts
    flags = set(facts["flags"]) - {"local_path", "unpinned"}
    ready = {
        "package": None,
        "launch": LaunchFacts(directory=directory),
        "runnable": True,
        "reason": None,
        "flags": flags,
    }
    return facts | ready


def _parse_entry(entry: Any) -> ParsedCommand | None:
    """What the entry's words start; None where it starts nothing here."""
    about = entry if isinstance(entry, Mapping) else {}
    command, args = about.get("command"), about.get("args") or []
    if not isinstance(command, str) or not isinstance(args, list):
        return None
    if not all(isinstance(arg, str | int | float) for arg in args):
        return None
    return parse_command(command, tuple(make_text(arg) for arg in args))


def _replace_workspace(value: Any, folder: str) -> Any:
    if isinstance(value, str):
        for name in _WORKSPACES:
            value = value.replace(name, folder)
        return value.replace("${userHome}", str(Path.home())).replace("${/}", "/")
    if isinstance(value, list):
        return [_replace_workspace(item, folder) for item in value]
    if isinstance(value, Mapping):
        return {key: _replace_workspace(one, folder) for key, one in value.items()}
    return value


def _find_directory(words: Sequence[str], cwd: str | None, base: Path) -> str:
    """What the entry says; else the project of the file or program that it names; else `base`."""
    folder = cwd or next((b for a, b in pairwise(words) if a in FOLDER_OPTIONS), None)
    if folder:
        return _normalise(base / os.path.expanduser(folder))
    for word in (*words[1:], words[0]):
        path = Path(os.path.expanduser(word))  # `~1.2` is a word like any other
        if path.is_absolute() and os.path.isfile(path) and not path.is_relative_to("/usr"):
            return _normalise(_find_project(path))
    return _normalise(base)


def _find_project(file: Path) -> Path:
    """The nearest folder above a file that holds a project, below the user's home; else the file's
    own, or the one that an environment of Python lies in."""
    nearest = file.parent
    if os.path.exists(nearest.parent / "pyvenv.cfg"):
        nearest = nearest.parent.parent
    for folder in (nearest, *nearest.parents):
        if folder == Path.home() or len(folder.parts) <= _HIGHEST:
            break
        if any(os.path.exists(folder / name) for name in _PROJECT):
            return folder
    return nearest


def _normalise(folder: Path) -> str:
    """Without links on the way to it. A folder that is one itself stays one: where it leads may
    change, so it is refused when it is launched."""
    plain = os.path.normpath(folder)
    above, name = os.path.split(plain)
    return os.path.join(os.path.realpath(above), name)


_OTHERS = (".toml", ".yaml", ".yml")
_SUFFIXES = (".json", ".jsonc", *_OTHERS)
_INSTALLED, _EXTENSION_SETTINGS = "extensions-installations.json", "Claude Extensions Settings"
_MOST_FILES, _DEEPEST, _LARGEST = 1000, 8, 4 * 1024 * 1024
_SKIPPED = {".git", "node_modules", "__pycache__", ".venv"}


def find_files(paths: Collection[Path]) -> Iterator[tuple[Path, str, bool]]:
    """(file, its name within the setting, whether the setting names it) of every file; links to
    folders are not followed."""
    real_paths: set[str] = set()  # a file may be named itself and lie in a folder that is
    left = _MOST_FILES
    for path in paths:
        if not path.is_dir():
            if (real := os.path.realpath(path)) not in real_paths:
                real_paths.add(real)
                yield path, path.name, True
            continue
        for folder, folders, names in os.walk(path, followlinks=False):
            below = Path(folder).relative_to(path)
            deep = len(below.parts) >= _DEEPEST
            folders[:] = [] if deep else sorted(set(folders) - _SKIPPED)
            for file in sorted(names):
                real = os.path.realpath(Path(folder, file))
                if file.lower().endswith(_SUFFIXES) and left > 0 and real not in real_paths:
                    left -= 1
                    real_paths.add(real)
                    yield Path(folder, file), (below / file).as_posix(), False


def load(path: Path, *, named: bool) -> Any:
    """The value of one file; one that the setting names may be a link, one that lies in a folder
    may not: who filled the folder would choose what is read. Raises OSError or ValueError."""
    real = Path(os.path.realpath(path if named else path.parent))
    folder, name = (real.parent, real.name) if named else (real, path.name)
    data, suffix = read_file(folder, name, _LARGEST), path.suffix.lower()
    if not named and suffix in _OTHERS and not re.search(rb"(?i)mcp|extensions", data):
        return None  # YAML and TOML of any purpose, templates among it
    return parse_config(data, suffix)


NAME = PRIVATE
_EMPTY = "no_servers"
_OF_EDITORS = (".vscode", ".cursor")  # folders in the one that their files belong to
# What only looks like a setting: the user's own values are kept more narrowly than a page's.
_RANDOM = re.compile(r"(?=.*\d)(?=.*[A-Za-z])(?!.*://)[A-Za-z0-9+_=.\-][A-Za-z0-9+/_=.\-]{19,}")


class NotApproved(RuntimeError):
    """A private row was about to leave for an endpoint or export that is not approved for it."""


def is_endpoint_approved(marketplace: str, endpoint: str | None, approved: Collection[str]) -> bool:
    """Whether rows of a marketplace may go to an endpoint or export.

    Only the private ones are held back. `endpoint` None stays on this machine; any other must be
    in `approved`: the same name, or a URL of the same origin below an approved path.
    """
    if marketplace != NAME or endpoint is None:
        return True
    return any(_is_covered(item, endpoint) for item in approved)


class PrivateAdapter(MarketplaceAdapter):
    """Servers of the MCP clients' files that the user names."""

    name: ClassVar[str] = NAME
    robots: ClassVar[bool] = False

    async def refs(self, get: FetchPage) -> AsyncIterator[RecordPage]:
        """One page per file. While a file cannot be read the list has no end, so that none of its
        servers counts as gone."""
        names: set[str] = set()
        failed = reported = False
        for path, label, named in find_files(self.policy.paths):
            name = label if label not in names else f"{label}~{record_digest(str(path))[:8]}"
            names.add(name)
            try:
                value = load(path, named=named)
                if path.name == _INSTALLED:
                    # Claude Desktop keeps beside its list which are on, and their values.
                    folder = path.parent / _EXTENSION_SETTINGS
                    for key, installed in as_object(as_object(value).get("extensions")).items():
                        with suppress(OSError, ValueError):
                            settings = load(folder / f"{Path(key).name}.json", named=False)
                            as_object(installed).update({"isEnabled": True} | as_object(settings))
                refs = _list_records(value, name, must=named, base=_find_base(path))
            except (OSError, ValueError) as error:
                failed = True
                hint = (
                    f"{name}: {_describe_first_line(error)}; fix the file or take it from the"
                    f" setting `paths`"
                )
                problem = make_problem(name, f"{NAME}:{name}", "unreadable", hint)
                yield RecordPage([], problems=[problem], truncated=True)
                continue
            problems = [_make_empty(name)] if named and not refs else []
            reported |= bool(refs or problems)
            yield RecordPage(refs, problems=problems)
        problems = [] if reported or failed else [_make_empty("paths")]
        yield RecordPage([], ended=not failed, truncated=failed, problems=problems)

    def parse(self, raw: Any, ref: RecordRef) -> list[Listing]:
        """The listing of one entry {key, entry, member, refusal}, and {directory} where it
        starts a command of this host."""
        if not isinstance(raw, Mapping):
            raise ValueError(f"the record is {type(raw).__name__}, not an object")
        entry, key = raw.get("entry"), read_text(raw.get("key")) or ref.native_id
        local = "directory" in raw
        facts = read_local_facts(entry, raw["directory"]) if local else read_launch_facts(entry)
        # A secret is what takes a secret input or holds what looks like a key, whatever its name.
        flags: set[str] = set()
        changed: dict[str, Any] = {}
        for member in ("env", "headers"):
            values = {str(k): str(v) for k, v in as_object(as_object(entry).get(member)).items()}
            variables = []
            for variable in facts.get(member, ()):
                asks = SECRET in values.get(variable.name, "")
                if asks or _RANDOM.fullmatch(variable.default or ""):
                    variable = variable.model_copy(
                        update={"required": True, "secret": True, "default": None}
                    )
                    flags.add("needs_account")
                variables.append(variable)
            changed[member] = tuple(variables)
        facts = add_flags(facts | changed, flags)
        if raw.get("refusal"):
            facts = {**facts, "runnable": False, "reason": raw["refusal"]}
        evidence = f"{read_text(raw.get('member')) or 'mcpServers'}.{key}"
        identity = {"marketplace": NAME, "native_id": ref.native_id, "name": key}
        return [Listing(**identity, **facts, evidence=evidence)]


def _make_empty(name: str) -> dict[str, Any]:
    """A row about a file, or the whole setting, that names no server. It has no id: what the file
    named before is gone."""
    hint = f"{name}: names no server; add one, or change `marketplaces.private.paths`"
    return make_problem("", f"{NAME}:{name}", _EMPTY, hint)


def read_files(policy: CrawlPolicy) -> list[Listing]:
    """The listings of the user's files as they stand now; a file that cannot be read has none."""
    adapter = PrivateAdapter(policy)
    refs = [ref for page in _read_pages(adapter) for ref in page.refs]
    return [clean(item) for ref in refs for item in adapter.parse(ref.raw, ref)]


def list_file_problems(policy: CrawlPolicy) -> list[dict[str, Any]]:
    """A row {native_id, hint, ...} for each of the user's files that cannot be read."""
    problems = (row for page in _read_pages(PrivateAdapter(policy)) for row in page.problems)
    return [row for row in problems if row["error_kind"] != _EMPTY]


def _read_pages(adapter: PrivateAdapter) -> list[RecordPage]:
    async def collect() -> list[RecordPage]:
        return [page async for page in adapter.refs(_refuse_network)]

    return anyio.run(collect)


async def _refuse_network(url: str, check: Any, *, ref: RecordRef | None = None) -> Any:
    raise AssertionError(f"{url}: files of this host are read, not fetched")


def _find_base(path: Path) -> Path:
    """The folder that a file belongs to, which its relative paths are read in."""
    folder = path.absolute().parent
    return folder.parent if folder.name in _OF_EDITORS else folder


def _list_records(
    value: Any, name: str, *, must: bool, base: Path | None = None
) -> list[RecordRef]:
    """A ref per server of a file's value. Raises ValueError where it names none and `must`. base:
    None for what is read elsewhere than where it runs."""
    servers = read_servers(value)
    if servers is None:
        if must:
            raise ValueError(describe_forms())
        return []
    refs = []
    for server in servers:
        raw = {
            "key": server.name,
            "entry": server.entry,
            "member": server.member,
            "refusal": server.refusal,
            **(read_local_entry(server.entry, base / server.folder) or {} if base else {}),
        }
        native_id = f"{name}#{redact(server.key).replace(MARK, 'redacted').strip() or 'unnamed'}"
        refs.append(RecordRef(native_id, f"{NAME}:{name}", None, raw))
    return refs


def _is_covered(approved: str, endpoint: str) -> bool:
    if approved == endpoint:
        return True
    try:
        mine, there = urlsplit(approved), urlsplit(endpoint)
        same = (mine.scheme, mine.hostname, mine.port) == (there.scheme, there.hostname, there.port)
    except ValueError:
        return False
    if not mine.scheme or not mine.hostname or not same or there.username or mine.username:
        return False
    if ".." in there.path or "%2e" in there.path.lower():
        return False
    path = mine.path.rstrip("/")
    return not mine.query and (there.path == path or there.path.startswith(f"{path}/") or not path)


def _describe_first_line(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__  # its text holds the path
    return (str(error).splitlines() or [""])[0][:200]
