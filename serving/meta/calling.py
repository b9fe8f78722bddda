"""call_tool: one call of one tool, from its id to its result.

What belongs here: the order of the checks, and what is said of each way a call can end. What does
not: running the server (`serving/calls`), asking people (`consent.py`), what goes through of a
result (`results.py`).

Nothing is launched before every check has passed. Whatever happens, one outcome is recorded, also
when the client hangs up in the middle.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from serving.meta.consent import ACCEPT, DECLINE, Client, Pending, question, why_ask
from serving.meta.describing import NotHere, how_run
from serving.meta.desk import Desk, Reply, short
from serving.meta.fields import Fields
from serving.meta.policy import Token
from serving.meta.quoted import Bounded, as_json, exact, guillemets, line, marked
from serving.meta.results import passed_on
from serving.meta.schemas import CALL, INPUTS
from warehouse.digest import digest

if TYPE_CHECKING:
    from serving.ranking.model import Tool

_PROBLEMS = 20
_ALLOW = (
    "use a client that can ask you (elicitation), or let the person who runs this server set"
    ' consent to "always" for this token'
)


@dataclass
class Attempt:
    """One request to call a tool, and what its outcome will say."""

    call_id: str
    tool_id: str
    token: str
    index: str | None = None
    facts: dict[str, Any] = field(default_factory=lambda: {"status": "cancelled"})

    def ended(self, status: str, **facts: Any) -> None:
        """How it ended; the last word counts."""
        self.facts.update({"status": status, **facts})

    def outcome(self) -> dict[str, Any]:
        """As it is recorded."""
        named = {"call_id": self.call_id, "tool_id": self.tool_id, "token": self.token}
        return {**named, "index": self.index, **self.facts}


@dataclass(frozen=True)
class Ready:
    """A call whose arguments fit the contract."""

    tool: "Tool"
    contract: dict[str, Any]
    arguments: dict[str, Any]
    steps: tuple[str, ...]
    runs: str


async def call_tool(desk: Desk, token: Token, given: Mapping[str, Any], client: Client) -> Reply:
    """The result, or why there is none. Raises BadField, NotHere, IndexMissing, IndexBroken, and
    Pending where the client is asked first."""
    fields = Fields(given, INPUTS[CALL]["properties"])
    tool_id, arguments = fields.needed("tool_id"), fields.arguments("arguments")
    attempt = Attempt(uuid.uuid4().hex, tool_id, token.name)
    asked_again = False
    try:
        return await _checked(desk, token, attempt, arguments, fields.flag("repair"), client)
    except NotHere:
        attempt.ended("refused", error_kind="not_here", blame="caller")
        raise
    except Pending:
        asked_again = True
        raise
    finally:
        if not asked_again:
            facts = attempt.outcome()
            desk.calls[attempt.call_id] = (token.name, facts)
            await desk.record(facts)


async def _checked(
    desk: Desk,
    token: Token,
    attempt: Attempt,
    arguments: dict[str, Any],
    repair: bool,
    client: Client,
) -> Reply:
    router = await desk.router()
    attempt.index = router.index.version
    found = await desk.tool(router, token, attempt.tool_id)
    if found is None:
        raise NotHere(attempt.tool_id, token, router.index.version)
    place, tool = found
    attempt.facts["contract_digest"] = tool.contract_digest
    attempt.facts["query"] = desk.queries.get((token.name, tool.tool_id))
    if desk.caller is None or not token.calls:
        why = "calls are switched off here" if token.calls else "this token may not call tools"
        return _refused(attempt, "calls_off", why, "find and describe go on working")
    contract = await desk.work(router.index.contract, place)
    steps, problems = (), await desk.work(_problems, contract, arguments)
    if problems and repair:
        arguments, steps = await desk.work(_repaired, contract, arguments)
        problems = await desk.work(_problems, contract, arguments)
    attempt.facts["repaired"] = len(steps)
    if problems:
        return _invalid(attempt, problems, steps, repair)
    runs = how_run(router.index.recipe(tool.server_id), tool.server_id)
    ready = Ready(tool, contract, arguments, steps, runs)
    refusal = await _consented(desk, token, attempt, ready, client)
    return refusal or await _run(desk, attempt, ready)


async def _consented(
    desk: Desk, token: Token, attempt: Attempt, ready: Ready, client: Client
) -> Reply | None:
    """None when the call may run."""
    tool = ready.tool
    why = why_ask(tool, desk.policy)
    if why is None:
        return None
    if not client.can_ask:
        policy = desk.policy.consent_of(token)
        if policy == "always":
            return None
        mend = _ALLOW if policy == "ask" else "consent is set to never for this token"
        return _refused(attempt, "no_consent", f"a person must agree, since {why}", mend)
    of = digest([tool.tool_id, tool.contract_digest, ready.arguments])
    message = question(tool, ready.arguments, ready.runs, why)
    answer = await client.ask(message, of, desk.policy.consent_timeout_s)
    if answer != ACCEPT:
        status = "declined" if answer == DECLINE else "cancelled"
        attempt.ended(status)
        told = f"the person who was asked {status} this call; it was not run"
        return _answer(attempt, {"reason": told}, told)
    # An answer takes minutes, in which the tool can be held back or replaced by another.
    router = await desk.router()
    now = await desk.tool(router, token, tool.tool_id)
    if now is None or now[1].contract_digest != tool.contract_digest:
        raise NotHere(tool.tool_id, token, router.index.version)
    return None


async def _run(desk: Desk, attempt: Attempt, ready: Ready) -> Reply:
    caller, limit = desk.caller, desk.policy.timeout_s
    assert caller is not None
    began = anyio.current_time()
    tool = ready.tool
    result = None
    try:
        with anyio.move_on_after(limit + desk.policy.grace_s):
            result = await caller.call(
                tool.server_id, tool.tool, ready.contract, ready.arguments, timeout_s=limit
            )
    except Exception:
        seconds = anyio.current_time() - began
        attempt.ended("failed", error_kind="internal", blame="us", seconds=seconds)
        raise
    seconds = anyio.current_time() - began
    if result is None:
        facts = {"error_kind": "timeout", "blame": "server", "seconds": seconds}
        attempt.ended("failed", **facts)
        told = f"no result within {limit:g} s"
        return _failed(attempt, told, {"kind": "timeout", "message": told, "blame": "server"})
    facts = {"error_kind": result.error_kind, "blame": result.blame, "seconds": seconds}
    attempt.ended(result.status, **facts)
    if result.status == "invalid_arguments":
        return _invalid(attempt, result.problems, ready.steps, repair=True)
    if result.status in ("ok", "tool_error"):
        return _returned(desk, attempt, ready, result)
    hint = line(str(result.hint or "the call failed"), 600)
    kind = result.error_kind or "failed"
    blame = {"blame": result.blame} if result.blame else {}
    return _failed(attempt, hint, {"kind": kind, "message": hint, **blame})


def _returned(desk: Desk, attempt: Attempt, ready: Ready, result: Any) -> Reply:
    """What the tool returned, its own error included."""
    most = desk.policy.max_result
    of = exact(ready.tool.tool_id, 200)
    blocks, text, data, cut = passed_on(result.content, result.structured, of, most)
    told: dict[str, Any] = {"text": text} if text or data is None else {}
    if data is not None:
        told["structured"] = data
        if text == "":
            blocks[0] = {"type": "text", "text": marked(as_json(data), of)}
    if cut:
        told["cut"] = True
    reply = _answer(attempt, {**told, **_steps(ready.steps)}, _head(attempt, ready.steps, cut))
    reply.blocks, reply.is_error = blocks, result.status == "tool_error"
    return reply


def _invalid(attempt: Attempt, problems: Any, steps: tuple[str, ...], repair: bool) -> Reply:
    copy = Bounded(8_000, longest=300)
    listed = [copy(dict(problem)) for problem in list(problems)[:_PROBLEMS]]
    attempt.ended("invalid_arguments", error_kind="invalid_arguments", blame="caller")
    # Names and allowed values in a problem are the contract's: third-party words again.
    lines = [
        f"- {one.get('path') or 'arguments'}: found {one.get('found')}; expected"
        f" {one.get('expected')}; {one.get('mend')}"
        for one in listed
    ]
    mend = "mend them" if repair else "mend them, or send repair=true"
    message = f"{len(problems)} problem(s) in the arguments; nothing was run; {mend}"
    error = {"kind": "invalid_arguments", "field": "arguments", "message": message}
    told = {"problems": listed, "error": error, **_steps(steps)}
    reply = _answer(attempt, told, "\n".join([_head(attempt, steps), message]))
    reply.blocks = [{"type": "text", "text": marked("\n".join(lines), "the contract")}]
    reply.is_error = True
    return reply


def _refused(attempt: Attempt, kind: str, why: str, mend: str) -> Reply:
    attempt.ended("refused", error_kind=kind, blame="us")
    told = f"not run: {why}; to allow it: {mend}" if kind == "no_consent" else f"{why}; {mend}"
    reply = _answer(attempt, {"reason": told, "error": {"kind": kind, "message": told}}, told)
    reply.is_error = True
    return reply


def _failed(attempt: Attempt, hint: str, error: dict[str, Any]) -> Reply:
    reply = _answer(attempt, {"error": error}, f"{_head(attempt, ())}\n{guillemets(hint)}")
    reply.is_error = True
    return reply


def _answer(attempt: Attempt, told: Mapping[str, Any], text: str) -> Reply:
    facts = attempt.facts
    shared: dict[str, Any] = {
        "index": attempt.index,
        "call_id": attempt.call_id,
        "tool_id": exact(attempt.tool_id, 400),
        "status": facts["status"],
    }
    if "seconds" in facts:
        shared["seconds"] = round(facts["seconds"], 3)
    return Reply({**shared, **told}, text=text)


def _head(attempt: Attempt, steps: tuple[str, ...], cut: bool = False) -> str:
    seconds = attempt.facts.get("seconds")
    took = f" in {seconds:.1f} s" if seconds is not None else ""
    lines = [
        f"call {attempt.call_id} in index {short(attempt.index)}: {attempt.facts['status']}{took}",
        *(f"repaired: {line(step, 300)}" for step in steps),
        *(["parts of the result were left out: it is too large"] if cut else []),
    ]
    return "\n".join(lines)


def _steps(steps: tuple[str, ...]) -> dict[str, Any]:
    return {"repaired": [line(step, 300) for step in steps]} if steps else {}


def _problems(contract: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[Any]:
    from serving.calls import problems_of

    return problems_of(contract, arguments)


def _repaired(
    contract: Mapping[str, Any], arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    from assets.contracts.repair import repair

    made = repair(contract, arguments)
    return dict(made.arguments), tuple(made.steps)
