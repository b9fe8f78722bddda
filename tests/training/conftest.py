"""Rows of servers on both sides of the split, its pairs, and its training set."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest

from assets.contracts.canonical import canonicalize_contract, contract_digest
from tests.synthesis.contracts import make_tool
from tests.vectors.conftest import WordEmbedder
from training.sets.split import TRAIN, UNSEEN_SERVER
from training.sets.training_set import TrainingSet, build_training_set

THINGS = ["file", "issue", "page", "song", "invoice", "photo", "flight", "recipe", "ticket", "note"]
ACCEPTED = {"kind": "direct", "provider": "offline", "license": "Apache-2.0"}
ACCEPTED |= {"task": "single", "status": "ok", "verdict": "accept"}
DEEDS = {"find": "Look up", "make": "Create a new", "drop": "Delete for good"}


def raw_tool(deed: str, thing: str) -> dict[str, Any]:
    about = f"{DEEDS[deed]} {thing} by its title in the {thing} archive"
    title = {"type": "string", "description": f"title of the {thing}"}
    fields = {"title": title, "count": {"type": "integer"}}
    return make_tool(f"{deed}_{thing}", about, fields, "title", "count")


def make_rows() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(snapshot rows, accepted pairs): a server per thing, three tools each, two pairs a tool."""
    snapshots, pairs = [], []
    for thing in THINGS:
        for deed in DEEDS:
            raw = raw_tool(deed, thing)
            owner = {"server_id": f"npm:{thing}", "tool": raw["name"]}
            name = contract_digest(raw)
            held = json.dumps(canonicalize_contract(raw))
            snapshots.append(
                {**owner, "marketplace": "registry", "contract_digest": name, "contract": held}
            )
            for i, title in enumerate(("Blue Sky", "Old Oak")):
                asked = f"Please {deed} {i + 2} {thing}s called '{title}'."
                arguments = json.dumps({"title": title, "count": i + 2})
                named = {"pair_id": f"p1:{thing}-{deed}-{i}", "contract_digest": name}
                pairs.append(
                    {**owner, **named, "instruction": asked, "arguments": arguments, **ACCEPTED}
                )
    return snapshots, pairs


@pytest.fixture(scope="session")
def snapshots_and_pairs() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return make_rows()


def embed(texts: Any) -> np.ndarray:
    """Unit bags of words, each word in a place of its own as good as always: no two texts of other
    words are near by chance, as in the 64 places of `WordEmbedder`."""
    embedder = WordEmbedder()
    embedder.dim = 4096
    return embedder.embed(list(texts))


@pytest.fixture(scope="session")
def made(snapshots_and_pairs: tuple[list, list]) -> TrainingSet:
    snapshots, pairs = snapshots_and_pairs
    return build_training_set(pairs, snapshots, embed)


@pytest.fixture(scope="session")
def rows(made: TrainingSet) -> list[dict[str, Any]]:
    return made.rows


@pytest.fixture(scope="session")
def pool(made: TrainingSet) -> dict[str, dict[str, Any]]:
    """The entries that `offers.pool_for` takes."""
    return made.pool


@pytest.fixture(scope="session")
def train_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["split"] == TRAIN]


@pytest.fixture(scope="session")
def test_rows(rows):
    return [row for row in rows if row["split"] == UNSEEN_SERVER]


@pytest.fixture(scope="session")
def trained_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One data folder shared by the tests that train, so that models are made once."""
    return tmp_path_factory.mktemp("trained")


def materialize(assets: Any, **resources: Any) -> dict[str, dict[str, Any]]:
    """Runs the assets; metadata by asset."""
    events = dg.materialize(assets, resources=resources).get_asset_materialization_events()
    made: list[Any] = [event.materialization for event in events]
    return {
        one.asset_key.to_user_string(): {name: of.value for name, of in one.metadata.items()}
        for one in made
    }
