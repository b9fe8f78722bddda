"""A question before it is sent: its name in the ledger, and the most it may use."""

import json
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from pydantic import BaseModel

from warehouse.llm.roles import Message, Request
from warehouse.storage.digest import digest, sha256


@dataclass(frozen=True)
class Prepared:
    """One request with its key; nothing is reserved or recorded yet."""

    request: Request
    key: str
    most_tokens: int
    most_usd: float


def prepare_request(request: Request, version: str, variant: str = "") -> Prepared:
    """The question of a request; `version` is its provider's, `variant` tells a wider or second
    attempt from the first."""
    prompt_tokens = _estimate_prompt_tokens(request)
    return Prepared(
        request,
        make_request_key(request, version, variant),
        # A rate needs no proof as a budget does; three bytes a token is more than text has.
        most_tokens=prompt_tokens // 3 + request.max_tokens,
        most_usd=compute_price(request.role, prompt_tokens, request.max_tokens),
    )


def make_request_key(request: Request, version: str, variant: str = "") -> str:
    """The ledger key: only what can change the answer. Not the limit, the time-out or the host.

    `variant` tells the wider or second attempt from the first. `meta` counts only where the
    provider reads it (it has a version); an endpoint sees nothing but the messages.
    """
    return digest(
        {
            **request.role.identity(),
            "messages": [_digest_message(message) for message in request.messages],
            "seed": request.seed,
            "schema": _digest_shape(request.schema),
            "provider": version,
            "meta": dict(request.meta) if version else None,
            "variant": variant,
        }
    )


def _digest_message(message: Message) -> dict[str, str]:
    """A message with its text's digest in the text's place: canonical JSON of 8,000 characters
    took longer than all else in a key."""
    content = str(message.get("content", "")).encode("utf-8", "surrogatepass")
    return {**message, "content": sha256(content)}


@cache
def _digest_shape(schema: type[BaseModel]) -> str:
    """Digest of a model's JSON schema; making the schema costs a millisecond each time."""
    return digest(schema.model_json_schema())


class Priced(Protocol):
    """What has prices, in US dollars per million tokens."""

    @property
    def usd_in(self) -> float: ...

    @property
    def usd_out(self) -> float: ...


def compute_price(priced: Priced, prompt_tokens: int, completion_tokens: int) -> float:
    """US dollars for so many tokens at the prices of a role or a batch."""
    return (prompt_tokens * priced.usd_in + completion_tokens * priced.usd_out) / 1_000_000


def _estimate_prompt_tokens(request: Request) -> int:
    """Never fewer prompt tokens than are billed: a byte-level tokenizer makes at most one a byte,
    and an endpoint may bill the schema. Too much reserved stops a little early, too little
    overspends."""
    total = sum(len(str(message.get("content", "")).encode()) + 16 for message in request.messages)
    return total + _measure_schema(request.schema)


@cache
def _measure_schema(schema: type[BaseModel]) -> int:
    return len(json.dumps(schema.model_json_schema()))
