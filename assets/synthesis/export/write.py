"""Writes an export as a folder: data files by split, the card, and what readers need."""

import json
import shutil
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from assets.synthesis.export.card import ExportFigures, read_sources, write_card
from assets.synthesis.export.examples import RefusedRows, UnusableExample, make_example
from assets.synthesis.export.formats import FORMATS, ExportFormat
from assets.synthesis.export.selection import (
    ExportChoice,
    ExportError,
    check_published,
    select_pairs,
)
from warehouse.errors import UnusableInput
from warehouse.storage.tables import Tables

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
