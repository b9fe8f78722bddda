"""A caller that runs here, as the proxy asks it: the same prompt as in training and evaluation."""

from collections.abc import Callable
from pathlib import Path

from extensions.proxy.local_forms import CannotAnswer, LocalAnswer, LocalRequest
from training.evaluation.adapter_predictor import NOT_RENDERABLE, TOO_LONG, AdapterPredictor
from training.evaluation.predictor import CannotPredict, PredictionRequest, Predictor
from training.prompts.render import read_message_calls

_WHY = {
    TOO_LONG: "the conversation and the tools that it called do not fit the model's context; send"
    " less of it",
    NOT_RENDERABLE: "the model's chat template cannot hold this conversation: roles must alternate"
    " as it was trained",
}


class LocalCaller:
    """A trained caller, or the baseline. Tools that do not fit its context are left out, those that
    were called before last."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        # Clients are told the name of a folder, not where it lies.
        self.label = Path(predictor.label).name if "folder:" in predictor.label else predictor.label

    def answer(self, request: LocalRequest, is_over: Callable[[], bool]) -> LocalAnswer:
        """Called in a thread, one request at a time; returns early, with anything, once `is_over()`
        is true. Raises CannotAnswer."""
        question = make_question(request)
        try:
            if isinstance(self._predictor, AdapterPredictor):
                made = self._predictor.answer_one(
                    question, request.most_tokens, is_over, must_call=request.must_call
                )
            else:
                [made] = self._predictor.predict([question])
        except CannotPredict as error:
            raise CannotAnswer(str(error)) from None
        if made.error is not None:
            raise CannotAnswer(_WHY.get(made.error, made.error))
        if request.must_call and not (made.calls or made.cut or is_over()):
            raise CannotAnswer("the model wrote no call, which `tool_choice` asks for")
        spent = made.prompt_tokens, made.completion_tokens
        return LocalAnswer("" if made.calls else made.text, made.calls, *spent, made.cut)


def make_question(request: LocalRequest) -> PredictionRequest:
    """A request of the proxy as a predictor is asked. What was answered before is context."""
    messages = [
        {**message, "weight": 0} if message["role"] == "assistant" else dict(message)
        for message in request.messages
    ]
    texts = [message["content"] for message in messages if message["role"] == "user"]
    called = frozenset(call["name"] for message in messages for call in read_message_calls(message))
    names = {str(contract["name"]) for contract in request.contracts}
    alone = len(messages) == 1 and messages[0]["role"] == "user"
    return PredictionRequest(
        "proxy",
        texts[-1] if texts else "",
        [dict(contract) for contract in request.contracts],
        keep=called & names,
        before=() if alone else tuple(messages),
    )
