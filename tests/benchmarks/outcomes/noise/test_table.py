from pathlib import Path

import pytest

from benchmarks.outcomes.noise.endpoints import AFTER, BEFORE
from benchmarks.outcomes.noise.table import load_table
from tests.benchmarks.outcomes.noise.stages import make_stage


def test_a_table_is_what_it_was_saved_as(tmp_path: Path) -> None:
    table = make_stage().table
    table.save(tmp_path / "t")
    assert load_table(tmp_path / "t") == table


def test_what_did_not_change_does_in_the_second_phase_what_it_did_in_the_first() -> None:
    table = make_stage().table
    first, second, _ = table.endpoints
    assert table.find("t0", first, AFTER) == table.find("t0", first, BEFORE)
    assert table.find("t0", second, AFTER) != table.find("t0", second, BEFORE)
    with pytest.raises(KeyError):
        table.find("t0", "unknown")
