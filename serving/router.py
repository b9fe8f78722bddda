"""The router's public face: what callers import.

router = open_router(place)                    # or ServedRouter(place).current()
router.find(Ask("which hour is it in Paris?", k=3))
router.find(Ask(server="a world clock", tool="tells the time in a city"))
"""

from serving.ranking.eligible import Blocked, read_blocked
from serving.ranking.hot_reload import ServedRouter, open_router
from serving.ranking.query import MAX_TEXT, MOST_HITS, STRATEGIES, Answer, Ask, BadQuery, Hit
from serving.ranking.router import Router

__all__ = [
    "MAX_TEXT",
    "MOST_HITS",
    "STRATEGIES",
    "Answer",
    "Ask",
    "BadQuery",
    "Blocked",
    "Hit",
    "Router",
    "ServedRouter",
    "open_router",
    "read_blocked",
]
