"""A counting embedder that needs no model, and a few snapshot rows."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.contracts.canonical import canonicalize_contract, contract_digest
from assets.vectors.lexical import split_words
from tests.synthesis.contracts import TEXT, make_tool
from warehouse.storage.digest import sha256
from warehouse.storage.lance import LanceStore


class WordEmbedder:
    """Unit bags of hashed words; counts the texts it was asked to embed."""

    dim = 64

    def __init__(self, name: str = "words") -> None:
        self.id = name
        self.embedded: list[str] = []

    def embed(
        self, texts: Sequence[str], *, on_done: Callable[[int, int], None] | None = None
    ) -> np.ndarray:
        self.embedded += texts
        out = np.zeros((len(texts), self.dim), np.float32)
        for row, text in enumerate(texts):
            for word in [*split_words(text), "."]:
                out[row, int(sha256(word.encode())[:8], 16) % self.dim] += 1
        return out / np.linalg.norm(out, axis=1, keepdims=True)


def snapshot(server: str, tool: str, about: str, market: str = "registry") -> dict[str, Any]:
    raw = make_tool(tool, about, {"path": TEXT})
    return {
        "marketplace": market,
        "server_id": server,
        "tool": tool,
        "contract_digest": contract_digest(raw),
        "contract": json.dumps(canonicalize_contract(raw)),
    }


@pytest.fixture
def store(tmp_path: Path) -> LanceStore:
    return LanceStore(tmp_path / "lance")


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture
def listed() -> list[dict[str, Any]]:
    return [
        snapshot("npm:files", "read_file", "Read one file"),
        snapshot("npm:files", "write_file", "Write one file"),
        snapshot("pypi:clock", "get_time", "Tell the time"),
        snapshot("pypi:clock", "get_time", "Tell the time", market="mcpso"),
    ]
