"""Pace: when the next request to a host may be sent."""

import asyncio


class Pace:
    """Turns for requests to one host; `requests_per_second` of 0 means no limit."""

    def __init__(self, requests_per_second: float) -> None:
        self.gap_s = 1 / requests_per_second if requests_per_second > 0 else 0.0
        self._next_at = 0.0
        self._resume_at = 0.0

    def slow_down(self, gap_s: float) -> None:
        """Leaves at least `gap_s` seconds between requests from now on."""
        self.gap_s = max(self.gap_s, gap_s)

    def pause(self, seconds: float) -> None:
        """Holds every turn back, those already given included."""
        self._resume_at = max(self._resume_at, asyncio.get_running_loop().time() + seconds)

    async def turn(self) -> None:
        """Returns when the next request may be sent."""
        clock = asyncio.get_running_loop().time
        while True:
            at = max(clock(), self._next_at, self._resume_at)
            self._next_at = at + self.gap_s
            await asyncio.sleep(at - clock())
            if clock() >= self._resume_at:
                return  # else the host asked for a pause meanwhile: take a new turn after that
