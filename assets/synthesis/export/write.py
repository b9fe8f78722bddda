"""Writes an export as a folder: data files by split, the card, and what readers need."""

import json
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template
from typing import Any

from assets.contracts.snapshot import SNAPSHOTS
from assets.synthesis.export.examples import RefusedRows, UnusableExample, make_example
from assets.synthesis.export.formats import FORMATS, LAST_TURN, ExportFormat
from assets.synthesis.export.selection import (
    ExportChoice,
    ExportError,
    ExportPair,
    check_published,
    normalise_licence,
    select_pairs,
)
from assets.synthesis.judging.trials import JUDGE_TRIALS
from assets.synthesis.tables import JUDGEMENTS, PAIRS, TRAJECTORY
from warehouse.errors import UnusableInput
from warehouse.sanitize.markdown import (
    Markdown,
    escape_markdown,
    fill_markdown,
    join_markdown,
    make_markdown_table,
    mark_markdown,
    quote_text,
)
from warehouse.storage.tables import Tables

OFFLINE = "offline"
_UNKNOWN = "unknown"


@dataclass
class ExportFigures:
    """Counts over what was exported; lines differ from pairs where a pair has several turns."""

    pairs: int = 0
    lines: int = 0
    simulated: int = 0
    splits: Counter[str] = field(default_factory=Counter)
    servers: dict[str, set[str]] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)  # of data, without their suffix
    tools: set[tuple[str, str]] = field(default_factory=set)
    by: dict[str, Counter[str]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)  # of preferences, line by line

    def add(self, pair: ExportPair, lines: int) -> None:
        row = pair.row
        self.pairs += 1
        self.lines += lines
        self.simulated += bool(row["simulated"])
        self.splits[pair.split] += 1
        self.servers.setdefault(pair.split, set()).add(row["server_id"])
        self.tools.add((row["server_id"], row["tool"]))
        counted = {
            **{name: row[name] for name in ("task", "kind", "provider", "marketplace")},
            "license": normalise_licence(row["license"]),
            "judge": pair.judgement["judge"],
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
            **({"sources": dict(sorted(self.sources.items()))} if self.sources else {}),
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
        "trials": tables.read(JUDGE_TRIALS, as_of=as_of).sort(JUDGE_TRIALS.key).to_dicts(),
    }


def write_card(
    form: ExportFormat,
    figures: ExportFigures,
    facts: dict[str, Any],
    choice: ExportChoice,
    label: str,
) -> Markdown:
    """The text of README.md, out of the template `card.md`."""
    by_rules = sum(n for name, n in figures.by["judge"].items() if not name.startswith("model:"))
    trajectories = figures.by["task"].get(TRAJECTORY, 0)
    ran = "No call was carried out"
    if trajectories:
        ran = f"The calls of {trajectories} trajectories ran, in disposable worlds; no other was"
        ran += " carried out"
    filled = _fill_template(
        label=label,
        pairs=figures.pairs,
        tools=len(figures.tools),
        sides=_list_sides(figures),
        format=form.name,
        floor=form.datasets_floor,
        lines=figures.lines,
        commercial=_COMMERCIAL if choice.commercial_only else "",
        wrong=_WRONG.get(form.name, _WEIGHT),
        writers=join_markdown("; ", _list_writers(figures.by["provider"])),
        simulated=figures.simulated,
        trials=_tabulate_trials(facts["trials"]),
        counts=join_markdown("\n", _list_counts(figures)),
        wording=_WORDING if figures.by["provider"].keys() <= {OFFLINE} else "",
        by_rules=by_rules,
        ran=ran,
        unknown=figures.by["license"].get(_UNKNOWN, 0),
        versions=make_markdown_table(
            ["table", "partition", "version"],
            [(table, market, quote_text(digest)) for table, market, digest in facts["versions"]],
        ),
    )
    return join_markdown("\n", [_write_front_matter(form, figures), filled])


def _fill_template(**values: object) -> Markdown:
    text = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    escaped = {name: escape_markdown(value) for name, value in values.items()}
    return mark_markdown(Template(text).substitute(escaped))


