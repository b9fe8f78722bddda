"""JSON of a server's messages: strict, and read within bounds."""

import json
import math
from typing import Any

import anyio.to_thread

from warehouse.sanitize.untrusted_text import find_repeated_name

# JSON values of a message: as many as the largest structured content of a call may hold. 16 MB of
# lists hold eight million, which took 26 s to read.
MAX_VALUES = 1 << 18
MAX_DEPTH = 128  # of a message: what keeps it, copies it and prints it recurses
_LARGE = 1 << 16  # characters of a message that is parsed in a thread


class AmbiguousJson(ValueError):
    """JSON that names one member twice: parsers differ in which they keep, so a model could be
    shown another tool than the one that was scanned (RFC 7493, 2.3 forbids it)."""


class OversizeMessage(ValueError):
    """JSON of more values than anybody reads."""


async def read_message(text: str) -> Any:
    """`parse_message`, of a large one in a thread: the loop is shared by all calls."""
    if len(text) < _LARGE:
        return parse_message(text)
    return await anyio.to_thread.run_sync(parse_message, text)


def parse_message(text: str) -> Any:
    """The JSON value. Raises ValueError (NaN, infinities and 1e999 too, and nesting deeper than
    MAX_DEPTH) or RecursionError; AmbiguousJson where a member is named twice, OversizeMessage for
    more than MAX_VALUES values."""
    if count_values(text) > MAX_VALUES:
        raise OversizeMessage(f"a message of more than {MAX_VALUES:,} values")
    message = json.loads(
        text,
        parse_constant=_refuse_constant,
        parse_float=_parse_finite,
        object_pairs_hook=_refuse_ambiguous,
    )
    level = [message]
    for _ in range(MAX_DEPTH):
        parts = [
            container.values() if isinstance(container, dict) else container
            for container in level
            if isinstance(container, dict | list)
        ]
        level = [item for items in parts for item in items if isinstance(item, dict | list)]
        if not level:
            return message
    raise ValueError(f"nested deeper than {MAX_DEPTH}")


def count_values(text: str) -> int:
    """How many values JSON holds, or more where that is at most MAX_VALUES: a value follows a comma
    or an opening bracket. Strings are taken out only where they decide; no step builds an object
    for each value."""
    count = sum(map(text.count, ",[{"))
    if count > MAX_VALUES:
        bare = text.replace("\\\\", "").replace('\\"', "")
        if bare.count('"') > 4 * MAX_VALUES:  # each is a value or a name
            return bare.count('"') // 4
        count = sum(sum(map(outside.count, ",[{")) for outside in bare.split('"')[::2])
    return count


def _refuse_ambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise AmbiguousJson(f"an object names {str(find_repeated_name(pairs))[:60]!r} twice")
    return members


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _parse_finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]} is beyond every number")
    return number
