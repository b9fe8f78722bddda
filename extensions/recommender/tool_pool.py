"""The tools that a reranker orders: what their contracts say of them, before any outcome."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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


class ToolPool:
    """Tools by place and their unit vectors, float32 [tools, dim]. Raises ValueError."""

    def __init__(self, tools: Sequence[ToolFacts], vectors: np.ndarray) -> None:
        if vectors.ndim != 2 or len(vectors) != len(tools):
            raise ValueError(f"vectors are {vectors.shape}, expected ({len(tools)}, dim)")
        if not np.isfinite(vectors).all():
            raise ValueError("vectors of tools hold what is no finite number; embed them again")
        self.tools = tuple(tools)
        self.vectors = np.ascontiguousarray(vectors, np.float32)

    def __len__(self) -> int:
        return len(self.tools)

    @cached_property
    def places(self) -> dict[str, int]:
        return {tool.tool_id: place for place, tool in enumerate(self.tools)}

    @cached_property
    def words(self) -> "ToolWords":
        return ToolWords.of(self.tools)

    @cached_property
    def features(self) -> np.ndarray:
        """TOOL_FEATURES of each tool, float32 [tools, features]."""
        siblings = Counter(tool.server_id for tool in self.tools)
        rows = [[*_measure_tool(tool), math.log1p(siblings[tool.server_id])] for tool in self.tools]
        return np.array(rows, np.float32).reshape(len(self.tools), len(TOOL_FEATURES))


@dataclass(frozen=True)
class ToolWords:
    """The distinct stems of each tool's name and description, as numbers: those of tool i are
    `held[starts[i] : starts[i + 1]]`, those of its name first, `named[i]` of them."""

    known: Mapping[str, int]
    held: np.ndarray  # int32 [stems of all tools]
    starts: np.ndarray  # int64 [tools + 1]
    named: np.ndarray  # int64 [tools]

    @classmethod
    def of(cls, tools: Sequence[ToolFacts]) -> "ToolWords":
        known: dict[str, int] = {}
        held, starts, named = list[int](), [0], list[int]()
        for tool in tools:
            name = dict.fromkeys(stem_words(_read_name(tool)))
            whole = name | dict.fromkeys(stem_words(_read_description(tool)))
            held += [known.setdefault(stem, len(known)) for stem in whole]
            starts.append(len(held))
            named.append(len(name))
        return cls(known, np.array(held, np.int32), np.array(starts), np.array(named, np.int64))

    def count_shared(self, asked: Iterable[str], places: np.ndarray) -> np.ndarray:
        """How many of the stems asked each tool at `places` holds, how many its name does, and of
        how many its name consists; int [3, places]."""
        wanted = np.zeros(len(self.known) + 1, bool)
        wanted[[self.known.get(stem, -1) for stem in asked]] = True
        wanted[-1] = False
        starts, named = self.starts[places].tolist(), self.named[places].tolist()
        ends = self.starts[places + 1].tolist()
        found = [wanted[self.held[start:end]] for start, end in zip(starts, ends, strict=True)]
        counts = [
            (np.count_nonzero(one), np.count_nonzero(one[:size]), size)
            for one, size in zip(found, named, strict=True)
        ]
        return np.array(counts, np.int64).reshape(len(places), 3).T


def _measure_tool(tool: ToolFacts) -> list[float]:
    name, about = _read_name(tool), _read_description(tool)
    words, described = stem_words(name), set(stem_words(about))
    parameters = list(iterate_parameters(tool.contract)) if _has_schema(tool) else []
    required = tool.contract["inputSchema"].get("required") if _has_schema(tool) else None
    documented = sum(
        isinstance(schema, Mapping) and bool(schema.get("description")) for _, schema in parameters
    )
    kept = [char for char in name.lower() if char.isalnum()]
    runs = "".join(char if char.isalpha() else " " for char in name.lower()).split()
    dumb = sum(len(run) for run in runs if not set(run) & set("aeiouy"))
    return [
        math.log1p(len(about)),
        float(len(words)),
        (dumb + sum(char.isdigit() for char in kept)) / max(len(kept), 1),
        sum(word in described for word in words) / max(len(words), 1),
        math.log1p(len(parameters)),
        math.log1p(len(required) if isinstance(required, list) else 0),
        documented / max(len(parameters), 1),
    ]


def _read_name(tool: ToolFacts) -> str:
    return str(tool.contract.get("name") or "")[:_NAME]


def _read_description(tool: ToolFacts) -> str:
    return str(tool.contract.get("description") or "")[:_DESCRIPTION]


def _has_schema(tool: ToolFacts) -> bool:
    return isinstance(tool.contract.get("inputSchema"), Mapping)