_COMMERCIAL = Markdown(
    "\nOnly pairs whose source has a licence that is known to permit commercial use are in.\n"
)
_WEIGHT = Markdown(
    "`weight` 0 marks a call that is wrong on purpose, to be repaired after its error: do not"
    " learn it. OpenAI's fine-tuning honours it, and Axolotl with `message_field_training: weight`;"
    " TRL, Unsloth and LLaMA-Factory do not read it: use the formats `trl` or `sharegpt` there."
)
_LAST_TURN = Markdown(
    "Files that end in `_last_turn` hold calls that are wrong on purpose, to be repaired after"
    " their error: learn the last turn of their lines alone (LLaMA-Factory: `mask_history: true`)."
)
_PREFERS = Markdown(
    "Each line is one prompt with the answer to prefer (`chosen`) and one that was refused"
    " (`rejected`). `source` says by whom: `judgement` (rules or the judge refused a row of these"
    " words), `draft` (a server refused the call, and the next one is preferred)."
)
_COMPLETION = Markdown(
    "Only the `completion` is to be learnt, as TRL does: a call that is wrong on purpose, to be"
    " repaired after its error, stands in a prompt."
)
_WRONG = {"dpo": _PREFERS, "sharegpt": _LAST_TURN, "trl": _COMPLETION}
_WORDING = Markdown("- The wording is that of a grammar: plain, and less varied than people's.\n")


_COLUMN_TYPES = {
    "json": "list: json",
    "turns": "list:\n    - name: from\n      dtype: string\n    - name: value\n      dtype: string",
}


def _write_front_matter(form: ExportFormat, figures: ExportFigures) -> Markdown:
    """YAML for `datasets.load_dataset` on this folder: its files and exact column types."""
    columns = [
        f"  - name: {name}\n    {_COLUMN_TYPES.get(kind, f'dtype: {kind}')}"
        for name, kind in form.columns.items()
    ]
    by_config: dict[str, list[tuple[str, str]]] = {}  # -> (split, file)
    for name in sorted(figures.files):
        split = name.removesuffix(LAST_TURN)  # files learnt by their last turn are apart
        config = "default" if split == name else LAST_TURN.strip("_")
        by_config.setdefault(config, []).append((split, name))
    configs, infos = [], []
    for config, names in by_config.items():
        files = [
            f"  - split: {split}\n    path: data/{name}.{form.suffix}" for split, name in names
        ]
        configs += [f"- config_name: {config}", "  data_files:", *files]
        infos += [f"- config_name: {config}", "  features:", *columns]
    licences = sorted(figures.by["license"])
    licence = licences[0].lower() if len(licences) == 1 and licences != [_UNKNOWN] else "other"
    lines = ["---", f"license: {licence}", "tags:", "- tool-calling", "- mcp", "- synthetic",
             "configs:", *configs, "dataset_info:", *infos, "---", ""]  # fmt: skip
    return mark_markdown("\n".join(lines))  # an SPDX expression; the rest is ours


def _list_sides(figures: ExportFigures) -> Markdown:
    servers = {split: len(names) for split, names in sorted(figures.servers.items())}
    sides = (
        fill_markdown(
            "{} server{} ({} pairs) in {}",
            *(n, "" if n == 1 else "s", figures.splits[side], quote_text(side)),
        )
        for side, n in servers.items()
    )
    return join_markdown(", ", sides)


def _list_writers(providers: Counter[str]) -> Iterator[Markdown]:
    for name, count in sorted(providers.items()):
        if name != OFFLINE:
            yield fill_markdown("{} by the models at {}", count, quote_text(name))
    if count := providers.get(OFFLINE, 0):
        template = "{} by rules alone ({}: no language model wrote them)"
        yield fill_markdown(template, count, quote_text(OFFLINE))


def _tabulate_trials(trials: list[dict[str, Any]]) -> Markdown:
    if not trials:
        return Markdown("No trial of the judge was published as of then.")
    columns = ["marketplace", "judge", "stage", "kind", "refused", "n"]
    ends = (fill_markdown("{:.2f} to {:.2f}", t["low"], t["high"]) for t in trials)
    rows = [
        [*(t[name] for name in columns), interval] for t, interval in zip(trials, ends, strict=True)
    ]
    table = make_markdown_table([*columns, "95% interval"], rows)
    template = "Known-good pairs and mutants with one flaw each, refused by:\n\n{}"
    return fill_markdown(template, table)


def _list_counts(figures: ExportFigures) -> Iterator[Markdown]:
    sources = {"source": figures.sources} if figures.sources else {}
    for name, counts in {**figures.by, **sources, "left out": figures.left_out}.items():
        items = counts.items() if name == "left out" else sorted(counts.items())
        text = join_markdown(", ", (fill_markdown("{}: {}", *item) for item in items))
        yield fill_markdown("- {}: {}", name, text or "none")


Line = Mapping[str, Any]
_BATCH = 256  # rows of a parquet batch: what is in memory at once


