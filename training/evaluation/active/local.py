"""A local model in a conversation, as an endpoint's would be."""

from collections.abc import Mapping, Sequence
from typing import Any

from training.evaluation.predictors.adapter import AdapterPredictor
from warehouse.llm.chat import Turn
from warehouse.llm.roles import LLMError


class LocalSpeaker:
    """One loaded model; greedy. Raises LLMError `too_long` for what its context does not hold."""

    def __init__(self, predictor: AdapterPredictor) -> None:
        self._predictor = predictor

    async def say(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> Turn:
        """The next turn; calls as the model's text holds them."""
        said = self._predictor.converse(messages, tools)
        label = self._predictor.label
        if said.error is not None:
            raise LLMError(
                said.error,
                f"{said.prompt_tokens:,} tokens for {label}",
                "what its context holds",
                "offer fewer tools, or use a model with a longer context",
            )
        calls = tuple((str(one["name"]), one["arguments"]) for one in said.calls)
        return Turn(said.text, calls, "stop", label, said.prompt_tokens, said.completion_tokens)
