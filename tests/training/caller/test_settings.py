"""Profiles: published values by default, any of them changed by a setting, nothing misread."""

import json
from dataclasses import asdict, replace

import pytest
from pydantic import ValidationError

from training.caller.settings import (
    PROFILES,
    CallerOptions,
    CallerSettings,
    get_base_profile,
    read_settings,
    resolve_caller_settings,
)
from training.retriever.settings import RetrieverSettings
from training.runtime.model_store import MEANS, make_model_name


def test_a_real_base_gets_the_published_hyper_parameters() -> None:
    for base in ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-4B", "meta-llama/Llama-3.1-8B-Instruct", "/a/b"):
        chosen = get_base_profile(base)
        assert (chosen.rank, chosen.alpha, chosen.dropout) == (16, 32, 0.1)
        assert (chosen.learning_rate, chosen.warmup, chosen.epochs) == (5e-5, 0.1, 1)
        assert (chosen.batch, chosen.accumulate, chosen.context) == (2, 8, 8192)
        assert chosen.targets == ("q_proj", "k_proj", "v_proj", "o_proj")
        assert (chosen.candidates, chosen.distractors) == (10, "mixed")


def test_smollm2_has_a_profile_of_its_own_and_any_can_be_asked_for() -> None:
    assert get_base_profile("smollm2") == get_base_profile("smollm2:abc") == PROFILES["smollm2"]
    assert resolve_caller_settings("smollm2", "mcp-flow") == PROFILES["mcp-flow"]
    assert resolve_caller_settings("Qwen/Qwen3-4B", rank=8, epochs=2).rank == 8


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_settings_survive_a_job_file(name: str) -> None:
    held = json.loads(json.dumps(asdict(PROFILES[name])))
    assert read_settings(held) == PROFILES[name]


def test_how_a_training_runs_is_no_part_of_a_models_name() -> None:
    held = asdict(CallerSettings())
    assert set(MEANS) <= held.keys() | asdict(RetrieverSettings()).keys()
    for name in set(MEANS) & held.keys():
        changed = {**held, name: "other"}
        assert make_model_name("caller", "b", "s", changed) == make_model_name(
            "caller", "b", "s", held
        )
    assert make_model_name("caller", "b", "s", {**held, "rank": 8}) != make_model_name(
        "caller", "b", "s", held
    )


def test_what_a_user_sets_of_the_caller_goes_over_its_profile() -> None:
    chosen = CallerOptions(base="smollm2", profile="mcp-flow", rank=8).resolve(seed=3)
    assert chosen == replace(PROFILES["mcp-flow"], rank=8, seed=3)
    assert CallerOptions().resolve() == PROFILES["smollm2"]


def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(ValidationError, match=r"profile\n.*'mcp-flow' or 'smollm2'.*'huge'"):
        CallerOptions(profile="huge")  # type: ignore[arg-type]
