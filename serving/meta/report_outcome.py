"""report_outcome: what a model or person says of a call or tool."""

from collections.abc import Mapping
from typing import Any

from assets.servers.calls.log import REPORTS
from serving.meta.context import MetaContext, ToolReply, describe_kept, keep_client, shorten_version
from serving.meta.describe_tool import NotHere
from serving.meta.policy import ClientToken
from serving.meta.schemas import INPUTS, MAX_ID, MAX_NOTE, REPORT, ArgumentFields, BadField
from serving.router import Router
from serving.untrusted_text import show_line
from warehouse.sanitize.redact import redact
from warehouse.sanitize.untrusted_text import read_name

_OF_SEARCH = ("query", "search_id", "rank")
_KEPT = ("index", "tool_id", "contract_digest", "call_id", *_OF_SEARCH)


async def report_outcome(
    desk: MetaContext, token: ClientToken, sent: Mapping[str, Any], client: str | None = None
) -> ToolReply:
    """The receipt. Raises BadField, NotHere, IndexMissing or IndexBroken. client: as it names
    itself."""
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
        facts = await _find_tool_facts(desk, token, router, read_name(tool_id or ""), asked_by)
    line_note = show_line(redact(note), MAX_NOTE) if note else None
    line = {"token": token.name, "status": "reported", "reported": outcome, "note": line_note}
    await desk.record({**facts, **line, **asked_by})
    version = router.index.version
    notice = describe_kept(token, desk)
    return ToolReply(
        {"index": version, "recorded": True, "kept": notice},
        f"recorded in index {shorten_version(version)}: {outcome}; {notice}",
    )


async def _find_tool_facts(
    desk: MetaContext, token: ClientToken, router: Router, tool_id: str, asked_by: Mapping[str, str]
) -> dict[str, Any]:
    visible = await desk.tool(router, token, tool_id)
    if visible is None:
        raise NotHere(tool_id, token, router.index.version)
    tool = visible[1]
    if tool.unverified:
        raise BadField("tool_id", "of an unverified tool", "one that was launched")
    return {
        "index": router.index.version,
        "tool_id": tool.tool_id,
        "contract_digest": tool.contract_digest,
        **desk.queries.get((token.name, asked_by.get("client"), tool.tool_id), {}),
    }
