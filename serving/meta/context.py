"""What the meta-server's tools work with. An entry point of `toolmill.learners` is a function
`(ServedRouter, CallLog, ReliabilityPolicy) -> OutcomeLearner`."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

from assets.servers.calls.log import CallLog
from serving.index.model import IndexedTool
from serving.meta.access_control import RequestLimits
from serving.meta.policy import ClientToken, MetaPolicy
from serving.ranking.overlays import ToolEligibility
from serving.router import Router, ServedRouter
from warehouse.bounded_dict import BoundedDict
from warehouse.extensions import LEARNERS, load_extensions
from warehouse.sanitize.untrusted_text import drop_surrogates

logger = logging.getLogger(__name__)
_REMEMBERED = {
    "digest": "of queries only a digest",
    "text": "the words of every query and what it showed",
    "vector": "the vector of every query and what it showed",
}
T = TypeVar("T")
_THREADS = 4  # requests that search at a time; more of them only wait for the cores
_TURNS = 2  # of them of one token


class OutcomeLearner(Protocol):
    """Teaches the served reranker from the log of calls, a little at each step."""

    @property
    def learnt(self) -> int | None:
        """Outcomes learned since the reranker was fitted; None without a reranker."""
        ...

    def step(self) -> bool: ...


async def follow_log(learner: OutcomeLearner, poll_s: float) -> None:
    """Runs the learner in its own thread until cancelled; it rests as long as it worked."""
    thread = anyio.CapacityLimiter(1)
    while True:
        began = anyio.current_time()
        idle = await anyio.to_thread.run_sync(learner.step, limiter=thread)
        await anyio.sleep(max(poll_s if idle else 0.0, anyio.current_time() - began))


class ToolCaller(Protocol):
    """Runs one call of one tool (`assets/servers/calls`)."""

    async def call(
        self,
        server_id: str,
        tool: str,
        contract: Mapping[str, Any],
        arguments: Mapping[str, Any],
        *,
        timeout_s: float,
        owner: str,
        on_progress: Any = None,
    ) -> Any:
        """A CallResult, whatever happens. on_progress: where the client asked for it; it is called
        with (0, None) once the server is up, then with (progress, total)."""
        ...


@dataclass
class ToolReply:
    """What a tool answers: content blocks, structured content, whether it is a failure."""

    structured: dict[str, Any]
    text: str = ""
    blocks: list[dict[str, Any]] = field(default_factory=list)
    is_error: bool = False

    def as_result(self) -> dict[str, Any]:
        """Our text and the first text of the tool are one block: smolagents reads no second one."""
        head, rest = [self.text] if self.text else [], self.blocks
        if rest and rest[0]["type"] == "text":
            head, rest = [*head, rest[0]["text"]], rest[1:]
        texts = [{"type": "text", "text": "\n".join(head)}] if head else []
        result = {"content": [*texts, *rest], "structuredContent": self.structured}
        return {**result, "isError": self.is_error}


@dataclass(frozen=True)
class VisibleTools:
    """What of one index a token may see: places of its tools, and tools by place of server."""

    places: frozenset[int]
    servers: dict[int, list[int]]


class MetaContext:
    """One per server; for one event loop."""

    def __init__(
        self, router: ServedRouter, caller: ToolCaller | None, policy: MetaPolicy, outcomes: CallLog
    ) -> None:
        self.served, self.caller, self.policy, self.outcomes = router, caller, policy, outcomes
        self.limits = RequestLimits()
        learners = load_extensions(LEARNERS).values() if policy.learning is not None else ()
        self.learner: OutcomeLearner | None = next(
            (make(router, outcomes, policy.learning) for make in learners), None
        )
        self.queries = BoundedDict()  # (token, client if kept, tool id) -> facts of its search
        self.asked = BoundedDict()  # (token, tool id) -> words that found it, where traces are kept
        self.calls = BoundedDict()  # call id -> (token name, facts of its outcome)
        self.questions = BoundedDict()  # number of a question that waits for its answer -> what of
        self._seen: WeakKeyDictionary[Router, dict[Any, VisibleTools]] = WeakKeyDictionary()
        self._threads: anyio.CapacityLimiter | None = None
        self._turns: dict[str, anyio.CapacityLimiter] = {}
        self._loaded = False

    async def work(self, fn: Callable[..., T], *args: Any, **options: Any) -> T:
        """Runs `fn` in a thread, so that the loop goes on answering."""
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(_THREADS)
        return await anyio.to_thread.run_sync(partial(fn, *args, **options), limiter=self._threads)

    async def work_for(self, token: ClientToken, fn: Callable[..., T], *args: Any) -> T:
        """`work` in the token's turn: one that asks much does not delay the others."""
        if token.name not in self._turns:
            self._turns[token.name] = anyio.CapacityLimiter(_TURNS)
        async with self._turns[token.name]:
            return await self.work(fn, *args)

    async def router(self) -> Router:
        """The served index's router, asked once an answer. Raises IndexMissing, IndexBroken."""
        if self._loaded:  # from then on it looks at two files, and loads beside us
            return self.served.current()
        router = await self.work(self.served.current)
        self._loaded = True
        return router

    async def seen(self, router: Router, token: ClientToken) -> VisibleTools:
        """What the token may see of this router's index: neither quarantined nor off its list."""
        by_list = self._seen.setdefault(router, {})
        if token.allow not in by_list:
            by_list[token.allow] = await self.work(_seen, router, token.allow)
        return by_list[token.allow]

    async def tool(
        self, router: Router, token: ClientToken, tool_id: str
    ) -> tuple[int, IndexedTool] | None:
        """(place, tool) of a tool that the token may use now, else None."""
        place = router.index.place_of(tool_id)
        if place is None or place not in (await self.seen(router, token)).places:
            return None
        return place, router.index.tools[place]

    async def keep_trace(self, token: ClientToken, facts: Mapping[str, Any], result: Any) -> None:
        """Keeps a whole call of a token that opted in, redacted; none whose texts are too long or
        read like orders. facts: tool_id, contract_digest, arguments, status."""
        texts = [block["text"] for block in result.content if isinstance(block.get("text"), str)]
        whole = "\n".join(texts) or json.dumps(result.structured or {})
        words = self.asked.get((token.name, facts["tool_id"]), "")
        if result.alarming or result.unread:
            return
        try:
            with anyio.CancelScope(shield=True):
                await self.work(self.outcomes.keep_trace, token.name, words, facts, whole)
        except OSError as error:
            logger.error("a trace could not be written: %s", error)

    async def record(self, facts: Mapping[str, Any]) -> None:
        """Writes an outcome. A full disk is told in the log; it takes no answer away."""
        try:
            with anyio.CancelScope(shield=True):
                await self.work(self.outcomes.record, facts)
        except OSError as error:
            logger.error("an outcome could not be written: %s", error)


