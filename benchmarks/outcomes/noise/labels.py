"""Labels by a person: a sheet of answers without our verdict, and how far both agree."""

import csv
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.outcomes.noise.intents import HELD_OUT, load_intents
from benchmarks.outcomes.noise.table import Table
from training.evaluation.metrics import measure_share
from warehouse.errors import UnusableInput

COLUMNS = ("task", "endpoint", "request", "tool", "answer", "label")
YES, NO = ("yes", "y", "1", "true", "good"), ("no", "n", "0", "false", "bad")


class BadLabels(UnusableInput):
    """A sheet that cannot be used; the message names the row and what is wrong with it."""


def write_sheet(table: Table, path: Path, n: int, seed: int) -> int:
    """Writes `n` answers of held-out tasks that are judged by their answer alone, half of them
    successes, shuffled; returns how many there are."""
    changing = {intent.name for intent in load_intents() if intent.changes}
    tasks = {one.id: one for one in table.tasks if one.split == HELD_OUT}
    rows = [
        (key, tried)
        for key, tried in table.outcomes.items()
        if key[0] in tasks and key[2] == 0 and tasks[key[0]].intent not in changing and tried.answer
    ]
    rng = Random(seed)
    rng.shuffle(rows)
    halves = [[row for row in rows if row[1].success is good] for good in (True, False)]
    chosen = [one for halve in halves for one in halve[: n // 2]]
    rng.shuffle(chosen)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for (task, endpoint, _), tried in chosen:
            about = table.endpoints[endpoint].contracts[0].get("description")
            request = tasks[task].query
            writer.writerow(map(_defuse, (task, endpoint, request, about, tried.answer, "")))
    return len(chosen)


def measure_agreement(table: Table, path: Path) -> dict[str, Any]:
    """How often a person's labels and our rules agree: share with its interval, Cohen's kappa, and
    each side's share of successes; rows without a label are counted. Raises BadLabels."""
    pairs: list[tuple[bool, bool]] = []
    empty = 0
    for number, row in enumerate(_read_sheet(path), 2):
        label = (row.get("label") or "").strip().lower()
        if not label:
            empty += 1
            continue
        if label not in (*YES, *NO):
            raise BadLabels(f"{path}: row {number}: label {label[:40]!r}, expected yes or no")
        key = (row["task"], row["endpoint"].removeprefix("'"), 0)
        if key not in table.outcomes:
            raise BadLabels(
                f"{path}: row {number}: this table made no such call; use its own sheet"
            )
        pairs.append((label in YES, table.outcomes[key].success))
    if not pairs:
        raise BadLabels(f"{path}: no row has a label; fill the last column with yes or no")
    return {
        "labelled": len(pairs),
        "without a label": empty,
        "agreement": measure_share(sum(a == b for a, b in pairs), len(pairs)).as_dict(),
        "kappa": measure_kappa(pairs),
        "person says success": sum(a for a, _ in pairs) / len(pairs),
        "rule says success": sum(b for _, b in pairs) / len(pairs),
    }


def measure_kappa(pairs: Sequence[tuple[bool, bool]]) -> float | None:
    """Cohen's kappa; None where both say the same of everything."""
    n = len(pairs)
    agreed = sum(a == b for a, b in pairs) / n
    first, second = sum(a for a, _ in pairs) / n, sum(b for _, b in pairs) / n
    chance = first * second + (1 - first) * (1 - second)
    return None if chance == 1 else round((agreed - chance) / (1 - chance), 4)


def _read_sheet(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = {"task", "endpoint", "label"} - set(reader.fieldnames or ())
            if missing:
                raise BadLabels(f"{path}: it has no column {', '.join(sorted(missing))}")
            return list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadLabels(f"{path}: {type(error).__name__}; expected the sheet as CSV") from None


def _defuse(value: object) -> str:
    """A cell that no spreadsheet takes for a formula: what servers answer is not ours."""
    text = str(value or "")
    return f"'{text}" if text[:1] in "=+-@\t\r" else text
