"""The kind `workbook`: one .xlsx file, read cell by cell."""

from random import Random

from assets.outcomes.worlds.changes import Facts
from assets.outcomes.worlds.kinds.kind import Kind, read_file_facts
from assets.outcomes.worlds.kinds.xlsx import Cell, NoWorkbook, read_workbook, write_workbook
from assets.outcomes.worlds.template import load_words
from assets.outcomes.worlds.tree import Node, Tree

FILE = "sales.xlsx"


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
    return {FILE: write_workbook({"Sales": sales, "Staff": staff, "Notes": notes})}


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
            before = "" if path == FILE else f"{path}:"
            for place, (sheet, cells) in enumerate(read_workbook(node).items(), 1):
                facts[f"{before}{sheet}"] = {"place": place}
                facts |= {f"{before}{sheet}!{cell}": value for cell, value in cells.items()}
        except NoWorkbook:
            others[path] = node
    return dict(sorted({**facts, **read_file_facts(others)}.items()))


KIND = Kind("workbook", {"sales": generate_sales}, read_cells)
