"""The protocol's requests, and on whose behalf each of them is."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from serving.discovery.request import write_system_prompt
from serving.index.model import IndexBroken, IndexMissing
from serving.meta.access_control import TooMany, find_token
from serving.meta.call_tool import call_tool
from serving.meta.consent import ConsentClient, ConsentPending
from serving.meta.context import MetaContext, ToolReply, describe_kept, read_client
from serving.meta.describe_tool import NotHere, describe_tool
from serving.meta.find_tools import find_tools
from serving.meta.listing import ToolListing, describe_seen, list_tools
from serving.meta.policy import ClientToken
from serving.meta.report_outcome import report_outcome
from serving.meta.resources import PROMPTS, NoResource, list_resources, read_resource
from serving.meta.schemas import CALL, DESCRIBE, FIND, INPUTS, MAX_ID, REPORT, BadField
from serving.ranking.query import BadQuery
from serving.router import Router
from warehouse.sanitize.untrusted_text import escape_name

logger = logging.getLogger(__name__)
_FREE = ("initialize", "ping", "server/discover", "subscriptions/listen", "tools/call")
_LIMITED = -32_000  # JSON-RPC's range for errors of the server
_INTERNAL = "a fault of toolmill: see its log"


class RequestHandlers:
    """The handlers of the protocol's requests."""

    def __init__(self, desk: MetaContext, tokens: Sequence[ClientToken]) -> None:
        self._desk, self._tokens = desk, tokens
        self._listed: WeakKeyDictionary[Router, dict[Any, ToolListing]] = WeakKeyDictionary()

    async def limit_requests(self, ctx: Any, call_next: Any) -> Any:
        """Counts requests; calls of tools are counted where the model can read the answer."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import INTERNAL_ERROR
        from pydantic import ValidationError

        if ctx.request_id is not None and ctx.method not in _FREE:
            try:
                self._desk.limits.count(self._find_token(ctx))
            except TooMany as error:
                after = {"retryAfter": round(error.retry_s, 1)}
                raise MCPError(code=_LIMITED, message=str(error), data=after) from None
        try:
            return await call_next(ctx)
        except (MCPError, ValidationError):
            raise
        except Exception as error:
            logger.error("a request failed", exc_info=error)
            raise MCPError(code=INTERNAL_ERROR, message=_INTERNAL) from None

    async def list_tools(self, ctx: Any, _: Any) -> Any:
        """tools/list, described by what this token can find."""
        from mcp_types import ListToolsResult

        token, listing = self._find_token(ctx), ToolListing()
        try:
            listing = await self._describe_index(token)
        except (IndexMissing, IndexBroken):
            pass  # find_tools says what to do
        calls = token.calls and self._desk.caller is not None
        tools = list_tools(listing, calls, describe_kept(token, self._desk))
        return ListToolsResult.model_validate({"tools": tools})

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
        from mcp_types import CallToolResult, InputRequiredResult

        token = self._find_token(ctx)
        try:
            self._desk.limits.count(token)
            reply = await self._answer_call(ctx, params, token)
        except ConsentPending as pending:
            return InputRequiredResult.model_validate(pending.result)
        except MCPError:
            raise
        except Exception as error:
            reply = _describe_failure(error)
        return CallToolResult.model_validate(reply.as_result())

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
        from mcp.shared.exceptions import MCPError
        from mcp_types import INVALID_PARAMS

        pinned = (await self._describe_index(token)).pinned if self._desk.policy.pinned else {}
        if name not in pinned:
            message = f"unknown tool {name[:60]!r}; expected one of {', '.join([*INPUTS, *pinned])}"
            raise MCPError(code=INVALID_PARAMS, message=message)
        return pinned[name]

    async def list_resources(self, _: Any, __: Any) -> Any:
        """resources/list."""
        from mcp_types import ListResourcesResult

        return ListResourcesResult.model_validate({"resources": list_resources()})

    async def list_templates(self, _: Any, __: Any) -> Any:
        """resources/templates/list: there are none, and clients ask all the same."""
        from mcp_types import ListResourceTemplatesResult

        return ListResourceTemplatesResult.model_validate({"resourceTemplates": []})

    async def read_resource(self, ctx: Any, params: Any) -> Any:
        """resources/read."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, ReadResourceResult

        try:
            content = await read_resource(self._desk, self._find_token(ctx), str(params.uri))
        except NoResource as error:
            data = {"uri": str(params.uri)}
            raise MCPError(code=INVALID_PARAMS, message=str(error), data=data) from None
        except (IndexMissing, IndexBroken) as error:
            raise MCPError(code=INTERNAL_ERROR, message=str(error)) from None
        return ReadResourceResult.model_validate({"contents": [content]})

    async def list_prompts(self, _: Any, __: Any) -> Any:
        """prompts/list."""
        from mcp_types import ListPromptsResult

        rows = [{"name": name, "description": about} for name, about in PROMPTS.items()]
        return ListPromptsResult.model_validate({"prompts": rows})

    async def get_prompt(self, _: Any, params: Any) -> Any:
        """prompts/get."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import INVALID_PARAMS, GetPromptResult

        if params.name not in PROMPTS:
            message = f"name is {params.name[:60]!r}; expected one of {', '.join(PROMPTS)}"
            raise MCPError(code=INVALID_PARAMS, message=message)
        text = write_system_prompt(example=params.name == "find-tools-example")
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return GetPromptResult.model_validate({"messages": [message]})

    def _find_token(self, ctx: Any) -> ClientToken:
        """On whose behalf a request is. Over HTTP with tokens it is the one that was verified."""
        if ctx.request is None or not self._tokens:
            return self._desk.policy.local
        user = ctx.request.scope.get("user")
        access = getattr(user, "access_token", None)
        token = find_token(access.client_id, self._tokens) if access is not None else None
        if token is None:
            raise PermissionError("a request without a verified token reached a handler")
        return token


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
