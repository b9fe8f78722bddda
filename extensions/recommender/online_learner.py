"""What is appended to the log of calls, and what its lines teach a reranker while it serves."""

import logging
import math
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, TypeGuard

from assets.outcomes.policy import BLAMED, TOKEN, ReliabilityPolicy
from assets.servers.calls.log import MOST_WORDS, REPORTS, CallLog, parse_line
from extensions.recommender.reranker import BayesianReranker, RerankerWeights
from serving.index.model import IndexBroken, IndexMissing
from serving.ranking.strategies import RerankQuestion, write_client_key
from warehouse.bounded_dict import BoundedDict

if TYPE_CHECKING:
    from serving.router import Router, ServedRouter

KEPT = 5_000  # newest lessons since the released reranker was fitted; older ones wait for a fit
_DROPPED = 500  # that make room for new ones at a time
_ALL_TOOLS = 10  # times what a token's calls, or claims, of one tool count, those of all tools do
_DAY = 86_400
_AHEAD = 300.0  # seconds that another machine's clock may go fast
_LATEST = 1e12  # epoch seconds, about the year 33,000


@dataclass(frozen=True)
class LogLesson:
    """A tool did, or did not do, what words asked for. source: `token:NAME`; client: its name."""

    at: float
    source: str
    client: str | None
    tool_id: str
    contract_digest: str
    words: str
    success: bool
    weight: float


class LessonLog:
    """The lessons of a log in the order of its lines, and why other lines are none. `kept` holds
    the newest of them, `dropped` counts those before."""

    def __init__(self, policy: ReliabilityPolicy, since: float) -> None:
        """since: epoch seconds up to which the reranker was fitted to the log already."""
        self.kept: list[LogLesson] = []
        self.left_out: Counter[str] = Counter()
        self._policy, self._since = policy, since
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
            words, search = line.get("words"), line.get("search_id")
            if isinstance(words, str) and words.strip() and isinstance(search, str):
                self._searches[source, search] = words[:MOST_WORDS]
            return
        if not isinstance(line.get("tool_id"), str):
            return
        if not self._policy.weights.get(source, 1.0):
            self.left_out["of sources without weight"] += 1
        elif at > now + _AHEAD:
            self.left_out["from the future"] += 1
        elif at > self._since:
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
        self.kept.append(
            LogLesson(line["at"], source, client, str(tool), str(digest), words, success, weight)
        )
        number = self.dropped + len(self.kept) - 1
        if len(self.kept) > KEPT:
            del self.kept[:_DROPPED]
            self.dropped += _DROPPED
        return number

    def _limit(
        self, source: str, tool: str, span: float | None, weight: float, most: float
    ) -> float:
        """What a source may still spend in a span on the tool (at most `most`) and on all."""
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


_CHUNK = 1 << 20  # bytes that one reading takes of a file; a line has at most some 100,000


class LogFollower:
    def __init__(self, outcomes: CallLog, since: float) -> None:
        """since: epoch seconds; files of the days before are not opened."""
        self._outcomes = outcomes
        self._first = datetime.fromtimestamp(max(0.0, since), UTC).date().isoformat()
        self._read: dict[str, tuple[int, int]] = {}  # day -> (inode, bytes that were read)

    def read_lines(self) -> list[dict[str, Any]]:
        """The next lines, up to a megabyte, or []; others are passed over. Raises LogRewritten."""
        files = [path for path in self._outcomes.list_files() if path.stem >= self._first]
        if self._read.keys() - {path.stem for path in files}:
            raise LogRewritten
        for path in files:
            inode, start = self._read.get(path.stem, (0, 0))
            try:
                with path.open("rb") as file:
                    data, found = self._read_chunk(file, path.stem, inode, start)
            except FileNotFoundError:
                raise LogRewritten from None
            if data:
                self._read[path.stem] = found
                texts = data.decode("utf-8", "replace").split("\n")
                parsed = (parse_line(text) for text in texts if text.strip())
                return [line for line in parsed if line is not None]
        return []

    def _read_chunk(
        self, file: BinaryIO, day: str, inode: int, start: int
    ) -> tuple[bytes, tuple[int, int]]:
        """(whole lines, where they are read to): what follows the last one is being written."""
        stat = os.fstat(file.fileno())
        if inode and (stat.st_ino != inode or stat.st_size < start):
            raise LogRewritten
        file.seek(start)
        data = file.read(_CHUNK)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) == _CHUNK:  # no line of ours
            whole = data
        return whole, (stat.st_ino, start + len(whole))


class LogRewritten(Exception):
    """Lines that were read are deleted: what remains is to be read anew."""


_log = logging.getLogger(__name__)
SLICE_S = 0.05  # of one step; who calls it rests as long as it took
_CHECKPOINT = 250  # lessons after which a state is kept, so that a late report costs few of them


