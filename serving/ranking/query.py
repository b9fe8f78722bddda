"""What is asked of the router, and what it answers."""

from dataclasses import dataclass, fields, replace
from typing import Any

from serving.ranking.overlays import ToolReliability
from warehouse.errors import UnusableInput
from warehouse.sanitize.untrusted_text import drop_surrogates

STRATEGIES = ("ours", "mcp-zero", "dense", "bm25", "rrf")
MOST_HITS = 1_000
MAX_TEXT = 4_000  # characters that are read; the encoder takes 64 word pieces of them


class BadQuery(UnusableInput):
    """A question that cannot be answered, with what was found and expected."""


@dataclass(frozen=True)
class ToolQuery:
    """A user's `query`, or a model's `server` and `tool` words, read to 4,000 characters; `k` hits.
    `exclude`: tool ids; `allowed`: globs (None: all, (): none). `context` weighs lightly. `client`
    (`write_client_key`): for a reranker."""

    query: str | None = None
    server: str | None = None
    tool: str | None = None
    k: int = 5
    exclude: frozenset[str] = frozenset()
    allowed: tuple[str, ...] | None = None
    context: str | None = None
    strategy: str = "ours"
    client: str | None = None


@dataclass(frozen=True)
class ToolHit:
    """One tool for a question. `why`: the view that matched best, the scores, words in common."""

    tool_id: str
    server_id: str
    tool: str
    score: float
    description: str
    contract_digest: str
    why: dict[str, Any]
    twins: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    read_only: bool | None = None
    reliability: ToolReliability | None = None


@dataclass(frozen=True)
class QueryAnswer:
    """Hits, best first, from one index version. `suitable`: how likely the pool holds a suitable
    tool at all; `no_tool`: that this is below the measured threshold."""

    hits: list[ToolHit]
    index: str
    strategy: str
    suitable: float
    no_tool: bool
    ms: float
    notes: tuple[str, ...] = ()


def read_ask(ask: ToolQuery | None = None, **parts: Any) -> ToolQuery:
    """The question with its parts by name, lists for sets. Raises BadQuery for an unknown one."""
    names = {field.name for field in fields(ToolQuery)}
    if unknown := sorted(parts.keys() - names):
        raise BadQuery(f"a question has no {unknown[0]!r}; expected {', '.join(sorted(names))}")
    for name, kind in (("exclude", frozenset), ("allowed", tuple)):
        if isinstance(parts.get(name), list | set | tuple | frozenset):
            parts[name] = kind(parts[name])
    return replace(ask or ToolQuery(), **parts)


def check_ask(ask: ToolQuery) -> tuple[ToolQuery, tuple[str, ...]]:
    """The question with its texts tidied, and what was left out of it. Raises BadQuery."""
    if not 1 <= ask.k <= MOST_HITS:
        raise BadQuery(f"k is {ask.k}; expected 1 to {MOST_HITS:,}")
    if ask.strategy not in STRATEGIES:
        strategies = ", ".join(STRATEGIES)
        raise BadQuery(f"strategy is {ask.strategy[:40]!r}; expected one of {strategies}")
    if isinstance(ask.allowed, str) or isinstance(ask.exclude, str):
        raise BadQuery("allowed and exclude are lists of tool ids, found one text")
    written = {name: getattr(ask, name) for name in ("query", "server", "tool", "context")}
    # One line of at most 4,000 characters; a lone half of a surrogate pair reads as `?`
    texts = {
        name: (None if text is None else " ".join(drop_surrogates(text[:MAX_TEXT]).split()) or None)
        for name, text in written.items()
    }
    if not (texts["query"] or texts["server"] or texts["tool"]):
        raise BadQuery("the query is empty; expected what the tool should do, in words")
    notes = [
        f"{name} was read to {MAX_TEXT:,} of {len(text):,} characters"
        for name, text in written.items()
        if text and len(text) > MAX_TEXT
    ]
    return replace(ask, **texts), tuple(notes)
