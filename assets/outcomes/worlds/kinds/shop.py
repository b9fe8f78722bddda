"""A small shop's tables, drawn by a seed: what the database kinds are seeded with."""

from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

from assets.outcomes.worlds.template import load_words

Row = tuple[int | float | str | None, ...]


@dataclass(frozen=True)
class Table:
    """One table: its columns with their SQL types, and its rows. The first column is the key."""

    name: str
    columns: tuple[tuple[str, str], ...]
    rows: list[Row]


def draw_shop(rng: Random, size: int) -> list[Table]:
    """Customers, products and orders; each order is of one customer and one product."""
    words, start = load_words(), date(2026, 1, 5)
    customers: list[Row] = [
        (
            number,
            f"{rng.choice(words['people'])} {rng.choice(words['surnames'])}",
            rng.choice(words["cities"]),
        )
        for number in range(1, size + 1)
    ]
    names = rng.sample(words["products"], min(size, len(words["products"])))
    products: list[Row] = [
        (number, name, rng.randint(4, 400) / 4, rng.randint(0, 60))
        for number, name in enumerate(names, 1)
    ]
    orders: list[Row] = [
        (
            number,
            rng.randint(1, size),
            rng.randint(1, len(names)),
            rng.randint(1, 9),
            rng.choice(words["statuses"]),
            str(start + timedelta(days=rng.randint(0, 300))),
        )
        for number in range(1, size * 2 + 1)
    ]
    return [
        Table("customers", (("id", "INTEGER"), ("name", "TEXT"), ("city", "TEXT")), customers),
        Table(
            "products",
            (("id", "INTEGER"), ("name", "TEXT"), ("price", "REAL"), ("stock", "INTEGER")),
            products,
        ),
        Table(
            "orders",
            (
                ("id", "INTEGER"),
                ("customer_id", "INTEGER"),
                ("product_id", "INTEGER"),
                ("quantity", "INTEGER"),
                ("status", "TEXT"),
                ("ordered_on", "TEXT"),
            ),
            orders,
        ),
    ]


def write_sql(tables: list[Table]) -> list[str]:
    """Statements that make the tables and fill them, the same for SQLite and Postgres."""
    statements = []
    for table in tables:
        columns = [f"{name} {kind} NOT NULL" for name, kind in table.columns]
        columns[0] = columns[0].replace("NOT NULL", "PRIMARY KEY")
        statements.append(f"CREATE TABLE {table.name} ({', '.join(columns)})")
        for row in table.rows:
            values = ", ".join(_quote_value(one) for one in row)
            statements.append(f"INSERT INTO {table.name} VALUES ({values})")
    return statements


def _quote_value(value: int | float | str | None) -> str:
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)
