"""call_tool: one call of one tool. Nothing is launched before every check has passed, and one
outcome is recorded whatever happens, also when the client hangs up."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from assets.contracts.repair.problems import find_problems
from assets.contracts.repair.repair import repair_call
from serving.index.model import IndexBroken, IndexedTool, IndexMissing
from serving.meta.consent import (
    ACCEPT,
    DECLINE,
    ConsentClient,
    ConsentPending,
    TellProgress,
    explain_consent,
    write_question,
)
from serving.meta.context import MetaContext, ToolReply, keep_client, shorten_version
from serving.meta.describe_tool import NotHere, explain_run
from serving.meta.policy import ClientToken
from serving.meta.schemas import CALL, INPUTS, ArgumentFields
from serving.untrusted_text import BoundedText, dump_json, limit_result, mark_text, show_line
from warehouse.sanitize.untrusted_text import escape_name, quote_name, quote_text, read_name
from warehouse.storage.digest import digest

_PROBLEMS = 20
_ALLOW = (
    "use a client that can ask you (elicitation), or let the person who runs this server set"
    ' consent to "always" for this token'
)


@dataclass
class CallAttempt:
    call_id: str
    tool_id: str
    token: str
    index: str | None = None
    facts: dict[str, Any] = field(default_factory=lambda: {"status": "cancelled"})

    def note_end(self, status: str, **facts: Any) -> None:
        self.facts.update({"status": status, **facts})

    def make_outcome(self) -> dict[str, Any]:
        ids = {"call_id": self.call_id, "tool_id": self.tool_id, "token": self.token}
        return {**ids, "index": self.index, **self.facts}


def answer_returned(
    attempt: CallAttempt, result: Any, steps: tuple[str, ...], most: int
) -> ToolReply:
    """What the tool returned, its own error included; `most` characters of it."""
    of = quote_name(attempt.tool_id, 200)
    blocks, text, data, cut = limit_result(result.content, result.structured, of, most)
    facts: dict[str, Any] = {"text": text} if text or data is None else {}
    if data is not None:
        facts["structured"] = data
        if text == "":
            blocks[0] = {"type": "text", "text": mark_text(dump_json(data), of)}
    if cut:
        facts["cut"] = True
    if result.problems:  # of structured content against its own schema
        facts["problems"] = _list_problems(result.problems)
    facts |= _describe_findings(result)
    head = "\n".join([_write_head(attempt, steps, cut), *_write_warnings(result)])
    reply = make_answer(attempt, {**facts, **_describe_steps(steps)}, head)
    reply.blocks, reply.is_error = blocks, result.status == "tool_error"
    return reply


def answer_invalid(
    attempt: CallAttempt, problems: Any, steps: tuple[str, ...], repair: bool
) -> ToolReply:
    """Arguments that do not fit the contract, field by field. repair: whether it was tried."""
    rows = _list_problems(problems)
    attempt.note_end("invalid_arguments", error_kind="invalid_arguments", blame="caller")
    # Names and allowed values in a problem are the contract's: third-party words again.
    lines = [
        f"- {item.get('path') or 'arguments'}: found {item.get('found')}; expected"
        f" {item.get('expected')}; {item.get('fix')}"
        for item in rows
    ]
    fix = "fix them" if repair else "fix them, or send repair=true"
    message = f"{len(problems)} problem(s) in the arguments; nothing was run; {fix}"
    error = {"kind": "invalid_arguments", "field": "arguments", "message": message}
    head, facts = _write_head(attempt, steps), {"problems": rows, **_describe_steps(steps)}
    reply = answer_error(attempt, error, f"{head}\n{message}", **facts)
    reply.blocks = [{"type": "text", "text": mark_text("\n".join(lines), "the contract")}]
    return reply


def answer_refused(attempt: CallAttempt, kind: str, why: str, fix: str) -> ToolReply:
    attempt.note_end("refused", error_kind=kind, blame="us")
    message = f"not run: {why}; to allow it: {fix}" if kind == "no_consent" else f"{why}; {fix}"
    return answer_error(attempt, {"kind": kind, "message": message}, message, reason=message)


def answer_blocked(attempt: CallAttempt, result: Any) -> ToolReply:
    attempt.note_end("failed", error_kind="result_blocked", blame=result.blame or "tool")
    why = "; ".join(_write_warnings(result))
    fix = 'the call was made; whoever runs this server can set serve.calls.results to "mark"'
    error = {"kind": "result_blocked", "message": f"the result is not handed on: {why}; {fix}"}
    text = f"{_write_head(attempt, ())}\n{error['message']}"
    return answer_error(attempt, error, text, **_describe_findings(result))


def answer_failed(
    attempt: CallAttempt, kind: str, hint: str, blame: str | None, result: Any = None
) -> ToolReply:
    """A call without an answer. The hint may hold a server's last words."""
    message = show_line(hint, 600)
    error = {"kind": kind, "message": message, **({"blame": blame} if blame else {})}
    head = [_write_head(attempt, ()), *(_write_warnings(result) if result else [])]
    facts = _describe_findings(result) if result else {}
    return answer_error(attempt, error, "\n".join([*head, quote_text(message)]), **facts)


