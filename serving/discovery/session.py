"""A session: a model asks, is shown a few tools, asks again in other words, until it ends.

    session = DiscoverySession(router, k=5)
    first = session.ask(model_text)             # the text to put into the prompt, and its tokens

One session is one conversation; it is not shared by threads.
"""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from serving.discovery.request import parse
from serving.index.model import UNVERIFIED, RouterIndex
from serving.ranking.query import QueryAnswer, ToolHit, ToolQuery
from serving.router import Router, ServedRouter
from warehouse.sanitize.untrusted_text import drop_unseen, quote_name, shorten_text

MAX_ROUNDS, MAX_TOKENS = "max_rounds", "max_tokens"
NOTHING_NEW, NO_SUITABLE_TOOL = "nothing_new", "no_suitable_tool"
LONGEST = 200  # characters of a description in a line
_LONGEST_ID = 200
_MOST_NOTES = 3  # problems told in one round


@dataclass(frozen=True)
class SessionStop:
    """Why a session ended: the kind to act on, the reason to read."""

    kind: str
    reason: str


@dataclass(frozen=True)
class SearchRound:
    """`text` is for the prompt, at `tokens` estimated. `gone`, `changed`: tools shown before that
    the index no longer holds, or with another contract."""

    text: str
    hits: tuple[ToolHit, ...]
    tokens: int
    asked: tuple[ToolQuery, ...] = ()
    answers: tuple[QueryAnswer, ...] = ()
    problems: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    stop: SessionStop | None = None


