"""The resource `toolmill://index`, and the prompts that teach asking."""

from typing import Any

from serving.meta.context import MetaContext
from serving.meta.policy import ClientToken
from serving.untrusted_text import dump_json
from warehouse.sanitize.untrusted_text import escape_exact

PROMPTS = {
    "find-tools": "How to ask for tools, for a system prompt",
    "find-tools-example": "The same with one worked example",
}
_INDEX = "toolmill://index"


class NoResource(LookupError):
    """An address that names nothing here."""


def list_resources() -> list[dict[str, Any]]:
    """The resources, as `resources/list` has them."""
    about = "Version and size of the index that is served"
    return [{"uri": _INDEX, "name": "index", "description": about, "mimeType": "application/json"}]


async def read_resource(desk: MetaContext, token: ClientToken, uri: str) -> dict[str, Any]:
    """The content of one resource. Raises NoResource, IndexMissing or IndexBroken."""
    if uri != _INDEX:
        fix = "resources/list has those there are"
        raise NoResource(f"{escape_exact(uri, 120)!r} names no resource; {fix}")
    router = await desk.router()
    index, visible = router.index, await desk.seen(router, token)
    content: dict[str, Any] = {
        "index": index.version,
        "release": index.release,
        "embedder": index.embedder,
        "servers": len(visible.servers),
        "tools": len(visible.places),
    }
    if router.ranker is not None:
        # How many outcomes it has learnt since it was fitted; None where it does not learn.
        learnt = None if desk.learner is None else desk.learner.learnt
        content["reranker"] = {"model": index.reranker, "learnt_since": learnt}
    return {"uri": uri, "mimeType": "application/json", "text": dump_json(content)}
