"""What a process that runs for months may remember without growing."""

from collections import OrderedDict
from typing import Any

_MOST = 10_000


class BoundedDict(OrderedDict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > _MOST:
            self.popitem(last=False)
