"""Which expected call goes with which called one, so that the most is right."""

from collections.abc import Sequence
from itertools import permutations

_FAR = 2**62
_FEW = 4  # of so many columns all 24 orders are tried sooner than numpy has begun


def assign_rows(gains: Sequence[Sequence[int]]) -> list[int | None]:
    """For each row a column of its own, so that the gains sum to the most; None where the columns
    run out. Gains are >= 0 and every row is as long.

    The Hungarian method, in rows x rows x columns steps: 200 x 200 take 0.3 s.
    """
    rows = len(gains)
    columns = len(gains[0]) if rows else 0
    if not columns:
        return [None] * rows
    if rows > columns:
        turned = assign_rows([list(column) for column in zip(*gains, strict=True)])
        found: list[int | None] = [None] * rows
        for column, row in enumerate(turned):
            if row is not None:
                found[row] = column
        return found
    return list(_try_all_orders(gains) if columns <= _FEW else _solve_hungarian(gains))


def _try_all_orders(gains: Sequence[Sequence[int]]) -> tuple[int, ...]:
    orders = permutations(range(len(gains[0])), len(gains))
    return max(
        orders, key=lambda order: sum(row[place] for row, place in zip(gains, order, strict=True))
    )


def _solve_hungarian(gains: Sequence[Sequence[int]]) -> list[int]:
    """The best column of each row; there are no more rows than columns."""
    import numpy as np

    costs = -np.asarray(gains, dtype=np.int64)
    rows, columns = costs.shape
    row_of, column_of = np.full(columns, -1), np.full(rows, -1)
    of_row, of_column = np.zeros(rows, np.int64), np.zeros(columns, np.int64)
    for start in range(rows):
        # The shortest path, over reduced costs, from the new row to a column nobody holds.
        distance = costs[start] - of_row[start] - of_column
        came_from = np.full(columns, start)
        done = np.zeros(columns, bool)
        while True:
            column = int(np.where(done, _FAR, distance).argmin())
            row = int(row_of[column])
            if row < 0:
                break
            done[column] = True
            through = distance[column] + costs[row] - of_row[row] - of_column
            better = ~done & (through < distance)
            distance[better], came_from[better] = through[better], row
        lead = distance[column] - distance[done]
        of_row[start] += distance[column]
        of_row[row_of[done]] += lead
        of_column[done] -= lead
        row = -1
        while row != start:
            row = int(came_from[column])
            row_of[column] = row
            column_of[row], column = column, int(column_of[row])
    return [int(column) for column in column_of]
