"""Arms differ by one thing, are trained once, and the table claims no more than was measured."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st
from pydantic import ValidationError

from extensions.bench import ablation_run
from extensions.bench.ablation_table import render_ablation_table, summarise_ablations
from tests.training.conftest import embed, make_rows
from tests.training.small_base import small_bert
from training.caller.settings import PROFILES
from training.evaluation.retriever import NothingToEvaluate
from training.retriever.settings import RetrieverSettings
from training.runtime.model_store import TrainingFailed
from training.sets.training_set import build_training_set

pytestmark = pytest.mark.slow
Row = dict[str, Any]


def row(name: int, split: str = "train", evolved: bool = False, task: str = "single") -> Row:
    return {
        "pair_id": f"p{name}", "split": split, "evolved": evolved, "task": task,
        "instruction": f"do {name}",
    }  # fmt: skip


ROWS = st.lists(
    st.builds(
        row, st.integers(0, 60), st.sampled_from(["train", "train", "unseen_server"]),
        st.booleans(), st.sampled_from(["single", "lookalike", "no_tool"]),
    ),
    unique_by=lambda one: one["pair_id"], max_size=50,
)  # fmt: skip


@settings_of_hypothesis(max_examples=40, deadline=None)
@given(ROWS, ROWS, st.integers(0, 5))
def test_arms_learn_from_as_much_and_never_from_what_is_tested(accepted, raw, seed):
    tested = {one["pair_id"] for one in accepted if one["split"] != "train"}
    got: dict[str, list[Mapping[str, Any]]] = {}
    for arm in ablation_run.ARMS:
        try:
            got[arm] = ablation_run.select_arm_rows(arm, accepted, raw, seed).rows
        except TrainingFailed:  # none are left for this arm
            continue
        assert not {one["pair_id"] for one in got[arm]} & tested
        assert all(one["split"] == "train" for one in got[arm])
        assert all(one["task"] != "no_tool" for one in got[arm])
        assert [
            dict(one) for one in ablation_run.select_arm_rows(arm, accepted, raw, seed).rows
        ] == got[arm]
        assert ablation_run.select_arm_rows(arm, accepted, raw, seed).random == (arm == "random")
    assert got.get("random") == got.get("filtered")
    if "plain" in got:
        assert len(got["mixed"]) == len(got["plain"])
        assert not any(one["evolved"] for one in got["plain"])
    if {"raw", "filtered"} <= got.keys():
        assert len(got["raw"]) <= len(got["filtered"])
        short = len(got["raw_all"]) < len(got["filtered"])
        assert len(got["raw"]) == (len(got["raw_all"]) if short else len(got["filtered"]))


@pytest.fixture(scope="module")
def sets() -> ablation_run.ArmSets:
    """What `run_ablations` is given; every second pair is evolved."""
    snapshots, pairs = make_rows()
    for at, pair in enumerate(pairs):
        pair["steps"] = '[{"step": "evolve"}]' if at % 2 else "[]"
    made = build_training_set(pairs, snapshots, embed)
    return ablation_run.ArmSets("set", made.rows, made.rows, made.pool)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> ablation_run.AblationSettings:
    base = small_bert(tmp_path_factory.mktemp("bases") / "small")
    small = RetrieverSettings(
        epochs=1, tools=6, first_layer=1, threads=1, device="cpu", checkpoint_steps=1
    )
    return ablation_run.AblationSettings(
        arms=("filtered", "random"), seeds=(1, 2), retriever=small,
        retriever_base=f"sentence-transformers:{base}",
    )  # fmt: skip


@pytest.fixture(scope="module")
def done(
    sets: ablation_run.ArmSets,
    settings: ablation_run.AblationSettings,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, list[Row]]:
    home = tmp_path_factory.mktemp("ablations")
    return home, ablation_run.run_ablations(home, sets, settings=settings)


def test_every_arm_answers_the_same_items_and_a_second_run_none(done, sets, settings, monkeypatch):
    frame = ablation_run.ABLATIONS.frame(done[1])
    asked = {
        (arm, seed): set(part["item_id"]) for (arm, seed), part in frame.group_by("arm", "seed")
    }
    assert len(asked) == 1 + len(settings.arms) * len(settings.seeds)
    assert len({frozenset(items) for items in asked.values()}) == 1
    assert frame["rank"].min() >= 1  # type: ignore[operator]
    assert set(frame["pool"]) == {len(sets.texts)}
    monkeypatch.setattr(ablation_run, "MEASURED", {})
    assert ablation_run.run_ablations(done[0], sets, settings=settings) == done[1]


def test_a_kill_loses_the_arm_in_progress_alone(done, sets, settings, tmp_path, monkeypatch):
    steps = []

    def losses(at: Mapping[str, Any]) -> None:
        steps.append(at["step"])
        if len(steps) == 6:  # after the base and a first arm, within the second
            raise KeyboardInterrupt

    once = replace(settings, seeds=(1,))
    with pytest.raises(KeyboardInterrupt):
        ablation_run.run_ablations(tmp_path, sets, settings=once, losses=losses)
    kept = list((tmp_path / "ablations" / "measured").iterdir())
    assert len(kept) == 2
    kept[0].write_bytes(b"{half")  # and one of the results is damaged besides
    calls, real = [], ablation_run.MEASURED["retriever"]

    def measured(*given: Any) -> Any:
        calls.append(given[-1])
        return real(*given)

    monkeypatch.setattr(ablation_run, "MEASURED", {"retriever": measured})
    again = ablation_run.run_ablations(tmp_path, sets, settings=once)
    assert len(calls) == len(set(calls)) == 2  # the one that was killed and the damaged one
    facts = ("role", "arm", "seed", "item_id", "rank")
    assert [[one[name] for name in facts] for one in again] == [
        [one[name] for name in facts] for one in done[1] if one["seed"] < 2
    ]


def test_equal_arms_are_trained_once_and_what_cannot_run_is_said(sets, settings, tmp_path):
    raw = replace(settings, arms=("filtered", "raw_all"), seeds=(1,))
    rows = ablation_run.run_ablations(tmp_path, sets, settings=raw)
    models = {one["arm"]: one["model"] for one in rows}
    assert models["filtered"] == models["raw_all"]
    moved = replace(raw, retriever=replace(raw.retriever, threads=2))
    assert ablation_run.run_ablations(tmp_path, sets, settings=moved) == rows
    with pytest.raises(ValidationError, match=r"roles\n.*at least 1 item"):
        replace(settings, roles=())
    train = [one for one in sets.accepted if one["split"] == "train"]
    with pytest.raises(NothingToEvaluate, match="Deploy more servers"):
        ablation_run.run_ablations(tmp_path, replace(sets, accepted=train), settings=settings)


def answers(arm: str, seed: int, ranks: list[int]) -> list[Row]:
    return [
        {
            "role": "retriever", "arm": arm, "seed": seed, "item_id": f"i{at}", "rank": rank,
            "split": "unseen_server", "server_id": "s", "tool": f"t{at}", "text_digest": f"t{at}",
            "pool": 30, "pairs": 100, "minutes": 1.5, "model": "m", "training_set": "set",
        }
        for at, rank in enumerate(ranks)
    ]  # fmt: skip


def test_the_table_calls_significant_what_is_over_the_mean_of_its_seeds():
    good, bad = [1] * 40, [9] * 40
    mixed = [1 if at % 2 else 2 for at in range(40)]
    other = [2 if at % 2 else 1 for at in range(40)]
    rows = [
        *answers("untrained", 0, bad), *answers("filtered", 1, good), *answers("random", 1, bad),
        *answers("plain", 1, mixed), *answers("mixed", 1, other),
    ]  # fmt: skip
    assert render_ablation_table(summarise_ablations([])).count("`not run`") == 2
    found = summarise_ablations(rows)
    verdicts = {one["name"]: one["verdict"] for one in found["retriever"]["contrasts"]}
    assert verdicts["hard - random"] == "better"
    assert verdicts["evolved and plain - plain"] == "no difference shown"
    table = render_ablation_table(found)
    [hard] = [line for line in table.splitlines() if "random" in line and "+1.000" in line]
    assert "better" in hard
    assert "## Caller\n`not run`" in table
    worse = summarise_ablations([*answers("filtered", 1, bad), *answers("random", 1, good)])
    assert worse["retriever"]["contrasts"][0]["verdict"] == "worse"
    rows = [
        *answers("filtered", 1, [1, 1]), *answers("filtered", 2, [5, 5]),
        *answers("random", 1, [5, 5]), *answers("random", 2, [5, 5]),
    ]  # fmt: skip
    found = summarise_ablations(rows)["retriever"]
    assert (found["seeds"], found["n"]) == ([1, 2], 2)
    assert found["contrasts"][0]["recall_at_1"]["value"] == 0.5
    assert found["arms"]["filtered"]["recall_at_1"]["value"] == 0.5


def test_the_callers_arms_are_trained_scored_and_told(small_caller, tmp_path):
    snapshots, pairs = make_rows()
    made = build_training_set(pairs, snapshots, embed)
    caller = replace(PROFILES["smollm2"], threads=1, device="cpu", candidates=2)
    settings = ablation_run.AblationSettings(
        roles=("caller",), arms=("filtered", "random"), seeds=(1,), caller=caller,
        caller_base=str(small_caller), caller_items=2,
    )  # fmt: skip
    rows = ablation_run.run_ablations(
        tmp_path, ablation_run.ArmSets("set", made.rows, made.rows, made.pool), settings
    )
    frame = ablation_run.ABLATIONS.frame(rows)
    assert set(frame["arm"]) == {"untrained", "filtered", "random"}
    assert frame["tool_ok"].null_count() == frame["ast_ok"].null_count() == 0
    table = render_ablation_table(summarise_ablations(rows))
    assert "## Retriever\n`not run`" in table
    assert "hard &#45; random" in table
