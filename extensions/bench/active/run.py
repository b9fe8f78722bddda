"""The whole comparison: a set's cases in every arm, summed up and kept as files."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.vectors.encoders.embedder import Embedder
from extensions.bench.active.arms import Contest, Row, run_arms
from extensions.bench.active.cases import Case, CaseSet
from extensions.bench.active.pools import RouterPools
from extensions.bench.active.summary import summarise_arms, write_page
from serving.agent_loop import AgentModel, ReadCalls
from warehouse.progress import Progress, SilentProgress
from warehouse.storage.files import write_atomically


@dataclass(frozen=True)
class Measured:
    """Every row, the summary, and of whom and what it speaks."""

    facts: dict[str, Any]
    rows: list[Row]
    summary: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return {**self.facts, **self.summary}


async def evaluate_arms(
    held: CaseSet,
    arms: Sequence[str],
    speaker: AgentModel,
    read_calls: ReadCalls,
    encoder: Embedder,
    place: Path,
    *,
    facts: Mapping[str, Any],
    limit: int | None = None,
    at_once: int = 1,
    progress: Progress | None = None,
) -> Measured:
    """place: where the indexes of the pools are kept, so that a second model builds none."""
    reporter = progress or SilentProgress()
    cases = sample_cases(held.cases, limit)
    pools = RouterPools(place, held, encoder, reporter)
    contest = Contest(speaker, read_calls, at_once=at_once)
    rows = await run_arms(
        cases, arms, pools, contest, lambda n, of: reporter.update("cases", n, of)
    )
    cell = [name for name, _ in cases[0].cell if name != "position"]
    about = {
        "set": held.name,
        **facts,
        "tools": len({name for case in cases for name in case.pool}),
        "cases": len(cases),
        "of_cases": len(held.cases),
        "left_out": dict(held.left_out),
        "embedder": encoder.id,
    }
    return Measured(about, rows, summarise_arms(rows, cell))


def sample_cases(cases: Sequence[Case], most: int | None) -> list[Case]:
    """At most so many, evenly from all cells in turn."""
    if most is None or len(cases) <= most:
        return list(cases)
    cells: dict[Any, list[Case]] = {}
    for case in cases:
        cells.setdefault(case.cell, []).append(case)
    share, more = divmod(most, len(cells))
    kept = []
    for at, of in enumerate(cells.values()):
        wanted = min(len(of), share + (at < more))
        kept += [of[place * len(of) // wanted] for place in range(wanted)] if wanted else []
    return kept


def write_measured(folder: Path, made: Measured) -> list[Path]:
    """`items.jsonl` (a row a case and arm), `summary.json`, `report.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made.rows)
    summary = json.dumps(made.as_dict(), indent=1, ensure_ascii=False)
    page = "\n".join(write_page(made.facts, made.summary)) + "\n"
    parts = {"items.jsonl": lines, "summary.json": summary, "report.md": page}
    for name, text in parts.items():
        write_atomically(folder / name, text.encode("utf-8", "replace"))
    return [folder / name for name in parts]
