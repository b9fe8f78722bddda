import csv
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.outcomes.noise.intents import load_intents
from benchmarks.outcomes.noise.labels import (
    BadLabels,
    measure_agreement,
    measure_kappa,
    write_sheet,
)
from benchmarks.outcomes.noise.table import Table, Tried
from tests.benchmarks.outcomes.noise.stages import make_stage


def make_table() -> Table:
    table = make_stage().table
    first = table.endpoints[next(iter(table.endpoints))]
    table.outcomes["t6", first.id, 0] = Tried(False, "ok", 0.1, "=SUM(A1)")
    changing = next(intent.name for intent in load_intents() if intent.changes)
    table.tasks[7] = replace(table.tasks[7], intent=changing)
    return table


def fill_sheet(path: Path, labels: list[str]) -> None:
    rows = list(csv.DictReader(path.open(encoding="utf-8", newline="")))
    for row, label in zip(rows, labels, strict=True):
        row["label"] = label
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_a_sheet_holds_answers_without_our_verdict(tmp_path: Path) -> None:
    sheet = tmp_path / "s.csv"
    assert write_sheet(make_table(), sheet, 2, 1) == 2
    text = sheet.read_text(encoding="utf-8")
    assert "'=SUM(A1)" in text
    assert "True" not in text
    assert "t7" not in text


def test_agreement_is_told_with_its_n(tmp_path: Path) -> None:
    table, sheet = make_table(), tmp_path / "s.csv"
    write_sheet(table, sheet, 2, 1)
    fill_sheet(sheet, ["yes", ""])
    found = measure_agreement(table, sheet)
    assert (found["labelled"], found["without a label"]) == (1, 1)
    assert found["agreement"]["n"] == 1


@pytest.mark.parametrize(
    ("labels", "message"), [(["maybe", "no"], "row 2"), (["", ""], "no row has a label")]
)
def test_a_sheet_that_cannot_be_used_is_told_of(
    tmp_path: Path, labels: list[str], message: str
) -> None:
    table, sheet = make_table(), tmp_path / "s.csv"
    write_sheet(table, sheet, 2, 1)
    fill_sheet(sheet, labels)
    with pytest.raises(BadLabels, match=message):
        measure_agreement(table, sheet)


def test_another_file_is_no_sheet(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadLabels, match="no column endpoint, label, task"):
        measure_agreement(make_table(), tmp_path / "x.csv")


def test_kappa_is_zero_at_chance_and_one_where_all_agree() -> None:
    yes, no = (True, True), (False, False)
    assert measure_kappa([yes, no, (True, False), (False, True)]) == 0
    assert measure_kappa([yes, no]) == 1
    assert measure_kappa([yes, yes]) is None
