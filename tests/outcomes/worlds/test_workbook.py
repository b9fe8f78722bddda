"""Workbooks: what is written comes back, and what is none, or a bomb, is refused."""

import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.outcomes.worlds import file_reader
from assets.outcomes.worlds.file_reader import NoWorkbook, read_workbook
from assets.outcomes.worlds.workbook import WORKBOOK_FILE, format_cell, read_cells, write_workbook
from warehouse.storage.digest import digest

TEXTS = st.text("aé <&>\"'=_x日 ", max_size=6)
CELLS = st.one_of(st.none(), st.booleans(), st.integers(-(2**40), 2**40), TEXTS)


@given(st.lists(st.lists(CELLS, max_size=3), max_size=3))
def test_any_cells_come_back(rows):
    data = write_workbook({"One": rows, "Two & <three>": [[1.5]]})
    result = read_workbook(data)
    assert list(result) == ["One", "Two & <three>"]
    expected = {
        format_cell(column, row): value
        for row, cells in enumerate(rows, 1)
        for column, value in enumerate(cells, 1)
        if value is not None
    }
    assert result["One"] == expected
    assert result["Two & <three>"] == {"A1": 1.5}
    assert [format_cell(n, 7) for n in (1, 26, 27, 702, 703)] == ["A7", "Z7", "AA7", "ZZ7", "AAA7"]


def repack(data: bytes, **changed: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            key = name.rpartition("/")[2].partition(".")[0]
            new.writestr(name, changed.get(key, old.read(name)))
    return out.getvalue()


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa">]><worksheet>&a;</worksheet>'


@pytest.mark.parametrize(
    ("changed", "output"),
    [
        ({"sheet1": BOMB}, "declares entities"),
        ({"sheet1": BOMB.replace("DOCTYPE", "doctype")}, "declares entities"),
        ({"sheet1": "<worksheet>"}, "ParseError"),
        ({"workbook": "<workbook/>" * 2}, "ParseError"),
        ({"sheet1": " " * 40_000}, "more than 20,000 bytes"),
    ],
)
def test_a_hostile_part_is_refused(monkeypatch, changed, output):
    monkeypatch.setattr(file_reader, "_MOST_PART", 20_000)
    with pytest.raises(NoWorkbook, match=output):
        read_workbook(repack(write_workbook({"One": [[1]]}), **changed))


def test_a_number_that_is_none_in_json_is_text():
    cells = "<c r='A1'><v>NaN</v></c><c r='B1'><v>1e999</v></c><c r='C1' t='s'><v>²</v></c>"
    rows = f"<sheetData><row>{cells}</row></sheetData>"
    sheet = f"<worksheet xmlns='{file_reader._MAIN}'>{rows}</worksheet>"
    facts = read_cells({WORKBOOK_FILE: repack(write_workbook({"One": [[1]]}), sheet1=sheet)})
    assert [facts[f"One!{cell}"] for cell in ("A1", "B1", "C1")] == ["NaN", "1e999", "²"]
    assert digest(facts)


def test_what_is_no_workbook_says_why_and_others_are_read_too():
    good, bad = write_workbook({"One": [["x", "=A1"]]}), b"PK\x03\x04 no zip"
    facts = read_cells({WORKBOOK_FILE: good, "more.xlsx": good, "bad.xlsx": bad, "a.txt": b"text"})
    assert {key: facts[key] for key in ("One", "One!A1", "One!B1", "a.txt")} == {
        "One": {"place": 1}, "One!A1": "x", "One!B1": "=A1", "a.txt": "text",
    }  # fmt: skip
    assert facts["more.xlsx:One!A1"] == "x"
    assert facts["bad.xlsx"]["why"].startswith("NoWorkbook: BadZipFile")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as built:
        built.writestr("xl/workbook.xml", "<workbook/>" * 99)
    data = bytearray(out.getvalue())
    data[60:70] = b"\xff" * 10  # within what is packed
    with pytest.raises(NoWorkbook):
        read_workbook(bytes(data))


def pack_bomb(method: int, size: int, text: bytes = b" ") -> bytes:
    """A workbook of a few bytes whose sheet is large."""
    out, plain = io.BytesIO(), io.BytesIO(write_workbook({"One": [[1]]}))
    with zipfile.ZipFile(out, "w", method) as built, zipfile.ZipFile(plain) as old:
        for name in old.namelist():
            large = "sheet1" in name
            with built.open(name, "w") as part:
                part.write(b"<a>" if large else old.read(name))
                for _ in range(size >> 20 if large else 0):
                    part.write(text * ((1 << 20) // len(text)))
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (pack_bomb(zipfile.ZIP_BZIP2, 64 << 20), "another method than deflate"),
        (pack_bomb(zipfile.ZIP_LZMA, 64 << 20), "another method than deflate"),
        (pack_bomb(zipfile.ZIP_DEFLATED, 64 << 20), "more than 16,777,216 bytes"),
        (pack_bomb(zipfile.ZIP_DEFLATED, 15 << 20, b"<a/>"), "more memory than its reader"),
    ],
    ids=["bzip2", "lzma", "deflate", "elements"],
)
def test_a_workbook_that_unpacks_to_more_is_one_clear_error(data, why):
    assert len(data) < 100_000
    facts = read_cells({WORKBOOK_FILE: data, "a.txt": b"text"})
    assert why in facts[WORKBOOK_FILE]["why"]
    assert (facts["a.txt"], len(facts)) == ("text", 2)
