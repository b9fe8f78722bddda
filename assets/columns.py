"""Tables written as data: the `tables.toml` beside a module says what each holds.

[pairs]
key = ["pair_id"]
volatile = ["retry_at"]    none if absent
schema_version = 3         1 if absent
unique = true              the audit expects no key twice

[pairs.columns]
server_id = true                                  as in `assets/columns.toml`
task = "What the row asks of a model"             text
index = ["Int32", "Position within the unit"]     of a type of polars; List is of text

[pairs.values]             what the audit expects: `read_expectations` says how it is written
[pairs.rules]              check -> what it asks for; the asset's own code gives its verdict
"""

from typing import Any

import polars as pl

from warehouse.audit import expect_unique, read_expectations
from warehouse.storage.files import read_data
from warehouse.storage.tables import TableSpec


def read_table_spec(module: str, table: str, name: str = "") -> TableSpec:
    """The table `table` of the folder of a module's file; as `name` where one is given."""
    spec, shared = read_data(module, "tables.toml")[table], read_data(__file__, "columns.toml")
    columns = {
        column: _read_column(shared[column] if text is True else text)
        for column, text in spec["columns"].items()
    }
    key, volatile = tuple(spec["key"]), tuple(spec.get("volatile", ()))
    unique = [expect_unique(*key)] if spec.get("unique") else []
    expectations = (*unique, *read_expectations(spec.get("values", {})))
    version, rules = spec.get("schema_version", 1), spec.get("rules", {})
    return TableSpec(name or table, key, columns, volatile, version, expectations, rules)


def _read_column(text: str | list[str]) -> tuple[Any, str]:
    kind, words = ("String", text) if isinstance(text, str) else text
    return pl.List(pl.String) if kind == "List" else getattr(pl, kind), words
