"""A verifier environment over a recording: reset, step, score. No server, no network, no chance.
Exported environments hold a copy: it imports the standard library alone."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

USEFUL = "useful"  # the outcome of a call that did what it was made for

# What a rollout is worth at most by each measure; they sum to 1.
VALID, CALLS_USEFUL, END = 0.2, 0.3, 0.5
MOST_CALLS = 32


class ReplayMiss(LookupError):
    """A call that was never recorded. kind: unknown_contract, unknown_call."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class RecordedAnswer:
    """What one call was answered in one state, most often. after: the state then."""

    text: str
    outcome: str
    after: str


@dataclass(frozen=True)
class RecordedCall:
    """A call as it is recorded: of which server's tool, by which contract."""

    server_id: str
    tool: str
    contract_digest: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ReplayTask:
    """A request and its calls. states: server -> digests (first, last); contracts: on offer."""

    id: str
    request: str
    calls: tuple[RecordedCall, ...]
    states: dict[str, tuple[str, str]]
    contracts: tuple[str, ...]


@dataclass
class RecordedAnswers(ABC):
    """What an environment is played over. contracts: digest -> {server_id, tool, contract_digest,
    contract}; answers: by `make_key`; tasks: by id."""

    contracts: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, RecordedAnswer] = field(default_factory=dict)
    tasks: dict[str, ReplayTask] = field(default_factory=dict)

    @abstractmethod
    def find_flaws(self, contract: Mapping[str, Any], arguments: Any) -> list[str]:
        """What of the arguments does not fit the tool's schema."""

    @abstractmethod
    def make_key(self, contract_digest: str, arguments: Mapping[str, Any], state: str) -> str:
        """Names a call in a state; arguments without a canonical form have an unknown key."""

    def answer(
        self, contract_digest: str, arguments: Mapping[str, Any], state: str
    ) -> RecordedAnswer:
        """What was recorded. Raises ReplayMiss."""
        if contract_digest not in self.contracts:
            reason = (
                f"no contract {contract_digest[:40]!r} is recorded; it changed, or is another's"
            )
            raise ReplayMiss("unknown_contract", reason)
        result = self.answers.get(self.make_key(contract_digest, arguments, state))
        if result is None:
            tool = self.contracts[contract_digest]["tool"]
            reason = f"{tool} was never called with these arguments in this state"
            raise ReplayMiss("unknown_call", reason)
        return result

    def read_line(self, line: dict[str, Any]) -> None:
        """Takes in one line of a replay file after its first. Raises ValueError, TypeError,
        KeyError, AttributeError for one that is none."""
        if "contract" in line:
            recorded_answer = line["contract"]
            self.contracts[str(recorded_answer["contract_digest"])] = {
                "server_id": str(recorded_answer["server_id"]),
                "tool": str(recorded_answer["tool"]),
                "contract_digest": str(recorded_answer["contract_digest"]),
                "contract": dict(recorded_answer["contract"]),
            }
        elif "answer" in line:
            recorded_answer = RecordedAnswer(**line["answer"])
            if not all(isinstance(text, str) for text in vars(recorded_answer).values()):
                raise TypeError(line["key"])
            self.answers[str(line["key"])] = recorded_answer
        else:
            recorded_answer = line["task"]
            calls = tuple(RecordedCall(**call) for call in recorded_answer["calls"])
            if not all(isinstance(call.arguments, dict) for call in calls):
                raise TypeError(recorded_answer["id"])
            states = {
                str(name): (str(two[0]), str(two[1]))
                for name, two in recorded_answer["states"].items()
            }
            offered = tuple(map(str, recorded_answer["contracts"]))
            if not {*offered, *(call.contract_digest for call in calls)} <= self.contracts.keys():
                raise KeyError("a task calls by a contract that is not in the file")
            identity = str(recorded_answer["id"]), str(recorded_answer["request"])
            self.tasks[identity[0]] = ReplayTask(*identity, calls, states, offered)


@dataclass(frozen=True)
class StepResult:
    """outcome: as recorded, or unknown_tool, invalid_arguments, too_many_calls, miss."""

    text: str
    outcome: str
    valid: bool = False
    missed: bool = False


@dataclass(frozen=True)
class RolloutScore:
    """What a rollout is worth, from 0 to 1. known: False where a call was missed."""

    reward: float
    valid: float
    useful: float
    end: bool
    known: bool


