"""The meta-server of `bench_tokens`: the real one over HTTP, its servers functions in real places.

A call takes a place of the real pool (four for four tokens, as `serve` would have it) and 20 ms, or
30 s where the tool is `slow`; no process is launched. Texts are embedded by hashing their words.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.canonical import canonicalize_contract, contract_digest
from assets.servers.calls.log import Outcomes
from assets.servers.calls.pool import Pool
from assets.servers.calls.result import CallFailed, CallLimits, CallResult
from assets.servers.calls.session import Session
from assets.servers.probe.session import ProbePolicy
from benchmarks.bench_tokens import TOKENS, secret_of
from serving.index.folder import build_index, load_index, move_pointer, read_served_version
from serving.index.model import Source
from serving.meta import HttpSettings, MetaPolicy, run_http
from serving.meta.access.tokens import build_token
from serving.router import Router, ServedRouter, read_blocked

_FILLER = 2_000  # tools besides those that are called


class HashedWords:
    """Unit vectors of hashed words."""

    id, dim = "hashed/1", 384

    def embed(self, texts: Sequence[str], **_: Any) -> np.ndarray:
        """float32 [texts, dim]."""
        rows = np.zeros((len(texts), self.dim), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.lower().split():
                row[sum(word.encode()) % self.dim] += 1
            row[0] += 1e-3
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class Idle(Session):
    """A running server without a process."""

    def __init__(self, on_end: Any) -> None:
        super().__init__([], CallLimits(), ProbePolicy(), on_end)

    def start(self) -> None:
        """Nothing is started."""

    async def ready(self, within_s: float) -> None:
        """It is up at once."""

    async def close(self) -> None:
        """Gone at once."""
        self._on_end()


class Functions:
    """Calls in places of a pool."""

    def __init__(self, limits: CallLimits, shared: bool) -> None:
        self._pool, self._shared = Pool(limits), shared

    async def call(
        self,
        server_id: str,
        tool: str,
        contract: Mapping[str, Any],
        arguments: Mapping[str, Any],
        *,
        timeout_s: float,
        owner: str,
    ) -> CallResult:
        """What the tool answers, or `busy`."""
        owner = "" if self._shared else owner
        try:
            async with self._pool.lease(f"{server_id} {owner}", Idle, owner):
                await asyncio.sleep(30.0 if tool == "slow" else 0.02)
        except CallFailed as failed:
            return CallResult("failed", error_kind=failed.kind, hint=failed.hint, blame="us")
        return CallResult("ok", [{"type": "text", "text": "done"}])


def serve_functions(place: Path, unlimited: bool, tell: Callable[[str], None]) -> None:
    """Serves until it is killed; `tell` is given its address."""
    publish_index(place)
    many = 10**6
    tokens = tuple(build_token(secret_of(name), name) for name in TOKENS)
    off = {"token_sessions": many, "open_requests": many, "header_s": 1e6, "body_s": 1e6}
    settings = HttpSettings(port=0, tokens=tokens, **(off if unlimited else {}))
    limits = CallLimits(sessions=4, share=None if unlimited else 1)
    router = ServedRouter(place, open_hashed)
    parts = (router, Functions(limits, unlimited), MetaPolicy(), Outcomes(place))
    run_http(*parts, settings, ready=tell)


def publish_index(place: Path) -> None:
    """An index with a server of each honest token, nine of the attacker, and filler."""
    named = [(f"npm:{name}", "quick") for name in TOKENS[:3]]
    named += [(f"npm:m{at}", "slow") for at in range(9)]
    named += [(f"npm:f{at // 10}", f"file_{at}") for at in range(_FILLER)]
    embedder = HashedWords()
    recipes = {server: {"ecosystem": "npm", "name": server[4:]} for server, _ in named}
    source = Source([_make_row(*one) for one in named], recipes=recipes)
    version = build_index(place, source, embedder.embed, embedder=embedder.id)
    move_pointer(place, version)


def open_hashed(place: Path, version: str | None) -> Router:
    """The index with the encoder that it was made with."""
    index = load_index(place, version or read_served_version(place))
    return Router(index, HashedWords(), read_blocked(place))


def _make_row(server: str, tool: str) -> dict[str, Any]:
    raw = {
        "name": tool,
        "description": f"Read {tool.replace('_', ' ')} of {server[4:]}",
        "inputSchema": {"type": "object", "properties": {}},
        "annotations": {"readOnlyHint": True},
    }
    facts = {"marketplace": "registry", "server_id": server, "tool": tool, "flags": []}
    contract = {"contract_digest": contract_digest(raw)}
    return {**facts, **contract, "contract": json.dumps(canonicalize_contract(raw))}
