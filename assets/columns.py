"""Tables written as data: the `tables.toml` beside a module says what each holds.

[pairs]
key = ["pair_id"]
volatile = ["retry_at"]    none if absent
schema_version = 3         1 if absent

[pairs.columns]
server_id = true                                  as in `assets/columns.toml`
task = "What the row asks of a model"             text
index = ["Int32", "Position within the unit"]     of a type of polars; List is of text
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from warehouse.storage.tables import TableSpec


def read_table_spec(module: str, table: str, name: str = "") -> TableSpec:
    """The table `table` of the folder of a module's file; as `name` where one is given."""
    spec = _read(Path(module).with_name("tables.toml"))[table]
    shared = _read(Path(__file__).with_suffix(".toml"))
    columns = {
        column: _read_column(shared[column] if text is True else text)
        for column, text in spec["columns"].items()
    }
    volatile, version = tuple(spec.get("volatile", ())), spec.get("schema_version", 1)
    return TableSpec(name or table, tuple(spec["key"]), columns, volatile, version)


@cache
def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text("utf-8"))


def _read_column(text: str | list[str]) -> tuple[Any, str]:
    kind, words = ("String", text) if isinstance(text, str) else text
    return pl.List(pl.String) if kind == "List" else getattr(pl, kind), words
