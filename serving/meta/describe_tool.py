"""describe_tool: everything about one tool."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from serving.index.model import IndexedTool
from serving.meta.consent import LISTING_FACTS, explain_consent, list_findings
from serving.meta.context import MetaContext, ToolReply, shorten_version
from serving.meta.policy import ClientToken
from serving.meta.schemas import DESCRIBE, INPUTS, ArgumentFields
from serving.untrusted_text import BoundedText, dump_json, mark_text
from warehouse.sanitize.untrusted_text import escape_exact, escape_name, quote_name, read_name

_CONTRACT = 60_000  # characters of a contract; the longest of 4,239 real ones has 8,801
_TEXT = 20_000  # of one text in it
_NEVER_RAN = "never: a marketplace lists it, and nobody has launched its server"


class NotHere(LookupError):
    """A tool that this token cannot use: absent, held back or not allowed, and never which."""

    def __init__(self, tool_id: str, token: ClientToken, version: str) -> None:
        problem = f"index {shorten_version(version)} has none that token {token.name!r} may use"
        super().__init__(
            f"tool_id is {quote_name(tool_id, 120)}; {problem}; ask find_tools for ids"
        )
        self.version = version


async def describe_tool(
    desk: MetaContext, token: ClientToken, sent: Mapping[str, Any]
) -> ToolReply:
    """The answer. Raises BadField, NotHere, IndexMissing or IndexBroken."""
    tool_id = read_name(ArgumentFields(sent, INPUTS[DESCRIBE]["properties"]).needed("tool_id"))
    router = await desk.router()
    visible = await desk.tool(router, token, tool_id)
    if visible is None:
        raise NotHere(tool_id, token, router.index.version)
    place, tool = visible
    copy = BoundedText(_CONTRACT, longest=_TEXT)
    contract = copy(await desk.work_for(token, router.index.contract, place))
    recipe = router.index.recipe(tool.server_id)
    facts = {
        "index": router.index.version,
        "tool_id": escape_name(tool.tool_id, 400),
        "contract": contract,
        "contract_digest": tool.contract_digest,
        "flags": [escape_exact(flag, 60) for flag in tool.flags],
        "marketplaces": list(tool.marketplaces),
        "reliability": asdict(reliability)
        if (reliability := router.tell_reliability(place))
        else None,
        "runs": _NEVER_RAN if tool.unverified else explain_run(recipe, tool.server_id),
        "callable": desk.caller is not None
        and token.calls
        and recipe is not None
        and not tool.unverified,
        "consent": _describe_consent(desk, token, tool),
        **({"cut": True} if copy.cut else {}),
    }
    name = quote_name(tool.tool_id, 400)
    consent, findings = facts["consent"], list_findings(facts["flags"])
    needed = f"needed ({consent['why']})" if consent["needed"] else f"not needed ({consent['why']})"
    lines = [
        f"{name} in index {shorten_version(facts['index'])}",
        f"runs: {facts['runs']}",
        f"consent: {needed}" if facts["callable"] else "calls: not possible here",
        *([f"flagged: {', '.join(findings)}"] if findings else []),
        *(LISTING_FACTS[flag] for flag in facts["flags"] if flag in LISTING_FACTS),
        *(["parts of the contract were left out: it is too large"] if facts.get("cut") else []),
        mark_text(dump_json(facts["contract"]), name),
    ]
    return ToolReply(facts, text="\n".join(lines))


def explain_run(recipe: Mapping[str, Any] | None, server_id: str) -> str:
    """One line: what is launched or asked. Only what names a thing: no arguments, no values."""
    if not recipe:
        return "unknown: the index was built without a way to run this server"
    kind, version = str(recipe.get("ecosystem", "")), recipe.get("version")
    name = quote_name(str(recipe.get("name") or server_id).split("?")[0], 200)
    if kind == "remote":
        return f"remote server {name}, asked over HTTP"
    if kind == "private":
        return f"private server {name}, run here in the sandbox"
    pinned = f" {escape_exact(str(version), 60)}" if version else ""
    return f"{escape_exact(kind, 20)} package {name}{pinned}, run here in the sandbox"


def _describe_consent(desk: MetaContext, token: ClientToken, tool: IndexedTool) -> dict[str, Any]:
    why = explain_consent(tool, desk.policy)
    if why is None:
        return {"needed": False, "why": "it says that it only reads"}
    return {"needed": True, "why": why, "without_elicitation": desk.policy.consent_of(token)}
