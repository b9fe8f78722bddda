"""Workbooks (Office Open XML): the cells of each sheet; those of a server are read in the
sandbox."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from random import Random
from xml.sax.saxutils import escape, quoteattr

from assets.outcomes.worlds.changes import Facts
from assets.outcomes.worlds.contained_reading import describe_unreadable, read_contained
from assets.outcomes.worlds.kind import WorldKind, read_file_facts
from assets.outcomes.worlds.template import load_words
from assets.outcomes.worlds.tree import Tree

Cell = int | float | str | bool | None
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a ZIP can hold: the same bytes every time
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_TYPES = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_STYLES = (  # the least that every reader takes
    f'<styleSheet xmlns="{_MAIN}"><fonts count="1"><font><sz val="11"/><name val="Calibri"/></font>'
    '</fonts><fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill'
    ' patternType="gray125"/></fill></fills><borders count="1"><border/></borders><cellStyleXfs'
    ' count="1"><xf/></cellStyleXfs><cellXfs count="1"><xf/></cellXfs></styleSheet>'
)


def write_workbook(sheets: Mapping[str, Sequence[Sequence[Cell]]]) -> bytes:
    """A workbook of sheets, each its rows from A1. A text that begins with `=` is a formula."""
    numbers = range(1, len(sheets) + 1)
    files = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package'
        '.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPES}.sheet.main+xml"/>'
        + "".join(
            f'<Override PartName="/xl/worksheets/sheet{n}.xml"'
            f' ContentType="{_TYPES}.worksheet+xml"/>'
            for n in numbers
        )
        + f'<Override PartName="/xl/styles.xml" ContentType="{_TYPES}.styles+xml"/></Types>',
        "_rels/.rels": _write_relations({1: ("officeDocument", "xl/workbook.xml")}),
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>'
        + "".join(
            f'<sheet name={quoteattr(name)} sheetId="{n}" r:id="rId{n}"/>'
            for n, name in zip(numbers, sheets, strict=True)
        )
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": _write_relations(
            {
                **{n: ("worksheet", f"worksheets/sheet{n}.xml") for n in numbers},
                len(sheets) + 1: ("styles", "styles.xml"),
            }
        ),
        "xl/styles.xml": _STYLES,
    }
    for n, rows in zip(numbers, sheets.values(), strict=True):
        lines = []
        for number, row in enumerate(rows, 1):
            cells = (_write_cell(format_cell(n, number), value) for n, value in enumerate(row, 1))
            lines.append(f'<row r="{number}">{"".join(cells)}</row>')
        last = format_cell(max((len(row) for row in rows), default=0) or 1, len(rows) or 1)
        data = f'<dimension ref="A1:{last}"/><sheetData>{"".join(lines)}</sheetData>'
        files[f"xl/worksheets/sheet{n}.xml"] = f'<worksheet xmlns="{_MAIN}">{data}</worksheet>'
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), _HEAD + text)
    return buffer.getvalue()


def format_cell(column: int, row: int) -> str:
    """`format_cell(2, 4)` -> `B4`."""
    letters = ""
    while column:
        column, remainder = divmod(column - 1, 26)
        letters = chr(65 + remainder) + letters
    return f"{letters}{row}"


def _write_relations(targets: Mapping[int, tuple[str, str]]) -> str:
    relations = "".join(
        f'<Relationship Id="rId{n}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for n, (kind, target) in targets.items()
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{relations}</Relationships>'


def _write_cell(at: str, value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return f'<c r="{at}" t="b"><v>{int(value)}</v></c>'
    if isinstance(value, int | float):
        return f'<c r="{at}"><v>{value!r}</v></c>'
    if value.startswith("="):
        return f'<c r="{at}"><f>{escape(value[1:])}</f></c>'
    return f'<c r="{at}" t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'


WORKBOOK_FILE = "sales.xlsx"


def generate_sales(rng: Random, size: int) -> Tree:
    """A sheet of sales by product and city, one of the staff, and an empty one for notes."""
    words = load_words()
    sales: list[list[Cell]] = [["Product", "City", "Units", "Price", "Total"]]
    for row in range(2, size + 2):
        product, city = rng.choice(words["products"]), rng.choice(words["cities"])
        units, price = rng.randint(1, 90), rng.randint(8, 400) / 4
        sales.append([product, city, units, price, f"=C{row}*D{row}"])
    staff: list[list[Cell]] = [["Name", "City", "Since"]]
    for name in rng.sample(words["people"], min(8, size)):
        staff.append(
            [
                f"{name} {rng.choice(words['surnames'])}",
                rng.choice(words["cities"]),
                rng.randint(2009, 2026),
            ]
        )
    notes: list[list[Cell]] = [["Note", "By"]]
    return {WORKBOOK_FILE: write_workbook({"Sales": sales, "Staff": staff, "Notes": notes})}


def read_cells(tree: Tree) -> Facts:
    """`SHEET!CELL` -> its value, a formula from `=` on; `SHEET` -> its place; other workbooks as
    `FILE:SHEET!CELL`. Formats and cached results are left out."""
    books = {
        path: node
        for path, node in tree.items()
        if isinstance(node, bytes) and path.endswith(".xlsx")
    }
    facts: Facts = {}
    answers = read_contained("workbook", [{"": data} for data in books.values()])
    for (path, data), answer in zip(books.items(), answers, strict=True):
        if "facts" not in answer:
            facts[path] = describe_unreadable(data, answer["why"])
            continue
        before = "" if path == WORKBOOK_FILE else f"{path}:"
        for place, (sheet, cells) in enumerate(answer["facts"].items(), 1):
            facts[f"{before}{sheet}"] = {"place": place}
            facts |= {f"{before}{sheet}!{cell}": value for cell, value in cells.items()}
    others = {path: node for path, node in tree.items() if path not in books}
    return dict(sorted({**facts, **read_file_facts(others)}.items()))


WORKBOOK_KIND = WorldKind("workbook", {"sales": generate_sales}, read_cells)
