"""A session: a model asks, is shown a few tools, asks again in other words, until it ends.

    session = Session(router, k=5)
    first = session.ask(model_text)             # the text to put into the prompt, and its tokens
    if first.stop is None: session.refine("for a whole organisation")

One session is one conversation; it is not shared by threads.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from assets.contracts.tool_id import ToolId, compile_globs
from serving.discovery.hit_text import estimate_tokens, list_barred, render, write_notes
from serving.discovery.request import parse
from serving.ranking.query import Answer, Ask, Hit
from serving.router import Router, ServedRouter
from warehouse.sanitize.untrusted_text import quote_name, read_name

ACCEPTED, MAX_ROUNDS, MAX_TOKENS = "accepted", "max_rounds", "max_tokens"
NOTHING_NEW, NO_SUITABLE_TOOL = "nothing_new", "no_suitable_tool"
_LONGEST_WORDS = 400  # characters of a refined request: newest words first, the oldest fall away


class BadSession(ValueError):
    """A setting or a step that makes no sense, with what was found and expected."""


@dataclass(frozen=True)
class Stop:
    """Why a session ended: the kind to act on, the reason to read."""

    kind: str
    reason: str


@dataclass(frozen=True)
class Round:
    """One step. `text` is what a host puts into the prompt, `tokens` what that costs by the
    session's count, `tokens_total` all rounds so far. `gone` and `changed` are tools shown before
    that the index no longer holds, or holds with another contract."""

    number: int
    text: str
    hits: tuple[Hit, ...]
    tokens: int
    tokens_total: int
    asked: tuple[Ask, ...] = ()
    answers: tuple[Answer, ...] = ()
    problems: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    index: str = ""
    stop: Stop | None = None


class Session:
    """Iterative discovery over a Router or a ServedRouter.

    `allowed` holds for every step, whatever an Ask says. `schemas` shows each tool's parameters
    too.
    """

    def __init__(
        self,
        router: Router | ServedRouter,
        *,
        k: int = 5,
        max_rounds: int = 8,
        max_tokens: int = 4_000,
        allowed: tuple[str, ...] | None = None,
        strategy: str = "ours",
        context: str | None = None,
        schemas: bool = False,
    ) -> None:
        for name, value in (("k", k), ("max_rounds", max_rounds), ("max_tokens", max_tokens)):
            if value < 1:
                raise BadSession(f"{name} is {value}; expected at least 1")
        self._source = router
        self._router: Router | None = None
        self._k, self._strategy, self._context, self._allowed = k, strategy, context, allowed
        self._max_rounds, self._max_tokens = max_rounds, max_tokens
        self._matches = compile_globs(allowed or ())
        self._schemas = schemas
        self._held_back: set[str] = set()
        self._last: tuple[Ask, ...] = ()
        self._unsuitable = 0
        self.shown: dict[str, Hit] = {}
        self.rounds = 0
        self.tokens = 0
        self.stop: Stop | None = None

    def ask(self, what: "str | Ask", *, again: bool = False) -> Round:
        """One round: every block in a model's text, or the text itself as a request in words, or
        an Ask. Tools shown before come back only with `again`. Raises BadQuery."""
        if self.stop is not None:
            return self._make_ended_round()
        if isinstance(what, Ask):
            return self._run_round([what], [], again)
        blocks = parse(what)
        problems = [problem for block in blocks for problem in block.problems]
        asks = [self._make_ask(server=b.server, tool=b.tool) for b in blocks if b.usable]
        if not blocks:
            asks = [self._make_ask(query=what)]
        return self._run_round(asks, problems, again)

    def find(self, query: str | None = None, server: str | None = None, tool: str | None = None,
             *, again: bool = False) -> Round:  # fmt: skip
        """`ask` in fields. Raises BadQuery."""
        return self.ask(self._make_ask(query=query, server=server, tool=tool), again=again)

    def refine(self, words: str) -> Round:
        """The last request again, with these words beside its own; a block in them may name another
        server, and what it says of the tool stands beside what was said before. Without a last
        request it is `ask`. Raises BadQuery."""
        blocks = parse(words)
        if (
            self.stop is not None
            or not self._last
            or (blocks and not any(b.usable for b in blocks))
        ):
            return self.ask(words)
        problems = [problem for block in blocks for problem in block.problems if block.usable]
        first = self._last[0]
        asks = [
            replace(
                first, server=block.server or first.server, tool=_join_words(block.tool, first.tool)
            )
            for block in blocks
            if block.usable
        ]
        return self._run_round(
            asks or [_refine_ask(old, words) for old in self._last], problems, False
        )

    def exclude(self, *tool_ids: str) -> None:
        """Never shows these again in this session (they failed, or were refused). Twins of them
        may be shown instead."""
        self._held_back.update(tool_ids)

    def accept(self, tool_id: str) -> Stop:
        """The model calls this tool, named by its id or as that was shown: the session ends. Raises
        BadSession for one never shown."""
        name = tool_id if tool_id in self.shown else read_name(tool_id)
        if name not in self.shown:
            known = ", ".join(quote_name(one, 200) for one in sorted(self.shown)[:5]) or "none"
            quoted = quote_name(tool_id, 80)
            raise BadSession(f"{quoted} was not shown; expected one of: {known}")
        self.stop = Stop(ACCEPTED, f"{quote_name(name, 200)} was accepted")
        return self.stop

    def _make_ask(self, **fields: str | None) -> Ask:
        return Ask(**fields, k=self._k, strategy=self._strategy)  # type: ignore[arg-type]

    def _run_round(self, asks: Sequence[Ask], problems: Sequence[str], again: bool) -> Round:
        router = self._current_router()
        gone, changed = self._find_moved(router)
        shown = {} if again else {k: v for k, v in self.shown.items() if k not in (*gone, *changed)}
        barred = list_barred(router.index, shown, self._held_back)
        ready = [self._prepare_ask(ask, barred) for ask in asks]
        answers = router.find_many(ready) if ready else []
        # Nothing of the session has moved up to here: a question that is refused costs no round.
        for name in (*gone, *changed):
            del self.shown[name]
        self._router, self._last = router, tuple(asks) or self._last
        self.rounds += 1
        found = {
            hit.tool_id: hit for answer in answers for hit in answer.hits if self._may_show(hit)
        }
        none = bool(answers) and all(answer.no_tool for answer in answers)
        self._unsuitable = self._unsuitable + 1 if none else 0 if answers else self._unsuitable
        notes = write_notes(problems, gone, changed)
        hits, text, tokens = self._fit_hits(list(found.values()), notes, none, bool(answers))
        self.shown |= {hit.tool_id: hit for hit in hits}
        self.tokens += tokens
        self.stop = self._find_stop(len(found) - len(hits), bool(answers), found, text)
        return Round(
            number=self.rounds, text=text, hits=tuple(hits), tokens=tokens,
            tokens_total=self.tokens, asked=tuple(ready), answers=tuple(answers),
            problems=tuple(problems), gone=gone, changed=changed, index=router.index.version,
            stop=self.stop,
        )  # fmt: skip

    def _make_ended_round(self) -> Round:
        version = self._router.index.version if self._router else ""
        return Round(self.rounds, "", (), 0, self.tokens, index=version, stop=self.stop)

    def _current_router(self) -> Router:
        current = getattr(self._source, "current", None)
        return current() if current is not None else self._source  # type: ignore[return-value]

    def _prepare_ask(self, ask: Ask, barred: frozenset[str]) -> Ask:
        allowed = ask.allowed if ask.allowed is not None else self._allowed
        context = ask.context or self._context
        return replace(ask, exclude=ask.exclude | barred, allowed=allowed, context=context)

    def _may_show(self, hit: Hit) -> bool:
        """The session's own allow-list holds although an Ask brought another."""
        return self._allowed is None or self._matches(*ToolId.parse(hit.tool_id))

    def _find_moved(self, router: Router) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(gone, changed) of what was shown, where the router is another one than last time."""
        if router is self._router or self._router is None:
            return (), ()
        gone, changed = [], []
        for name, hit in self.shown.items():
            place = router.index.place_of(name)
            now = router.index.tools[place].contract_digest if place is not None else None
            if now is None or name in router.blocked.tools or now in router.blocked.digests:
                gone.append(name)
            elif now != hit.contract_digest:
                changed.append(name)
        return tuple(gone), tuple(changed)

    def _fit_hits(
        self, hits: list[Hit], notes: Sequence[str], none: bool, searched: bool
    ) -> tuple[list[Hit], str, int]:
        """As many hits as the tokens left allow, their text, and its tokens."""
        left = self._max_tokens - self.tokens

        def text(most: int) -> str:
            return self._write_text(hits[:most], notes, none, searched)

        most = bisect_right(range(len(hits) + 1), left, key=lambda n: estimate_tokens(text(n))) - 1
        return (hits[:most], text(most), estimate_tokens(text(most))) if most >= 0 else ([], "", 0)

    def _write_text(self, hits: list[Hit], notes: Sequence[str], none: bool, searched: bool) -> str:
        head = "No tool surely fits; the nearest:" if none else "Nearest tools:"
        lines = (
            [head, self._write_lines(hits)] if hits else ["No further tool was found."] * searched
        )
        return "\n".join([*lines, *notes])

    def _write_lines(self, hits: list[Hit]) -> str:
        index = self._router.index if self._router and self._schemas else None
        if index is None:
            return render(hits)
        places = ((hit.tool_id, index.place_of(hit.tool_id)) for hit in hits)
        return render(hits, {name: index.contract(at) for name, at in places if at is not None})

    def _find_stop(
        self, left_out: int, searched: bool, found: dict[str, Hit], text: str
    ) -> Stop | None:
        if left_out or not text:
            used = f"{self.tokens:,} of {self._max_tokens:,} tokens are used; what came next no"
            return Stop(MAX_TOKENS, f"{used} longer fits")
        if searched and not found and self.shown:
            return Stop(NOTHING_NEW, "nothing was found that was not shown or excluded before")
        if self._unsuitable >= 2:
            return Stop(NO_SUITABLE_TOOL, "the router found no suitable tool twice in a row")
        if self.rounds >= self._max_rounds:
            return Stop(MAX_ROUNDS, f"{self.rounds} rounds are the most that were allowed")
        return None


def _refine_ask(old: Ask, words: str) -> Ask:
    if old.query:
        return replace(old, query=_join_words(words, old.query))
    return replace(old, tool=_join_words(words, old.tool))


def _join_words(new: str | None, old: str | None) -> str | None:
    """New words before old ones, so that a long history is cut at its oldest end."""
    if not new or not old or new.casefold() in old.casefold():
        return old or new
    return f"{new}; {old}" if len(new) + len(old) < _LONGEST_WORDS else new
