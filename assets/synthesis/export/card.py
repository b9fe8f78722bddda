"""The card of an export: what it is, how it was made and judged, and what it lacks.

Nothing in it depends on when it was written: the same export is the same card.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
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
    """The text of README.md."""
    parts = [
        _write_front_matter(form, figures),
        f"# Toolmill pairs, as of {label}\n",
        _describe_content(form, figures, choice),
        _describe_writing(figures),
        _describe_judging(facts["trials"]),
        _describe_counts(figures),
        _describe_limits(figures),
        _describe_versions(facts["versions"]),
    ]
    return "\n".join(parts)


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


def _describe_content(form: Format, figures: Figures, choice: Choice) -> str:
    servers = {split: len(found) for split, found in sorted(figures.servers.items())}
    sides = ", ".join(
        f"{n} server{_plural_s(n)} ({figures.splits[s]} pairs) in `{s}`" for s, n in servers.items()
    )
    commerce = (
        "\nOnly pairs whose source has a licence that is known to permit commercial use are in.\n"
        if choice.commercial_only
        else ""
    )
    return (
        f"{figures.pairs} requests to tools of MCP servers, each with the calls that answer it, for"
        f" {len(figures.tools)} tools: {sides}. All pairs of a server are on one side, so `test`"
        f" measures tools that were never trained on. Format `{form.name}`: {figures.lines} lines."
        f" Every row names its contract, provider and licence.\n{commerce}\n"
        "Tool definitions are the servers' own contracts: the right tool among the ones it was"
        " offered with, in an order drawn from the row. `weight` 0 marks a call that is wrong on"
        " purpose, to be repaired after its error: do not learn it.\n"
    )


def _plural_s(n: int) -> str:
    return "" if n == 1 else "s"


def _describe_writing(figures: Figures) -> str:
    providers = figures.by["provider"]
    offline = providers.get(OFFLINE, 0)
    told = [f"{count} by the models at `{name}`" for name, count in sorted(providers.items())
            if name != OFFLINE]  # fmt: skip
    if offline:
        told.append(f"{offline} by rules alone (`{OFFLINE}`: no language model wrote them)")
    return (
        "## How it was made\n\n"
        "Synthetic, from the contracts that servers listed in a sandbox; written"
        f" {'; '.join(told)}. Rules checked each call against its contract, and that its values"
        " stand in the request;"
        " then a judge scored it. Only accepted pairs are in."
        f" {figures.simulated} hold a tool's answer that no tool gave;"
        f" {figures.migrated} were carried over from an older contract.\n"
    )


def _describe_judging(trials: list[dict[str, Any]]) -> str:
    lines = ["## The judge, and its own trial\n"]
    if not trials:
        return "\n".join([*lines, "No trial of the judge was published as of then.\n"])
    columns = ["marketplace", "judge", "stage", "kind", "refused", "n"]
    rows = [[*(t[name] for name in columns), f"{t['low']:.2f} to {t['high']:.2f}"] for t in trials]
    lines += ["Known-good pairs and mutants with one flaw each, refused by:\n",
              make_markdown_table([*columns, "95% interval"], rows, keep_cell)]  # fmt: skip
    return "\n".join([*lines, ""])


def _describe_counts(figures: Figures) -> str:
    lines = ["## Counts\n"]
    for name, counts in figures.by.items():
        listed = ", ".join(f"{value}: {count}" for value, count in sorted(counts.items()))
        lines.append(f"- {name}: {listed}")
    left = ", ".join(f"{why}: {count}" for why, count in figures.left_out.items())
    return "\n".join([*lines, f"- left out: {left or 'none'}", ""])


def _describe_limits(figures: Figures) -> str:
    only = figures.by["provider"].keys() <= {OFFLINE}
    rules = (
        "- The wording is that of a grammar: plain, and less varied than people's.\n"
        if only
        else ""
    )
    judges = figures.by["judge"]
    by_rules = sum(count for name, count in judges.items() if not name.startswith("model:"))
    return (
        "## Limitations\n\n"
        f"{rules}- {by_rules} of {figures.pairs} pairs were judged by rules, not by a model or a"
        " person.\n- No call was carried out; no request is from a user.\n"
        f"- {figures.by['license'].get(_UNKNOWN, 0)} pairs have a source of unknown licence."
        " The licence named is the source's; descriptions and names in tools are its text.\n"
    )


def _describe_versions(versions: list[tuple[str, str, str]]) -> str:
    rows = [(t, m, f"`{d}`") for t, m, d in versions]
    table = make_markdown_table(["table", "partition", "version"], rows, keep_cell)
    return f"## Made from\n\n{table}\n"


def _read_sorted_rows(tables: Tables, spec: TableSpec, as_of: float) -> list[dict[str, Any]]:
    rows = tables.read(spec, as_of=as_of).to_dicts()
    return sorted(rows, key=lambda row: json.dumps([row[name] for name in spec.key]))
