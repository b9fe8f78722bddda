"""What goes wrong in a month, and on which days."""

from demo.world.month import ChangeRates, WorldMonth

QUIET, SMALL = "nothing changes", "1% changes"
POISON, LLM_DOWN = "poisoned update", "LLM outage"
SITE_DOWN, LAYOUT = "marketplace down", "other layout"
KILLED, FULL_DISK, CLOCK = "killed run", "full disk", "clock back 1 h"
# In the order of their days: the first two follow at once, before anything is left to make up for.
INCIDENTS = (QUIET, SMALL, POISON, LLM_DOWN, SITE_DOWN, LAYOUT, KILLED, FULL_DISK, CLOCK)
POISONED_SERVERS = 3


def place_incidents(days: int) -> dict[int, str]:
    """Day -> incident, from the second day on; as many as so many days have room for."""
    found: dict[int, str] = {}
    for number, incident in enumerate(INCIDENTS):
        found.setdefault(2 + number * max(days - 2, 0) // len(INCIDENTS), incident)
    return {day: incident for day, incident in found.items() if day <= days}


def make_month(seed: int, servers: int, incidents: dict[int, str]) -> WorldMonth:
    """The world with these incidents in it."""
    _, contracts = WorldMonth(seed, servers).make_day(1).count_changes()
    still = [day for day, what in incidents.items() if what in (QUIET, SMALL)]
    few = max(1, round(contracts / 100))
    # A run that is to be killed in its launches, or to find the disk full, needs some.
    edited = {SMALL: few, KILLED: 4, FULL_DISK: 4}
    return WorldMonth(
        seed,
        servers,
        rates=dict.fromkeys(still, ChangeRates(0, 0, 0)),
        edited={day: edited[what] for day, what in incidents.items() if what in edited},
        poisoned={day: POISONED_SERVERS for day, what in incidents.items() if what == POISON},
    )
