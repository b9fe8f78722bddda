"""What is asked of the router, and what it answers."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

from serving.ranking.overlays import Reliability
from warehouse.errors import UnusableInput
from warehouse.sanitize.untrusted_text import drop_surrogates

STRATEGIES = ("ours", "mcp-zero", "dense", "bm25", "rrf")
MOST_HITS = 1_000
MAX_TEXT = 4_000  # characters that are read; the encoder takes 64 word pieces of them


class BadQuery(UnusableInput):
    """A question that cannot be answered, with what was found and expected."""


@dataclass(frozen=True)
class Ask:
    """One question: a user's `query`, or what a model says of the `server` and `tool` it wants.

    `k` is a hard upper bound on hits, unless `stretch` lets up to that many more in whose score is
    as good as the k-th; `trim` leaves out hits that fall far behind the first. `exclude` are tool
    ids; `allowed` are globs over tool ids (None: all, (): nothing). `context` says what the
    conversation was about and weighs lightly. `client` is who asks (`write_client_key`), where a
    reranker may know what works for whom. Texts are read to 4,000 characters.
    """

    query: str | None = None
    server: str | None = None
    tool: str | None = None
    k: int = 5
    exclude: frozenset[str] = frozenset()
    allowed: tuple[str, ...] | None = None
    context: str | None = None
    strategy: str = "ours"
    stretch: int = 0
    trim: bool = False
    client: str | None = None


@dataclass(frozen=True)
class Hit:
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
    reliability: Reliability | None = None


@dataclass(frozen=True)
class Answer:
    """Hits, best first, from one index version. `suitable`: how likely the pool holds a suitable
    tool at all; `no_tool`: that this is below the threshold it was measured at."""

    hits: list[Hit]
    index: str
    strategy: str
    suitable: float
    no_tool: bool
    ms: float
    notes: tuple[str, ...] = field(default=())


def read_ask(ask: Ask | None = None, **parts: Any) -> Ask:
    """The question with its parts by name, lists for sets. Raises BadQuery for an unknown one."""
    known = {one.name for one in fields(Ask)}
    if strange := sorted(parts.keys() - known):
        raise BadQuery(f"a question has no {strange[0]!r}; expected {', '.join(sorted(known))}")
    for name, kind in (("exclude", frozenset), ("allowed", tuple)):
        if isinstance(parts.get(name), list | set | tuple | frozenset):
            parts[name] = kind(parts[name])
    return replace(ask or Ask(), **parts)


def check_ask(ask: Ask) -> tuple[Ask, tuple[str, ...]]:
    """The question with its texts tidied, and what was left out of it. Raises BadQuery."""
    if not 1 <= ask.k <= MOST_HITS:
        raise BadQuery(f"k is {ask.k}; expected 1 to {MOST_HITS:,}")
    if not 0 <= ask.stretch <= MOST_HITS:
        raise BadQuery(f"stretch is {ask.stretch}; expected 0 to {MOST_HITS:,}")
    if ask.strategy not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise BadQuery(f"strategy is {ask.strategy[:40]!r}; expected one of {known}")
    if isinstance(ask.allowed, str) or isinstance(ask.exclude, str):
        raise BadQuery("allowed and exclude are lists of tool ids, found one text")
    texts = {
        name: _tidy_text(getattr(ask, name)) for name in ("query", "server", "tool", "context")
    }
    if not (texts["query"] or texts["server"] or texts["tool"]):
        raise BadQuery("the query is empty; expected what the tool should do, in words")
    cut = [
        f"{name} was read to {MAX_TEXT:,} of {len(value):,} characters"
        for name in texts
        if (value := getattr(ask, name)) and len(value) > MAX_TEXT
    ]
    return Ask(**{**vars(ask), **texts}), tuple(cut)


def _tidy_text(text: str | None) -> str | None:
    """One line of at most 4,000 characters; a lone half of a surrogate pair reads as `?`."""
    if text is None:
        return None
    return " ".join(drop_surrogates(text[:MAX_TEXT]).split()) or None
