"""Scan: prompt injection and tool poisoning in whatever a model reads of a tool.

What belongs here: pure functions from tools to findings. `scan_list` for a whole list, `scan_tool`
for one tool, `rug_pull` for two versions of one list; `RULES` says what each rule means.
What does not: whether a finding keeps a tool out (`assets/contracts/quarantine/decisions.py`), launching
servers, and anything that asks a model: these rules read text, and text can be phrased anew, so a
clean scan is no proof of a harmless tool.
"""

from assets.contracts.scan.engine import scan_list, scan_tool
from assets.contracts.scan.finding import HIGH, RULES, Finding
from assets.contracts.scan.rug_pull import rug_pull

__all__ = ["HIGH", "RULES", "Finding", "rug_pull", "scan_list", "scan_tool"]
