"""What the SDK and httpx2 must not log while they talk to third parties."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_TALKING: ContextVar[bool] = ContextVar("talking", default=False)
_LOGGERS = (
    *("client", "httpcore2.connection", "httpcore2.http11", "httpcore2.proxy", "httpx2"),
    *("mcp.client.auth.oauth2", "mcp.client.sse", "mcp.client.streamable_http"),
    "mcp.shared.jsonrpc_dispatcher",
)


def _allow_record(_: logging.LogRecord) -> bool:
    return not _TALKING.get()


@contextmanager
def silence_logs() -> Iterator[None]:
    """The SDK logs third-party answers with tracebacks, and httpx2 whole URLs: neither may reach a
    log. Only what this task and those it starts cause is silent; others go on."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_allow_record)  # once: the same filter is not doubled
    token = _TALKING.set(True)
    try:
        yield
    finally:
        _TALKING.reset(token)
