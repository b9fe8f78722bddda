"""The card of an export: what it is, how it was made and judged, and what it lacks.

Nothing in it depends on when it was written: the same export is the same card.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from assets.contracts.history.snapshot import SNAPSHOTS
from assets.synthesis.common.tables import JUDGEMENTS, PAIRS
from assets.synthesis.export.formats import Format
from assets.synthesis.export.licences import normalise_licence
from assets.synthesis.export.select import Choice, Chosen
from assets.synthesis.judging.trial.trials import JUDGE_TRIALS
from warehouse.sanitize.escape import keep_cell, make_markdown_table
from warehouse.storage.tables import Tables, TableSpec

OFFLINE = "offline"
_UNKNOWN = "unknown"


@dataclass
class Figures:
    """Counts over what was exported; lines differ from pairs where a pair has several turns."""

    pairs: int = 0
    lines: int = 0
    simulated: int = 0
    migrated: int = 0
    splits: Counter[str] = field(default_factory=Counter)
    servers: dict[str, set[str]] = field(default_factory=dict)
    tools: set[tuple[str, str]] = field(default_factory=set)
    by: dict[str, Counter[str]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, one: Chosen, lines: int) -> None:
        row = one.row
        self.pairs += 1
        self.lines += lines
        self.simulated += bool(row["simulated"])
        self.migrated += row["migrated_from"] is not None
        self.splits[one.split] += 1
        self.servers.setdefault(one.split, set()).add(row["server_id"])
        self.tools.add((row["server_id"], row["tool"]))
        counted = {
            **{name: row[name] for name in ("task", "kind", "provider", "marketplace")},
            "license": normalise_licence(row["license"]),
            "judge": one.judgement["judge"],
        }
        for name, value in counted.items():
            self.by.setdefault(name, Counter())[str(value or _UNKNOWN)] += 1

    def as_json(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "pairs": self.pairs,
            "lines": self.lines,
            "splits": dict(sorted(self.splits.items())),
            "tools": len(self.tools),
            **{name: dict(sorted(counts.items())) for name, counts in self.by.items()},
            "left_out": dict(self.left_out),
        }


def read_sources(tables: Tables, as_of: float) -> dict[str, Any]:
    """Versions of the tables as of then, and the judge's trials."""
    return {
        "versions": [
            (spec.name, market, head.digest)
            for spec in (PAIRS, JUDGEMENTS, SNAPSHOTS, JUDGE_TRIALS)
            for market in tables.partitions(spec.name)
            if (head := tables.head(spec.name, market, as_of))
        ],
        "trials": _read_sorted_rows(tables, JUDGE_TRIALS, as_of),
    }


def write_card(
    form: Format, figures: Figures, facts: dict[str, Any], choice: Choice, label: str
) -> str:
    """The text of README.md, out of the template `card.md`."""
    text = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    by_rules = sum(n for name, n in figures.by["judge"].items() if not name.startswith("model:"))
    filled = Template(text).substitute(
        label=label,
        pairs=figures.pairs,
        tools=len(figures.tools),
        sides=_list_sides(figures),
        format=form.name,
        lines=figures.lines,
        commercial=_COMMERCIAL if choice.commercial_only else "",
        writers="; ".join(_list_writers(figures.by["provider"])),
        simulated=figures.simulated,
        migrated=figures.migrated,
        trials=_tabulate_trials(facts["trials"]),
        counts="\n".join(_list_counts(figures)),
        wording=_WORDING if figures.by["provider"].keys() <= {OFFLINE} else "",
        by_rules=by_rules,
        unknown=figures.by["license"].get(_UNKNOWN, 0),
        versions=make_markdown_table(
            ["table", "partition", "version"],
            [(table, market, f"`{digest}`") for table, market, digest in facts["versions"]],
            keep_cell,
        ),
    )
    return "\n".join([_write_front_matter(form, figures), filled])


_COMMERCIAL = (
    "\nOnly pairs whose source has a licence that is known to permit commercial use are in.\n"
)
_WORDING = "- The wording is that of a grammar: plain, and less varied than people's.\n"


def _write_front_matter(form: Format, figures: Figures) -> str:
    """YAML for `datasets.load_dataset` on this folder: its files and exact column types."""
    files = [
        f"  - split: {split}\n    path: data/{split}.{form.suffix}" for split in figures.splits
    ]
    columns = [
        f"  - name: {name}\n    " + ("list: json" if kind == "json" else f"dtype: {kind}")
        for name, kind in form.columns.items()
    ]
    known = sorted(figures.by["license"])
    licence = known[0].lower() if len(known) == 1 and known != [_UNKNOWN] else "other"
    lines = ["---", f"license: {licence}", "tags:", "- tool-calling", "- mcp", "- synthetic",
             "configs:", "- config_name: default", "  data_files:", *sorted(files),
             "dataset_info:", "  features:", *columns, "---", ""]  # fmt: skip
    return "\n".join(lines)


def _list_sides(figures: Figures) -> str:
    """How many servers and pairs each side of the split has."""
    servers = {split: len(found) for split, found in sorted(figures.servers.items())}
    return ", ".join(
        f"{n} server{'' if n == 1 else 's'} ({figures.splits[side]} pairs) in `{side}`"
        for side, n in servers.items()
    )


def _list_writers(providers: Counter[str]) -> Iterator[str]:
    for name, count in sorted(providers.items()):
        if name != OFFLINE:
            yield f"{count} by the models at `{name}`"
    if count := providers.get(OFFLINE, 0):
        yield f"{count} by rules alone (`{OFFLINE}`: no language model wrote them)"


def _tabulate_trials(trials: list[dict[str, Any]]) -> str:
    if not trials:
        return "No trial of the judge was published as of then."
    columns = ["marketplace", "judge", "stage", "kind", "refused", "n"]
    rows = [[*(t[name] for name in columns), f"{t['low']:.2f} to {t['high']:.2f}"] for t in trials]
    table = make_markdown_table([*columns, "95% interval"], rows, keep_cell)
    return f"Known-good pairs and mutants with one flaw each, refused by:\n\n{table}"


def _list_counts(figures: Figures) -> Iterator[str]:
    for name, counts in {**figures.by, "left out": figures.left_out}.items():
        told = counts.items() if name == "left out" else sorted(counts.items())
        yield f"- {name}: {', '.join(f'{value}: {count}' for value, count in told) or 'none'}"


def _read_sorted_rows(tables: Tables, spec: TableSpec, as_of: float) -> list[dict[str, Any]]:
    rows = tables.read(spec, as_of=as_of).to_dicts()
    return sorted(rows, key=lambda row: json.dumps([row[name] for name in spec.key]))