class DiscoverySession:
    """Iterative discovery over a Router or a ServedRouter. No tool is shown twice."""

    def __init__(
        self,
        router: Router | ServedRouter,
        *,
        k: int = 5,
        max_rounds: int = 8,
        max_tokens: int = 4_000,
        allowed: tuple[str, ...] | None = None,
    ) -> None:
        self._source = router
        self._router: Router | None = None
        self._query = ToolQuery(k=k, allowed=allowed)
        self._max_rounds, self._max_tokens = max_rounds, max_tokens
        self._unsuitable = 0  # rounds in a row without a suitable tool
        self.shown: dict[str, ToolHit] = {}
        self.rounds = 0
        self.tokens = 0
        self.stop: SessionStop | None = None

    def ask(self, text: str) -> SearchRound:
        """One round: a model's blocks, or its whole text as a request. Raises BadQuery."""
        if self.stop is not None:
            return SearchRound("", (), 0, stop=self.stop)
        blocks = parse(text)
        problems = [problem for block in blocks for problem in block.problems]
        asks = [replace(self._query, server=b.server, tool=b.tool) for b in blocks if b.usable]
        return self._run_round(asks if blocks else [replace(self._query, query=text)], problems)

    def _run_round(self, asks: Sequence[ToolQuery], problems: Sequence[str]) -> SearchRound:
        current = getattr(self._source, "current", None)
        router: Router = self._source if current is None else current()  # type: ignore[assignment]
        gone, changed = self._find_moved(router)
        still = {name: hit for name, hit in self.shown.items() if name not in (*gone, *changed)}
        barred = list_barred(router.index, still)
        ready = [replace(ask, exclude=barred) for ask in asks]
        answers = router.find_many(ready) if ready else []
        # Nothing of the session has moved up to here: a question that is refused costs no round.
        self.shown, self._router = still, router
        self.rounds += 1
        hits = {hit.tool_id: hit for answer in answers for hit in answer.hits}
        doubtful = bool(answers) and all(answer.no_tool for answer in answers)
        if answers:
            self._unsuitable = self._unsuitable + 1 if doubtful else 0
        notes = write_notes(problems, gone, changed)
        text, count = self._fit_hits(list(hits.values()), notes, doubtful, bool(answers))
        fitting, tokens = list(hits.values())[:count], estimate_tokens(text)
        self.shown |= {hit.tool_id: hit for hit in fitting}
        self.tokens += tokens
        nothing_new = bool(answers) and not hits and bool(self.shown)
        self.stop = self._find_stop(len(fitting) < len(hits) or not text, nothing_new)
        return SearchRound(
            text=text, hits=tuple(fitting), tokens=tokens, asked=tuple(ready),
            answers=tuple(answers), problems=tuple(problems), gone=gone, changed=changed,
            stop=self.stop,
        )  # fmt: skip

    def _find_moved(self, router: Router) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(gone, changed) tools among those shown, if the router is another one than last time."""
        if router is self._router or self._router is None:
            return (), ()
        gone, changed = [], []
        for name, hit in self.shown.items():
            place = router.index.place_of(name)
            digest = router.index.tools[place].contract_digest if place is not None else None
            if digest is None or name in router.blocked.tools or digest in router.blocked.digests:
                gone.append(name)
            elif digest != hit.contract_digest:
                changed.append(name)
        return tuple(gone), tuple(changed)

    def _fit_hits(
        self, hits: list[ToolHit], notes: Sequence[str], doubtful: bool, searched: bool
    ) -> tuple[str, int]:
        """(the text of as many hits as the tokens left allow, how many these are)."""
        left = self._max_tokens - self.tokens
        head = "No tool surely fits; the nearest:" if doubtful else "Nearest tools:"

        def write(count: int) -> str:
            lines = ["No further tool was found."] * searched
            return "\n".join([*([head, render(hits[:count])] if count else lines), *notes])

        counts = range(len(hits) + 1)
        count = bisect_right(counts, left, key=lambda n: estimate_tokens(write(n))) - 1
        return (write(count), count) if count >= 0 else ("", 0)

    def _find_stop(self, cut: bool, nothing_new: bool) -> SessionStop | None:
        if cut:
            used = f"{self.tokens:,} of {self._max_tokens:,} tokens are used"
            return SessionStop(MAX_TOKENS, f"{used}; what came next no longer fits")
        if nothing_new:
            reason = "nothing was found that was not shown before"
            return SessionStop(NOTHING_NEW, reason)
        if self._unsuitable >= 2:
            reason = "the router found no suitable tool twice in a row"
            return SessionStop(NO_SUITABLE_TOOL, reason)
        if self.rounds >= self._max_rounds:
            reason = f"{self.rounds} rounds are the most that were allowed"
            return SessionStop(MAX_ROUNDS, reason)
        return None


def list_barred(
    index: RouterIndex, shown: Collection[str], excluded: Collection[str] = ()
) -> frozenset[str]:
    """Ids not to show: excluded ones, and shown ones with twins (unless excluded itself)."""
    places = [index.place_of(name) for name in shown if name not in excluded]
    groups = index.twins[[place for place in places if place is not None]]
    twins = np.flatnonzero(np.isin(index.twins, groups)).tolist() if len(groups) else []
    return frozenset([*excluded, *shown, *(index.tools[at].tool_id for at in twins)])


def render(hits: Sequence[ToolHit]) -> str:
    """One line a tool, `- <tool id>: <description>`; an id that is not a plain word is quoted."""
    lines = []
    for hit in hits:
        about = shorten_text(make_one_line(hit.description), LONGEST, whole_words=True)
        mark = f" ({UNVERIFIED}: cannot be called)" if UNVERIFIED in hit.flags else ""
        name = f"- {quote_name(hit.tool_id, _LONGEST_ID)}{mark}"
        lines.append(f"{name}: {about}" if about else name)
    return "\n".join(lines)


def write_notes(problems: Sequence[str], gone: Sequence[str], changed: Sequence[str]) -> list[str]:
    """A line for each thing that the model should know beside the hits."""
    first = list(dict.fromkeys(problems))[:_MOST_NOTES]
    notes = [f"Note: {make_one_line(problem)}." for problem in first]
    for names, what in ((gone, "no longer available"), (changed, "changed since they were shown")):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            quoted = ", ".join(quote_name(name, _LONGEST_ID) for name in names[:5])
            notes.append(f"Note: {what}: {quoted}{more}.")
    return notes


def estimate_tokens(text: str) -> int:
    """About a text's tokens: a quarter of its UTF-8 bytes, rounded up. On 1,500 real tools 1.01
    (o200k) and 0.99 (cl100k) of the lines of `render`, and 1.13 of contracts in JSON."""
    return -(-len(text.encode("utf-8", "replace")) // 4)


def make_one_line(text: str) -> str:
    """Third-party text as one visible line, which cannot look like lines of the prompt."""
    return " ".join(drop_unseen(text).split())
