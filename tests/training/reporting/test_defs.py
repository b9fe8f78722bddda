"""The report is due again where a word of it changes, wherever that word stands."""

import ast
from pathlib import Path

from training.reporting.defs import SOURCES

ROOT = Path(__file__).resolve().parents[3]


def test_what_renders_a_part_of_the_report_is_among_its_sources() -> None:
    found = {
        f"{node.module.replace('.', '/')}.py"
        for path in (ROOT / "training/reporting").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
        for name in node.names
        if name.name.partition("_")[0] in ("render", "format")
    }
    outside = {one for one in found if not one.startswith("training/reporting/")}
    assert len(outside) >= 4
    assert outside <= set(SOURCES)
    assert all((ROOT / one).exists() for one in SOURCES)
