"""The world file: one small TOML that describes a world, read and checked as a whole."""

import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from assets.outcomes.worlds.tree import Node, WorldFileError
from warehouse.patterns import compile_pattern
from warehouse.storage.untrusted_files import UnreadableFile, list_files, read_file
from warehouse.user_files import read_text

ROOT = "root"  # the placeholder for the path at which a server sees the world
_MOST_TOML, _MOST_FILE, _MOST_SEED = 1 << 20, 4 << 20, 32 << 20
_MOST_WHOLE = 10**15  # of a number: beyond 2**53 JSON holds none exactly
_PLACEHOLDER = compile_pattern(r"\{(\w+)[^{}]*\}")


class _WorldPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerFit(_WorldPart):
    """A server that the world suits. args, env: of its launch, instead of its recipe's arguments
    and beside its variables; `{root}` is where it sees the world. version: what `worlds --check`
    runs. tools: those that work in this world. restart: it keeps state of its own in memory, so
    that a reset needs a fresh one."""

    id: str = Field(pattern=r"^(npm|pypi|mcpb|oci|private):\S+$")
    version: str | None = None
    args: tuple[str, ...] | None = None
    env: Mapping[str, str] = {}
    tools: tuple[str, ...] = Field(min_length=1)
    restart: bool = False


class SeedGenerator(_WorldPart):
    """What makes the seed files: one of the kind's generators, and how many items it makes."""

    name: str
    size: int = Field(default=12, ge=1, le=500)


class ValueDraw(_WorldPart):
    """What a placeholder of a task stands for; exactly one of these, drawn for each task.

    key: a fact of the first state whose key matches the pattern, no two alike in a task; where:
    members that its value has, `*` for any value. one_of: one of these. between: a whole number.
    words: one of the world's word lists. text: composed of other draws."""

    key: str | None = None
    where: Mapping[str, Any] = {}
    one_of: tuple[str | int | float, ...] | None = None
    between: tuple[int, int] | None = None
    words: str | None = None
    text: str | None = None

    def find_problem(self) -> str | None:
        alternatives = [self.key, self.one_of, self.between, self.words, self.text]
        if sum(item is not None for item in alternatives) != 1:
            return "expected exactly one of key, one_of, between, words, text"
        if self.where and self.key is None:
            return "`where` needs `key`"
        if self.one_of == ():
            return "`one_of` names nothing; expected one value or more"
        if self.between and not -_MOST_WHOLE <= self.between[0] <= self.between[1] <= _MOST_WHOLE:
            return f"`between` expected the lower number first, both below {_MOST_WHOLE:,}"
        return None


class CallTemplate(_WorldPart):
    """One call of the reference solution."""

    tool: str
    arguments: Mapping[str, Any] = {}


class TaskTemplate(_WorldPart):
    """Tasks of one form. requests: one of them is drawn. changes: how the state must end, from its
    first one (`changes.py`); none: as it was. answer: texts that the results must hold. servers:
    ids that it is for; default: all that have its tools."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    requests: tuple[str, ...] = Field(min_length=1)
    draw: Mapping[str, ValueDraw] = {}
    calls: tuple[CallTemplate, ...] = Field(min_length=1)
    changes: tuple[Mapping[str, Any], ...] = ()
    answer: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()


class WorldSpec(_WorldPart):
    """One world, as its file says. path: the file; folder: what `files` is below."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")
    kind: str
    about: str = Field(min_length=1, max_length=300)
    files: str | None = None
    generator: SeedGenerator | None = None
    servers: tuple[ServerFit, ...] = Field(min_length=1)
    tasks: tuple[TaskTemplate, ...] = ()
    path: Path = Path()

    @field_validator("files")
    @classmethod
    def _check_files(cls, folder: str | None) -> str | None:
        if folder is not None and (Path(folder).is_absolute() or ".." in Path(folder).parts):
            raise ValueError("expected a folder beside the world file")
        return folder

    def find_fit(self, server_id: str) -> ServerFit:
        """How a server points into the world. Raises WorldFileError where it does not suit."""
        for fit in self.servers:
            if fit.id == server_id:
                return fit
        names = ", ".join(server.id for server in self.servers)
        raise WorldFileError(f"world {self.name!r} does not suit {server_id!r}; it suits {names}")

    def read_files(self) -> dict[str, Node]:
        """The seed files beside the world file. Raises WorldFileError for links and large files."""
        if self.files is None:
            return {}
        folder, tree, left = self.path.parent / self.files, dict[str, Node](), _MOST_SEED
        try:
            for path in list_files(folder):
                tree[str(path)] = data = read_file(folder, path, min(_MOST_FILE, left))
                left -= len(data)
        except UnreadableFile as error:
            where = str(Path(self.files, error.filename or ""))
            raise WorldFileError(f"{self.path}: seed files {where!r}: {error.strerror}") from error
        return tree


