"""Roles, requests and replies of language models; the key and highest price of a request."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Generic, Protocol, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic.dataclasses import dataclass as pydantic_dataclass

from warehouse.storage.digest import digest, sha256

Message = Mapping[str, str]


Value = TypeVar("Value", bound=BaseModel)


OFFLINE = "offline"
OPENAI = "openai"


@pydantic_dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class RoleSettings:
    """Who answers for a role: `offline` (rules, no model) or a model's name. Times in seconds."""

    model: str = OFFLINE
    protocol: Annotated[
        str, Field(description="openai, or what an installed package registers (extending.md)")
    ] = OPENAI
    base_url: str | None = None
    api_key: SecretStr | None = None
    usd_in: Annotated[float, Field(ge=0, description="US dollars per million prompt tokens")] = 0.0
    usd_out: Annotated[
        float, Field(ge=0, description="US dollars per million completion tokens")
    ] = 0.0
    concurrency: Annotated[int, Field(ge=1)] = 8
    requests_per_minute: Annotated[float, Field(ge=0, description="0: no limit")] = 0.0
    tokens_per_minute: Annotated[float, Field(ge=0, description="0: no limit")] = 0.0
    timeout_s: Annotated[float, Field(gt=0)] = 60.0
    max_tokens: Annotated[int, Field(ge=16)] = 1024
    temperature: Annotated[float, Field(ge=0)] = 0.7
    attempts: Annotated[int, Field(ge=1, description="before a request counts as failed")] = 5
    batch: Annotated[
        bool, Field(description="runs send requests through the Batch API, answered within a day")
    ] = False
    batch_price: Annotated[
        float, Field(ge=0, le=1, description="of a batched request, as a share of usd_in, usd_out")
    ] = 0.5

    @model_validator(mode="after")
    def batches_by_openai(self) -> Self:
        """The Batch API is OpenAI's."""
        if self.batch and self.protocol != OPENAI:
            raise ValueError(f"batch = true wants protocol 'openai', found {self.protocol!r:.80}")
        return self


@pydantic_dataclass(frozen=True)
class Role(RoleSettings):
    """Who answers one kind of request."""

    name: str

    @property
    def provider(self) -> str:
        """`offline`, or the host that answers; of another protocol without a host its name."""
        if self.model == OFFLINE:
            return OFFLINE
        default = "openai-sdk-default" if self.protocol == OPENAI else self.protocol
        return urlsplit(self.base_url or "").netloc or default

    def identity(self) -> dict[str, Any]:
        """What of a role can change its answers; time-outs, limits, keys and hosts cannot."""
        other = {} if self.protocol == OPENAI else {"protocol": self.protocol}
        return {"model": self.model, "temperature": self.temperature, **other}


@dataclass(frozen=True)
class ModelRequest:
    """One question. `meta`: facts behind the messages, for offline providers, never endpoints."""

    role: Role
    messages: Sequence[Message]
    schema: type[BaseModel]
    seed: int
    meta: Mapping[str, Any]
    max_tokens: int


@dataclass(frozen=True)
class ModelCompletion:
    """What a provider returned, as it is stored in the ledger's blob."""

    text: str
    finish: str  # stop | length | refusal | content_filter | …
    model: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    retries: int = 0
    limit: int = 0  # the max_tokens it was given


class Provider(Protocol):
    """Answers requests, one try each. Raises LLMError, or NoAnswer if another try may help."""

    def version(self) -> str:
        """Mixed into the key: answers of another version are other answers ("" for an endpoint)."""
        ...

    async def answer(self, request: ModelRequest) -> ModelCompletion: ...


@dataclass(frozen=True)
class ModelReply(Generic[Value]):
    """A parsed answer with its receipt; `cached` when nothing was sent for it in this run."""

    value: Value
    model: str
    provider: str
    prompt_tokens: int
    completion_tokens: int
    usd: float
    cached: bool


class LLMError(RuntimeError):
    """No usable answer; `kind` is a row's `error_kind`, `hint` the fix. No answer: endpoint_down,
    timeout, rate_limited, server_error, auth, bad_request. pending: in an open batch. Kept in the
    ledger: truncated, empty, refused, non_json, wrong_shape. Else provider_failed, unknown_role,
    no_provider."""

    def __init__(self, kind: str, found: str, expected: str, hint: str) -> None:
        super().__init__(f"{kind}: found {found}; expected {expected}; {hint}")
        self.kind, self.found, self.expected, self.hint = kind, found, expected, hint


