"""Tables of executions, whatever third parties call their servers and tools."""

from typing import Any

from assets.outcomes.report import report_executions
from assets.outcomes.table import EXECUTIONS


def executed(
    server: str = "npm:a", tool: str = "look", outcome: str | None = "useful", **facts: Any
) -> dict[str, Any]:
    names = {"server_id": server, "tool": tool, "outcome": outcome, "status": "ok"}
    return {**dict.fromkeys(EXECUTIONS.columns), "pair_ids": "[]", **names, **facts}


def test_shares_are_of_servers_or_of_the_tools_of_the_only_one_the_lowest_first() -> None:
    def shares(*rows: dict[str, Any]) -> list[str]:
        return report_executions(rows)["shares"].splitlines()[2:]

    rows = [executed(tool="b"), executed(tool="a"), executed(tool="a", outcome="empty")]
    rows.append(executed(tool="never", outcome="refused", status="failed", blame="credentials"))
    assert [line[:14] for line in shares(*rows)] == ["| a | 2 | 0.50", "| b | 1 | 1.00"]
    assert "npm:a | 3 | 0.67" in shares(*rows, executed("npm:b"))[0]
    assert len(shares(*(executed(f"npm:{n}") for n in range(60)))) == 24
    assert report_executions(rows[3:])["shares"] == "none"
