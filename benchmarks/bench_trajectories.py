"""A caller trained with all tasks and trajectories against one trained on single calls alone.

    python -m benchmarks.bench_trajectories [--updates 60] [--seeds 7,8] [--most 24]

The home (TOOLMILL_HOME) holds the accepted pairs of a run and what `toolmill trajectories` kept.
Both arms train the shipped tiny base for as many updates of as many lessons, drawn by the
seed from the train split of one training set (`build_training_set`: leaks and near requests
removed):

    single  rows of the task `single`
    all     rows of all eight tasks, and trajectories

and are evaluated, beside the untrained base, in a replay of the kept trajectories of servers that
neither learnt from (the frozen split): each task from its request on, until the model calls no
tool, and each recovery from its real error message on.

    end state  the rollout ends in the states that the trajectory ended in, reads made
    recovery   the first call after the error is answered usefully

Greedy, one core. Intervals: 95%, whole servers drawn (bootstrap), over seeds together; four servers
are few for that.
"""

import argparse
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assets.contracts.quarantine.clear import read_contracts
from assets.outcomes.outcome import USEFUL
from assets.outcomes.replay.environment import ReplayEnvironment
from assets.outcomes.replay.recording import Recording, record_trajectories
from assets.outcomes.trajectories.trajectory import make_pair_row, read_kept
from assets.synthesis.common.tables import JUDGEMENTS, PAIRS, SINGLE, TRAJECTORY, select_trainable
from orchestration.factories import make_embedder, open_made_warehouse
from orchestration.settings.load import load_settings
from training.caller.bases import load_base
from training.caller.settings import CallerSettings, resolve_caller_settings
from training.caller.tiny.base import TINY, find_tiny_base_folder
from training.caller.tokenise import build_train_pool, make_lessons
from training.caller.train import resolve_base, train_caller
from training.evaluation.metrics import bootstrap_mean
from training.evaluation.predictors.adapter import AdapterPredictor
from training.evaluation.predictors.interface import Asked
from training.runtime.model_store import Job, TrainingFailed
from training.sets.split import TEST, TRAIN, split_of
from training.sets.training_set import TrainingSet, build_training_set
from warehouse.json_types import Row
from warehouse.store import Warehouse

BASE, ONE, ALL = "untrained", "single", "all"
_ROUNDS = 3  # calls of a rollout after those of its task
_OFFERED = 4  # tools that are offered, the right ones among them: more do not fit the tiny base


@dataclass
class Rollout:
    """One trajectory played by a model. before: how its conversation begins; tools: on offer."""

    row: Row
    kind: str
    environment: ReplayEnvironment
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    keep: frozenset[str]
    outcomes: list[str] = field(default_factory=list)
    done: bool = False

    def make_question(self) -> Asked:
        """What the model is asked next."""
        text = str(self.row["instruction"])
        before = tuple(self.messages)
        return Asked(self.row["trajectory_id"], text, self.tools, keep=self.keep, before=before)

    def take_answer(self, calls: Sequence[Mapping[str, Any]], most: int) -> None:
        """Makes the calls of an answer; a model that makes none has ended."""
        self.done = not calls or len(self.outcomes) >= most
        for call in calls[:1]:
            made = self.environment.step(str(call["name"]), call["arguments"])
            self.outcomes.append(made.outcome)
            self.messages += make_exchange(call, made.text)

    @property
    def passed(self) -> bool:
        """Of a task the end state, of a recovery the first call."""
        if self.kind == "recovery":
            return self.outcomes[:1] == [USEFUL]
        return self.environment.score().end


def make_exchange(call: Mapping[str, Any], text: str) -> list[dict[str, Any]]:
    """A call and its answer as two messages that are not to be learnt."""
    function = {"name": call["name"], "arguments": call["arguments"]}
    asked = {"role": "assistant", "content": "", "weight": 0}
    return [
        {**asked, "tool_calls": [{"type": "function", "function": function}]},
        {"role": "tool", "content": text},
    ]


