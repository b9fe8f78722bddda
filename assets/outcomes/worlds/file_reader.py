"""The program that reads databases and workbooks of a server, in the sandbox: standard library
alone. It prints a line of JSON, {"facts"} or {"why"}, for each of the files 0, 1, ... of a
folder."""

import io
import json
import math
import re
import shutil
import sqlite3
import struct
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree as ET

Cell = int | float | str | bool | None
_MOST_ROWS, _MOST_STEPS = 20_000, 2_000  # a dump's rows; its work, in 10,000 steps of the machine
_MOST_VALUE = 1 << 20  # bytes of one value, and of one statement
_MOST_TEXT = 8 << 20  # characters of all rows
_MOST_PART, _MOST_CELLS = 16 << 20, 50_000
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others unpack without a bound
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error)


def add_fact(facts: dict[str, Any], key: str, value: Any, counts: Counter[str]) -> None:
    """Adds a fact under its key or, where that is taken, under a numbered one. counts: of taken
    keys."""
    name = key
    while name in facts:
        counts[key] += 1
        name = f"{key}+{counts[key]}"
    facts[name] = value


def dump_database(path: Path) -> dict[str, Any]:
    """The rows, by `TABLE/KEY`. Raises sqlite3.Error, or ValueError for more than is read."""
    with closing(sqlite3.connect(path)) as database:
        for category in (sqlite3.SQLITE_LIMIT_LENGTH, sqlite3.SQLITE_LIMIT_SQL_LENGTH):
            database.setlimit(category, _MOST_VALUE)
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        steps = iter(range(_MOST_STEPS))
        database.set_progress_handler(lambda: next(steps, None) is None, 10_000)
        database.text_factory = lambda data: data.decode("utf-8", "backslashreplace")
        objects = database.execute(
            r"SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\_%' ESCAPE '\'"
        ).fetchall()
        facts, counts, size = dict[str, Any](), Counter[str](), 0
        for _, name, sql in objects:
            add_fact(facts, f"schema/{name}", " ".join(str(sql).split()), counts)
        for kind, name, sql in objects:
            if kind == "table" and not str(sql).upper().startswith("CREATE VIRTUAL"):
                for key, row in _dump_table(database, name):
                    add_fact(facts, key, row, counts)
                    size += len(key) + len(json.dumps(row))
                    if size > _MOST_TEXT:
                        raise ValueError(f"more than {_MOST_TEXT:,} characters")
                if len(facts) > _MOST_ROWS:
                    raise ValueError(f"more than {_MOST_ROWS:,} rows")
    return facts


def _dump_table(database: sqlite3.Connection, name: str) -> Iterator[tuple[str, Any]]:
    quoted = '"' + name.replace('"', '""') + '"'
    columns = database.execute(f"PRAGMA table_xinfo({quoted})").fetchall()
    keys = [item[1] for item in sorted(columns, key=lambda column: column[5]) if item[5]]
    order = ", ".join('"' + key.replace('"', '""') + '"' for key in keys) or "1"
    cursor = database.execute(f"SELECT * FROM {quoted} ORDER BY {order} LIMIT {_MOST_ROWS + 1}")
    names = [item[0] for item in cursor.description]
    for number, row in enumerate(cursor, 1):
        values = {column: _show_value(value) for column, value in zip(names, row, strict=True)}
        key = "/".join(str(values[key]) for key in keys) if keys else str(number)
        yield f"{name}/{key}", values


def _show_value(value: Any) -> Any:
    """As JSON: bytes by their digest; as text, a whole number beyond 2**53 and what is infinite."""
    if isinstance(value, bytes):
        return {"bytes": len(value), "sha256": sha256(value).hexdigest()}
    if isinstance(value, int | float) and not abs(value) < 2**53:
        return str(value)
    return value


class NoWorkbook(ValueError):
    """Bytes that are no workbook that can be read; says why."""


def read_workbook(data: bytes) -> dict[str, dict[str, Cell]]:
    """Sheet -> cell (`B4`) -> value; a formula is its text with `=`. Raises NoWorkbook."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
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
    except NoWorkbook:
        raise
    except (*_DAMAGED, KeyError, ValueError, ET.ParseError, EOFError, OSError) as error:
        raise NoWorkbook(f"{type(error).__name__}: {error}"[:200]) from error
    except (RuntimeError, NotImplementedError) as error:  # encrypted, or packed in another way
        raise NoWorkbook(str(error)[:200]) from error


def _read_part(archive: zipfile.ZipFile, name: str) -> ET.Element:
    if archive.getinfo(name).compress_type not in _METHODS:
        raise NoWorkbook(f"{name}: it is packed by another method than deflate")
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


def read_database_file(path: Path) -> dict[str, Any]:
    """The rows of a database and of the log beside it, in a copy: the log is applied there."""
    with TemporaryDirectory() as folder:
        for suffix in ("", "-wal", "-journal"):
            if (source := path.with_name(path.name + suffix)).exists():
                shutil.copyfile(source, Path(folder) / source.name)
        return dump_database(Path(folder) / path.name)


_READERS = {"sqlite": read_database_file, "workbook": lambda at: read_workbook(at.read_bytes())}


def read_files(kind: str, folder: Path) -> Iterator[dict[str, Any]]:
    """What each file of the folder says, in order."""
    for number in count():
        path = folder / str(number)
        if not path.exists():
            return
        try:
            yield {"facts": _READERS[kind](path)}
        except MemoryError:
            yield {"why": "it takes more memory than its reader may use"}
        except Exception as error:  # of many libraries, about bytes of a third party
            yield {"why": f"{type(error).__name__}: {error}"[:200]}


if __name__ == "__main__":
    for answer in read_files(sys.argv[1], Path(sys.argv[2])):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()  # what comes later may end it
