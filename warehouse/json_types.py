"""Types of JSON values and table rows for signatures; of mappings only `Record` may change."""

from collections.abc import Mapping
from typing import Any

Json = Any  # a value that JSON can hold
JsonObject = Mapping[str, Any]
Contract = Mapping[str, Any]  # of one tool, as `tools/list` or our canonical form has it
Schema = Mapping[str, Any]  # a JSON Schema, or a part of one
Row = Mapping[str, Any]  # of a table
Record = dict[str, Any]  # a row of a table while it is made
