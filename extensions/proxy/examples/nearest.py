"""A request with its right calls, as an example in a prompt."""

from dataclasses import dataclass
from typing import Any

from warehouse.sanitize.words import fold_words


@dataclass
class KnownCall:
    """An instruction with its right calls, {name, arguments} each."""

    instruction: str
    calls: tuple[dict[str, Any], ...]

    def __post_init__(self) -> None:
        self.words = tuple(fold_words(self.instruction))
        self.tool = str(self.calls[0]["name"])
