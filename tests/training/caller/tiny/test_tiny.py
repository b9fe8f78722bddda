"""The tiny base: its name, its making, going on after a kill, and that it learns something."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from training.caller.tiny.base import TINY, TinySettings, base_name, find_base, make_base
from training.caller.tiny.exercises import Material
from training.caller.tiny.pretraining import Lessons, tools_at
from training.caller.tiny.text import END, make_tokenizer
from training.runtime import checkpoints
from training.runtime.model_store import TrainingFailed

SMALL = TinySettings(
    vocabulary=350, width=32, layers=1, heads=2, head=16, steps=4, batch=2, candidates=3, rounds=2
)


class Killed(Exception):
    """Stands for a process that ends in the middle."""


@pytest.fixture(scope="module")
def contracts(train_rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["contract_digest"]: json.loads(row["contract"]) for row in train_rows}


@pytest.fixture(scope="module")
def pairs(train_rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return train_rows[:20]


@pytest.fixture(scope="module")
def base(
    tmp_path_factory: pytest.TempPathFactory, contracts: dict[str, Any], pairs: list[dict[str, Any]]
) -> tuple[Path, dict[str, Any], list[dict[str, Any]]]:
    home, told = tmp_path_factory.mktemp("tiny"), []
    card = make_base(home, contracts, SMALL, told.append, rows=pairs, device="cpu", threads=1)
    return home, card, told


def test_the_name_holds_all_that_makes_it(
    contracts: dict[str, Any], pairs: list[dict[str, Any]]
) -> None:
    name = base_name(contracts, SMALL, pairs)
    assert name == base_name(dict(reversed(contracts.items())), SMALL, pairs[::-1])
    changed = {**pairs[0], "instruction": "Something else."}
    others = {
        base_name(dict(list(contracts.items())[1:]), SMALL, pairs),
        base_name(contracts, replace(SMALL, seed=8), pairs),
        base_name(contracts, SMALL, pairs[1:]),
        base_name(contracts, SMALL, [changed, *pairs[1:]]),
        base_name(contracts, SMALL),
    }
    assert len(others | {name}) == 6


def test_a_finished_base_is_told_found_and_not_made_again(
    base: tuple[Path, dict[str, Any], list], contracts: dict[str, Any], pairs: list[dict[str, Any]]
) -> None:
    home, card, told = base
    assert (card["role"], card["pairs"], card["cached"]) == (TINY, 20, False)
    assert "plumbing" in card["told"]
    assert [each["step"] for each in told] == [1, 2, 3, 4]
    assert find_base(home, contracts) == card["name"]
    assert find_base(home, {"c1:other": {}}) is None
    again = make_base(home, contracts, SMALL, lambda _: pytest.fail("again"), rows=pairs)
    assert again["cached"]
    assert not checkpoints.folder_of(home, card["name"]).exists()


def test_a_base_of_an_older_recipe_is_left_alone(
    base: tuple[Path, dict[str, Any], list], contracts: dict[str, Any], tmp_path: Path
) -> None:
    card = {**base[1], "recipe": 1}
    (tmp_path / "models" / "old").mkdir(parents=True)
    (tmp_path / "models" / "old" / "model.json").write_text(json.dumps(card))
    assert find_base(tmp_path, contracts) is None


def test_one_seed_makes_one_base(
    base: tuple[Path, dict[str, Any], list],
    contracts: dict[str, Any],
    pairs: list[dict[str, Any]],
    tmp_path: Path,
) -> None:
    told: list[dict[str, Any]] = []
    make_base(tmp_path, contracts, SMALL, told.append, rows=pairs, device="cpu", threads=1)
    assert told == base[2]


def test_a_killed_pretraining_goes_on_to_the_same_losses(
    base: tuple[Path, dict[str, Any], list],
    contracts: dict[str, Any],
    pairs: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("training.caller.tiny.pretraining._EVERY", 2)

    def until_three(told: dict[str, Any]) -> None:
        if told["step"] == 3:
            raise Killed

    where: dict[str, Any] = {"rows": pairs, "device": "cpu", "threads": 1}
    with pytest.raises(Killed):
        make_base(tmp_path, contracts, SMALL, until_three, **where)
    told: list[dict[str, Any]] = []
    card = make_base(tmp_path, contracts, SMALL, told.append, **where)
    assert told == base[2][2:]
    assert card["loss_last"] == base[1]["loss_last"]


def test_a_loss_that_is_no_number_is_told(contracts: dict[str, Any], tmp_path: Path) -> None:
    wild = replace(SMALL, learning_rate=1e30, matrix_rate=1e30, steps=40)
    with pytest.raises(TrainingFailed, match=r"tiny base: loss is nan.*lower tiny.learning_rate"):
        make_base(tmp_path, contracts, wild, lambda _: None, device="cpu", threads=1)


def test_answers_alone_count_and_names_most() -> None:
    tokenizer = make_tokenizer(["find a file"], 300)
    lessons = Lessons(tokenizer, SMALL)
    text = '<|tools|><|t1|>a<|t2|>b<|user|>xyz<|call|>{"name": "b", "arguments": {}}' + END
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    _, weights = lessons.weighed(ids)
    tokens = tokenizer.convert_ids_to_tokens(ids)
    start = tokens.index("<|call|>")
    assert set(weights[: start + 1]) == {0.0}
    assert next(t for t, w in zip(tokens, weights, strict=True) if w > 1) == "b"
    assert all(w >= 1 for w in weights[start + 1 :])
    none = tokenizer("<|user|>x<|call|><|none|>No." + END, add_special_tokens=False)["input_ids"]
    assert lessons.weighed(none)[1][3] > 1


def test_no_tool_is_shown_at_first_and_then_they_grow_from_two_to_all() -> None:
    shape = TinySettings(steps=100, alone_first=0.2, growing=0.4, candidates=10)
    counts = [tools_at(step, shape) for step in range(100)]
    assert counts == sorted(counts)
    assert (counts[0], counts[19], counts[20], counts[40], counts[-1]) == (0, 0, 2, 6, 10)


def test_contracts_that_no_value_fits_are_told() -> None:
    never = {"name": "never", "inputSchema": {"required": ["a"], "properties": {"a": False}}}
    lessons = Lessons(make_tokenizer(["find a file"], 300), SMALL)
    with pytest.raises(TrainingFailed, match="any of 1 contracts takes"):
        lessons.alone(random.Random(1), Material.of({"c1": never}))


def test_a_short_pretraining_beats_its_start_on_exercises_it_never_saw(
    contracts: dict[str, Any], pairs: list[dict[str, Any]]
) -> None:
    import torch

    from training.caller.tiny.model import make_model
    from training.caller.tiny.pretraining import pretrain

    torch.set_num_threads(1)
    shape = TinySettings(vocabulary=350, layers=2, steps=14, rounds=3, candidates=4)
    torch.manual_seed(shape.seed)
    material = Material.of(contracts, pairs)
    tokenizer = make_tokenizer([row["instruction"] for row in pairs], shape.vocabulary)
    model = make_model(tokenizer, shape)
    lessons, rng = Lessons(tokenizer, shape), random.Random(99)
    held = [lessons.beside(rng, material, 4) for _ in range(4)]
    with torch.no_grad():
        before = float(lessons.loss(model, held, "cpu")[0])
    pretrain(model, tokenizer, material, shape, lambda _: None, "cpu", Path("unused"), "plan")
    with torch.no_grad():
        after = float(lessons.loss(model, held, "cpu")[0])
    assert after < before - 1  # 12.8 to 10.7 when it was written
