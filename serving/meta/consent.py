"""Consent to run a third-party tool. Up to 2025-11-25 the server asks in mid call; from 2026-07-28
on the client sends the request again with the answer and a sealed state, good once: a tool would
run twice on one consent."""

import asyncio
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio

from serving.index.model import IndexedTool
from serving.meta.policy import MetaPolicy
from serving.untrusted_text import bound_value, dump_json, show_line
from warehouse.bounded_dict import BoundedDict
from warehouse.sanitize.untrusted_text import escape_exact, quote_name, quote_text

ACCEPT, DECLINE, CANCEL = "accept", "decline", "cancel"
_ARGUMENTS = 3_000  # characters of the arguments that the question shows
_KEY = "consent"
HEARTBEAT_S = 5.0  # between two words that a server is still starting
_LEAST_STEP = 1e-6
# Flags that state a fact of the listing or the launch; any other is a finding of the scan.
LISTING_FACTS = {
    "placeholder": "its listing leaves a value for you to fill in",
    "local_path": "its listing names a path of its author's machine",
    "multi_server": "its listing configures several servers",
    "unpinned": "its listing states no exact version",
    "hosted_gateway": "a listing of it goes through a gateway",
    "needs_account": "its listing asks for an account or key",
    "deprecated": "its marketplace calls it deprecated",
}
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"run": {"type": "boolean", "title": "Run it", "default": True}},
}
TellProgress = Callable[[float, float | None], None]  # takes (progress, total)


class ConsentPending(Exception):
    """The request ends with a question; `result` is what the client is sent."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__("the client is asked")
        self.result = result


def explain_consent(tool: IndexedTool, policy: MetaPolicy) -> str | None:
    """Why somebody must agree before this tool runs; None when nobody must."""
    if findings := list_findings(tool.flags):
        return f"its text is flagged: {', '.join(findings[:4])}"
    if tool.read_only is not True:
        return "it does not say that it only reads"
    return None if policy.trust_read_only else "everything is asked for here"


def list_findings(flags: Sequence[str]) -> list[str]:
    return [escape_exact(flag, 60) for flag in flags if flag not in LISTING_FACTS]


def write_question(tool: IndexedTool, arguments: Mapping[str, Any], runs: str, why: str) -> str:
    """What the person reads: server, tool, arguments, and that some of the text is third-party."""
    excerpt, cut = bound_value(arguments, _ARGUMENTS)
    more = " (not all of them fit here)" if cut else ""
    return "\n".join(
        [
            f"A model asks to call {quote_name(tool.tool, 200)} of"
            f" {quote_name(tool.server_id, 200)}.",
            f"Runs: {runs}",
            f"Arguments{more}: {dump_json(excerpt)}",
            f"You are asked because {why}.",
            f"The tool's own words (third-party): {quote_text(show_line(tool.description, 300))}",
        ]
    )


class ConsentClient:
    """The client of one request, as far as it can be asked."""

    def __init__(self, ctx: Any, params: Any, questions: BoundedDict) -> None:
        self._ctx, self._params, self._questions = ctx, params, questions

    @property
    def can_ask(self) -> bool:
        capabilities = self._ctx.session.client_capabilities
        offered = capabilities.elicitation if capabilities else None
        if offered is None or (offered.form is None and offered.url is not None):
            return False
        return self._modern or self._ctx.session.can_send_request

    async def ask(self, message: str, of: str, timeout_s: float) -> str:
        """accept, decline or cancel, for `of` alone. Raises Pending if the answer comes later."""
        if self._modern:
            return self._read_answer(message, of)
        try:
            with anyio.fail_after(timeout_s):
                answer = await self._ctx.session.elicit_form(
                    message, FORM, related_request_id=self._ctx.request_id
                )
        except TimeoutError:
            return CANCEL
        except Exception as error:
            from mcp.shared.exceptions import MCPError
            from pydantic import ValidationError

            if isinstance(error, MCPError | ValidationError):
                return CANCEL  # the client cannot after all
            raise
        return _read_verdict(answer)

    @asynccontextmanager
    async def follow_progress(self) -> AsyncIterator[TellProgress | None]:
        """Yields what tells the client its call's progress, rising as the protocol wants, and until
        its first call that the server is starting; None if the client asked for none."""
        meta = self._params.meta if self._params is not None else None
        if not meta or meta.get("progress_token", meta.get("progressToken")) is None:
            yield None
            return
        waiting: deque[tuple[float, float | None]] = deque(maxlen=100)
        wake, last = anyio.Event(), 0.0

        def take(done: float, total: float | None) -> None:
            waiting.append((done, total))
            wake.set()

        async def tell() -> None:
            nonlocal last, wake
            started = False
            while True:
                with anyio.move_on_after(None if started else HEARTBEAT_S):
                    await wake.wait()
                wake, started = anyio.Event(), started or bool(waiting)
                if not waiting:
                    waiting.append((last, None))
                while waiting:
                    done, total = waiting.popleft()
                    last = done if done > last else last + _LEAST_STEP
                    await self._ctx.session.report_progress(last, total)

        telling = asyncio.create_task(tell())
        try:
            yield take
        finally:
            telling.cancel()
            gone = anyio.BrokenResourceError, anyio.ClosedResourceError
            with suppress(asyncio.CancelledError, *gone):
                await telling

    @property
    def _modern(self) -> bool:
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        return self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    def _read_answer(self, message: str, of: str) -> str:
        answer = (self._params.input_responses or {}).get(_KEY)
        number = self._read_number()
        if answer is not None and number and self._questions.pop(number, None) == of:
            return _read_verdict(answer)
        number = secrets.token_hex(8)
        self._questions[number] = of
        ask = {"mode": "form", "message": message, "requestedSchema": FORM}
        raise ConsentPending(
            {
                "resultType": "input_required",
                "inputRequests": {_KEY: {"method": "elicitation/create", "params": ask}},
                "requestState": json.dumps({"question": number}),
            }
        )

    def _read_number(self) -> str | None:
        """Of the question that the sealed state belongs to (unsealed before it gets here)."""
        try:
            return str(json.loads(self._params.request_state or "")["question"])
        except (ValueError, KeyError, TypeError):
            return None


def _read_verdict(answer: Any) -> str:
    action = getattr(answer, "action", None)
    if action != ACCEPT:
        return DECLINE if action == DECLINE else CANCEL
    content = getattr(answer, "content", None) or {}
    return ACCEPT if content.get("run", True) is True else DECLINE
