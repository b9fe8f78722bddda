"""What is expected of every table on one page: columns, suite, verdicts on its versions.

<home>/reports/audits/index.html          needs no other file and no network
                      suites/<asset>.json  Great Expectations suites, as that library reads them
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Protocol

from warehouse.audit import ColumnExpectation
from warehouse.storage.files import PointerBroken, write_changed
from warehouse.storage.tables import TableHead, Tables, TableSpec

_LONGEST = 400  # characters of a cell: what a verdict observed can quote a third party
_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:.5em 0 1.5em}td,th{border:1px solid #ccc;"
    "padding:.25em .6em;text-align:left;vertical-align:top}code{background:#f4f4f4}"
    ".failed{background:#fdd}h2{border-top:1px solid #ccc;padding-top:1em}"
)


class Audited(Protocol):
    """An asset and what must hold before it becomes current."""

    @property
    def asset(self) -> str: ...
    @property
    def table(self) -> TableSpec | None: ...
    @property
    def expectations(self) -> Sequence[ColumnExpectation]: ...
    @property
    def rules(self) -> Sequence[str]: ...


def write_audits(home: Path, audits: Iterable[Audited]) -> Path:
    """Writes the page and the suites in place of the last ones; returns the page's path."""
    folder, listed = home / "reports" / "audits", sorted(audits, key=lambda one: one.asset)
    for one in listed:
        if one.expectations:
            data = json.dumps(make_suite(one), indent=1).encode()
            write_changed(folder / "suites" / f"{one.asset}.json", data)
    path = folder / "index.html"
    write_changed(path, render_audits(listed, Tables(home / "tables")).encode())
    return path


def make_suite(audited: Audited) -> dict[str, Any]:
    """A Great Expectations suite: `ExpectationSuite(**suite)` reads it."""
    return {
        "name": audited.asset,
        "expectations": [
            {
                "type": expectation.type,
                "kwargs": dict(expectation.arguments),
                "meta": {"rule": expectation.rule},
            }
            for expectation in audited.expectations
        ],
        "meta": {"key": list(audited.table.key)} if audited.table else {},
    }


def render_audits(audits: Sequence[Audited], tables: Tables) -> str:
    """The page as HTML; whatever stands in a version is escaped."""
    heads = {audit.asset: _read_heads(tables, audit.asset) for audit in audits}
    parts = [_render_overview(audits, heads)]
    parts += [_render_audit(audit, heads[audit.asset]) for audit in audits]
    title = "What is expected of every table"
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    body = f"<h1>{title}</h1>{''.join(parts)}"
    return f"<!doctype html><html><head>{head}</head><body>{body}</body></html>\n"


def _read_heads(tables: Tables, name: str) -> dict[str, TableHead]:
    found = {}
    for partition in tables.partitions(name):
        try:
            head = tables.head(name, partition)
        except PointerBroken:
            continue
        if head is not None:
            found[partition] = head
    return found


def _render_overview(
    audits: Sequence[Audited], heads: Mapping[str, Mapping[str, TableHead]]
) -> str:
    rows = [
        [
            f'<a href="#{escape(audit.asset)}">{escape(audit.asset)}</a>',
            len(audit.expectations),
            len(audit.rules),
            len(heads[audit.asset]),
            sum(head.rows for head in heads[audit.asset].values()),
        ]
        for audit in audits
    ]
    names = ["asset", "expectations", "rules", "current versions", "rows"]
    text = (
        "<p>A version becomes current only after every expectation (Great Expectations) and every"
        " rule of its asset has passed; why one was refused is in its run in Dagster.</p>"
    )
    return text + _render_table(names, rows)


def _render_audit(one: Audited, heads: Mapping[str, TableHead]) -> str:
    parts = [f'<h2 id="{escape(one.asset)}">{escape(one.asset)}</h2>']
    if one.table:
        key = ", ".join(one.table.key)
        parts.append(
            f"<p>Key: <code>{escape(key)}</code>; schema version {one.table.schema_version}</p>"
        )
    if one.expectations:
        rows = [
            [_quote_code(e.rule), _quote_code(", ".join(e.columns)), _escape_cell(e.text)]
            for e in one.expectations
        ]
        parts += [
            f'<p><a href="suites/{escape(one.asset)}.json">The suite as a file</a></p>',
            _render_table(["expectation", "columns", "what is expected"], rows),
        ]
    if one.rules:
        parts.append(f"<p>Rules of its own code: {', '.join(map(_quote_code, one.rules))}</p>")
    if heads:
        parts.append(_render_verdicts(heads))
    if one.table:
        rows = [list(row) for row in _list_columns(one.table)]
        columns = _render_table(["column", "type", "what it holds"], rows)
        parts.append(f"<details><summary>Columns</summary>{columns}</details>")
    return "".join(parts)


def _render_verdicts(heads: Mapping[str, TableHead]) -> str:
    rows = []
    for partition, head in heads.items():
        day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(head.at))
        version = (
            f"{_quote_code(partition)} {_quote_code(head.digest[:12])}<br>{head.rows:,} rows, {day}"
        )
        for verdict in head.audit:
            if "rule" in verdict:
                state = "passed" if verdict.get("passed") else "failed"
                shown = [
                    _quote_code(str(verdict["rule"])),
                    state,
                    _escape_cell(verdict.get("observed")),
                ]
                rows.append([version, *shown])
    return _render_table(["version", "rule", "", "observed"], rows)


def _list_columns(table: TableSpec) -> Iterator[tuple[str, str, str]]:
    for name, kind in table.columns.items():
        volatile = ["volatile: takes no part in the version"] if name in table.volatile else []
        words = "; ".join([*filter(None, [table.described.get(name)]), *volatile])
        yield _quote_code(name), _quote_code(str(kind)), _escape_cell(words)


def _render_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Cells are HTML of ours."""
    top = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(
        f"<tr{' class=failed' if 'failed' in row else ''}>"
        + "".join(f"<td>{cell}</td>" for cell in row)
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{top}</tr>{body}</table>"


def _quote_code(text: str) -> str:
    return f"<code>{_escape_cell(text)}</code>"


def _escape_cell(value: object) -> str:
    return escape(str(value or "")[:_LONGEST])
