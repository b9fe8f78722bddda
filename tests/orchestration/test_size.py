"""The size budget: lines and modules of every top-level folder and extension.

A row that must grow lowers another in the same commit, with the reason in its message. The goal is
80,000 lines in the core, 20,000 in the extensions and 700 modules.
"""

from pathlib import Path

import pytest

from tests.support.paths import ROOT

# Folder: (lines at most, modules at most), of Python files; bundles of the demo do not count.
BUDGET = {
    "warehouse": (7_379, 48),
    "assets/marketplaces": (6_044, 37),
    "assets/servers": (11_710, 53),
    "assets/contracts": (8_675, 35),
    "assets/catalogue": (680, 5),
    "assets/vectors": (3_006, 19),
    "assets/synthesis": (10_288, 52),
    "assets/outcomes": (7_830, 41),
    "training": (12_659, 82),
    "serving": (8_976, 42),
    "orchestration": (5_751, 36),
    "demo": (2_508, 21),
    "extensions/batch": (1_264, 7),
    "extensions/bench": (4_680, 22),
    "extensions/contract_ci": (436, 4),
    "extensions/environments": (1_649, 14),
    "extensions/proxy": (4_157, 17),
    "extensions/publishing": (1_444, 8),
    "extensions/recommender": (3_259, 17),
    "extensions/scale": (1_062, 7),
    "extensions/sidecar": (2_188, 12),
    "extensions/upkeep": (2_345, 14),
    "tests": (70_000, 422),
    "benchmarks": (5_999, 37),
}


def measure_folder(folder: Path) -> tuple[int, int]:
    """(lines, modules) of a folder's Python files."""
    files = [path for path in folder.rglob("*.py") if "bundles" not in path.parts]
    return sum(path.read_text(encoding="utf-8").count("\n") for path in files), len(files)


@pytest.mark.parametrize("folder", BUDGET)
def test_a_folder_keeps_to_its_budget(folder):
    lines, modules = measure_folder(ROOT / folder)
    most_lines, most_modules = BUDGET[folder]
    assert lines <= most_lines, f"{folder}: {lines} lines; remove some, or lower another row"
    assert modules <= most_modules, f"{folder}: {modules} modules; join some"


def test_every_extension_has_a_row():
    folders = {
        f"extensions/{path.name}" for path in (ROOT / "extensions").iterdir() if path.is_dir()
    }
    assert {name for name in folders if "__pycache__" not in name} <= set(BUDGET)
