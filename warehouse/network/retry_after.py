"""Reads the Retry-After header: the one place that does."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_S = 30 * 86_400.0  # what asks for more is noise
_SECONDS = re.compile(r"[0-9]{1,300}(\.[0-9]{1,9})?")  # model endpoints send fractions


def parse_retry_after(value: str, now: datetime | None = None) -> float | None:
    """Seconds to wait, given as such or as a date (RFC 9110, 10.2.3), at most thirty days.

    None where the header says nothing usable.
    """
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return min(float(value), LONGEST_S)
    try:
        at = parsedate_to_datetime(value)
        wait_s = (at - (now or datetime.now(UTC))).total_seconds()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(0.0, wait_s), LONGEST_S)
