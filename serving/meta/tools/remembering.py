"""Remembering: what the log keeps of a search, by what its token opted in to, and says of it."""

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from assets.servers.calls.log import clean_words, pack_vector
from serving.meta.access.policy import Token
from serving.meta.context import Desk
from serving.meta.tools.questions import Question
from warehouse.sanitize.escape import drop_surrogates

if TYPE_CHECKING:
    from serving.router import Router

_KEPT = {
    "digest": "of queries only a digest",
    "text": "the words of every query and what it showed",
    "vector": "the vector of every query and what it showed",
}


def describe_kept(token: Token, desk: Desk) -> str:
    """What the log keeps of what this token asks for, and what learns from it, in a line."""
    kept = f"Kept under the name {token.name!r}: outcome, tool, note; {_KEPT[token.remember]}"
    learns = desk.learner is not None and token.remember == "text"
    return f"{kept}; the order of tools learns from it" if learns else kept


async def note_search(
    desk: Desk,
    token: Token,
    router: "Router",
    question: Question,
    shown: Sequence[str],
    client: str | None,
) -> None:
    """Keeps which tools a question found, so that a call of one can name it; in the log too where
    the token opted in."""
    facts: dict[str, Any] = {"query": question.digest}
    if token.remember != "digest":
        facts |= {"search_id": uuid.uuid4().hex}
        more = await desk.work_for(token, _read_query, token, router, question)
        named = {"token": token.name, "status": "searched", "index": router.index.version}
        await desk.record({**named, **facts, **more, "client": client, "shown": shown})
    asked_by = keep_client(token, client).get("client")
    for rank, tool_id in enumerate(shown, 1):
        at = {"rank": rank} if "search_id" in facts else {}
        desk.queries[token.name, asked_by, tool_id] = {**facts, **at}


def keep_client(token: Token, client: str | None) -> dict[str, str]:
    """What a line holds of who asked: a token that opted in may be that of several clients."""
    return {"client": client} if client and token.remember != "digest" else {}


def _read_query(token: Token, router: "Router", question: Question) -> dict[str, Any]:
    """The words without secrets; or their vector, from which nobody reads a key."""
    words = clean_words(question.words)
    if token.remember == "text":
        return {"words": words}
    vector = router.embed_words(words)
    return {"vector": pack_vector(vector), "embedder": router.encoder.id}


def read_client(ctx: Any) -> str | None:
    """The client of a request as it names itself: `name version`."""
    params = ctx.session.client_params
    if params is None:
        return None
    client = f"{params.client_info.name} {params.client_info.version}"
    return drop_surrogates(" ".join(client.split())[:100])
