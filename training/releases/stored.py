"""What of a release is on disk: its models, its index, the index's encoder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assets.vectors.encoders.saved import find_encoder_folder
from serving.index.model import IndexBroken, IndexMissing
from training.releases.in_service import find_model_flaw, find_reranker_file
from training.role import get_untrained_model

Json = dict[str, Any]


def list_release_flaws(home: Path, release: Mapping[str, Any], version: str | None) -> list[str]:
    """What keeps a release from being served with an index version, by files and sizes; [] where
    index, encoder and models are there and belong together."""
    models: Mapping[str, str] = release.get("models") or {}
    flaws = [flaw for role, name in models.items() if (flaw := find_model_flaw(home, role, name))]
    if version is None:
        return [*flaws, "no index version of it is on disk"]
    meta = read_index_meta(home, version)
    if not meta:
        return [*flaws, f"router/{version[:12]}: its index.json cannot be read"]
    if meta.get("release") != release.get("release"):
        flaws.append(f"router/{version[:12]} is of release {str(meta.get('release'))[:12]}")
    retriever = models.get("retriever", get_untrained_model("retriever"))
    adapter = None if retriever == get_untrained_model("retriever") else retriever
    if meta.get("adapter") != adapter:
        maker = str(meta.get("adapter") or "base")[:12]
        flaws.append(f"router/{version[:12]} was made by retriever {maker}, not {retriever[:12]}")
    reranker = find_reranker_file(home, models)
    if meta.get("reranker") != (reranker.parent.name if reranker else None):
        flaws.append(f"router/{version[:12]} has another reranker than its release")
    if not (find_encoder_folder(home, str(meta.get("embedder"))) / "encoder.json").is_file():
        flaws.append(f"its encoder {meta.get('embedder')} is missing under encoders/")
    return flaws


def find_index_flaw(home: Path, version: str) -> str | None:
    """Why an index version cannot answer queries, tried with its encoder; None where it can."""
    from serving.router import open_router

    try:
        open_router(home, version)
    except (IndexMissing, IndexBroken, RuntimeError, OSError, ValueError) as error:
        return " ".join(str(error).split())
    return None


def read_index_meta(home: Path, version: str) -> Json:
    """The index.json of a version; empty where it cannot be read."""
    try:
        body = json.loads((home / "router" / version / "index.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}
