"""Clients of the HTTP meta-server that ask as fast as they are answered, and note what they get."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Seen:
    """What the clients saw."""

    connected: int = 0
    took: list[float] = field(default_factory=list)
    versions: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    mixed: int = 0


@dataclass(frozen=True)
class Asking:
    """Where and how long to ask, and the tools of each version that may be named."""

    url: str
    secret: str
    seconds: float
    held: Mapping[str, set[str]]


async def client(asking: Asking, texts: Sequence[str], go: asyncio.Event, seen: Seen) -> None:
    """Connects, waits for `go`, then asks one text after another; what fails is noted."""
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {asking.secret}"}
    try:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(asking.url, http_client=http)) as asker,
        ):
            seen.connected += 1
            await go.wait()
            until, at = time.perf_counter() + asking.seconds, 0
            while time.perf_counter() < until:
                began = time.perf_counter()
                given = {"query": texts[at % len(texts)], "k": 5}
                answer = await asker.call_tool("find_tools", given)
                _note(answer, time.perf_counter() - began, asking.held, seen)
                at += 1
    except Exception as error:
        seen.errors[f"{type(error).__name__}: {str(error)[:200]}"] += 1


def _note(answer: Any, took: float, held: Mapping[str, set[str]], seen: Seen) -> None:
    told = answer.structured_content
    if answer.is_error or not told:
        seen.errors[str(answer.content)[:200]] += 1
        return
    version = told["index"]
    hits = {hit["tool_id"] for row in told["answers"] for hit in row["hits"]}
    if version not in held:
        seen.errors[f"an index that was never published: {version[:20]}"] += 1
    elif not hits <= held[version]:
        seen.mixed += 1
    seen.took.append(took * 1000)
    seen.versions[version[:12]] += 1