PENDING = "pending"


class AnswerPending(LLMError):
    """The request is, or will be, in a batch. retry_at: when its window ends, 0 if unknown."""

    def __init__(self, found: str, hint: str, retry_at: float = 0.0) -> None:
        super().__init__(PENDING, found, "an answer of the Batch API", hint)
        self.retry_at = retry_at


def classify_status(status: int, message: str) -> tuple[str, bool]:
    """(error kind, whether another try may pass) of an HTTP status that is no success."""
    if status == 429:
        return "rate_limited", "insufficient_quota" not in message
    if status in (401, 403):
        return "auth", False
    passing = status >= 500 or status in (408, 409, 425)
    return ("server_error" if passing else "bad_request"), passing


class NoAnswer(LLMError):
    """No answer to this try; the next may bring one. Raised by a provider, read by dispatch."""

    def __init__(
        self,
        kind: str,
        found: str,
        expected: str,
        hint: str,
        *,
        retry_after_s: float = 0.0,  # the endpoint's own Retry-After
        backoff_s: float = 0.5,
        maybe_paid: bool = False,  # it was sent, and may have been answered and billed
    ) -> None:
        super().__init__(kind, found, expected, hint)
        self.retry_after_s, self.backoff_s, self.maybe_paid = retry_after_s, backoff_s, maybe_paid

    def wait_s(self, attempt: int) -> float:
        """Seconds to wait after that many tries: doubling, jittered, at least the endpoint's."""
        grown = self.backoff_s * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)
        return max(self.retry_after_s * random.uniform(1.0, 1.1), min(grown, 30.0))


_OPENED, _CLOSED = "<think>", "</think>"


def drop_thinking(text: str) -> str:
    """The text without what stands between `<think>` and `</think>`."""
    pieces, at = [], 0
    while (start := text.find(_OPENED, at)) >= 0:
        end = text.find(_CLOSED, start)
        if end < 0:
            break
        pieces.append(text[at:start])
        at = end + len(_CLOSED)
    return "".join([*pieces, text[at:]])


@dataclass(frozen=True)
class PreparedRequest:
    """One request with its key; nothing is reserved or recorded yet."""

    request: ModelRequest
    key: str
    most_tokens: int
    most_usd: float


def prepare_request(request: ModelRequest, version: str, variant: str = "") -> PreparedRequest:
    """A request's question; `version`: its provider's; `variant`: of a wider or second try."""
    # Never fewer than are billed: a byte-level tokenizer makes at most one token a byte.
    total = sum(len(str(message.get("content", "")).encode()) + 16 for message in request.messages)
    prompt_tokens = total + _measure_schema(request.schema)
    return PreparedRequest(
        request,
        make_request_key(request, version, variant),
        # A rate needs no proof as a budget does; three bytes a token is more than text has.
        most_tokens=prompt_tokens // 3 + request.max_tokens,
        most_usd=compute_price(request.role, prompt_tokens, request.max_tokens),
    )


def make_request_key(request: ModelRequest, version: str, variant: str = "") -> str:
    """The ledger key: what can change the answer, not limit, time-out or host. `variant`: of a
    wider or second attempt. `meta` counts only where a provider with a version reads it."""
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
    """A message with its text's digest: 8,000 characters of canonical JSON were slow."""
    content = str(message.get("content", "")).encode("utf-8", "surrogatepass")
    return {**message, "content": sha256(content)}


@cache
def _digest_shape(schema: type[BaseModel]) -> str:
    """Digest of a model's JSON schema; making the schema costs a millisecond each time."""
    return digest(schema.model_json_schema())


class TokenPrices(Protocol):
    """What has prices, in US dollars per million tokens."""

    @property
    def usd_in(self) -> float: ...

    @property
    def usd_out(self) -> float: ...


def compute_price(priced: TokenPrices, prompt_tokens: int, completion_tokens: int) -> float:
    """US dollars for so many tokens at the prices of a role or a batch."""
    return (prompt_tokens * priced.usd_in + completion_tokens * priced.usd_out) / 1_000_000


@cache
def _measure_schema(schema: type[BaseModel]) -> int:
    return len(json.dumps(schema.model_json_schema()))
