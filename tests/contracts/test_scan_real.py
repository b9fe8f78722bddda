"""High rules on tools of real servers: rare, and each hit one that was read by eye."""

from pathlib import Path

import pytest

from benchmarks.bench_scan import measured

DATA = Path(__file__).parents[2].parent / "shared" / "data"
READ = {"smithery neon prepare_database_migration several_signs"}  # false: see docs/scan.md


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="no development data beside the checkout")
def test_high_findings_on_real_tools_are_rare_and_known():
    told = measured(DATA)
    assert told["total"] == 16_473
    assert told["high_rate"] < 0.005
    assert set(told["high"]) <= READ
