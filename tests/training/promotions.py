"""Models, gates and releases for the tests of champions: real files, no training."""

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.vectors.encoders.saved import find_encoder_folder
from serving.index.build import build_index
from serving.index.model import IndexSource
from tests.serving.conftest import SNAPSHOT_ROWS
from tests.vectors.conftest import WordEmbedder
from training.gates import PromotionGate
from training.releases.in_service import find_model_in_service
from training.releases.promotion import consider_candidate
from training.releases.release import get_pinned_version, make_release, read_served, serve_version
from training.role import check_gates, list_roles
from training.runtime.model_store import save_model
from warehouse.storage import files

BETTER = {"value": 0.1, "low": 0.02, "high": 0.2, "n": 90}
UNSURE = {"value": 0.1, "low": -0.01, "high": 0.2, "n": 90}
EQUAL = {"value": 0.0, "low": -0.05, "high": 0.05, "n": 90}
WORSE = {"value": -0.2, "low": -0.3, "high": -0.1, "n": 90}
NOTHING = {"value": 0.0, "low": 0.0, "high": 0.0, "n": 0}


def save_empty_model(home: Path, name: str, role: str = "retriever", **facts: Any) -> str:
    from safetensors.numpy import save_file

    weights = {"w": np.zeros(4, np.float32)}
    about = {"name": name, "role": role, "base": "minilm-l6-v2", "training_set": "set1", **facts}
    file = "adapter_model.safetensors"
    save_model(home, name, about, lambda folder: save_file(weights, str(folder / file)))
    return name


def make_summary(home: Path, candidate: str, gain: dict = BETTER, role: str = "retriever") -> dict:
    """A retriever's evaluation of the candidate against whoever serves."""
    who = {"candidate": candidate, "incumbent": find_model_in_service(home, role).model}
    return {**who, "n": 90, "tools": 30, "servers": 5, "gain_at_1": gain, "gain_at_5": EQUAL}


def consider_model(home: Path, name: str, gain: dict = BETTER, training_set: str = "set1") -> Any:
    held = make_summary(home, save_empty_model(home, name), gain)
    gates = check_gates("retriever", held)
    return consider_candidate(home, "retriever", name, training_set, gates, held)


def passed_by_gate(gates: list[PromotionGate]) -> dict[str, bool]:
    return {gate.name: gate.passed for gate in gates}


def serve_release(home: Path, contracts: str, rows: list[dict] | None = None) -> tuple[str, str]:
    """A run's release of the models in service, its index by an encoder without a model, served:
    (release, version)."""
    models = {role: find_model_in_service(home, role).model for role in list_roles()}
    name = make_release(home, models, contracts, "set1")
    if get_pinned_version(home):
        return name, read_served(home)["version"]
    embedder = WordEmbedder(f"words-{models['retriever']}")
    encoder = find_encoder_folder(home, embedder.id)
    encoder.mkdir(parents=True, exist_ok=True)
    (encoder / "encoder.json").write_text("{}")
    adapter = None if models["retriever"] == "base" else models["retriever"]
    made_by = {"embedder": embedder.id, "adapter": adapter, "release": name}
    version = build_index(home, IndexSource(rows or SNAPSHOT_ROWS), embedder.embed, **made_by)
    return name, serve_version(home, version)


def read_pointers(home: Path) -> dict[str, bytes]:
    globs = ("champions/*.json*", "releases/*", "router/HEAD.json")
    files = [path for glob in globs for path in home.glob(glob)]
    return {str(path.relative_to(home)): path.read_bytes() for path in sorted(files)}


def fail_write(patch: pytest.MonkeyPatch, step: int, error: BaseException | type) -> None:
    """Lets the file of so many steps, counted from now, be not written for this error."""
    writes, real = count(1), files.write_atomically

    def write(path: Path, data: bytes, **options: bool) -> None:
        if next(writes) == step:
            raise error
        real(path, data, **options)

    patch.setattr(files, "write_atomically", write)
