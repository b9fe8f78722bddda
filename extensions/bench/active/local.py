"""A local model in a conversation, as an endpoint's would be."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from training.evaluation.predictors.adapter import AdapterPredictor
from training.evaluation.predictors.interface import CannotPredict
from warehouse.llm.chat import ChatTurn
from warehouse.llm.roles import LLMError


class LocalSpeaker:
    """One loaded model; greedy. Raises LLMError: `too_long` for what its context does not hold,
    `bad_template` for what its chat template fails on."""

    def __init__(self, predictor: AdapterPredictor) -> None:
        self._predictor = predictor

    async def say(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> ChatTurn:
        """The next turn; calls as the model's text holds them."""
        label = self._predictor.label
        try:
            answer = self._predictor.converse(
                [_read_arguments(message) for message in messages], tools
            )
        except CannotPredict as error:  # a template is a program: it may fail on one conversation
            raise LLMError("bad_template", str(error), "a prompt", "use another model") from error
        if answer.error is not None:
            raise LLMError(
                answer.error,
                f"{answer.prompt_tokens:,} tokens for {label}",
                "what its context holds",
                "offer fewer tools, or use a model with a longer context",
            )
        calls = tuple((str(call["name"]), call["arguments"]) for call in answer.calls)
        return ChatTurn(
            answer.text, calls, "stop", label, answer.prompt_tokens, answer.completion_tokens
        )


def _read_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose calls have their arguments as objects: endpoints take JSON texts, chat
    templates take objects."""
    calls = []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = json.loads(function["arguments"])
        calls.append({**call, "function": {**function, "arguments": arguments}})
    return {**message, **({"tool_calls": calls} if calls else {})}
