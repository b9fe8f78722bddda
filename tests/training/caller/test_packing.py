"""Packing: every row is learned once an epoch, in the same update however it is packed, and a row
in a pass neither sees its neighbours nor weighs more or less for them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.training.small_base import make_model
from training.caller.packing import (
    SEGMENTS,
    TrainingLesson,
    balance_rows,
    compute_efficiency,
    find_row_mixing,
    pack_batch,
    pad_batch,
    pick_attention,
    plan_passes,
)

LESSONS = [TrainingLesson([3 + i, *range(10, 10 + 3 * i), 7, 8, 9], 2 + i) for i in range(1, 6)]
PLANS = st.fixed_dictionaries(
    {
        "per_update": st.integers(1, 20),
        "epochs": st.integers(1, 3),
        "seed": st.integers(0, 9),
        "pass_rows": st.integers(1, 5),
        "processes": st.integers(1, 3),
    }
)
LENGTHS = st.lists(st.integers(1, 120), min_size=1, max_size=60)


@given(LENGTHS, PLANS, st.none() | st.integers(1, 200))
@examples(150)
def test_every_row_is_learned_once_an_epoch_within_the_limit(
    lengths: list[int], chosen: dict[str, int], limit: int | None
) -> None:
    made = plan_passes(lengths, pass_tokens=limit, **chosen)
    seen = sorted(row for part in made.passes for row in part)
    assert seen == sorted([*range(len(lengths))] * chosen["epochs"])
    assert len(made.passes) == made.updates * made.per_update
    assert made.per_update % chosen["processes"] == 0
    for part in made.passes:
        if limit is None:
            assert len(part) <= chosen["pass_rows"]
        else:
            assert len(part) <= 1 or sum(lengths[row] for row in part) <= limit
    assert 0 < compute_efficiency(made, lengths, padded=limit is None) <= 1


@given(LENGTHS, PLANS, st.integers(1, 200))
@examples(100)
def test_an_update_takes_the_same_rows_however_they_are_packed(
    lengths: list[int], chosen: dict[str, int], limit: int
) -> None:
    one = plan_passes(lengths, pass_tokens=limit, **chosen)
    other = plan_passes(lengths, pass_tokens=None, **{**chosen, "processes": 2, "pass_rows": 1})
    assert one.updates == other.updates
    for update in range(1, one.updates + 1):
        assert sorted(one.get_update_rows(update)) == sorted(other.get_update_rows(update))


@given(LENGTHS, st.integers(1, 8))
def test_balanced_groups_hold_all_rows_and_differ_by_one_row_at_most(
    lengths: list[int], parts: int
) -> None:
    made = balance_rows(range(len(lengths)), lengths, parts)
    assert sorted(row for part in made for row in part) == list(range(len(lengths)))
    sums = [sum(lengths[row] for row in part) for part in made]
    if len(made) == parts:
        assert max(sums) - min(sums) <= max(lengths)


def learned(model: Any, passes: list[dict[str, Any]]) -> tuple[float, dict[str, Any]]:
    """Summed loss and the gradients over passes, as one update adds them."""
    model.zero_grad()
    total = 0.0
    for each in passes:
        loss = model(**each, num_items_in_batch=10, use_cache=False).loss
        loss.backward()
        total += float(loss)
    return total, {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("kind", ["segments", "sdpa", "eager"])
def test_a_packed_pass_has_the_loss_and_the_gradients_of_its_rows(kind: str) -> None:
    import torch

    model = make_model(64)
    alone = learned(model, [pad_batch([row], 0) for row in LESSONS])
    beside = learned(model, [pad_batch(LESSONS, 0)])
    model.set_attn_implementation(pick_attention(kind, model.config, "cpu"))
    together = learned(model, [pack_batch(LESSONS, 0)])
    for loss, gradients in (beside, together):
        assert loss == pytest.approx(alone[0], rel=1e-5)
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, alone[1][name], rtol=1e-4, atol=1e-6)


def test_the_loss_is_that_of_the_whole_logits() -> None:
    import torch

    model = make_model(64)
    [row] = LESSONS[3:4]
    made = pack_batch([row], 0)
    labels = torch.tensor([[-100] * row.start + row.ids[row.start :]])
    whole = model(input_ids=made["input_ids"], labels=labels).loss
    assert float(model(**made).loss) == pytest.approx(float(whole), rel=1e-5)


def test_an_empty_pass_teaches_nothing() -> None:
    model = make_model(64)
    for build in (pack_batch, pad_batch):
        loss, gradients = learned(model, [build([], 0)])
        assert loss == 0.0
        assert all(float(gradient.abs().max()) == 0.0 for gradient in gradients.values())


def test_a_model_whose_rows_see_one_another_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import training.caller.packing as attention

    model = make_model(64)
    model.set_attn_implementation(pick_attention("auto", model.config, "cpu"))
    assert model.config._attn_implementation == SEGMENTS
    assert find_row_mixing(model, LESSONS, "cpu") is None
    walk = attention._attend_by_segment
    monkeypatch.setattr(
        attention, "_attend_by_segment", lambda *a, segments=(), **k: walk(*a, segments=(), **k)
    )
    model.set_attn_implementation(pick_attention("segments", model.config, "cpu"))
    assert "differs by" in (find_row_mixing(model, LESSONS, "cpu") or "")
    monkeypatch.undo()
    pick_attention("segments", model.config, "cpu")


def test_a_model_with_a_sliding_window_is_packed_by_its_own_masks() -> None:
    class Config:
        layer_types = ("full_attention", "sliding_attention")

    assert pick_attention("auto", Config(), "cpu") == "sdpa"
    assert pick_attention("eager", Config(), "cpu") == "eager"


def test_a_model_that_takes_no_packed_attention_is_trained_without() -> None:
    from transformers import AutoModelForCausalLM, Gemma2Config

    from training.caller.settings import resolve_caller_settings
    from training.caller.train import _enable_packing

    config = Gemma2Config(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config)
    own, notes = model.config._attn_implementation, []
    assert not _enable_packing(
        model, LESSONS, resolve_caller_settings("local"), "cpu", notes.append
    )
    assert model.config._attn_implementation == own
    assert notes[0].startswith("packing is off")
