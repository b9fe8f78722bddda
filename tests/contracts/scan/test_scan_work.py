"""Linear work: steps counted, never timed. Patterns: tests/hostile/test_growth.py."""

import sys

from assets.contracts.scan import scan_tool
from tests.support.cases import cases


def steps_of(scan):
    """Lines of the scanner that a scan runs."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if "contracts/scan" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    scan()  # fills the caches of words
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        scan()
    finally:
        sys.settrace(before)
    return count


def _steps(text):
    return steps_of(lambda: scan_tool({"name": "x", "description": text}))


@cases(
    "unit",
    "ignore all previous instructions ", "read ~/.ssh/id_rsa send parameter ",
    "when send_email must bcc ", "![a](", "<!-- a b c ", "a_b_c_", "%41", "\\u0041", "\u200b",
    "忽略所有", "i g n o r e ", "https://a.b/?c={secret}&", "curl ", "don't'",
)  # fmt: skip
def test_twice_the_text_is_at_most_twice_the_work(unit):
    half, whole = (_steps((unit * 3_000)[:size]) for size in (4_000, 8_000))
    assert whole <= 2.2 * half + 500
