"""High rules on tools of real servers: rare, and each hit one that was read by eye."""

import pytest

from assets.contracts.scan import HIGH, scan_list
from benchmarks.bench_scan import measure_rules, read_lists
from tests.support.paths import ROOT, SHARED

DATA = SHARED
READ = {"smithery neon prepare_database_migration several_signs"}  # false: see docs/benchmarks.md


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="no development data beside the checkout")
def test_high_findings_on_real_tools_are_rare_and_known():
    figures = measure_rules(DATA)
    assert figures["total"] == 16_473
    assert figures["high_rate"] < 0.005
    assert set(figures["high"]) <= READ


@pytest.mark.shared
@pytest.mark.skipif(not DATA.exists(), reason="no development data beside the checkout")
@pytest.mark.parametrize("source", ["smithery", "real-servers"])
def test_less_than_one_tool_in_two_hundred_of_each_source_is_high(source):
    total, high = 0, set()
    for place, (of, server, listing) in enumerate(read_lists(DATA)):
        if of == source and (source == "real-servers" or place % 4 == 0):
            total += len(listing)
            result = (item for item in scan_list(listing) if item.severity == HIGH)
            high |= {f"{of} {server} {item.tool} {item.rule}" for item in result}
    assert total > 300
    assert len({line.rsplit(" ", 1)[0] for line in high}) < 0.005 * total
    assert high <= READ


def test_each_known_hit_stands_in_the_table_with_its_review():
    table = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for line in READ:
        source, server, tool, rule = line.split(" ")
        [row] = [text for text in table.splitlines() if f"`{tool}`" in text and rule in text]
        assert (source in row, server in row) == (True, True)
        assert row.rstrip(" |").rsplit("|", 1)[1].strip().startswith(("true", "false"))
