"""call_tool: one call of one tool, from its id to its result.

Nothing is launched before every check has passed. Whatever happens, one outcome is recorded, also
when the client hangs up in the middle.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from serving.index.errors import IndexBroken, IndexMissing
from serving.meta.access.policy import Token
from serving.meta.context import Desk, Reply
from serving.meta.tools import call_answers
from serving.meta.tools.arguments import Fields
from serving.meta.tools.call_answers import Attempt
from serving.meta.tools.consent import (
    ACCEPT,
    DECLINE,
    Client,
    Pending,
    explain_consent,
    write_question,
)
from serving.meta.tools.describe_tool import NotHere, explain_run
from serving.meta.tools.remembering import keep_client
from serving.meta.tools.schemas import CALL, INPUTS
from warehouse.sanitize.quote import read_name
from warehouse.storage.digest import digest

if TYPE_CHECKING:
    from serving.index.model import Tool

_ALLOW = (
    "use a client that can ask you (elicitation), or let the person who runs this server set"
    ' consent to "always" for this token'
)


@dataclass(frozen=True)
class Ready:
    """A call whose arguments fit the contract."""

    tool: "Tool"
    contract: dict[str, Any]
    arguments: dict[str, Any]
    steps: tuple[str, ...]
    runs: str


async def call_tool(
    desk: Desk, token: Token, given: Mapping[str, Any], client: Client, name: str | None = None
) -> Reply:
    """The result, or why there is none. Raises BadField, NotHere, IndexMissing, IndexBroken, and
    Pending where the client is asked first. name: of the client, as it names itself."""
    fields = Fields(given, INPUTS[CALL]["properties"])
    tool_id, repair = read_name(fields.needed("tool_id")), fields.flag("repair")
    arguments = fields.arguments("arguments", anything=repair)
    attempt = Attempt(uuid.uuid4().hex, tool_id, token.name)
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
    except Pending:
        asked_again = True
        raise
    finally:
        if not asked_again:
            facts = attempt.make_outcome()
            desk.calls[attempt.call_id] = (token.name, facts)
            await desk.record(facts)


async def _check_call(
    desk: Desk,
    token: Token,
    attempt: Attempt,
    arguments: Any,
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
    asked_by = attempt.facts.get("client")
    attempt.facts.update(desk.queries.get((token.name, asked_by, tool.tool_id), {}))
    if tool.unverified:
        why = "unverified: a marketplace lists this tool, and nobody has launched its server"
        return call_answers.answer_refused(
            attempt, "unverified", why, "find_tools may know another tool"
        )
    if desk.caller is None or not token.calls:
        why = "calls are switched off here" if token.calls else "this token may not call tools"
        return call_answers.answer_refused(
            attempt, "calls_off", why, "find and describe go on working"
        )
    recipe = router.index.recipe(tool.server_id)
    if recipe is None:
        why = "not run: the index was built without a way to run this server"
        return call_answers.answer_refused(
            attempt, "no_recipe", why, "find_tools may know another tool"
        )
    contract = await desk.work_for(token, router.index.contract, place)
    steps, problems = (), await desk.work_for(token, _find_problems, contract, arguments)
    if problems and repair:
        arguments, steps = await desk.work_for(token, _repair_arguments, contract, arguments)
        problems = await desk.work_for(token, _find_problems, contract, arguments)
    attempt.facts["repaired"] = len(steps)
    if problems:
        return call_answers.answer_invalid(attempt, problems, steps, repair)
    ready = Ready(tool, contract, arguments, steps, explain_run(recipe, tool.server_id))
    refusal = await _ask_consent(desk, token, attempt, ready, client)
    return refusal or await _run(desk, token, attempt, ready)


async def _ask_consent(
    desk: Desk, token: Token, attempt: Attempt, ready: Ready, client: Client
) -> Reply | None:
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
        return call_answers.answer_refused(
            attempt, "no_consent", f"a person must agree, since {why}", fix
        )
    of = digest([tool.tool_id, tool.contract_digest, ready.arguments])
    message = write_question(tool, ready.arguments, ready.runs, why)
    answer = await client.ask(message, of, desk.policy.consent_timeout_s)
    if answer != ACCEPT:
        status = "declined" if answer == DECLINE else "cancelled"
        attempt.note_end(status)
        reason = f"the person who was asked {status} this call; it was not run"
        return call_answers.make_answer(attempt, {"reason": reason}, reason)
    # An answer takes minutes, in which the tool can be held back or replaced by another.
    router = await desk.router()
    now = await desk.tool(router, token, tool.tool_id)
    if now is None or now[1].contract_digest != tool.contract_digest:
        raise NotHere(tool.tool_id, token, router.index.version)
    return None


async def _run(desk: Desk, token: Token, attempt: Attempt, ready: Ready) -> Reply:
    caller, limit = desk.caller, desk.policy.timeout_s
    assert caller is not None
    began = anyio.current_time()
    server, tool, result = ready.tool.server_id, ready.tool.tool, None
    try:
        with anyio.move_on_after(limit + desk.policy.grace_s):
            result = await caller.call(
                server, tool, ready.contract, ready.arguments, timeout_s=limit, owner=token.name
            )
    except Exception:
        attempt.note_end("failed", error_kind="internal", blame="us")
        raise
    finally:
        attempt.facts["seconds"] = anyio.current_time() - began
    if result is None:
        attempt.note_end("failed", error_kind="timeout_call", blame="tool")
        return call_answers.answer_failed(
            attempt, "timeout_call", f"no result within {limit:g} s", "server"
        )
    if desk.policy.results == "block" and (result.alarming or result.unread):
        return call_answers.answer_blocked(attempt, result)
    attempt.note_end(result.status, error_kind=result.error_kind, blame=result.blame)
    if result.status == "invalid_arguments":
        return call_answers.answer_invalid(attempt, result.problems, ready.steps, repair=True)
    if result.status in ("ok", "tool_error"):
        return call_answers.answer_returned(attempt, result, ready.steps, desk.policy.max_result)
    kind, hint = result.error_kind or "failed", str(result.hint or "the call failed")
    return call_answers.answer_failed(attempt, kind, hint, result.blame, result)


def _find_problems(contract: Mapping[str, Any], arguments: Any) -> list[Any]:
    from assets.contracts.repair.problems import find_problems

    return find_problems(contract, arguments)


def _repair_arguments(contract: Mapping[str, Any], arguments: Any) -> tuple[Any, tuple[str, ...]]:
    from assets.contracts.repair.repair import repair_call

    made = repair_call(contract, arguments)
    return made.arguments, tuple(made.steps)
