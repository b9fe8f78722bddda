"""Endpoints: the tools that an actor can choose, real ones and variants, and how each is called."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from assets.outcomes.worlds.template import NothingToDraw, fill_template
from warehouse.storage.digest import digest


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
    real server and the name of its tool. fault: None where none is injected. direct: called without
    a proxy.
    """

    server_id: str
    tool: str
    source: str
    base: str
    contract: Mapping[str, Any] = field(repr=False)
    fault: str | None = None
    direct: bool = True

    @property
    def id(self) -> str:
        return f"{self.server_id}::{self.tool}"

    def write_call(self, slots: Mapping[str, Any]) -> dict[str, Any] | None:
        """The arguments for a task; None where the task does not say what the tool needs."""
        for form in find_source(self.source).tools[self.base]:
            try:
                return fill_template(form, slots)
            except NothingToDraw:
                continue
        return None


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
        ToolEndpoint(make_opaque_id(source.id), tool, source.id, tool, listed[tool])
        for source in load_sources()
        if (listed := contracts.get(source.id)) is not None
        for tool in source.tools
        if tool in listed
    ]
