"""What the lines of a log teach a reranker, by the trust limits of reliability.

The same rules as `assets/outcomes/reliability/observations.py`, line by line. A lesson needs the
words that were asked for, so only tokens that let the log keep them teach anything.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from assets.outcomes.policy import BLAMED, TOKEN, ReliabilityPolicy
from assets.servers.calls.log import MOST_WORDS, REPORTS
from warehouse.bounded_dict import BoundedDict

KEPT = 5_000  # newest lessons since the released reranker was fitted; older ones wait for a fit
_DROPPED = 500  # that make room for new ones at a time
_ALL_TOOLS = 10  # times what a token's calls, or claims, of one tool count, those of all tools do
_DAY = 86_400
_AHEAD = 300.0  # seconds that another machine's clock may go fast
_LATEST = 1e12  # epoch seconds, about the year 33,000


@dataclass(frozen=True)
class LogLesson:
    """That a tool under a contract did, or did not do, what some words asked for. source:
    `token:NAME`; client: as it names itself."""

    at: float
    source: str
    client: str | None
    tool_id: str
    contract_digest: str
    words: str
    success: bool
    weight: float


class LessonLog:
    """The lessons of a log in the order of its lines, and why other lines are none.

    `kept` holds the newest of them, `dropped` counts those before.
    """

    def __init__(
        self, policy: ReliabilityPolicy, since: float, excluded: Collection[str] = ()
    ) -> None:
        """since: epoch seconds up to which the reranker was fitted to the log already."""
        self.kept: list[LogLesson] = []
        self.left_out: Counter[str] = Counter()
        self._policy, self._since, self._excluded = policy, since, frozenset(excluded)
        self.dropped = 0  # before the first kept one
        self._revised: int | None = None
        self._searches = BoundedDict()  # (source, search id) -> words
        self._ends = BoundedDict()  # (source, call id) -> number of its lesson, None without one
        self._claims = BoundedDict()  # what a claim is about -> number of its lesson
        self._spent = BoundedDict()  # (source, day, or None for claims[, tool]) -> weight

    def take_revised(self) -> int | None:
        """The place in `kept` of the first lesson that changed, None where none did; asked once."""
        found, self._revised = self._revised, None
        return found

    def add_line(self, line: Mapping[str, Any], now: float) -> None:
        """Takes one line of the log as it was parsed, whatever it holds. now: epoch seconds."""
        token, status, at = line.get("token"), line.get("status"), line.get("at")
        if not isinstance(token, str) or not isinstance(status, str) or not _is_number(at):
            self.left_out["of another shape"] += 1
            return
        source = TOKEN + token
        if status == "searched":
            self._note_search(source, line)
            return
        if not isinstance(line.get("tool_id"), str):
            return
        if source in self._excluded:
            self.left_out["of excluded sources"] += 1
        elif at > now + _AHEAD:
            self.left_out["from the future"] += 1
        elif at > self._since:
            self._add_outcome(source, status, line)

    def _note_search(self, source: str, line: Mapping[str, Any]) -> None:
        words, search = line.get("words"), line.get("search_id")
        if isinstance(words, str) and words.strip() and isinstance(search, str):
            self._searches[source, search] = words[:MOST_WORDS]

    def _add_outcome(self, source: str, status: str, line: Mapping[str, Any]) -> None:
        call = line.get("call_id")
        call = call if isinstance(call, str) and call else None
        if status == "reported":
            self._add_report(source, call, line)
        elif call is not None and (source, call) in self._ends:
            self.left_out["told of twice"] += 1
        elif call is not None:
            worked = status == "ok"
            failed = status in ("tool_error", "failed") and line.get("blame") in BLAMED
            number = self._add_lesson(source, line, worked) if worked or failed else None
            # Of a call that failed a report changes nothing, for that was seen here.
            self._ends[source, call] = number if worked else None

    def _add_report(self, source: str, call: str | None, line: Mapping[str, Any]) -> None:
        verdict = line.get("reported")
        if verdict not in REPORTS:
            self.left_out["of another shape"] += 1
            return
        worked = verdict == "worked"
        if call is not None and (source, call) in self._ends:
            self._revise(self._ends[source, call], worked)
            return
        parts = ("tool_id", "contract_digest", "query")
        about = (source, *(str(line.get(name)) for name in parts), line["at"] // _DAY)
        if about in self._claims:
            self._revise(self._claims[about], worked)
            return
        self._claims[about] = self._add_lesson(source, line, worked, claimed=True)

    def _revise(self, number: int | None, success: bool) -> None:
        place = -1 if number is None else number - self.dropped
        if place < 0 or self.kept[place].success == success:
            return
        self.kept[place] = replace(self.kept[place], success=success)
        self._revised = min(place, len(self.kept) if self._revised is None else self._revised)

    def _add_lesson(
        self, source: str, line: Mapping[str, Any], success: bool, *, claimed: bool = False
    ) -> int | None:
        """The number of the new lesson; None where the line teaches nothing."""
        words = self._searches.get((source, str(line.get("search_id"))))
        if words is None:
            self.left_out["without words"] += 1
            return None
        tool, digest, client = (line.get(name) for name in ("tool_id", "contract_digest", "client"))
        weight = self._policy.claims if claimed else 1.0
        weight *= self._policy.weights.get(source, 1.0)
        if claimed:  # on whatever days
            weight = self._limit(source, str(tool), None, weight, self._policy.claims_together)
        weight = self._limit(source, str(tool), line["at"] // _DAY, weight, self._policy.per_day)
        if weight <= 0:
            self.left_out["of a flood"] += 1
            return None
        client = client if isinstance(client, str) and client else None
        log_lesson = LogLesson(
            line["at"], source, client, str(tool), str(digest), words, success, weight
        )
        self.kept.append(log_lesson)
        number = self.dropped + len(self.kept) - 1
        if len(self.kept) > KEPT:
            del self.kept[:_DROPPED]
            self.dropped += _DROPPED
        return number

    def _limit(
        self, source: str, tool: str, span: float | None, weight: float, most: float
    ) -> float:
        """What of an outcome's weight a source may still spend in a span, on the tool and on all.
        most: on the tool."""
        own, whole, spent = (source, span, tool), (source, span), self._spent
        room = most - spent.get(own, 0.0), most * _ALL_TOOLS - spent.get(whole, 0.0)
        result = max(0.0, min(weight, 1.0, *room))
        if result > 0:
            spent[own], spent[whole] = (spent.get(key, 0.0) + result for key in (own, whole))
        return result


def _is_number(value: Any) -> TypeGuard[float]:
    """Whether it can be a time; JSON knows numbers that are none."""
    whole = isinstance(value, int | float) and not isinstance(value, bool)
    return whole and abs(value) < _LATEST