def answer_error(
    attempt: CallAttempt, error: Mapping[str, str], text: str, **facts: Any
) -> ToolReply:
    reply = make_answer(attempt, {"error": error, **facts}, text)
    reply.is_error = True
    return reply


def make_answer(attempt: CallAttempt, fields: Mapping[str, Any], text: str) -> ToolReply:
    facts = attempt.facts
    shared: dict[str, Any] = {
        "index": attempt.index,
        "call_id": attempt.call_id,
        "tool_id": escape_name(attempt.tool_id, 400),
        "status": facts["status"],
    }
    if "seconds" in facts:
        shared["seconds"] = round(facts["seconds"], 3)
    return ToolReply({**shared, **fields}, text=text)


def _describe_findings(result: Any) -> dict[str, Any]:
    """The high ones and keys taken out, without words of the result: those stand in it."""
    findings = [
        finding for finding in result.findings if finding.rule in (*result.alarming, "issued_key")
    ]
    rows = [
        {
            "rule": finding.rule,
            "severity": finding.severity,
            "field": finding.field[:200],
            "why": finding.why,
        }
        for finding in findings[:_PROBLEMS]
    ]
    return {"findings": rows} if rows else {}


def _write_warnings(result: Any) -> list[str]:
    lines = []
    if result.alarming:
        rules = ", ".join(result.alarming)
        lines.append(f"warning: the result holds what looks like orders to a model ({rules})")
    if any(finding.rule == "issued_key" for finding in result.findings):
        lines.append("keys in the form of their issuer were taken out of the result")
    if result.unread:
        lines.append("warning: not all of the result was scanned: it is too large")
    return lines


def _list_problems(problems: Any) -> list[dict[str, Any]]:
    copy = BoundedText(8_000, longest=300)
    return [copy(dict(problem)) for problem in list(problems)[:_PROBLEMS]]


def _write_head(attempt: CallAttempt, steps: tuple[str, ...], cut: bool = False) -> str:
    seconds = attempt.facts.get("seconds")
    took = f" in {seconds:.1f} s" if seconds is not None else ""
    lines = [
        f"call {attempt.call_id} in index {shorten_version(attempt.index)}:"
        f" {attempt.facts['status']}{took}",
        *(f"repaired: {show_line(step, 300)}" for step in steps),
        *(["parts of the result were left out: it is too large"] if cut else []),
    ]
    return "\n".join(lines)


def _describe_steps(steps: tuple[str, ...]) -> dict[str, Any]:
    return {"repaired": [show_line(step, 300) for step in steps]} if steps else {}


@dataclass(frozen=True)
class CheckedCall:
    tool: IndexedTool
    contract: dict[str, Any]
    arguments: dict[str, Any]
    steps: tuple[str, ...]
    runs: str


async def call_tool(
    desk: MetaContext,
    token: ClientToken,
    sent: Mapping[str, Any],
    client: ConsentClient,
    name: str | None = None,
) -> ToolReply:
    """The result, or why there is none. Raises BadField, NotHere, IndexMissing, IndexBroken, and
    Pending where the client is asked first. name: of the client, as it names itself."""
    fields = ArgumentFields(sent, INPUTS[CALL]["properties"])
    tool_id, repair = read_name(fields.needed("tool_id")), fields.flag("repair")
    arguments = fields.arguments("arguments", anything=repair)
    attempt = CallAttempt(uuid.uuid4().hex, tool_id, token.name)
    attempt.facts.update(keep_client(token, name))
    asked_again = False
    try:
        return await _check_call(desk, token, attempt, arguments, repair, client)
    except NotHere:
        attempt.note_end("refused", error_kind="not_here", blame="caller")
        raise
    except (IndexMissing, IndexBroken):
        attempt.note_end("failed", error_kind="no_index", blame="us")
        raise
    except ConsentPending:
        asked_again = True
        raise
    finally:
        if not asked_again:
            facts = attempt.make_outcome()
            desk.calls[attempt.call_id] = (token.name, facts)
            await desk.record(facts)


