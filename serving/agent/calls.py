"""An agent's calls, by the meta-server's own way: contract, consent, sandbox, scan, outcome."""

from typing import Any

from serving.agent.episode import Runner
from serving.index.errors import IndexBroken, IndexMissing
from serving.meta.access.policy import Token
from serving.meta.context import Desk, Reply
from serving.meta.tools.arguments import MAX_ID, BadField
from serving.meta.tools.call_tool import call_tool
from serving.meta.tools.consent import Client
from serving.meta.tools.describe_tool import NotHere
from warehouse.sanitize.quote import escape_name


class Unattended(Client):
    """Nobody who could be asked: the policy's `consent` decides."""

    def __init__(self) -> None:
        super().__init__(None, None, None)  # type: ignore[arg-type]

    @property
    def can_ask(self) -> bool:
        return False


def make_runner(desk: Desk, token: Token) -> Runner:
    """Runs calls as `call_tool` does for a client that cannot ask its user."""

    async def run(tool_id: str, arguments: Any) -> tuple[str, str]:
        given = {"tool_id": escape_name(tool_id, MAX_ID), "arguments": arguments}
        try:
            reply = await call_tool(desk, token, given, Unattended())
        except (BadField, NotHere, IndexMissing, IndexBroken) as error:
            return "refused", str(error)
        return str(reply.structured.get("status", "failed")), _write_reply(reply)

    return run


def _write_reply(reply: Reply) -> str:
    """Its text as a model is shown it: quoted, bounded; pictures and sounds by their kind."""
    blocks = [
        block["text"] if block["type"] == "text" else f"[{block['type']}]" for block in reply.blocks
    ]
    return "\n".join(part for part in (reply.text, *blocks) if part)