class OnlineLearner:
    """Keeps the reranker of whatever index is served up to date with a log. Steps of several
    threads do not meet: one that finds another at work does nothing."""

    def __init__(
        self, served: "ServedRouter", outcomes: CallLog, policy: ReliabilityPolicy
    ) -> None:
        self._served, self._outcomes, self._policy = served, outcomes, policy
        self._lock = Lock()
        self._pass: _LogPass | None = None
        self._last_error = ""

    @property
    def learnt(self) -> int | None:
        held = self._pass
        return None if held is None else held.published

    def step(self, seconds: float = SLICE_S) -> bool:
        """Reads and learns for about so long; whether nothing is left to do for now."""
        if not self._lock.acquire(blocking=False):
            return True
        try:
            return self._advance(time.perf_counter() + seconds)
        except Exception as error:  # whatever it is, requests are answered on
            if str(error) != self._last_error:
                self._last_error = str(error)
                kind = type(error).__name__
                _log.error("nothing is learnt from the log of calls for now: %s: %s", kind, error)
            return True
        finally:
            self._lock.release()

    def _advance(self, until: float) -> bool:
        try:
            router = self._served.current()
        except (IndexMissing, IndexBroken):
            return True
        if not isinstance(router.ranker, BayesianReranker):
            self._pass = None
            return True
        held = self._pass
        if held is None or held.ranker is not router.ranker:
            held = self._begin(router)
        try:
            done = held.advance(until)
        except LogRewritten:
            self._begin(router)
            return False
        self._last_error = ""
        return done

    def _begin(self, router: "Router") -> "_LogPass":
        self._pass = _LogPass(router, self._outcomes, self._policy)
        return self._pass


class _LogPass:
    def __init__(self, router: "Router", outcomes: CallLog, policy: ReliabilityPolicy) -> None:
        assert isinstance(router.ranker, BayesianReranker)
        self.ranker, self._router = router.ranker, router
        since = _read_since(self.ranker.released)
        self._follower = LogFollower(outcomes, since)
        self._lessons = LessonLog(policy, since)
        self._working = BayesianReranker(self.ranker.released, self.ranker.pool)
        self._checkpoints: dict[int, RerankerWeights] = {}
        self._questions = BoundedDict()  # words -> question
        self._done = self._dropped = 0  # lessons that the working state has learnt, has not kept
        self._changed = True  # the served state may be of an earlier pass
        self.published = 0

    def advance(self, until: float) -> bool:
        """Whether nothing is left to do. until: `perf_counter` at which to stop."""
        while time.perf_counter() < until:
            if lines := self._follower.read_lines():
                now = time.time()
                for line in lines:
                    self._lessons.add_line(line, now)
            elif self._learn_kept(until):
                if self._changed:
                    self.ranker.adopt(self._working.weights)
                    self._changed, self.published = False, self._done
                # Only now: who contradicts itself on and on keeps nothing from being served.
                place = self._lessons.take_revised()
                if place is None:
                    return True
                self._go_back(place)
        return False

    def _learn_kept(self, until: float) -> bool:
        kept = self._lessons.kept
        if self._lessons.dropped != self._dropped:
            self._dropped = self._lessons.dropped
            self._go_back(0)
        while self._done < len(kept) and time.perf_counter() < until:
            if self._done % _CHECKPOINT == 0:
                self._checkpoints[self._done] = self._working.weights
            try:
                self._learn(kept[self._done])
            except Exception as error:  # one outcome must not end the learning from all others
                _log.error("an outcome was not learnt from: %s: %s", type(error).__name__, error)
            self._done += 1
            self._changed = True
        return self._done >= len(kept)

    def _learn(self, lesson: LogLesson) -> None:
        pool = self._working.pool
        place = pool.places.get(lesson.tool_id)
        if place is None or pool.tools[place].contract_digest != lesson.contract_digest:
            return
        client = write_client_key(lesson.source, lesson.client)
        question = replace(self._read_question(lesson.words), at=lesson.at, client=client)
        self._working.update(question, place, lesson.success, lesson.weight)

    def _read_question(self, words: str) -> RerankQuestion:
        """The question in these words, kept: a late report has many lessons learnt again."""
        if (known := self._questions.get(words)) is None:
            # In the order that no outcome has touched: reading the log anew leads to the same.
            [known] = self._router.list_questions([words])
            self._questions[words] = known
        return known

    def _go_back(self, place: int) -> None:
        if place >= self._done:
            return
        at = max((checkpoint for checkpoint in self._checkpoints if checkpoint <= place), default=0)
        self._working.adopt(self._checkpoints.get(at, self.ranker.released))
        self._checkpoints = {held: one for held, one in self._checkpoints.items() if held <= at}
        self._done = at


def _read_since(weights: RerankerWeights) -> float:
    """Time until which a fit read the log; now if unknown, so that nothing is learnt twice."""
    found = weights.facts.get("until")
    if isinstance(found, int | float) and math.isfinite(found):
        return float(found)
    return time.time()
