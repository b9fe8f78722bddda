"""A model that runs beside the proxy: what it is asked, what it answers. Serving has none of its
own: whoever starts the proxy hands one in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from extensions.proxy.examples.nearest import KnownCall


@dataclass(frozen=True)
class LocalRequest:
    """One question. messages: {role, content: text}, those of the assistant with `tool_calls` in
    OpenAI's shape whose arguments are objects. contracts: {name, description, inputSchema} of the
    tools offered. most_tokens: of the answer, None: as the model has it. examples: accepted calls
    of like requests, the nearest last. must_call: one of the tools has to be called."""

    messages: Sequence[Mapping[str, Any]]
    contracts: Sequence[Mapping[str, Any]]
    most_tokens: int | None = None
    examples: Sequence[KnownCall] = ()
    must_call: bool = False


@dataclass(frozen=True)
class LocalAnswer:
    """text: where there are no calls. calls: {name, arguments} each; arguments as the model wrote
    them, an object or text. cut: the answer ended at its limit."""

    text: str
    calls: Sequence[Mapping[str, Any]] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cut: bool = False


class CannotAnswer(RuntimeError):
    """The model gives no answer to this request: why, and what to change."""


class LocalModel(Protocol):
    """`answer` is called in a thread, one request at a time; it returns early, with anything, once
    `is_over()` is true. `tell` gets the beginning of the answer's text piece by piece, as it is
    written; what it did not get is in the answer. Raises CannotAnswer."""

    @property
    def label(self) -> str: ...

    def answer(
        self,
        request: LocalRequest,
        is_over: Callable[[], bool],
        tell: Callable[[str], None] | None = None,
    ) -> LocalAnswer: ...
