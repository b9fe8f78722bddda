"""The kinds `folder` (an office's or a vault's plain files), `memory`, `sqlite` and `workbook`
(Office Open XML: the cells of each sheet). What a server wrote is read in the sandbox."""

import csv
import io
import json
import sqlite3
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from random import Random
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from assets.outcomes.worlds.changes import Facts
from assets.outcomes.worlds.contained_reading import describe_unreadable, read_contained
from assets.outcomes.worlds.file_reader import add_fact
from assets.outcomes.worlds.kind import WorldKind, read_file_facts, read_json
from assets.outcomes.worlds.template import draw_shop, draw_words, load_words
from assets.outcomes.worlds.tree import Node, Tree, WorldFailed

_FOLDERS = ("reports", "notes", "letters", "archive", "inbox")


def generate_office(rng: Random, size: int) -> Tree:
    """Reports, notes, letters and a few tables, in folders; `archive` is empty."""
    words, tree = load_words(), dict[str, Node](dict.fromkeys(_FOLDERS))
    topics = rng.sample(words["topics"], len(words["topics"]))
    for number in range(size):
        topic, person = topics[number % len(topics)], rng.choice(words["people"])
        place = number // len(topics) + 1
        folder = _FOLDERS[number % 3]
        path = f"{folder}/{topic}-{rng.choice(words['things'])}{f'-{place}' if place > 1 else ''}"
        if number % 4 == 3:
            tree[f"{path}.csv"] = _write_table(rng)
            continue
        lines = [f"# {topic.title()}", "", f"Owner: {person}"]
        lines += [f"Amount: {rng.randint(100, 9900)}", ""]
        lines += [f"- {draw_words('sentence', rng)}" for _ in range(rng.randint(2, 5))]
        tree[f"{path}.md"] = ("\n".join(lines) + "\n").encode()
    tree["README.md"] = b"# Shared folder\n\nReports, notes and letters of the team.\n"
    return tree


def generate_vault(rng: Random, size: int) -> Tree:
    """Markdown notes with front matter, tags and links to each other."""
    words, tree = load_words(), dict[str, Node]()
    names = [f"{topic.title()} {rng.choice(words['things'])}" for topic in words["topics"][:size]]
    for number, name in enumerate(names):
        folder = ("Projects", "People", "Daily")[number % 3]
        linked = rng.choice([item for item in names if item != name] or [name])
        lines = ["---", f"title: {name}", f"owner: {rng.choice(words['people'])}"]
        lines += [f"status: {rng.choice(('active', 'waiting', 'done'))}", "---", f"# {name}", ""]
        lines += [f"{draw_words('sentence', rng)}.", "", f"See [[{linked}]]."]
        lines += ["", f"#{rng.choice(words['topics'])} #{rng.choice(words['colours'])}", ""]
        tree[f"{folder}/{name}.md"] = "\n".join(lines).encode()
    return tree


def _write_table(rng: Random) -> bytes:
    words, file = load_words(), io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(("product", "city", "amount"))
    for product in rng.sample(words["products"], 5):
        table.writerow((product, rng.choice(words["cities"]), rng.randint(1, 90)))
    return file.getvalue().encode()


FOLDER_KIND = WorldKind(
    "folder", {"office": generate_office, "vault": generate_vault}, read_file_facts
)


MEMORY_FILE = "memory.jsonl"
_MOST_LINES, _MOST_GRAPH = 20_000, 4 << 20
_RELATIONS = ("works_on", "manages", "knows", "reviews")


