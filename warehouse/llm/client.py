"""The one client through which every language-model request goes.

prepare (request, key) -> look up in the ledger -> send (paid once) -> tolerant parse -> value
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from warehouse.extensions import OUTBOXES, load_extensions
from warehouse.item_failure import describe_failure
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.ledger.batch_records import BatchRecord
from warehouse.ledger.ledger import Ledger
from warehouse.llm.endpoint import open_provider
from warehouse.llm.json_answers import BadAnswer, parse_answer
from warehouse.llm.paid_calls import GIVE_UP_AFTER, PaidAnswer, PaidCalls, PaidQuestion
from warehouse.llm.roles import (
    OFFLINE,
    OPENAI,
    AnswerPending,
    LLMError,
    Message,
    ModelCompletion,
    ModelReply,
    ModelRequest,
    PreparedRequest,
    Provider,
    Role,
    Value,
    make_request_key,
    prepare_request,
)
from warehouse.progress import Progress, SilentProgress

__all__ = [
    "GIVE_UP_AFTER", "LLM", "OFFLINE", "AnswerPending", "LLMError", "ModelCompletion",
    "ModelReply", "ModelRequest", "PreparedRequest", "Provider", "Role", "make_request_key",
]  # fmt: skip

# One answer in a few hundred is cut off at its limit; this much more room ends nearly all of them.
ENLARGE = 4


class RequestOutbox(Protocol):
    def queue(self, prepared: PreparedRequest) -> None:
        """Puts a request into a batch and raises Pending. Returns for one to send directly."""
        ...

    def submit(self) -> list[BatchRecord]:
        """Sends the batches; returns them, each with what kept it back."""
        ...

    def drop(self) -> None: ...


class LLM:
    """All roles over one ledger. Use it from any number of tasks of one event loop at a time."""

    def __init__(
        self,
        roles: Iterable[Role],
        ledger: Ledger,
        *,
        offline: Provider | None = None,
        endpoint: Provider | None = None,
        partition: str = "_",
        scope: str = "usd",
        batches: bool = False,
    ) -> None:
        """batches: whether roles set so wait for a batch of `run_batch`, or callers for answers."""
        self.roles = {role.name: role for role in roles}
        # asked, cached, pending, failed (of this object's life)
        self.counts: Counter[str] = Counter()
        self.usd = 0.0
        self.batches: list[BatchRecord] = []  # that were sent, or kept back, in this object's life
        self._calls = PaidCalls(self.roles.values(), ledger, partition=partition, scope=scope)
        self._offline = offline
        self._providers: dict[str, Provider] = {OPENAI: endpoint} if endpoint else {}
        self._ledger, self._partition, self._scope = ledger, partition, scope
        self._by_batch = batches
        self._outbox: RequestOutbox | None = None

    def role(self, name: str) -> Role:
        """The role of that name. Raises LLMError `unknown_role` naming the known ones."""
        if name in self.roles:
            return self.roles[name]
        names = ", ".join(sorted(self.roles)) or "none"
        raise LLMError("unknown_role", repr(name), f"one of {names}", "add it to the settings")

    def provider(self, role: Role) -> Provider:
        """Who answers for this role: the injected offline provider, or who speaks its protocol."""
        if role.model == OFFLINE:
            if self._offline is None:
                hint = "inject one, or set the role's model and base_url"
                raise LLMError("no_provider", "model 'offline'", "an offline provider", hint)
            return self._offline
        if role.protocol not in self._providers:
            self._providers[role.protocol] = open_provider(role.protocol)
        return self._providers[role.protocol]

    def identity(self, name: str) -> dict[str, Any]:
        """What of this role decides its answers, for the plan of a stage: part of every key."""
        role = self.role(name)
        return {**role.identity(), "version": self.provider(role).version()}

    def figures(self) -> dict[str, int | float]:
        """For `Progress.update`: asked, cached, failed, usd; pending, if requests wait so."""
        counts = {name: self.counts[name] for name in ("asked", "cached", "failed")}
        waiting = {"pending": self.counts["pending"]} if self.counts["pending"] else {}
        return {**counts, **waiting, "usd": round(self.usd, 4)}

    async def complete(
        self,
        role: str,
        messages: Sequence[Message],
        *,
        schema: type[Value],
        seed: int = 0,
        meta: Mapping[str, Any] | None = None,
    ) -> ModelReply[Value]:
        """Asks `role`; a `schema` value. Truncated, empty or malformed answers are asked for once
        more, each paid and kept. Raises LLMError (Pending in a batch), BudgetExceeded."""
        try:
            who = self.role(role)
            request = ModelRequest(who, messages, schema, seed, meta or {}, who.max_tokens)
            return await self._ask_until_usable(self._prepare_request(request, ""))
        except (LLMError, BudgetExceeded) as error:
            self.counts["pending" if isinstance(error, AnswerPending) else "failed"] += 1
            raise

    def _prepare_request(self, request: ModelRequest, variant: str) -> PreparedRequest:
        return prepare_request(request, self.provider(request.role).version(), variant)

    async def _ask_until_usable(self, first: PreparedRequest) -> "ModelReply[Any]":
        request, receipts = first.request, [await self._pay_answer(first)]
        if receipts[-1].facts["finish"] == "length":
            receipts.append(await self._ask_enlarged(request))
        completion = ModelCompletion(**receipts[-1].facts)
        try:
            value = parse_answer(completion.text, completion.finish, request.schema)
        except BadAnswer as flaw:
            if not flaw.ask_again:
                raise _make_unusable(request.role, flaw) from flaw
            corrected = replace(
                request, messages=[*request.messages, *_write_complaint(completion.text, flaw)]
            )
            again = self._prepare_request(corrected, "again")
            receipts.append(await self._pay_answer(again, follow_up=True))
            completion = ModelCompletion(**receipts[-1].facts)
            try:
                value = parse_answer(completion.text, completion.finish, request.schema)
            except BadAnswer as second:
                raise _make_unusable(request.role, second) from second
        return ModelReply(
            value=value,
            model=completion.model,
            provider=request.role.provider,
            prompt_tokens=sum(paid.facts["prompt_tokens"] for paid in receipts),
            completion_tokens=sum(paid.facts["completion_tokens"] for paid in receipts),
            usd=round(sum(paid.usd for paid in receipts), 9),
            cached=all(paid.cached for paid in receipts),
        )

    async def _ask_enlarged(self, request: ModelRequest) -> PaidAnswer:
        """The answer with more room. One that was kept serves whatever the limit is now, unless it
        too was cut off and there is more room now than there was then."""
        wider = replace(request, max_tokens=request.max_tokens * ENLARGE)
        paid = await self._pay_answer(self._prepare_request(wider, "enlarged"), follow_up=True)
        cut = paid.facts["finish"] == "length" and paid.facts["limit"] < wider.max_tokens
        if not cut:
            return paid
        widest = self._prepare_request(wider, f"to {wider.max_tokens}")
        return await self._pay_answer(widest, follow_up=True)

    async def _pay_answer(
        self, prepared: PreparedRequest, *, follow_up: bool = False
    ) -> PaidAnswer:
        """One answer: from the ledger at once, or sent. Raises Pending if it goes by batch."""
        request = prepared.request
        provider = self.provider(request.role)
        if self._goes_by_batch(request.role, follow_up) and self._calls.find(prepared.key) is None:
            self._open_outbox("").queue(prepared)

        async def answer(tries: int) -> dict[str, Any]:
            completion = await provider.answer(request)
            return {**vars(completion), "retries": tries, "limit": request.max_tokens}

        stage = f"llm:{request.role.name}"
        most = prepared.most_tokens, prepared.most_usd
        paid = await self._calls.ask(PaidQuestion(request.role, stage, prepared.key, *most), answer)
        self.counts["cached" if paid.cached else "asked"] += 1
        self.usd += 0.0 if paid.cached else paid.usd
        return paid

    def _goes_by_batch(self, role: Role, follow_up: bool) -> bool:
        return self._by_batch and role.batch and role.model != OFFLINE and not follow_up

    def _open_outbox(self, stage: str) -> RequestOutbox:
        if self._outbox is None:
            outboxes = list(load_extensions(OUTBOXES).values())
            if not outboxes:
                hint = "install it, or set batch = false for every role"
                raise LLMError("no_provider", "batch = true", "the extension `batch`", hint)
            place = {"partition": self._partition, "scope": self._scope}
            outbox: RequestOutbox = outboxes[0](self._ledger, stage, **place)
            self._outbox = outbox
        return self._outbox

    def drop_requests(self) -> None:
        """Lets go of what was gathered and is not sent."""
        if self._outbox is not None:
            self._outbox.drop()
            self._outbox = None

    async def aclose(self) -> None:
        """Closes connections of the running event loop; call it before the loop ends."""
        for provider in self._providers.values():
            if close := getattr(provider, "aclose", None):
                await close()


def _write_complaint(text: str, flaw: BadAnswer) -> list[Message]:
    demand = f"That answer cannot be used: {flaw}. Answer again with the JSON object only."
    quoted = [{"role": "assistant", "content": text[:4000]}] if text.strip() else []
    return [*quoted, {"role": "user", "content": demand}]


def _make_unusable(role: Role, flaw: BadAnswer) -> LLMError:
    hints = {
        "truncated": f"raise max_tokens of role {role.name} (now {role.max_tokens})",
        "refused": "the model declined; look at the tool's text, or choose another model",
    }
    default = "the answer is kept; another seed, model or prompt asks again"
    return LLMError(flaw.kind, str(flaw), "one JSON object", hints.get(flaw.kind, default))


Record = TypeVar("Record")
Result = TypeVar("Result")


def run_batch(
    records: Sequence[Record],
    work: Callable[[Record], Awaitable[Result]],
    llm: LLM,
    *,
    fail: Callable[[Record, str], Result],
    workers: int,
    stage: str,
    progress: Progress | None = None,
) -> list[Result]:
    """`work` of each record, in order; `stage` names it in the progress. Unforeseen errors become
    `fail` of the record and a hint; LLMError, BudgetExceeded, the ledger's and a full disk stop all
    others and are raised. The client is closed, and Batch API requests sent, at the end."""

    async def work_or_fail(record: Record) -> Result:
        try:
            return await work(record)
        except Exception as error:
            return fail(record, describe_failure(error, (LLMError, BudgetExceeded)))

    if any(llm._goes_by_batch(role, False) for role in llm.roles.values()):
        llm._open_outbox(stage)
    try:
        results = asyncio.run(
            _run_workers(records, work_or_fail, llm, workers, stage, progress or SilentProgress())
        )
    except BaseException:
        llm.drop_requests()
        raise
    if llm._outbox is not None:
        llm.batches += llm._outbox.submit()
        llm._outbox = None
    return results


async def _run_workers(
    records: Sequence[Record],
    work: Callable[[Record], Awaitable[Result]],
    llm: LLM,
    workers: int,
    stage: str,
    progress: Progress,
) -> list[Result]:
    results: dict[int, Result] = {}
    queue = iter(enumerate(records))

    async def drain() -> None:
        for place, record in queue:  # all workers share one iterator: no task waits in memory
            results[place] = await work(record)
            progress.update(stage, len(results), len(records), **llm.figures())

    tasks = [asyncio.create_task(drain()) for _ in range(min(len(records), workers))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await llm.aclose()
    return [results[place] for place in range(len(records))]
