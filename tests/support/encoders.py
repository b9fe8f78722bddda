"""Encoders of 90 MB, made and opened once where tests make and open the same again and again."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from assets.vectors.encoders import minilm, saved, session
from tests.support.paths import ROOT
from warehouse.storage.digest import sha256

_MOST_OPEN = 3
_LARGE = 1_000_000


@contextmanager
def build_graphs_once(shared: Path) -> Iterator[None]:
    """An ONNX file of MiniLM takes .8 s to build, and most tests of an index open one twice.

    Those of the base and of the shipped adapter are built once for all workers (in `shared`), any
    other once in a row.
    """
    build, known = minilm._build_session, dict[object, tuple[str, bytes]]()

    def build_once(adapter: Path | None, tokens: int) -> tuple[str, bytes]:
        files = sorted(adapter.glob("*")) if adapter else []
        if not all(file.is_file() for file in files):
            return build(adapter, tokens)
        base = minilm.find_base_path()
        key = (adapter and tuple((file.name, file.read_bytes()) for file in files), tokens, base)
        if key not in known:
            known.clear()  # one file is 90 MB
            shipped = adapter is None or adapter.is_relative_to(ROOT)
            known[key] = keep(adapter, tokens, base) if shipped else build(adapter, tokens)
        return known[key]

    def keep(adapter: Path | None, tokens: int, base: Path) -> tuple[str, bytes]:
        place = shared / sha256(repr((adapter, tokens, base)).encode())
        if not place.exists():
            result = build(adapter, tokens)
            beside = place.with_name(f"{place.name}.{os.getpid()}")
            beside.write_bytes(result[0].encode() + b"\n" + result[1])
            beside.replace(place)
            return result
        name, _, graph = place.read_bytes().partition(b"\n")
        return name.decode(), graph

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minilm, "_build_session", build_once)
        yield


@contextmanager
def open_models_once() -> Iterator[None]:
    """A session and a tokenizer, which no use changes, cost .3 s to open, and the digest of a file
    .05 s; the hash of the same bytes, which tells one model from another here, .02 s."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "_open_session", _remember(session._open_session))
        patch.setattr(session, "TextTokenizer", _remember(session.TextTokenizer))
        digest = _remember(sha256, most=100)
        patch.setattr(
            saved, "sha256", lambda data: (digest if len(data) > _LARGE else sha256)(data)
        )
        yield


def _remember(make: Callable[..., Any], most: int = _MOST_OPEN) -> Callable[..., Any]:
    """`make(data, *more, **named)`, its newest results kept by what they were made of."""
    known: dict[object, Any] = {}

    def make_once(data: bytes, *more: object, **named: object) -> Any:
        key = (len(data), hash(data), *more, *sorted(named.items()))
        if key in known:
            known[key] = known.pop(key)
            return known[key]
        if len(known) >= most:
            del known[next(iter(known))]
        return known.setdefault(key, make(data, *more, **named))

    return make_once
