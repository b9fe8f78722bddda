"""What both APIs' loops share: one answer read, another made of several."""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import httpx2

from extensions.proxy.upstream import UpstreamFailed

_LENGTHS = (b"content-length", b"transfer-encoding")


async def read_whole(response: httpx2.Response, most: int) -> bytes:
    """The body. Raises UpstreamFailed for one of more than `most` bytes."""
    parts, size = [], 0
    async for part in response.aiter_raw():
        parts.append(part)
        size += len(part)
        if size > most:
            found = f"an answer with tool search is longer than {most} bytes"
            raise UpstreamFailed(502, "upstream_too_long", f"{found}; ask for less")
    return b"".join(parts)


def is_readable(response: httpx2.Response) -> bool:
    """Whether an answer can hold searches: no error, and not packed."""
    packed = response.headers.get("content-encoding", "identity") != "identity"
    return response.status_code == 200 and not packed


def is_stream(response: httpx2.Response) -> bool:
    """Whether an answer comes as events."""
    return response.headers.get("content-type", "").startswith("text/event-stream")


def check_stream(response: httpx2.Response) -> None:
    """Raises UpstreamFailed where a stream that has begun cannot go on with this answer."""
    if not (is_readable(response) and is_stream(response)):
        found = f"the upstream answered {response.status_code} after a tool search"
        raise UpstreamFailed(502, "upstream_broken", f"{found}; try again")


def rewrite_response(
    response: httpx2.Response, content: bytes | AsyncIterator[bytes]
) -> httpx2.Response:
    """The same answer with another body."""
    headers = [one for one in response.headers.raw if one[0].lower() not in _LENGTHS]
    if isinstance(content, bytes):
        return httpx2.Response(response.status_code, headers=headers, content=_iterate(content))
    return httpx2.Response(response.status_code, headers=headers, content=content)


async def _iterate(content: bytes) -> AsyncIterator[bytes]:
    yield content


def sum_usage(usages: Iterable[Any]) -> dict[str, Any]:
    """Counts of tokens together, those within objects too; of all else the last."""
    total: dict[str, Any] = {}
    for usage in usages:
        for key, value in usage.items() if isinstance(usage, Mapping) else ():
            before = total.get(key)
            if type(value) is int and type(before) is int:
                total[key] = before + value
            elif isinstance(value, Mapping):
                total[key] = sum_usage([before, value])
            elif value is not None or before is None:
                total[key] = value
    return total
