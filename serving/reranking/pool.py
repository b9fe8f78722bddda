"""The tools that a reranker orders: what their contracts say of them, before any outcome."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from assets.contracts.canonical import iterate_parameters
from assets.vectors.lexical import stem_words

TOOL_FEATURES = (
    *("description length", "words in the name", "opaque name", "name told in description"),
    *("parameters", "required parameters", "documented parameters", "siblings"),
)
_DESCRIPTION = 2_000  # characters that are read of a description
_NAME = 200


@dataclass(frozen=True)
class ToolFacts:
    """One tool as its contract tells it; `contract` needs no more than a name."""

    tool_id: str
    server_id: str
    contract: Mapping[str, Any]
    contract_digest: str = ""


class Pool:
    """Tools by place and their unit vectors, float32 [tools, dim]. Raises ValueError for vectors of
    another number, or that are no finite numbers."""

    def __init__(self, tools: Sequence[ToolFacts], vectors: np.ndarray) -> None:
        if vectors.ndim != 2 or len(vectors) != len(tools):
            raise ValueError(f"vectors are {vectors.shape}, expected ({len(tools)}, dim)")
        if not np.isfinite(vectors).all():
            raise ValueError("vectors of tools hold what is no finite number; embed them again")
        self.tools = tuple(tools)
        self.vectors = np.ascontiguousarray(vectors, np.float32)
        self._words: dict[int, tuple[frozenset[str], frozenset[str]]] = {}

    def __len__(self) -> int:
        return len(self.tools)

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each tool id is."""
        return {tool.tool_id: place for place, tool in enumerate(self.tools)}

    def read_words(self, place: int) -> tuple[frozenset[str], frozenset[str]]:
        """The stems of one tool's name and description together, and of its name; kept."""
        if (known := self._words.get(place)) is None:
            name = stem_words(_read_name(self.tools[place]))
            about = stem_words(_read_description(self.tools[place]))
            known = self._words[place] = frozenset([*name, *about]), frozenset(name)
        return known

    @cached_property
    def features(self) -> np.ndarray:
        """TOOL_FEATURES of each tool, float32 [tools, features]."""
        siblings = Counter(tool.server_id for tool in self.tools)
        rows = [[*_measure_tool(tool), math.log1p(siblings[tool.server_id])] for tool in self.tools]
        return np.array(rows, np.float32).reshape(len(self.tools), len(TOOL_FEATURES))


def _measure_tool(tool: ToolFacts) -> list[float]:
    name, about = _read_name(tool), _read_description(tool)
    words, told = stem_words(name), set(stem_words(about))
    parameters = list(iterate_parameters(tool.contract)) if _has_schema(tool) else []
    required = tool.contract["inputSchema"].get("required") if _has_schema(tool) else None
    documented = sum(
        isinstance(schema, Mapping) and bool(schema.get("description")) for _, schema in parameters
    )
    return [
        math.log1p(len(about)),
        float(len(words)),
        _measure_opacity(name),
        sum(word in told for word in words) / max(len(words), 1),
        math.log1p(len(parameters)),
        math.log1p(len(required) if isinstance(required, list) else 0),
        documented / max(len(parameters), 1),
    ]


def _measure_opacity(name: str) -> float:
    """The share of a name's letters and digits that are in runs without a vowel, or digits: ids
    such as `t_9f3bq` say nothing of what a tool does."""
    kept = [char for char in name.lower() if char.isalnum()]
    runs = "".join(char if char.isalpha() else " " for char in name.lower()).split()
    dumb = sum(len(run) for run in runs if not set(run) & set("aeiouy"))
    return (dumb + sum(char.isdigit() for char in kept)) / max(len(kept), 1)


def _read_name(tool: ToolFacts) -> str:
    return str(tool.contract.get("name") or "")[:_NAME]


def _read_description(tool: ToolFacts) -> str:
    return str(tool.contract.get("description") or "")[:_DESCRIPTION]


def _has_schema(tool: ToolFacts) -> bool:
    return isinstance(tool.contract.get("inputSchema"), Mapping)
