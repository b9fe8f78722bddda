"""Workbooks (Office Open XML): the cells of each sheet, written and read without formatting.

What a server wrote is read with bounds, and without entities: a workbook is a ZIP of XML.
"""

import io
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

from assets.outcomes.worlds.changes import Facts
from assets.outcomes.worlds.kind import WorldKind, read_file_facts
from assets.outcomes.worlds.template import load_words
from assets.outcomes.worlds.tree import Node, Tree

Cell = int | float | str | bool | None
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a ZIP can hold: the same bytes every time
_MOST_PART, _MOST_CELLS = 16 << 20, 50_000
_DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error)
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


class NoWorkbook(ValueError):
    """Bytes that are no workbook that can be read; says why."""


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
        files[f"xl/worksheets/sheet{n}.xml"] = _write_sheet(rows)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), _HEAD + text)
    return buffer.getvalue()


def read_workbook(data: bytes) -> dict[str, dict[str, Cell]]:
    """Sheet -> cell (`B4`) -> value, in the workbook's order; a formula is the text after `=`, with
    it, and empty cells are left out. Raises NoWorkbook."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _read_sheets(archive)
    except NoWorkbook:
        raise
    except (*_DAMAGED, KeyError, ValueError, ET.ParseError, EOFError, OSError) as error:
        raise NoWorkbook(f"{type(error).__name__}: {error}"[:200]) from error
    except (RuntimeError, NotImplementedError) as error:  # encrypted, or packed in another way
        raise NoWorkbook(str(error)[:200]) from error


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


def _write_sheet(rows: Sequence[Sequence[Cell]]) -> str:
    lines = []
    for number, row in enumerate(rows, 1):
        cells = (_write_cell(format_cell(n, number), value) for n, value in enumerate(row, 1))
        lines.append(f'<row r="{number}">{"".join(cells)}</row>')
    last = format_cell(max((len(row) for row in rows), default=0) or 1, len(rows) or 1)
    data = f'<dimension ref="A1:{last}"/><sheetData>{"".join(lines)}</sheetData>'
    return f'<worksheet xmlns="{_MAIN}">{data}</worksheet>'


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


def _read_sheets(archive: zipfile.ZipFile) -> dict[str, dict[str, Cell]]:
    names = {item.filename for item in archive.infolist()}
    book = _read_part(archive, "xl/workbook.xml")
    relations = _read_part(archive, "xl/_rels/workbook.xml.rels")
    targets = {relation.get("Id"): str(relation.get("Target")) for relation in relations}
    shared = []
    if "xl/sharedStrings.xml" in names:
        shared = [_read_text(item) for item in _read_part(archive, "xl/sharedStrings.xml")]
    result: dict[str, dict[str, Cell]] = {}
    for sheet in book.iter(f"{{{_MAIN}}}sheet"):
        target = targets[sheet.get(f"{{{_OFFICE}}}id")]
        path = target[1:] if target.startswith("/") else f"xl/{target}"
        cells = dict(_read_cells(_read_part(archive, path), shared))
        if sum(map(len, result.values())) + len(cells) > _MOST_CELLS:
            raise NoWorkbook(f"more than {_MOST_CELLS:,} cells")
        result[str(sheet.get("name"))] = cells
    return result


def _read_part(archive: zipfile.ZipFile, name: str) -> ET.Element:
    with archive.open(name) as part:
        data = part.read(_MOST_PART + 1)
    if len(data) > _MOST_PART:
        raise NoWorkbook(f"{name}: more than {_MOST_PART:,} bytes")
    # In UTF-8 alone, so that no other encoding hides a declaration.
    text = data.decode("utf-8-sig", "replace")
    if re.search(r"<!(DOCTYPE|ENTITY)", text, re.IGNORECASE):
        raise NoWorkbook(f"{name}: it declares entities")
    text = re.sub(r"^\s*<\?xml[^>]*\?>", "", text)
    return ET.fromstring(text)


def _read_cells(sheet: ET.Element, shared: Sequence[str]) -> Iterator[tuple[str, Cell]]:
    for cell in sheet.iter(f"{{{_MAIN}}}c"):
        value = _read_value(cell, shared)
        if value is not None:
            yield str(cell.get("r")), value


def _read_value(cell: ET.Element, shared: Sequence[str]) -> Any:
    formula = cell.find(f"{{{_MAIN}}}f")
    if formula is not None:
        return f"={formula.text or ''}"
    inline = cell.find(f"{{{_MAIN}}}is")
    if inline is not None:
        return _read_text(inline)
    stored, kind = cell.findtext(f"{{{_MAIN}}}v"), cell.get("t", "n")
    if stored is None:
        return None
    if kind == "s":
        digits = stored.isascii() and stored.isdigit() and len(stored) < 10
        return shared[int(stored)] if digits and int(stored) < len(shared) else stored
    if kind == "b":
        return stored == "1"
    return _read_number(stored) if kind == "n" else stored


def _read_number(text: str) -> Cell:
    try:
        number = float(text)
    except ValueError:
        return text
    if not math.isfinite(number):
        return text
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _read_text(element: ET.Element) -> str:
    """The text of a string with or without runs; phonetic hints are none of it."""
    plain = [item.text or "" for item in element.findall(f"{{{_MAIN}}}t")]
    runs = [item.findtext(f"{{{_MAIN}}}t") or "" for item in element.findall(f"{{{_MAIN}}}r")]
    return "".join(plain + runs)


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
    """`SHEET!CELL` -> its value, a formula as text from `=` on; `SHEET` -> its place. Formats,
    column widths and cached results are left out; a workbook that cannot be read stands as a file,
    and other workbooks are read as well (`FILE:SHEET!CELL`)."""
    facts: Facts = {}
    others: dict[str, Node] = {}
    for path, node in tree.items():
        try:
            if not (isinstance(node, bytes) and path.endswith(".xlsx")):
                raise NoWorkbook("no workbook")
            before = "" if path == WORKBOOK_FILE else f"{path}:"
            for place, (sheet, cells) in enumerate(read_workbook(node).items(), 1):
                facts[f"{before}{sheet}"] = {"place": place}
                facts |= {f"{before}{sheet}!{cell}": value for cell, value in cells.items()}
        except NoWorkbook:
            others[path] = node
    return dict(sorted({**facts, **read_file_facts(others)}.items()))


WORKBOOK_KIND = WorldKind("workbook", {"sales": generate_sales}, read_cells)
