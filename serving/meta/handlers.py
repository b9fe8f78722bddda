"""The protocol's requests, and on whose behalf each of them is."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from assets.servers.calls.log import REPORTS
from serving.discovery.request import write_system_prompt
from serving.index.model import IndexBroken, IndexMissing
from serving.meta.access_control import TooMany, find_token
from serving.meta.call_tool import call_tool
from serving.meta.consent import ConsentClient, ConsentPending
from serving.meta.context import (
    MetaContext,
    ToolReply,
    describe_kept,
    keep_client,
    read_client,
    shorten_version,
)
from serving.meta.describe_tool import NotHere, describe_tool
from serving.meta.find_tools import find_tools
from serving.meta.listing import ToolListing, describe_seen, list_tools
from serving.meta.policy import ClientToken
from serving.meta.schemas import (
    CALL,
    DESCRIBE,
    FIND,
    INPUTS,
    MAX_ID,
    MAX_NOTE,
    REPORT,
    ArgumentFields,
    BadField,
)
from serving.ranking.query import BadQuery
from serving.router import Router
from serving.untrusted_text import dump_json, show_line
from warehouse.sanitize.redact import redact
from warehouse.sanitize.untrusted_text import escape_exact, escape_name, read_name

_OF_SEARCH = ("query", "search_id", "rank")
_KEPT = ("index", "tool_id", "contract_digest", "call_id", *_OF_SEARCH)


async def report_outcome(
    desk: MetaContext, token: ClientToken, sent: Mapping[str, Any], client: str | None = None
) -> ToolReply:
    """The receipt. client: as it names itself. Raises BadField, NotHere, IndexMissing or Broken."""
    fields = ArgumentFields(sent, INPUTS[REPORT]["properties"])
    outcome = fields.choice("outcome", REPORTS)
    call_id, tool_id = fields.text("call_id", 64), fields.text("tool_id", MAX_ID)
    note = fields.text("note", MAX_NOTE)
    if bool(call_id) == bool(tool_id):
        raise BadField("call_id", "beside tool_id" if call_id else "missing", "it or tool_id")
    router, asked_by = await desk.router(), keep_client(token, client)
    if call_id:
        owner, facts = desk.calls.get(call_id, (None, {}))
        if owner != token.name:
            expected = "the id of a call of yours since this server started; or give tool_id"
            raise BadField("call_id", f"unknown ({show_line(call_id, 40)!r})", expected)
        facts = {name: facts[name] for name in _KEPT if facts.get(name)}
    else:
        tool_id = read_name(tool_id or "")
        visible = await desk.tool(router, token, tool_id)
        if visible is None:
            raise NotHere(tool_id, token, router.index.version)
        tool = visible[1]
        if tool.unverified:
            raise BadField("tool_id", "of an unverified tool", "one that was launched")
        facts = {
            "index": router.index.version,
            "tool_id": tool.tool_id,
            "contract_digest": tool.contract_digest,
            **desk.queries.get((token.name, asked_by.get("client"), tool.tool_id), {}),
        }
    line_note = show_line(redact(note), MAX_NOTE) if note else None
    line = {"token": token.name, "status": "reported", "reported": outcome, "note": line_note}
    await desk.record({**facts, **line, **asked_by})
    version = router.index.version
    notice = describe_kept(token, desk)
    return ToolReply(
        {"index": version, "recorded": True, "kept": notice},
        f"recorded in index {shorten_version(version)}: {outcome}; {notice}",
    )


logger = logging.getLogger(__name__)
_FREE = ("initialize", "ping", "server/discover", "subscriptions/listen", "tools/call")
_LIMITED = -32_000  # JSON-RPC's range for errors of the server
_COMPLETE = {"resultType": "complete"}  # sessions before 2026-07-28 are not sent it
INVALID_PARAMS, INTERNAL_ERROR = -32_602, -32_603
JSON, INDEX_URI = "application/json", "toolmill://index"
RESOURCES = [
    {
        "uri": INDEX_URI,
        "name": "index",
        "description": "Version and size of the index that is served",
        "mimeType": JSON,
    }
]
PROMPTS = {
    "find-tools": "How to ask for tools, for a system prompt",
    "find-tools-example": "The same with one worked example",
}
_INTERNAL = "a fault of toolmill: see its log"


class RequestHandlers:
    def __init__(self, desk: MetaContext, tokens: Sequence[ClientToken]) -> None:
        self._desk, self._tokens = desk, tokens
        self._listed: WeakKeyDictionary[Router, dict[Any, ToolListing]] = WeakKeyDictionary()

    async def limit_requests(self, ctx: Any, call_next: Any) -> Any:
        """Counts requests; calls of tools are counted where the model can read the answer."""
        from mcp.shared.exceptions import MCPError
        from pydantic import ValidationError

        if ctx.request_id is not None and ctx.method not in _FREE:
            try:
                self._desk.limits.count(self._find_token(ctx))
            except TooMany as error:
                raise make_error(_LIMITED, str(error), retryAfter=round(error.retry_s, 1)) from None
        try:
            return await call_next(ctx)
        except (MCPError, ValidationError):
            raise
        except Exception as error:
            logger.error("a request failed", exc_info=error)
            raise make_error(INTERNAL_ERROR, _INTERNAL) from None

    async def list_tools(self, ctx: Any, _: Any) -> Any:
        token, listing = self._find_token(ctx), ToolListing()
        with suppress(IndexMissing, IndexBroken):  # find_tools says what to do
            listing = await self._describe_index(token)
        calls = token.calls and self._desk.caller is not None
        return {**_COMPLETE, "tools": list_tools(listing, calls, describe_kept(token, self._desk))}

    async def _describe_index(self, token: ClientToken) -> ToolListing:
        router = await self._desk.router()
        by_list = self._listed.setdefault(router, {})
        if token.allow not in by_list:
            visible = await self._desk.seen(router, token)
            by_list[token.allow] = await self._desk.work_for(
                token, describe_seen, router, visible, self._desk.policy
            )
        return by_list[token.allow]

    async def call_tool(self, ctx: Any, params: Any) -> Any:
        """tools/call. What went wrong is told in the result, where the model reads it."""
        from mcp.shared.exceptions import MCPError

        token = self._find_token(ctx)
        try:
            self._desk.limits.count(token)
            reply = await self._answer_call(ctx, params, token)
        except ConsentPending as pending:
            return pending.result
        except MCPError:
            raise
        except Exception as error:
            reply = _describe_failure(error)
        return _COMPLETE | reply.as_result()

    async def _answer_call(self, ctx: Any, params: Any, token: ClientToken) -> ToolReply:
        arguments: Mapping[str, Any] = params.arguments or {}
        if params.name == FIND:
            return await find_tools(self._desk, token, arguments, read_client(ctx))
        if params.name == DESCRIBE:
            return await describe_tool(self._desk, token, arguments)
        if params.name == REPORT:
            return await report_outcome(self._desk, token, arguments, read_client(ctx))
        if params.name != CALL:
            pinned = escape_name(await self._find_pinned(token, params.name), MAX_ID)
            arguments = {"tool_id": pinned, "arguments": arguments}
        client = ConsentClient(ctx, params, self._desk.questions)
        with self._desk.limits.running(token):
            return await call_tool(self._desk, token, arguments, client, read_client(ctx))

    async def _find_pinned(self, token: ClientToken, name: str) -> str:
        """The id of a tool that is listed flat. Raises MCPError, IndexMissing or IndexBroken."""
        pinned = (await self._describe_index(token)).pinned if self._desk.policy.pinned else {}
        if name not in pinned:
            message = f"unknown tool {name[:60]!r}; expected one of {', '.join([*INPUTS, *pinned])}"
            raise make_error(INVALID_PARAMS, message)
        return pinned[name]

    async def list_resources(self, _: Any, __: Any) -> Any:
        return {**_COMPLETE, "resources": RESOURCES}

    async def list_templates(self, _: Any, __: Any) -> Any:
        """resources/templates/list: there are none, and clients ask all the same."""
        return {**_COMPLETE, "resourceTemplates": []}

    async def read_resource(self, ctx: Any, params: Any) -> Any:
        uri = str(params.uri)
        if uri != INDEX_URI:
            message = (
                f"{escape_exact(uri, 120)!r} names no resource; resources/list has those there are"
            )
            raise make_error(INVALID_PARAMS, message, uri=uri)
        try:
            router = await self._desk.router()
            index, visible = router.index, await self._desk.seen(router, self._find_token(ctx))
            content: dict[str, Any] = {
                "index": index.version,
                "release": index.release,
                "embedder": index.embedder,
                "servers": len(visible.servers),
                "tools": len(visible.places),
            }
            if router.ranker is not None:
                # How many outcomes it has learnt since it was fitted; None where it does not learn.
                learnt = None if self._desk.learner is None else self._desk.learner.learnt
                content["reranker"] = {"model": index.reranker, "learnt_since": learnt}
        except (IndexMissing, IndexBroken) as error:
            raise make_error(INTERNAL_ERROR, str(error)) from None
        return {
            **_COMPLETE,
            "contents": [{"uri": uri, "mimeType": JSON, "text": dump_json(content)}],
        }

    async def list_prompts(self, _: Any, __: Any) -> Any:
        rows = [{"name": name, "description": about} for name, about in PROMPTS.items()]
        return {**_COMPLETE, "prompts": rows}

    async def get_prompt(self, _: Any, params: Any) -> Any:
        if params.name not in PROMPTS:
            message = f"name is {params.name[:60]!r}; expected one of {', '.join(PROMPTS)}"
            raise make_error(INVALID_PARAMS, message)
        text = write_system_prompt(example=params.name == "find-tools-example")
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return {**_COMPLETE, "messages": [message]}

    def _find_token(self, ctx: Any) -> ClientToken:
        """On whose behalf a request is. Over HTTP with tokens it is the one that was verified."""
        if ctx.request is None or not self._tokens:
            return self._desk.policy.local
        access = getattr(ctx.request.scope.get("user"), "access_token", None)
        token = find_token(access.client_id, self._tokens) if access is not None else None
        if token is None:
            raise PermissionError("a request without a verified token reached a handler")
        return token


def make_error(code: int, message: str, **data: Any) -> Exception:
    from mcp.shared.exceptions import MCPError

    return MCPError(code=code, message=message, data=data or None)


def _describe_failure(error: Exception) -> ToolReply:
    """What a model is told of a failure. One that nobody foresaw is for the log alone: the SDK
    would send its text, which may hold anything, to sessions before 2026-07-28."""
    kinds = {
        BadField: "bad_field",
        BadQuery: "bad_field",
        NotHere: "not_here",
        TooMany: "too_many_requests",
        IndexMissing: "index_missing",
        IndexBroken: "index_broken",
    }
    kind = next((name for error_type, name in kinds.items() if isinstance(error, error_type)), None)
    if kind is None:
        logger.error("a request failed", exc_info=error)
        facts = {"kind": "internal", "message": _INTERNAL}
        return ToolReply({"index": None, "error": facts}, text=_INTERNAL, is_error=True)
    facts: dict[str, Any] = {"kind": kind, "message": str(error)}
    if isinstance(error, BadField):
        facts["field"] = error.field
    if isinstance(error, TooMany):
        facts["retry_after_s"] = round(error.retry_s, 1)
    index = error.version if isinstance(error, NotHere) else None
    return ToolReply({"index": index, "error": facts}, text=str(error), is_error=True)