def _seen(router: Router, allow: tuple[str, ...] | None) -> VisibleTools:

    mask = ToolEligibility(router.index, router.blocked).mask(allow, ())
    servers: dict[int, list[int]] = {}
    for place, tool in enumerate(router.index.tools):
        if mask is None or mask[place]:
            servers.setdefault(tool.server, []).append(place)
    return VisibleTools(frozenset(at for places in servers.values() for at in places), servers)


def shorten_version(version: str | None) -> str:
    return version[:12] if version else "none"


def describe_kept(token: ClientToken, desk: MetaContext) -> str:
    """What the log keeps of what this token asks for, and what learns from it, in a line."""
    notice = (
        f"Kept under the name {token.name!r}: outcome, tool, note; {_REMEMBERED[token.remember]}"
    )
    if token.traces:
        notice += "; every call with its arguments and answer, without secrets"
    learns = desk.learner is not None and token.remember == "text"
    return f"{notice}; the order of tools learns from it" if learns else notice


def keep_client(token: ClientToken, client: str | None) -> dict[str, str]:
    """What a line holds of who asked: a token that opted in may be that of several clients."""
    return {"client": client} if client and token.remember != "digest" else {}


def read_client(ctx: Any) -> str | None:
    """The client of a request as it names itself: `name version`."""
    params = ctx.session.client_params
    if params is None:
        return None
    client = f"{params.client_info.name} {params.client_info.version}"
    return drop_surrogates(" ".join(client.split())[:100])
