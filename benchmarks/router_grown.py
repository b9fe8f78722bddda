"""A pool grown to any size out of real tools: perturbed copies, and vectors near the real ones.

A copy keeps its tool's contract but for a new server, a number in its name and every seventh word
of its description; its vectors are the original's plus noise (cosine about 0.8), as embedding
100,000 texts would take an hour and change no time of a search.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from assets.vectors.texts import server_views, tool_views
from benchmarks.router_data import Pool
from serving.index.folder import Source
from warehouse.storage.digest import digest

_NOISE = 0.038  # a coordinate's deviation: cosine 0.8 in 384 dimensions
Embed = Callable[[Sequence[str]], np.ndarray]


def grown(pool: Pool, size: int) -> Pool:
    """The pool itself up to `size`, or with copies beyond it."""
    contracts, digests = dict(list(pool.contracts.items())[:size]), dict(pool.digests)
    servers = dict(pool.servers)
    words = sorted({word for of in pool.contracts.values() for word in _words(of)})
    rng, copy = random.Random(6), 0
    while len(contracts) < size:
        copy += 1
        for name, of in list(pool.contracts.items())[: size - len(contracts)]:
            server, _, tool = name.rpartition("::")
            about = [
                rng.choice(words) if at % 7 == 6 else word for at, word in enumerate(_words(of))
            ]
            made = {**of, "name": f"{tool}_{copy}", "description": " ".join(about)}
            key = f"{server}~{copy}::{made['name']}"
            contracts[key], digests[key] = made, digest(made)
            told = pool.servers[server]
            servers[f"{server}~{copy}"] = {**told, "name": f"{told['name']} {copy}"}
    return Pool(contracts, digests, pool.listed, servers)


def cheap_embed(pool: Pool, base: Pool, source: Source, embed: Embed) -> Embed:
    """Embeds real texts really; the text of a copy gets its original's vector with noise."""
    origin = _origins(pool, base, source)

    def near(texts: Sequence[str]) -> np.ndarray:
        roots = [origin.get(text, text) for text in texts]
        unique = list(dict.fromkeys(roots))
        place = {text: at for at, text in enumerate(unique)}
        vectors = embed(unique)[[place[text] for text in roots]]
        copied = np.array([root != text for root, text in zip(roots, texts, strict=True)])
        noise = np.random.default_rng(6).standard_normal((int(copied.sum()), vectors.shape[1]))
        vectors[copied] += (_NOISE * noise).astype(np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    return near


def _origins(pool: Pool, base: Pool, source: Source) -> dict[str, str]:
    """Each copied text -> the text that it was made from."""
    found: dict[str, str] = {}
    first = _texts(base)
    for name, texts in _texts(pool).items():
        server, _, tool = name.partition("::")
        root = f"{server.split('~')[0]}::{tool.rpartition('_')[0]}" if "~" in server else name
        root = server.split("~")[0] if "::" not in name else root
        of = first.get(root)
        if of and root != name:
            found |= {text: of[view] for view, text in texts.items() if text != of[view]}
    return found


def _texts(pool: Pool) -> dict[str, dict[str, str]]:
    """Tool or server id -> its text per view."""
    out: dict[str, dict[str, str]] = {}
    held: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, of in pool.contracts.items():
        server = name.rpartition("::")[0]
        held[server].append(of)
        out[name] = tool_views(of, pool.servers[server]["name"])
    for server, listed in held.items():
        out[server] = server_views(**pool.servers[server], contracts=listed)
    return out


def _words(contract: dict[str, Any]) -> list[str]:
    return contract.get("description", "").split()
