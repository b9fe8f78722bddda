"""The retriever that the package ships: whole, small, as its card says, and opened offline."""

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from assets.vectors.encoders.minilm import (
    GENERAL_CONFIG,
    GENERAL_FOLDER,
    GENERAL_RECIPE,
    GENERAL_WEIGHTS,
    digest_base,
    find_general_folder,
    make_general_name,
    open_general,
    read_recipe,
)
from assets.vectors.encoders.weights import BASE, BadAdapter
from benchmarks.retriever_fit.card import CARD, describe_shipped
from benchmarks.retriever_fit.recipe import Recipe
from benchmarks.retriever_fit.sources import SOURCES
from warehouse.storage.files import hash_file


def test_it_is_whole_small_and_of_this_base() -> None:
    facts = read_recipe()
    assert find_general_folder() == GENERAL_FOLDER
    assert {path.name for path in GENERAL_FOLDER.iterdir()} == {
        GENERAL_WEIGHTS,
        GENERAL_CONFIG,
        GENERAL_RECIPE,
        CARD,
    }
    assert hash_file(GENERAL_FOLDER / GENERAL_WEIGHTS) == facts["files"][GENERAL_WEIGHTS]
    assert (GENERAL_FOLDER / GENERAL_WEIGHTS).stat().st_size <= 3_000_000
    assert facts["base"]["files"] == digest_base(BASE)
    assert (
        json.loads((GENERAL_FOLDER / GENERAL_CONFIG).read_bytes())["base_model_name_or_path"]
        == BASE
    )
    assert make_general_name() == f"general@{facts['files'][GENERAL_WEIGHTS][:16]}"


def test_its_recipe_is_the_one_in_the_code_and_its_card_tells_its_facts() -> None:
    facts, card = read_recipe(), (GENERAL_FOLDER / CARD).read_text(encoding="utf-8")
    assert facts["recipe"] == json.loads(json.dumps(Recipe().as_facts()))
    assert card == describe_shipped(facts, (GENERAL_FOLDER / GENERAL_WEIGHTS).stat().st_size)
    for fact in (facts["files"][GENERAL_WEIGHTS], facts["data"], facts["base"]["files"]):
        assert fact in card
    assert sum(item["pairs"] for item in facts["sets"].values()) == facts["training"]["pairs"]
    for name, one in facts["sets"].items():
        assert (one["source"], one["licence"]) == SOURCES[name]
        assert one["licence"].split(";")[0] in ("MIT", "Apache-2.0", "CC-BY-4.0")


def test_sets_that_judge_are_not_learnt_from() -> None:
    held = "bfcl livemcpbench mcp-atlas composio sgd metatool api-bank"
    assert not set(Recipe().sets) & set(held.split())


def test_it_opens_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: Any) -> None:
        raise AssertionError("nobody allowed the network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    general = open_general(threads=1)
    assert general.id == f"minilm-l6-v2/128+{read_recipe()['files'][GENERAL_WEIGHTS][:16]}"
    asked, right, other = general.embed(["what is the weather", "get forecast", "send email"])
    assert asked @ right > asked @ other


@pytest.mark.parametrize("harm", ["missing", "other", "no recipe"])
def test_a_damaged_one_is_named_with_the_fix(tmp_path: Path, harm: str) -> None:
    folder = Path(shutil.copytree(GENERAL_FOLDER, tmp_path / "weights"))
    path = folder / (GENERAL_RECIPE if harm == "no recipe" else GENERAL_WEIGHTS)
    if harm == "other":
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    else:
        path.unlink()
    with pytest.raises(BadAdapter, match="make retriever") as failed:
        find_general_folder(folder)
    assert path.name in str(failed.value)
    assert "\n" not in str(failed.value)
