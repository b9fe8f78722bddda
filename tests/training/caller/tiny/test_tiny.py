"""The tiny base that is shipped: whole, small, as its recipe says, and of no demo server."""

import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from training.caller.tiny import build
from training.caller.tiny import build as builder
from training.caller.tiny.base import (
    FOLDER,
    RECIPE,
    WEIGHTS,
    find_tiny_base_flaw,
    find_tiny_base_folder,
    read_recipe,
    read_tiny_base_digest,
)
from training.caller.tiny.build import (
    CARD,
    TinyRecipe,
    TinyTraining,
    build_tiny_base,
    digest_data,
    encode_batch,
    make_model,
    measure_loss,
    split_servers,
    train_tiny_base,
    train_tokenizer,
)
from training.caller.tiny.corpus import make_exercise
from training.runtime.model_store import TrainingFailed
from warehouse.storage.files import hash_file

SMALL = TinyRecipe(
    servers=12, held_out=3, vocabulary=300, width=32, layers=1, heads=2, head=16,
    echo_steps=2, steps=4, tokens=300, echo_tokens=60, most_tools=3, warmup=1,
)  # fmt: skip


def test_the_shipped_base_is_whole_and_small() -> None:
    assert find_tiny_base_folder() == FOLDER
    assert (FOLDER / WEIGHTS).stat().st_size <= 8_000_000
    held = {path.name for path in FOLDER.iterdir()}
    assert held == {*read_recipe()["files"], RECIPE, CARD}
    assert {WEIGHTS, "config.json", "tokenizer.json", "chat_template.jinja"} <= held
    assert find_tiny_base_flaw(read_tiny_base_digest()) is None
    assert "is not the one of this package" in str(find_tiny_base_flaw("0" * 64))


def test_its_recipe_is_the_one_in_the_code_and_its_card_tells_its_facts() -> None:
    facts = read_recipe()
    assert facts["recipe"] == asdict(TinyRecipe())
    card = (FOLDER / CARD).read_text()
    for fact in (facts["data"], read_tiny_base_digest(), f"{facts['weights']:,}"):
        assert fact in card
    for name in ("calls", "shown", "tool", "exact"):
        one = facts["measured"][name]
        assert one["n"] == facts["measured"]["items"] == 300
        assert f"{one['value']:.3f} [{one['low']:.3f}, {one['high']:.3f}]" in card
    assert str(facts["measured"]["loss"]) in card
    assert card == builder.write_card(facts, (FOLDER / WEIGHTS).stat().st_size)


def test_it_writes_calls_and_copies_names_of_tools_it_never_saw() -> None:
    measured = read_recipe()["measured"]
    assert measured["calls"]["low"] > 0.5
    assert measured["shown"]["low"] > 0.25


def test_it_shares_no_tool_with_the_demo() -> None:
    demo = Path(__file__).parents[4] / "demo"
    text = "\n".join(path.read_text("utf-8", "replace") for path in demo.rglob("*.py"))
    text += "\n".join(path.read_text("utf-8", "replace") for path in demo.rglob("*.json"))
    words = set(re.findall(r"[A-Za-z][\w-]+", text))
    names = {
        tool.contract["name"] for part in split_servers(TinyRecipe()) for s in part for tool in s
    }
    assert len(names) > 10_000
    assert {"convert_length", "wrap_text"} <= words
    assert not names & words


@pytest.mark.parametrize("harm", ["missing", "other", "no recipe"])
def test_a_damaged_base_is_named_with_the_fix(tmp_path: Path, harm: str) -> None:
    folder = tmp_path / "weights"
    shutil.copytree(FOLDER, folder)
    path = folder / (RECIPE if harm == "no recipe" else WEIGHTS)
    if harm == "other":
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    else:
        path.unlink()
    with pytest.raises(TrainingFailed, match="make tiny-base") as failed:
        find_tiny_base_folder(folder)
    assert path.name in str(failed.value)
    assert "\n" not in str(failed.value)


def test_a_small_build_is_whole_and_repeatable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "measure_tiny_base", _measured)
    first = build_tiny_base(SMALL, tmp_path / "a", threads=1)
    again = build_tiny_base(SMALL, tmp_path / "b", threads=1)
    assert first == again == json.loads((tmp_path / "a" / RECIPE).read_text())
    assert find_tiny_base_folder(tmp_path / "a") == tmp_path / "a"
    assert not (tmp_path / "a.partial").exists()


def _measured(made: TinyTraining, recipe: TinyRecipe) -> dict[str, Any]:
    import random

    _, held = split_servers(recipe)
    loss = measure_loss(made, recipe, [make_exercise(random.Random(1), held, 3)])
    none = {"value": 0.0, "low": 0.0, "high": 1.0, "n": 0}
    return {
        "items": 0,
        "tools_shown": 3,
        "loss": loss,
        "calls": none,
        "shown": none,
        "tool": none,
        "exact": none,
    }


def test_a_stopped_build_goes_on_to_the_same_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train_tiny_base(SMALL, tmp_path / "whole", 1)
    monkeypatch.setattr(build, "_EVERY", 2)
    real, seen = build.encode_batch, []

    def stopped(*given: Any) -> Any:
        seen.append(1)
        if len(seen) == 4:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(build, "encode_batch", stopped)
    with pytest.raises(KeyboardInterrupt):
        train_tiny_base(SMALL, tmp_path / "half", 1)
    monkeypatch.setattr(build, "encode_batch", real)
    again = train_tiny_base(SMALL, tmp_path / "half", 1)
    for name, weight in again.model.state_dict().items():
        assert weight.equal(whole.model.state_dict()[name])


def test_a_loss_that_is_no_number_is_told(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match="tiny base: loss is nan at step"):
        train_tiny_base(replace(SMALL, learning_rate=1e30, steps=40), tmp_path, 1)


def test_only_answers_are_learned() -> None:
    learned, _ = split_servers(SMALL)
    tokenizer = train_tokenizer(SMALL, learned)
    assert sum(w.numel() for w in make_model(tokenizer, SMALL).parameters()) > 0
    import random

    one = make_exercise(random.Random(2), learned, 3)
    ids, mask = encode_batch(tokenizer, [one], SMALL.context)
    answer = tokenizer.decode(ids[0][mask[0]])
    assert answer.startswith('{"name": "' if one.calls else "<|none|>")
    assert answer.endswith("<|end|>")
    ids, mask = encode_batch(tokenizer, [[5, 6, 7]], SMALL.context)
    assert ids[0][mask[0]].tolist()[:-1] == [5, 6, 7]


@pytest.mark.slow
def test_a_rebuild_from_the_recipe_is_the_shipped_base(tmp_path: Path) -> None:
    """Some 25 minutes on one core. Weights may differ where another processor rounds otherwise:
    then the held-out loss must be within 0.15 of the shipped one's."""
    shipped = read_recipe()
    assert digest_data(TinyRecipe()) == shipped["data"]
    made = build_tiny_base(TinyRecipe(), tmp_path / "weights", threads=1)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"):
        assert hash_file(tmp_path / "weights" / name) == shipped["files"][name]
    if made["files"][WEIGHTS] != shipped["files"][WEIGHTS]:
        assert made["measured"]["loss"] == pytest.approx(shipped["measured"]["loss"], abs=0.15)


def test_the_data_is_still_the_recipe_s() -> None:
    assert digest_data(TinyRecipe()) == read_recipe()["data"]