async def _check_call(
    desk: MetaContext,
    token: ClientToken,
    attempt: CallAttempt,
    arguments: Any,
    repair: bool,
    client: ConsentClient,
) -> ToolReply:
    router = await desk.router()
    attempt.index = router.index.version
    visible = await desk.tool(router, token, attempt.tool_id)
    if visible is None:
        raise NotHere(attempt.tool_id, token, router.index.version)
    place, tool = visible
    attempt.facts["contract_digest"] = tool.contract_digest
    asked_by = attempt.facts.get("client")
    attempt.facts.update(desk.queries.get((token.name, asked_by, tool.tool_id), {}))
    recipe, elsewhere = router.index.recipe(tool.server_id), "find_tools may know another tool"
    if tool.unverified:
        why = "unverified: a marketplace lists this tool, and nobody has launched its server"
        return answer_refused(attempt, "unverified", why, elsewhere)
    if desk.caller is None or not token.calls:
        why = "calls are switched off here" if token.calls else "this token may not call tools"
        return answer_refused(attempt, "calls_off", why, "find and describe go on working")
    if recipe is None:
        why = "not run: the index was built without a way to run this server"
        return answer_refused(attempt, "no_recipe", why, elsewhere)
    contract = await desk.work_for(token, router.index.contract, place)
    steps: tuple[str, ...] = ()
    if repair:
        repaired = await desk.work_for(token, repair_call, contract, arguments)
        arguments, steps = repaired.arguments, tuple(repaired.steps)
        problems = repaired.problems_left
    else:
        problems = await desk.work_for(token, find_problems, contract, arguments)
    attempt.facts["repaired"] = len(steps)
    if problems:
        return answer_invalid(attempt, problems, steps, repair)
    ready = CheckedCall(tool, contract, arguments, steps, explain_run(recipe, tool.server_id))
    refusal = await _ask_consent(desk, token, attempt, ready, client)
    if refusal is not None:
        return refusal
    async with client.follow_progress() as on_progress:
        return await _run(desk, token, attempt, ready, on_progress)


async def _ask_consent(
    desk: MetaContext,
    token: ClientToken,
    attempt: CallAttempt,
    ready: CheckedCall,
    client: ConsentClient,
) -> ToolReply | None:
    """None when the call may run."""
    tool = ready.tool
    why = explain_consent(tool, desk.policy)
    if why is None:
        return None
    if not client.can_ask:
        policy = desk.policy.consent_of(token)
        if policy == "always":
            return None
        fix = _ALLOW if policy == "ask" else "consent is set to never for this token"
        return answer_refused(attempt, "no_consent", f"a person must agree, since {why}", fix)
    of = digest([tool.tool_id, tool.contract_digest, ready.arguments])
    message = write_question(tool, ready.arguments, ready.runs, why)
    answer = await client.ask(message, of, desk.policy.consent_timeout_s)
    if answer != ACCEPT:
        status = "declined" if answer == DECLINE else "cancelled"
        attempt.note_end(status)
        reason = f"the person who was asked {status} this call; it was not run"
        return make_answer(attempt, {"reason": reason}, reason)
    # An answer takes minutes, in which the tool can be held back or replaced by another.
    router = await desk.router()
    now = await desk.tool(router, token, tool.tool_id)
    if now is None or now[1].contract_digest != tool.contract_digest:
        raise NotHere(tool.tool_id, token, router.index.version)
    return None


async def _run(
    desk: MetaContext,
    token: ClientToken,
    attempt: CallAttempt,
    ready: CheckedCall,
    on_progress: TellProgress | None,
) -> ToolReply:
    caller, limit = desk.caller, desk.policy.timeout_s
    assert caller is not None
    began = anyio.current_time()
    server, tool, result = ready.tool.server_id, ready.tool.tool, None
    try:
        with anyio.move_on_after(limit + desk.policy.grace_s):
            result = await caller.call(
                server,
                tool,
                ready.contract,
                ready.arguments,
                timeout_s=limit,
                owner=token.name,
                **({"on_progress": on_progress} if on_progress else {}),
            )
    except Exception:
        attempt.note_end("failed", error_kind="internal", blame="us")
        raise
    finally:
        attempt.facts["seconds"] = anyio.current_time() - began
    if result is None:
        attempt.note_end("failed", error_kind="timeout_call", blame="tool")
        return answer_failed(attempt, "timeout_call", f"no result within {limit:g} s", "server")
    if desk.policy.results == "block" and (result.alarming or result.unread):
        return answer_blocked(attempt, result)
    attempt.note_end(result.status, error_kind=result.error_kind, blame=result.blame)
    if token.traces and result.status in ("ok", "tool_error"):
        named = {"tool_id": ready.tool.tool_id, "contract_digest": ready.tool.contract_digest}
        facts = {**named, "arguments": ready.arguments, "status": result.status}
        await desk.keep_trace(token, facts, result)
    if result.status == "invalid_arguments":
        return answer_invalid(attempt, result.problems, ready.steps, repair=True)
    if result.status in ("ok", "tool_error"):
        return answer_returned(attempt, result, ready.steps, desk.policy.max_result)
    kind, hint = result.error_kind or "failed", str(result.hint or "the call failed")
    return answer_failed(attempt, kind, hint, result.blame, result)
