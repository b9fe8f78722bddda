"""A run of one server of a marketplace: the rows of all others stay as they were."""

from collections.abc import Iterable

from warehouse.json_types import Record, Row


def keep_other_servers(
    previous: Iterable[Row], made: Iterable[Row], server_id: str | None
) -> list[Record]:
    """The rows made, of the named server alone, beside the last ones of all others; all that were
    made where no server is named. Both have a column `server_id`."""
    if server_id is None:
        return [dict(row) for row in made]
    others = [dict(row) for row in previous if row["server_id"] != server_id]
    return [*others, *(dict(row) for row in made if row["server_id"] == server_id)]