def load_world(path: Path) -> WorldSpec:
    """The world of one file. Raises WorldFileError that names the file and what of it is wrong."""
    return _parse_world(path, read_text(path, _MOST_TOML))


@lru_cache(maxsize=64)
def _parse_world(path: Path, text: str) -> WorldSpec:
    """Each run of each marketplace asks for all worlds."""
    try:
        facts = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise WorldFileError(f"{path}: not TOML: {' '.join(str(error).split())[:200]}") from error
    try:
        world = WorldSpec.model_validate({**facts, "path": path})
    except ValidationError as error:
        raise WorldFileError(_explain_first(path, error)) from None
    if "path" in facts:
        raise WorldFileError(f"{path}: path: no such key; remove it")
    if problem := next(_find_problems(world), None):
        raise WorldFileError(f"{path}: {problem}")
    return world


def _explain_first(path: Path, error: ValidationError) -> str:
    """A misspelt key before the one that is missing for it."""
    errors = error.errors(include_url=False)
    first = next((item for item in errors if item["type"] == "extra_forbidden"), errors[0])
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{path}: {where}: no such key; docs/worlds.md lists all"
    if first["type"] == "tuple_type":
        return f"{path}: {where}: expected a list (found {first['input']!r:.60})"
    return f"{path}: {where}: {first['msg']}"


def _find_problems(world: WorldSpec) -> Iterator[str]:
    if not (world.files or world.generator):
        yield "expected `files`, a `[generator]` or both"
    names = [task.name for task in world.tasks]
    if twice := next((name for name in names if names.count(name) > 1), None):
        yield f"tasks: two are called {twice!r}"
    ids = [server.id for server in world.servers]
    if twice := next((item for item in ids if ids.count(item) > 1), None):
        yield f"servers: {twice!r} stands there twice"
    for task in world.tasks:
        for problem in _find_task_problems(world, task):
            yield f"task {task.name!r}: {problem}"


def _find_task_problems(world: WorldSpec, task: TaskTemplate) -> Iterator[str]:
    tools = {call.tool for call in task.calls}
    having = [server.id for server in world.servers if tools <= set(server.tools)]
    if not having:
        yield f"no server of the world has all of {', '.join(sorted(tools))}"
    if unknown := sorted(set(task.servers) - set(having)):
        yield f"{unknown[0]!r} is no server of the world with all of its tools"
    for name, draw in task.draw.items():
        if problem := draw.find_problem():
            yield f"draw {name!r}: {problem}"
    if not (task.changes or task.answer):
        yield "expected `changes`, `answer` or both, else nothing is checked"
    names = {*task.draw, ROOT}
    written = [task.requests, task.changes, task.answer]
    written += [[call.arguments for call in task.calls]]
    written += [[item.text, item.key, item.where] for item in task.draw.values()]
    for text in _list_texts(written):
        for name in _PLACEHOLDER.findall(text):
            if name not in names:
                yield f"{{{name}}} stands for nothing; it draws {', '.join(sorted(names))}"


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _list_texts(key)
            yield from _list_texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _list_texts(item)
