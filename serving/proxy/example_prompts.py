"""Examples in the prompt of a request that goes to an upstream."""

import json

from serving.examples.book import ExampleBook, write_example_text
from serving.proxy.calls import Offer
from serving.proxy.local.requests import read_content
from warehouse.json_types import JsonObject


def add_examples(body: JsonObject, offer: Offer, book: ExampleBook) -> bytes:
    """The request with accepted calls of like requests before it, as a system message (chat) or at
    the end of `instructions` (Responses): as calls they would want results beside them."""
    texts = [read_content(one.get("content")) for one in offer.user_messages]
    contracts = {one.name: one.contract for one in offer.toolset.candidates}
    found = book.find_like(texts[-1] if texts else "", contracts)
    made = dict(body)
    if found and isinstance(body.get("messages"), list):
        message = {"role": "system", "content": write_example_text(found)}
        made["messages"] = [message, *body["messages"]]
    elif found:
        before = body.get("instructions")
        parts = [before] if isinstance(before, str) and before else []
        made["instructions"] = "\n\n".join([*parts, write_example_text(found)])
    return json.dumps(made, ensure_ascii=False).encode(errors="surrogatepass")
