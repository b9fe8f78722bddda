"""What one marketplace lists on one day."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from demo.world.record import ServerRecord


class RecordList(Sequence[ServerRecord]):
    """Records by position; `older` holds earlier versions by slug, the oldest first, `gone` what
    was listed the day before and is not any more, as deleted records."""

    def __init__(
        self,
        records: Sequence[ServerRecord],
        older: Mapping[str, tuple[ServerRecord, ...]] | None = None,
        gone: Iterable[ServerRecord] = (),
    ) -> None:
        self._records, self.older, self.gone = records, older or {}, tuple(gone)
        # The first of those that come twice counts.
        self._positions = {one.slug: n for n, one in reversed(list(enumerate(records)))}

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, position: Any) -> Any:
        return self._records[position]

    def find_position(self, slug: str) -> int | None:
        """Where the record with this slug stands."""
        return self._positions.get(slug)

    def find(self, slug: str) -> ServerRecord | None:
        """The record with this slug."""
        position = self.find_position(slug)
        return None if position is None else self[position]