def export(
    tables: Tables, folder: Path, name: str, choice: ExportChoice, label: str
) -> ExportFigures:
    """Writes the export of one format into `folder`, empty or absent; the same moment, the same
    bytes. label: the moment as it was asked for. Raises ExportError, UnusableInput and writes
    nothing then."""
    if name not in FORMATS:
        raise ExportError(f"unknown format {name[:40]!r}; known: {', '.join(FORMATS)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UnusableInput(f"{folder} is not empty: name another folder with --out, or empty it")
    if not choice.more:
        check_published(tables, choice.as_of)
    beside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    try:
        beside.mkdir(parents=True)
        figures = _fill_folder(beside, tables, FORMATS[name], choice)
        facts = read_sources(tables, choice.as_of)
        (beside / "README.md").write_text(write_card(FORMATS[name], figures, facts, choice, label))
        if folder.exists():
            folder.rmdir()
        beside.rename(folder)
    except OSError as error:
        raise ExportError(
            f"{folder}: {error.strerror or error}; name a folder with --out"
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return figures


def _fill_folder(
    folder: Path, tables: Tables, form: ExportFormat, choice: ExportChoice
) -> ExportFigures:
    figures = ExportFigures()
    with ExitStack() as stack:
        files: dict[str, _ParquetFile | _JsonLinesFile] = {}

        def file(path: str, kind: str) -> _ParquetFile | _JsonLinesFile:
            if path not in files:
                (folder / path).parent.mkdir(exist_ok=True)
                writer = (
                    _ParquetFile(folder / path, form)
                    if kind == "parquet"
                    else _JsonLinesFile(folder / path)
                )
                files[path] = writer
                stack.callback(writer.close)
            return files[path]

        refused = RefusedRows(tables, choice.as_of) if form.prefers else None
        for pair in select_pairs(tables, choice, figures.left_out):
            judged = {name: pair.judgement[name] for name in ("judge", "score")}
            try:
                example = make_example(pair.row, pair.contracts, {"split": pair.split, **judged})
                if refused is not None:
                    answers = refused.find_answers(pair.row, example)
                    example = replace(example, refused=answers)
                lines = list(form.lines(example))
            except UnusableExample as why:
                figures.left_out[str(why)] += 1
                continue
            name = form.name_file(pair.split, example)
            for line in lines:
                file(f"data/{name}.{form.suffix}", form.suffix).add(line)
                figures.files.add(name)
                if form.beside:
                    file(f"rows/{name}.jsonl", "jsonl").add(example.about)
            figures.add(pair, len(lines))
            figures.sources.update(line["source"] for line in lines if form.prefers)
    figures.left_out = Counter(dict(sorted(figures.left_out.items())))
    if not figures.pairs:
        reasons = "; ".join(f"{count} left out: {why}" for why, count in figures.left_out.items())
        raise ExportError(
            f"no accepted pair is left to export ({reasons or 'none was accepted by then'}); ask"
            " for another day, task or split, or without --commercial-only"
        )
    if form.name == "sharegpt":
        # The registration that LLaMA-Factory reads beside the data.
        columns = {"messages": "conversations", "system": "system", "tools": "tools"}
        entries = {
            f"toolmill_{name}": {
                "file_name": f"data/{name}.jsonl", "formatting": "sharegpt", "columns": columns
            }
            for name in sorted(figures.files)
        }  # fmt: skip
        (folder / "dataset_info.json").write_text(json.dumps(entries, indent=1) + "\n")
    return figures


class _JsonLinesFile:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", newline="\n")

    def add(self, line: Line) -> None:
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def close(self) -> None:
        self._file.close()


class _ParquetFile:
    """Parquet with JSON columns: no reader has to guess one schema for thousands of tools."""

    def __init__(self, path: Path, form: ExportFormat) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = {"json": pa.list_(pa.json_(pa.string())), "string": pa.string(),
                 "bool": pa.bool_(), "float64": pa.float64()}  # fmt: skip
        self._columns = form.columns
        self._schema = pa.schema([(name, kinds[kind]) for name, kind in form.columns.items()])
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._waiting: list[Line] = []

    def add(self, line: Line) -> None:
        self._waiting.append(line)
        if len(self._waiting) >= _BATCH:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._waiting:
            return
        arrays = []
        for place, (name, kind) in enumerate(self._columns.items()):
            if kind == "json":
                texts = [
                    [json.dumps(item, ensure_ascii=False) for item in line[name]]
                    for line in self._waiting
                ]
                plain = pa.array(texts, pa.list_(pa.string()))
                arrays.append(plain.cast(self._schema.types[place]))
            else:
                values = [line.get(name) for line in self._waiting]
                arrays.append(pa.array(values, self._schema.types[place]))
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._waiting = []
