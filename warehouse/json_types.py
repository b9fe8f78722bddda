"""What signatures call the values of JSON and the rows of tables."""

from collections.abc import Mapping
from typing import Any

Json = Any  # a value that JSON can hold
Row = Mapping[str, Any]  # a row of a table, not to be changed