def collect_set(warehouse: Warehouse, played: Sequence[Row], embed: Any) -> TrainingSet:
    """The training set of a home's accepted pairs and of kept trajectories, with their tools."""
    tables = warehouse.tables
    chosen = select_trainable(tables.read(PAIRS).to_dicts(), tables.read(JUDGEMENTS).to_dicts())
    clear, held = read_contracts(warehouse)
    listed = {(row["server_id"], row["tool"]): row for row in clear}
    for row in played:
        for one in json.loads(row["contracts"]):
            listed[one["server_id"], one["tool"]] = one
    keys = {(row["server_id"], row["tool"], row["contract_digest"]) for row in held}
    return build_training_set([*chosen, *map(make_pair_row, played)], listed.values(), embed,
                              held=keys)  # fmt: skip


def draw_rows(
    rows: Sequence[Row], n: int, count_lessons: Callable[[Row], int], seed: int
) -> list[Row]:
    """Rows of `n` lessons in all, in an order of the seed's own; again from the start where there
    are fewer. count_lessons: how many a row makes, 0 where it does not fit a prompt."""
    order = sorted(rows, key=lambda row: row["pair_id"])
    random.Random(seed).shuffle(order)
    found, counts, left = list[Row](), dict[str, int](), n
    while left:
        before = left
        for row in order:
            name = row["pair_id"]
            if name not in counts and left:
                counts[name] = count_lessons(row)
            if left and 0 < counts[name] <= left:
                found.append(row)
                left -= counts[name]
        if left == before:
            raise SystemExit(f"{left} of {n} lessons of this arm fit no prompt of the tiny base")
    return found


def make_rollouts(rows: Sequence[Row], recording: Recording, most: int) -> Iterator[Rollout]:
    """At most so many tasks and so many recoveries, each server's in turn."""
    for kind in ("task", "recovery"):
        own = [row for row in rows if bool(row["recovers"]) == (kind == "recovery")]
        by_server: dict[str, list[Row]] = {}
        for row in own:
            by_server.setdefault(row["server_id"], []).append(row)
        queues = [list(group) for _, group in sorted(by_server.items())]
        chosen = list[Row]()
        while any(queues) and len(chosen) < most:
            chosen += [queue.pop(0) for queue in queues if queue][: most - len(chosen)]
        for row in chosen:
            yield _make_rollout(row, kind, recording)


def _make_rollout(row: Row, kind: str, recording: Recording) -> Rollout:
    environment = ReplayEnvironment(recording)
    task = environment.reset(row["trajectory_id"])
    messages: list[dict[str, Any]] = [{"role": "user", "content": task.request}]
    for step in json.loads(row["steps"]):
        if not step["wrong"]:
            break
        call = {"name": step["tool"], "arguments": step["arguments"]}
        messages += make_exchange(call, environment.step(**_name_call(call)).text)
    keep = frozenset(call.tool for call in task.calls)
    tools = [dict(tool) for tool in environment.list_tools()]
    others = [tool for tool in tools if tool["name"] not in keep]
    random.Random(row["trajectory_id"]).shuffle(others)
    left = others[: max(0, _OFFERED - len(keep))]
    offered = [tool for tool in tools if tool["name"] in keep or tool in left]
    return Rollout(row, kind, environment, messages, offered, keep)


def _name_call(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"tool": call["name"], "arguments": call["arguments"]}


def play_rollouts(predictor: AdapterPredictor, rollouts: Sequence[Rollout]) -> None:
    """Plays all at once, a call of each a round."""
    for _ in range(_ROUNDS + max((len(_list_calls(rollout)) for rollout in rollouts), default=0)):
        left = [rollout for rollout in rollouts if not rollout.done]
        if not left:
            return
        answers = predictor.predict([one.make_question() for one in left])
        for one, answer in zip(left, answers, strict=True):
            first_only = one.kind == "recovery"
            one.take_answer(answer.calls, 0 if first_only else len(_list_calls(one)) + _ROUNDS)


def _list_calls(rollout: Rollout) -> list[Any]:
    return list(rollout.environment.task.calls) if rollout.environment.task else []


