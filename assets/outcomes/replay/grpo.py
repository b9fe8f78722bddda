"""What TRL's GRPOTrainer takes of a recording (TRL 1.x): an environment factory, a reward function.

A rollout with a call that was never recorded is worth None: TRL leaves it out of the update.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from assets.outcomes.replay.environment import ReplayEnvironment, score_calls
from assets.outcomes.replay.recording import Recording

Completion = Sequence[dict[str, Any]]


def make_prompt_rows(recording: Recording) -> list[dict[str, Any]]:
    """A row of a training dataset for each task: {prompt, task}."""
    return [
        {"prompt": [{"role": "user", "content": task.request}], "task": name}
        for name, task in sorted(recording.tasks.items())
    ]


def make_environment_factory(recording: Recording) -> Callable[[], Any]:
    """For `GRPOTrainer(environment_factory=…)`: every rollout has an environment of its own. Its
    methods without an underscore, but for `reset` and `get_reward`, are what the model can call."""

    class ReplayWorld:
        def __init__(self) -> None:
            self._environment = ReplayEnvironment(recording)

        def reset(self, **row: Any) -> str:
            self._environment.reset(str(row["task"]))
            tools = [json.dumps(tool, sort_keys=True) for tool in self._environment.list_tools()]
            return "\n\nTools that `call_tool` calls:\n" + "\n".join(tools)

        def call_tool(self, tool: str, arguments: str) -> str:
            """Calls one of the tools that are listed.

            Args:
                tool: The name of the tool.
                arguments: Its arguments, a JSON object as text.

            Returns:
                What the tool answers, or why it was not called.
            """
            try:
                given = json.loads(arguments) if isinstance(arguments, str) else arguments
            except (ValueError, RecursionError):
                given = None
            return self._environment.step(tool, given).text

        def get_reward(self) -> float | None:
            found = self._environment.score()
            return found.reward if found.known else None

    return ReplayWorld


def make_reward_function(recording: Recording) -> Callable[..., list[float | None]]:
    """For `GRPOTrainer(reward_funcs=…)`: of completions whose calls name the tools themselves.
    Takes the dataset's column `task`."""

    def reward(
        completions: Sequence[Completion], task: Sequence[str], **_: Any
    ) -> list[float | None]:
        both = zip(completions, task, strict=True)
        return [_score_completion(recording, name, completion) for completion, name in both]

    reward.__name__ = "replay"
    return reward


def _score_completion(recording: Recording, task: str, completion: Completion) -> float | None:
    calls = []
    for message in completion:
        for call in message.get("tool_calls") or ():
            function = call.get("function") or {}
            given = function.get("arguments")
            try:
                given = json.loads(given) if isinstance(given, str) else given
            except (ValueError, RecursionError):
                given = None
            calls.append({"name": function.get("name"), "arguments": given})
    found, _ = score_calls(recording, task, calls)
    return found.reward if found.known else None
