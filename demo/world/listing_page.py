"""What one marketplace lists on one day, as a sequence that need not be in memory."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from demo.world.record import Record


class RecordList(Sequence[Record]):
    """Records by position."""

    @abstractmethod
    def find_position(self, slug: str) -> int | None:
        """Where the record with this slug stands."""

    def find(self, slug: str) -> Record | None:
        """The record with this slug."""
        position = self.find_position(slug)
        return None if position is None else self[position]

    def list_older(self, record: Record) -> tuple[Record, ...]:
        """Earlier versions of a record, the oldest first."""
        return ()

    def list_gone(self) -> Iterable[Record]:
        """Records listed the day before and not any more, as deleted ones."""
        return ()

    def find_revised_at(self, position: int) -> str:
        """When the record at a position was last edited; cheaper than the record."""
        return self[position].revised_at

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return [self.get_record(one) for one in range(*position.indices(len(self)))]
        count = len(self)
        if not -count <= position < count:
            raise IndexError(position)
        return self.get_record(position % count)

    @abstractmethod
    def get_record(self, position: int) -> Record:
        """The record at a position from 0."""


class Listed(RecordList):
    """A list that fits in memory."""

    def __init__(
        self,
        records: Sequence[Record],
        older: Mapping[str, tuple[Record, ...]] | None = None,
        gone: Sequence[Record] = (),
    ) -> None:
        self._records, self._older, self._gone = records, older or {}, gone
        self._positions = {record.slug: n for n, record in enumerate(records)}

    def __len__(self) -> int:
        return len(self._records)

    def get_record(self, position: int) -> Record:
        return self._records[position]

    def find_position(self, slug: str) -> int | None:
        return self._positions.get(slug)

    def list_older(self, record: Record) -> tuple[Record, ...]:
        return self._older.get(record.slug, ())

    def list_gone(self) -> Iterable[Record]:
        return self._gone