def train_arm(
    arm: str, made: TrainingSet, home: Path, settings: CallerSettings, updates: int
) -> dict[str, Any]:
    """Trains one arm; returns the model's card, with the rows of each task."""
    rows = [row for row in made.rows if row["split"] == TRAIN]
    if arm == ONE:
        rows = [row for row in rows if row["task"] == SINGLE]
    pool = build_train_pool(rows, made.pool)
    _, tokenizer = load_base(str(find_tiny_base_folder()), "cpu")

    def count_lessons(row: Row) -> int:
        try:
            return len(make_lessons([row], pool, tokenizer, settings)[0])
        except TrainingFailed:
            return 0

    drawn = draw_rows(rows, updates * settings.batch, count_lessons, settings.seed)
    drawn = [{**row, "pair_id": f"{row['pair_id']}/{at}"} for at, row in enumerate(drawn)]
    base = resolve_base(TINY)
    name = f"{arm}-{settings.seed}"
    job = Job("caller", name, home, "bench", base, asdict(settings), drawn, made.pool)
    card = train_caller(job, lambda _: None)
    counts = {
        task: sum(row["task"] == task for row in drawn) for task in {r["task"] for r in drawn}
    }
    return {**card, "tasks": counts}


def tabulate(rollouts: Sequence[tuple[str, Rollout]]) -> dict[str, Any]:
    """Arm -> figures of tasks and of recoveries."""
    table: dict[str, Any] = {}
    for arm in (BASE, ONE, ALL):
        for kind in ("task", "recovery"):
            own = [one for name, one in rollouts if (name, one.kind) == (arm, kind)]
            passed = [float(one.passed) for one in own]
            figure = bootstrap_mean(passed, [one.row["server_id"] for one in own]).as_dict()
            called = sum(bool(one.outcomes) for one in own)
            useful = sum(USEFUL in one.outcomes for one in own)
            table.setdefault(arm, {})[kind] = {**figure, "called": called, "useful": useful}
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--seeds", default="7,8")
    parser.add_argument("--most", type=int, default=24, help="tasks, and recoveries, of a seed")
    chosen = parser.parse_args()
    settings = load_settings()
    warehouse = open_made_warehouse(settings)
    kept = read_kept(warehouse.tables)
    if not kept:
        raise SystemExit("no trajectories in this home: `toolmill trajectories` plays some")
    made = collect_set(warehouse, kept, make_embedder(settings).embed)
    unseen = [
        row for row in kept if {split_of(one) for one in json.loads(row["servers"])} == {TEST}
    ]
    recording = record_trajectories([{**row, "recovers": False} for row in unseen])
    results, cards = list[tuple[str, Rollout]](), dict[str, Any]()
    with TemporaryDirectory(prefix="bench-trajectories-") as folder:
        for seed in map(int, chosen.seeds.split(",")):
            of_caller = resolve_caller_settings(TINY, seed=seed, threads=1, checkpoint_steps=10_000)
            for arm in (BASE, ONE, ALL):
                if arm == BASE:
                    predictor = AdapterPredictor(Path(folder), find_tiny_base_folder())
                else:
                    card = train_arm(arm, made, Path(folder), of_caller, chosen.updates)
                    cards[card["name"]] = {
                        name: card[name]
                        for name in ("steps", "tasks", "loss_first", "loss_last", "lessons")
                    }
                    predictor = AdapterPredictor(Path(folder), card["name"])
                rollouts = list(make_rollouts(unseen, recording, chosen.most))
                play_rollouts(predictor, rollouts)
                results += [(arm, rollout) for rollout in rollouts]
                print(json.dumps({"seed": seed, "arm": arm, **tabulate(results)[arm]}), flush=True)
    played = [row for row in made.rows if row["task"] == TRAJECTORY]
    print(json.dumps({"cards": cards, "train trajectories": len(played), "unseen": len(unseen)}))
    print(json.dumps(tabulate(results), indent=1))


if __name__ == "__main__":
    main()
