"""Scan: prompt injection and tool poisoning in whatever a model reads of a tool."""

from assets.contracts.scan.engine import scan_each, scan_list, scan_tool
from assets.contracts.scan.rug_pull import find_rug_pulls
from assets.contracts.scan.rule_table import HIGH, RULES, ScanFinding

__all__ = ["HIGH", "RULES", "ScanFinding", "find_rug_pulls", "scan_each", "scan_list", "scan_tool"]
