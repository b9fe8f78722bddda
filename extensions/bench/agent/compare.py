"""A small model's first call against the larger model alone: both arms, and what they differ by."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from extensions.bench.agent.agent import run_episode
from extensions.bench.agent.episode import BUDGET, Episode, Limits
from extensions.bench.agent.tasks import Fresh, Task
from training.evaluation.metrics import bootstrap_difference, bootstrap_mean
from training.evaluation.predictors.interface import Answered, Asked, Predictor
from warehouse.llm.chat import ChatClient

FIRST, ALONE = "small_first", "large_alone"
ARMS = (FIRST, ALONE)
RULES = {
    "task": "an accepted pair of one call whose golden call is answered without an error by its"
    " server in the sandbox, without a network, just started",
    "called": "at some step, of either model, the expected tool ran without an error with arguments"
    " that match the golden call (AST match)",
    "success": "called, and the larger model ended with an answer in words within the limits",
    "arms": "small_first: the small model makes the first call, its result is put into the"
    " conversation, the larger model goes on; large_alone: the larger model from the start; servers"
    " are started anew for every task and arm",
    "tokens": "prompt and completion of the larger model as its endpoint counts them; the small"
    " model's stand apart; dollars are both models', seconds include the start of servers",
}


def predict_first_calls(small: Predictor, tasks: Sequence[Task]) -> list[Answered]:
    """What the small model answers to every task."""
    asked = [Asked(task.task_id, task.instruction, [*map(dict, task.tools)]) for task in tasks]
    return small.predict(asked)


async def compare_agents(
    tasks: Sequence[Task],
    first: Sequence[Answered],
    larger: ChatClient,
    fresh: Fresh,
    limits: Limits,
    on_done: Callable[[int, int], None] | None = None,
) -> list[tuple[Episode, Episode]]:
    """(small first, large alone) of every task, in order; ends early where the budget is spent, for
    every later task would end so too."""
    out: list[tuple[Episode, Episode]] = []
    for task, answered in zip(tasks, first, strict=True):
        both = []
        for arm, given in ((FIRST, answered), (ALONE, None)):
            async with fresh() as caller:
                both.append(await run_episode(arm, task, larger, caller, given, limits))
        if any(one.ended == BUDGET for one in both):
            break
        out.append((both[0], both[1]))
        if on_done:
            on_done(len(out), len(tasks))
    return out


def summarise_agents(pairs: Sequence[tuple[Episode, Episode]]) -> dict[str, Any]:
    """JSON: per measure both arms with intervals and their paired difference (small first less
    large alone); how episodes ended; what the first call was worth; the rules in words."""
    groups = [first.task.group for first, _ in pairs]
    measures: dict[str, Callable[[Episode], float]] = {
        "success": lambda one: float(one.success),
        "called": lambda one: float(one.called),
        "tokens": lambda one: float(one.prompt_tokens + one.completion_tokens),
        "turns": lambda one: float(one.turns),
        # Of a thousand tasks: figures have four decimals, and a task costs less than those show.
        "usd_per_1000": lambda one: 1000 * (one.usd + float(one.small.usd if one.small else 0.0)),
        "seconds": lambda one: one.seconds + float((one.small and one.small.seconds) or 0.0),
    }
    return {
        "n": len(pairs),
        "servers": len({first.task.server_id for first, _ in pairs}),
        "tools": len(set(groups)),
        **{name: _measure_pairs(pairs, groups, value) for name, value in measures.items()},
        "ended": {
            arm: dict(Counter(pair[at].ended for pair in pairs)) for at, arm in enumerate(ARMS)
        },
        "first_call": _summarise_first_calls([first for first, _ in pairs]),
        "rules": RULES,
    }


def list_agent_rows(pairs: Sequence[tuple[Episode, Episode]]) -> list[dict[str, Any]]:
    """One JSON row per task and arm, with every step."""
    return [_make_episode_row(one) for both in pairs for one in both]


def _measure_pairs(
    pairs: Sequence[tuple[Episode, Episode]],
    groups: Sequence[str],
    value: Callable[[Episode], float],
) -> dict[str, Any]:
    ours, theirs = [value(first) for first, _ in pairs], [value(alone) for _, alone in pairs]
    return {
        FIRST: bootstrap_mean(ours, groups).as_dict(),
        ALONE: bootstrap_mean(theirs, groups).as_dict(),
        "difference": bootstrap_difference(ours, theirs, groups).as_dict(),
    }


def _summarise_first_calls(episodes: Sequence[Episode]) -> dict[str, Any]:
    """What the small model's own calls came to, and what they used."""
    groups = [episode.task.group for episode in episodes]
    right = [
        float(any(step.right and step.by == "small" for step in episode.steps))
        for episode in episodes
    ]
    answers = [episode.small for episode in episodes if episode.small]
    return {
        "right": bootstrap_mean(right, groups).as_dict(),
        "none": sum(not answer.calls for answer in answers),
        "failed": dict(Counter(answer.error for answer in answers if answer.error)),
        "prompt_tokens": sum(answer.prompt_tokens for answer in answers),
        "completion_tokens": sum(answer.completion_tokens for answer in answers),
        "usd": round(sum(answer.usd for answer in answers), 6),
    }


def _make_episode_row(one: Episode) -> dict[str, Any]:
    task = {name: getattr(one.task, name) for name in ("task_id", "server_id", "tool", "split")}
    copied = ("arm", "ended", "called", "success", "turns", "prompt_tokens", "completion_tokens")
    facts = {name: getattr(one, name) for name in (*copied, "usd", "seconds")}
    columns = ("by", "name", "status", "error_kind", "right")
    steps = [{name: getattr(step, name) for name in columns} for step in one.steps]
    return {**task, **facts, "steps": steps}