@dataclass
class ReplayEnvironment:
    """One rollout at a time; `reset` begins the next. The same calls get the same answers."""

    recording: RecordedAnswers
    task: ReplayTask | None = None
    steps: list[StepResult] = field(default_factory=list)
    _states: dict[str, str] = field(default_factory=dict)
    _answered: set[str] = field(default_factory=set)

    def reset(self, task_id: str) -> ReplayTask:
        """Begins a task in its first states. Raises KeyError with the ids that are known."""
        if task_id not in self.recording.tasks:
            examples = ", ".join(sorted(self.recording.tasks)[:3]) or "none"
            raise KeyError(f"no task {task_id[:60]!r} is recorded; known: {examples} …")
        self.task = self.recording.tasks[task_id]
        self._states = {server: first for server, (first, _) in self.task.states.items()}
        self.steps, self._answered = [], set()
        return self.task

    def list_tools(self) -> list[Mapping[str, Any]]:
        """The contracts of the tools on offer, in the order of their names."""
        return [item["contract"] for item in self._list_offered()]

    def step(self, tool: str, arguments: Any, contract_digest: str | None = None) -> StepResult:
        """Makes one call. contract_digest: by which; another than the recorded is a miss."""
        result = self._make_step(tool, arguments, contract_digest)
        if len(self.steps) <= MOST_CALLS:
            self.steps.append(result)
        return result

    def score(self) -> RolloutScore:
        """What the calls are worth: valid, useful, and ending in the right states."""
        if self.task is None:
            raise RuntimeError("reset the environment to a task first")
        n = len(self.steps)
        valid = sum(step.valid for step in self.steps) / n if n else 0.0
        useful = sum(step.outcome == USEFUL for step in self.steps) / n if n else 0.0
        end = self._is_end_right(self.task)
        complete = not any(step.missed for step in self.steps)
        reward = VALID * valid + CALLS_USEFUL * useful + END * end
        return RolloutScore(round(reward, 6), round(valid, 6), round(useful, 6), end, complete)

    def _make_step(self, tool: str, arguments: Any, contract_digest: str | None) -> StepResult:
        if self.task is None:
            raise RuntimeError("reset the environment to a task first")
        if len(self.steps) >= MOST_CALLS:
            return StepResult(f"at most {MOST_CALLS} calls a task", "too_many_calls")
        offered = next((item for item in self._list_offered() if item["tool"] == tool), None)
        if offered is None:
            names = ", ".join(item["tool"] for item in self._list_offered())
            return StepResult(f"no tool {str(tool)[:60]!r}; tools: {names}"[:2000], "unknown_tool")
        if flaws := self.recording.find_flaws(offered["contract"], arguments):
            return StepResult("; ".join(flaws)[:2000], "invalid_arguments")
        name = contract_digest or offered["contract_digest"]
        return self._replay(offered["server_id"], name, arguments)

    def _list_offered(self) -> list[dict[str, Any]]:
        names = self.task.contracts if self.task else ()
        contracts = (self.recording.contracts[name] for name in names)
        return sorted(contracts, key=lambda item: item["tool"])

    def _replay(
        self, server: str, contract_digest: str, arguments: Mapping[str, Any]
    ) -> StepResult:
        state = self._states.get(server, "")  # a file from elsewhere may name none: a miss
        try:
            answer = self.recording.answer(contract_digest, arguments, state)
        except ReplayMiss as miss:
            return StepResult(f"replay miss: {miss}", "miss", valid=True, missed=True)
        self._states[server] = answer.after
        self._answered.add(self.recording.make_key(contract_digest, arguments, state))
        return StepResult(answer.text, answer.outcome, valid=True)

    def _is_end_right(self, task: ReplayTask) -> bool:
        """The last states, and where a server's task changes nothing, its calls: a world that is
        left alone is not yet asked."""
        if any(self._states[server] != last for server, (_, last) in task.states.items()):
            return False
        reads = {server for server, (first, last) in task.states.items() if first == last}
        return all(
            self.recording.make_key(
                call.contract_digest, call.arguments, task.states[call.server_id][0]
            )
            in self._answered
            for call in task.calls
            if call.server_id in reads
        )


def score_calls(
    recording: RecordedAnswers, task_id: str, calls: Sequence[Mapping[str, Any]]
) -> tuple[RolloutScore, list[StepResult]]:
    """(score, steps) of a rollout; calls: {name, arguments}, in order. Raises KeyError."""
    environment = ReplayEnvironment(recording)
    environment.reset(task_id)
    for call in calls:
        environment.step(str(call.get("name")), call.get("arguments"))
    return environment.score(), environment.steps
