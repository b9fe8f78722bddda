"""A candidate is crowned only beyond its interval; a release is one consistent set."""

from pathlib import Path

import pytest

from training.champion import (
    champion,
    consider,
    current_release,
    decide_promotion,
    last_trained_set,
    make_release,
)

BETTER = {"value": 0.1, "low": 0.02, "high": 0.2, "n": 90}
UNSURE = {"value": 0.1, "low": -0.01, "high": 0.2, "n": 90}


def test_every_role_starts_with_a_model_that_needs_no_training(tmp_path: Path) -> None:
    assert champion(tmp_path, "retriever").model == "base"
    assert champion(tmp_path, "caller").model == "baseline:bm25+slots"
    assert not champion(tmp_path, "caller").trained
    assert last_trained_set(tmp_path, "retriever") is None


@pytest.mark.parametrize(
    ("gain", "crowned"),
    [
        (BETTER, True),
        (UNSURE, False),
        ({**BETTER, "low": 0.0}, False),
        ({"value": 0.0, "low": 0.0, "high": 0.0, "n": 0}, False),
    ],
)
def test_only_a_gain_beyond_its_interval_crowns(gain: dict, crowned: bool) -> None:
    assert decide_promotion(gain)[0] is crowned


def test_a_better_candidate_becomes_champion_with_its_evidence(tmp_path: Path) -> None:
    made = consider(tmp_path, "retriever", "m1", "set1", BETTER, {"n": 90})
    assert made.promoted
    read = champion(tmp_path, "retriever")
    assert (read.model, read.training_set, read.evidence) == ("m1", "set1", {"n": 90})
    assert read.trained


def test_a_candidate_that_is_not_better_is_recorded_and_stays_out(tmp_path: Path) -> None:
    consider(tmp_path, "retriever", "m1", "set1", BETTER, {})
    made = consider(tmp_path, "retriever", "m2", "set2", UNSURE, {})
    assert not made.promoted
    assert champion(tmp_path, "retriever").model == "m1"
    assert champion(tmp_path, "retriever").last_candidate["model"] == "m2"
    assert last_trained_set(tmp_path, "retriever") == "set2"


def test_considering_again_changes_nothing(tmp_path: Path) -> None:
    for gain, model in ((BETTER, "m1"), (UNSURE, "m2")):
        consider(tmp_path, "retriever", model, "set", gain, {})
        before = (tmp_path / "champions" / "retriever.json").read_bytes()
        again = consider(tmp_path, "retriever", model, "set", gain, {})
        assert not again.promoted
        assert (tmp_path / "champions" / "retriever.json").read_bytes() == before


def test_the_same_set_is_the_same_release(tmp_path: Path) -> None:
    assert current_release(tmp_path) == {}
    models = {"retriever": "m1", "caller": "baseline:bm25+slots"}
    first = make_release(tmp_path, models, "contracts-1", "set1")
    assert make_release(tmp_path, models, "contracts-1", "set1") == first
    assert len((tmp_path / "releases" / "HISTORY.jsonl").read_text().splitlines()) == 1
    second = make_release(tmp_path, models, "contracts-2", "set1")
    assert second != first
    assert current_release(tmp_path)["contracts"] == "contracts-2"


def test_a_release_that_comes_back_is_the_old_one(tmp_path: Path) -> None:
    models = {"retriever": "base"}
    first = make_release(tmp_path, models, "c1", "s1")
    at = current_release(tmp_path)["at"]
    make_release(tmp_path, models, "c2", "s1")
    assert make_release(tmp_path, models, "c1", "s1") == first
    assert current_release(tmp_path)["release"] == first
    assert current_release(tmp_path)["at"] == at
