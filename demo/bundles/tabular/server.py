"""Tabular: small tables given as CSV text."""

import csv
import io
import statistics

from stdio import serve, tool

CSV = {"type": "string", "description": "The table as CSV text with a header line"}
DIRECTION = {"type": "string", "enum": ["ascending", "descending"], "default": "ascending"}


def column(description):
    return {"type": "string", "description": description}


def rows_of(table):
    return list(csv.DictReader(io.StringIO(table)))


def as_csv(rows):
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def key(value):
    try:
        return (0, float(value), "")
    except ValueError:
        return (1, 0.0, value)


@tool(
    "Summarise a numeric column of a CSV table: count, mean, median, minimum and maximum.",
    required=["table", "column"],
    table=CSV,
    column=column("Name of the numeric column"),
)
def summarise_column(table, column):
    values = [float(row[column]) for row in rows_of(table) if row[column].strip()]
    return {
        "count": len(values),
        "mean": statistics.fmean(values),
        "median": statistics.median(values),
        "minimum": min(values),
        "maximum": max(values),
    }


@tool(
    "Keep only the rows of a CSV table where a column compares to a value.",
    required=["table", "column", "operator", "value"],
    table=CSV,
    column=column("Column to look at"),
    operator={"type": "string", "enum": ["equals", "contains", "greater_than", "less_than"]},
    value={"type": "string", "description": "What to compare with"},
)
def filter_rows(table, column, operator, value):
    tests = {
        "equals": lambda cell: cell == value,
        "contains": lambda cell: value.lower() in cell.lower(),
        "greater_than": lambda cell: key(cell) > key(value),
        "less_than": lambda cell: key(cell) < key(value),
    }
    return as_csv([row for row in rows_of(table) if tests[operator](row[column])])


@tool(
    "Sort a CSV table by one column, numbers as numbers.",
    required=["table", "by"],
    table=CSV,
    by=column("Column to sort by"),
    direction=DIRECTION,
)
def sort_rows(table, by, direction="ascending"):
    rows = sorted(rows_of(table), key=lambda row: key(row[by]), reverse=direction == "descending")
    return as_csv(rows)


@tool(
    "Add up a numeric column of a CSV table for every value of another column.",
    required=["table", "group_by", "sum_of"],
    table=CSV,
    group_by=column("Column whose values form the groups"),
    sum_of=column("Numeric column to add up"),
)
def group_and_sum(table, group_by, sum_of):
    totals = {}
    for row in rows_of(table):
        totals[row[group_by]] = totals.get(row[group_by], 0.0) + float(row[sum_of] or 0)
    return totals


serve()
