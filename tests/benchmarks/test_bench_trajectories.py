"""The benchmark of trajectories: as many lessons in each arm, and rollouts that the reference ends
right and silence does not."""

import json
from collections.abc import Sequence

import pytest

from assets.outcomes.replay.recording import Recording, record_trajectories
from benchmarks.bench_trajectories import draw_rows, make_rollouts, play_rollouts
from tests.outcomes.replay.recorded import rows
from training.evaluation.predictors.interface import Answered, Asked

PLAYED = [row for row in rows() if row["status"] == "kept"]
RECORDING = record_trajectories([{**row, "recovers": False} for row in PLAYED])


class Reference:
    """Answers with the calls that the trajectories made; `silent`: with none."""

    def __init__(self, recording: Recording, silent: bool) -> None:
        self.recording, self.silent, self.asked = recording, silent, dict[str, int]()

    def predict(self, asked: Sequence[Asked]) -> list[Answered]:
        return [self.answer(one.item_id) for one in asked]

    def answer(self, name: str) -> Answered:
        at = self.asked.get(name, 0)
        self.asked[name] = at + 1
        calls = [] if self.silent else self.recording.tasks[name].calls[at : at + 1]
        return Answered(
            [{"name": call.tool, "arguments": call.arguments} for call in calls], "call"
        )


@pytest.mark.parametrize("silent", [False, True])
def test_the_reference_calls_end_right_and_silence_does_not(silent: bool) -> None:
    rollouts = list(make_rollouts(PLAYED, RECORDING, 9))
    assert sorted(rollout.kind for rollout in rollouts) == ["recovery", "task", "task"]
    play_rollouts(Reference(RECORDING, silent), rollouts)  # type: ignore[arg-type]
    assert [rollout.passed for rollout in rollouts] == [not silent] * 3


def test_an_arm_has_so_many_lessons_again_from_the_start_where_there_are_fewer() -> None:
    lessons = {"a": 1, "b": 2, "c": 0, "d": 9}
    made = draw_rows(
        [{"pair_id": name} for name in lessons], 8, lambda row: lessons[row["pair_id"]], 7
    )
    names = [row["pair_id"] for row in made]
    assert sum(lessons[name] for name in names) == 8
    assert {*names} == {"a", "b"}
    assert json.dumps(made) == json.dumps(
        draw_rows([{"pair_id": n} for n in "dcba"], 8, lambda row: lessons[row["pair_id"]], 7)
    )
