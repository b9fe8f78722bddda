"""Ranks become figures a split; what decides is measured on servers never trained on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.evaluation.metrics import bootstrap_mean, measure_share
from training.evaluation.retriever import (
    MEASURES,
    RETRIEVER_EVALUATION,
    NothingToEvaluate,
    evaluate_retriever,
    summarise_recall,
)
from training.evaluation.retriever import select_testable_rows as held_out


def item(model: str, name: str, rank: int, split: str | None = "unseen_server") -> dict:
    return {
        "model": model, "pair_id": name, "rank": rank, "split": split, "pool": 20,
        "server_id": f"s{name}", "text_digest": f"t{name}", "tool": name, "kind": "direct",
        "training_set": "set",
    }  # fmt: skip


def test_every_split_has_its_figures_and_unseen_servers_decide():
    ranks = {"unseen_server": (1, 2, 1, 11), "seen_tool": (1, 1), "unseen_tool": (3,)}
    rows = [
        item(model, f"{split}{at}", rank + (2 if model == "base" else 0), split)
        for model in ("m", "base")
        for split, held in ranks.items()
        for at, rank in enumerate(held)
    ]
    found = summarise_recall(RETRIEVER_EVALUATION.frame(rows).to_dicts(), "m")
    assert found["n"] == 4
    assert found["chance"] == 0.05
    assert found["recall_at_1"]["candidate"]["value"] == 0.5
    assert found["recall_at_10"]["candidate"]["value"] == 0.75
    assert found["recall_at_1"]["incumbent"]["value"] == 0.0
    assert found["gain_at_1"]["value"] == 0.5
    assert found["mrr"]["candidate"]["value"] == pytest.approx((1 + 0.5 + 1 + 1 / 11) / 4, abs=1e-4)
    assert set(found["splits"]) == set(ranks)
    assert found["splits"]["seen_tool"]["gain_at_1"]["value"] == 1.0
    assert found["splits"]["unseen_server"]["gain_mrr"] == found["gain_mrr"]


def test_without_unseen_servers_or_the_same_items_nothing_is_compared():
    rows = [item(model, "a", 1, "seen_tool") for model in ("m", "base")]
    with pytest.raises(NothingToEvaluate, match="of seen_tool; a paired comparison"):
        summarise_recall(rows, "m")
    with pytest.raises(NothingToEvaluate, match="2 items and base on 1"):
        summarise_recall([item("m", "a", 1), item("m", "b", 1), item("base", "a", 1)], "m")


@given(st.integers(1, 400), st.integers(1, 400))
def test_a_better_rank_is_never_worth_less(one, other):
    for name, worth in MEASURES.items():
        assert 0 <= worth(one) <= 1, name
        if one <= other:
            assert worth(one) >= worth(other)
        assert worth(1) == 1


def test_only_held_out_rows_with_one_call_are_asked(test_rows):
    changed = [
        {**test_rows[0], "task": "no_tool", "positive": None},
        {**test_rows[1], "task": "parallel"},
        {**test_rows[2], "split": "train"},
        test_rows[3],
    ]
    assert [row["pair_id"] for row in held_out(changed)] == [test_rows[3]["pair_id"]]


def test_vectors_that_are_no_numbers_rank_last(test_rows):
    def broken(texts: list, _: bool) -> np.ndarray:
        return np.full((len(texts), 2), np.nan, np.float32)

    pool = sorted({row["positive"] for row in held_out(test_rows)})
    ranked = evaluate_retriever(test_rows, pool, {"broken": broken}, "set")  # type: ignore[dict-item]
    assert {row["rank"] for row in ranked} == {len(pool)}


def test_wilson_agrees_with_published_values():
    figure = measure_share(15, 20)
    assert (figure.value, figure.low, figure.high) == (0.75, 0.5313, 0.8881)
    assert measure_share(0, 10).low == 0.0
    assert measure_share(10, 10).high == 1.0
    assert (measure_share(0, 0).low, measure_share(0, 0).high) == (0.0, 1.0)


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from("abcde")), min_size=1, max_size=40))
def test_an_interval_holds_within_the_range_of_values(items):
    values, groups = [value for value, _ in items], [group for _, group in items]
    figure = bootstrap_mean(values, groups)
    assert min(values) - 1e-3 <= figure.low <= figure.high <= max(values) + 1e-3
    assert figure.n == len(items)


def test_items_of_one_group_are_drawn_together():
    values = [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0] * 5
    apart = bootstrap_mean(values, [str(i) for i in range(40)])
    together = bootstrap_mean(values, [str(v) for v in values])
    assert together.high - together.low > apart.high - apart.low


def test_nothing_measured_is_n_zero():
    assert bootstrap_mean([], []).n == 0


def test_a_group_for_each_value_is_required():
    with pytest.raises(ValueError, match="1 values but 2 groups"):
        bootstrap_mean([1.0], ["a", "b"])
