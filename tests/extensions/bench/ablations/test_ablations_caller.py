"""The caller's arms: trained on a small base and scored beside BM25 with slot copying."""

from dataclasses import replace
from pathlib import Path

import pytest

from extensions.bench.ablation_run import ABLATIONS, AblationSettings, ArmSets, run_ablations
from extensions.bench.ablation_table import render_ablation_table, summarise_ablations
from tests.training.conftest import embed, make_rows
from training.caller.settings import PROFILES
from training.sets.training_set import build_training_set

pytestmark = pytest.mark.slow


def test_the_callers_arms_are_trained_scored_and_told(small_caller: Path, tmp_path: Path) -> None:
    snapshots, pairs = make_rows()
    made = build_training_set(pairs, snapshots, embed)
    caller = replace(PROFILES["smollm2"], threads=1, device="cpu", candidates=2)
    settings = AblationSettings(
        roles=("caller",),
        arms=("filtered", "random"),
        seeds=(1,),
        caller=caller,
        caller_base=str(small_caller),
        caller_items=2,
    )
    rows = run_ablations(tmp_path, ArmSets("set", made.rows, made.rows, made.pool), settings)
    frame = ABLATIONS.frame(rows)
    assert set(frame["arm"]) == {"untrained", "filtered", "random"}
    assert frame["tool_ok"].null_count() == frame["ast_ok"].null_count() == 0
    table = render_ablation_table(summarise_ablations(rows))
    assert "## Retriever\n`not run`" in table
    assert "hard - random" in table