def generate_team(rng: Random, size: int) -> Tree:
    """People and projects, with observations, and relations between them."""
    words = load_words()
    people = [
        f"{first} {last}"
        for first, last in zip(
            rng.sample(words["people"], min(size, len(words["people"]))),
            rng.choices(words["surnames"], k=size),
            strict=False,
        )
    ]
    projects = [f"{topic} project" for topic in rng.sample(words["topics"], max(2, size // 3))]
    lines = []
    for name in (*people, *projects):
        kind = "project" if name in projects else "person"
        observations = [f"{draw_words('sentence', rng)}" for _ in range(rng.randint(1, 3))]
        observations.append(
            f"lives in {rng.choice(words['cities'])}" if kind == "person" else "is funded"
        )
        facts = {"type": "entity", "name": name, "entityType": kind}
        lines.append({**facts, "observations": list(dict.fromkeys(observations))})
    for person in people:
        relation = {"from": person, "to": rng.choice(projects)}
        lines.append({"type": "relation", **relation, "relationType": rng.choice(_RELATIONS)})
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    return {MEMORY_FILE: text.encode()}


def read_graph(tree: Tree) -> Facts:
    """`entity/NAME` -> type and observations; `relation/FROM/TYPE/TO` -> {}; `line/NUMBER` -> what
    is neither; other files as they are, without order and a server's own members."""
    node = tree.get(MEMORY_FILE)
    others = {path: content for path, content in tree.items() if path != MEMORY_FILE}
    facts = read_file_facts(others if isinstance(node, bytes) else tree)
    counts = Counter[str]()
    if isinstance(node, bytes) and (len(node) > _MOST_GRAPH or node.count(b"\n") > 2 * _MOST_LINES):
        raise WorldFailed(f"{MEMORY_FILE} holds more than {_MOST_LINES:,} lines, or 4 MB")
    text = node.decode("utf-8", "replace") if isinstance(node, bytes) else ""
    for number, line in enumerate([line for line in text.split("\n") if line.strip()], 1):
        if number > _MOST_LINES:
            raise WorldFailed(f"{MEMORY_FILE} holds more than {_MOST_LINES:,} lines")
        add_fact(facts, *_read_line(line, number), counts)
    return dict(sorted(facts.items()))


def _read_line(line: str, number: int) -> tuple[str, Any]:
    entry = read_json(line)
    if not isinstance(entry, dict):
        return f"line/{number}", line
    kind = entry.get("type")
    if kind == "entity":
        facts = {name: entry.get(name) for name in ("entityType", "observations")}
        return f"entity/{entry.get('name')}", facts
    if kind == "relation":
        ends = (entry.get("from"), entry.get("relationType"), entry.get("to"))
        return "relation/" + "/".join(map(str, ends)), {}
    return f"line/{number}", line


MEMORY_KIND = WorldKind("memory", {"team": generate_team}, read_graph)


DATABASE_FILE = "shop.db"
_SUFFIXES = ("", "-wal", "-journal")
_FILES = (*(f"{DATABASE_FILE}{suffix}" for suffix in _SUFFIXES), f"{DATABASE_FILE}-shm")


def generate_shop_database(rng: Random, size: int) -> Tree:
    """Customers, products and orders of a shop."""
    with closing(sqlite3.connect(":memory:")) as database:
        for table in draw_shop(rng, size):
            columns = [f"{name} {kind} NOT NULL" for name, kind in table.columns]
            columns[0] = columns[0].replace("NOT NULL", "PRIMARY KEY")
            database.execute(f"CREATE TABLE {table.name} ({', '.join(columns)})")
            places = ", ".join("?" * len(columns))
            database.executemany(f"INSERT INTO {table.name} VALUES ({places})", table.rows)
        database.commit()
        return {DATABASE_FILE: database.serialize()}


def read_database(tree: Tree) -> Facts:
    """`TABLE/KEY` -> the row, by its primary key or its row id; `schema/NAME` -> the statement that
    made it. The layout of pages, free space and the journal's form are left out; other files are
    as they are, and so is a database that cannot be read."""
    node = tree.get(DATABASE_FILE)
    if not isinstance(node, bytes):
        return read_file_facts(tree)
    facts = read_file_facts({path: each for path, each in tree.items() if path not in _FILES})
    files = {suffix: tree.get(f"{DATABASE_FILE}{suffix}") for suffix in _SUFFIXES}
    (answer,) = read_contained("sqlite", [files])
    if "facts" in answer:
        facts |= answer["facts"]
    else:
        facts[DATABASE_FILE] = describe_unreadable(node, answer["why"])
    return dict(sorted(facts.items()))


SQLITE_KIND = WorldKind("sqlite", {"shop": generate_shop_database}, read_database)


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
