"""Endpoints: the tools that an actor can choose, real ones and variants, and how each is called."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from assets.contracts.canonical import contract_digest
from assets.outcomes.worlds.template import NothingToDraw, fill_template
from warehouse.storage.digest import digest

BEFORE, AFTER = 0, 1  # phases: before and after the change in mid-stream


@dataclass(frozen=True)
class EndpointSource:
    """A real server of the bench. tools: name -> the forms of a call of it."""

    id: str
    world: str
    tools: Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class ToolEndpoint:
    """One tool as an actor sees it, and what stands behind it.

    server_id: opaque, for real ones too, so that no id tells which is which. source, base: the
    real server and the name of its tool. faults, contracts: of the phases; faults: None where
    none is injected. renames: arguments as the contract of the second phase calls them.
    newcomer: listed in the second phase only. direct: called without a proxy while it has no fault.
    """

    server_id: str
    tool: str
    source: str
    base: str
    contracts: tuple[Mapping[str, Any], Mapping[str, Any]] = field(repr=False)
    faults: tuple[str | None, str | None] = (None, None)
    renames: Mapping[str, str] = field(default_factory=dict)
    newcomer: bool = False
    direct: bool = True

    @property
    def id(self) -> str:
        return f"{self.server_id}::{self.tool}"

    @property
    def changes(self) -> bool:
        """Whether anything about it is another in the second phase."""
        return self.faults[BEFORE] != self.faults[AFTER] or bool(self.renames)

    def digest_contract(self, phase: int) -> str:
        return contract_digest(self.contracts[phase])

    def write_call(self, slots: Mapping[str, Any], phase: int) -> dict[str, Any] | None:
        """The arguments for a task; None where the task does not say what the tool needs."""
        for form in find_source(self.source).tools[self.base]:
            try:
                arguments = fill_template(form, slots)
            except NothingToDraw:
                continue
            if phase == AFTER:
                return {self.renames.get(name, name): one for name, one in arguments.items()}
            return arguments
        return None

    def translate_call(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the real tool calls them."""
        own = {new: old for old, new in self.renames.items()}
        return {own.get(name, name): one for name, one in arguments.items()}


@cache
def load_sources() -> tuple[EndpointSource, ...]:
    """The real servers, and how calls of their tools are written."""
    text = Path(__file__).with_name("endpoints.toml").read_text(encoding="utf-8")
    return tuple(EndpointSource(**item) for item in tomllib.loads(text)["servers"])


def find_source(server: str) -> EndpointSource:
    """Raises KeyError for one that the bench does not have."""
    return {source.id: source for source in load_sources()}[server]


def make_opaque_id(*parts: object) -> str:
    """An id that says nothing: `srv-` and eight hex digits."""
    return f"srv-{digest(list(map(str, parts)))[-8:]}"


def list_real(contracts: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[ToolEndpoint]:
    """A real endpoint for each tool that calls can be written for, of servers (id -> tool ->
    contract) that listed it."""
    return [
        ToolEndpoint(make_opaque_id(source.id), tool, source.id, tool, (listed[tool], listed[tool]))
        for source in load_sources()
        if (listed := contracts.get(source.id)) is not None
        for tool in source.tools
        if tool in listed
    ]


def rename_arguments(
    endpoint: ToolEndpoint, renames: Mapping[str, str], about: str
) -> ToolEndpoint:
    """The endpoint with another contract in the second phase: arguments renamed, another
    description."""
    before = endpoint.contracts[BEFORE]
    schema = dict(before.get("inputSchema") or {})
    known = schema.get("properties") or {}
    schema["properties"] = {renames.get(name, name): one for name, one in known.items()}
    if required := schema.get("required"):
        schema["required"] = [renames.get(name, name) for name in required]
    after = {**before, "description": about, "inputSchema": schema}
    used = {old: new for old, new in renames.items() if old in known}
    return replace(endpoint, contracts=(before, after), renames=used)
