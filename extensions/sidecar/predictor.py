"""Models that revise a draft for the ladder: a trained sidecar, or any model behind an endpoint."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from extensions.sidecar.prompt import FittedRequest, fit_request, rank_candidates, read_revision
from serving.repair.tools import ProposedCall, RevisionRequest, make_revision_messages
from training.evaluation.adapter_predictor import AdapterPredictor, resolve_model
from training.evaluation.endpoint_predictor import EndpointPredictor
from training.evaluation.predictor import PredictionAnswer

if TYPE_CHECKING:
    from orchestration.settings.model import Settings


class LocalReviser:
    """A sidecar under `<home>/models`, or a folder with an adapter or model, loaded at the first
    request and asked with its training's prompt, as far as its context holds. Raises CannotPredict.
    `constrained`: only calls that fit the candidates."""

    def __init__(
        self,
        home: Path,
        model: str | Path,
        *,
        device: str = "auto",
        batch: int = 64,
        constrained: bool = False,
    ) -> None:
        options: dict[str, Any] = {"device": device, "batch": batch, "constrained": constrained}
        self._predictor = AdapterPredictor(home, model, **options)
        self.label = self._predictor.label

    def load(self) -> None:
        self._predictor.load()

    def __call__(self, request: RevisionRequest) -> ProposedCall | None:
        return self.revise_requests([request])[0]

    def revise_requests(self, requests: Sequence[RevisionRequest]) -> list[ProposedCall | None]:
        tokenizer, context = self._predictor.tokenizer, self._predictor.context
        fitted = [fit_request(tokenizer, rank_candidates(request), context) for request in requests]
        fits = [item for item in fitted if item is not None]
        shown = [_list_contracts(fit.request) for fit in fits]
        answers = iter(
            self._predictor.answer_prompts([(fit.prompt, fit.tokens) for fit in fits], shown)
        )
        return [None if item is None else _read_answer(next(answers), item) for item in fitted]


class EndpointReviser:
    """Any model behind an OpenAI-compatible endpoint, asked with the same words. Each answer is in
    the ledger under its whole question. Raises CannotPredict for a role without a model."""

    def __init__(self, predictor: EndpointPredictor) -> None:
        self._predictor = predictor
        self.label = predictor.label

    def __call__(self, request: RevisionRequest) -> ProposedCall | None:
        messages = [dict(message) for message in make_revision_messages(request)]
        answer = self._predictor.answer_messages(messages, _list_contracts(request))
        return _read_answer(answer, FittedRequest(request, "", 0))

    def revise_requests(self, requests: Sequence[RevisionRequest]) -> list[ProposedCall | None]:
        return [self(request) for request in requests]


def _read_answer(answer: PredictionAnswer, asked: FittedRequest) -> ProposedCall | None:
    """The revision in an answer; its tool calls stand for it where it made some."""
    if answer.error is not None:
        return None
    text = json.dumps(answer.calls, ensure_ascii=False) if answer.calls else answer.text
    return read_revision(text, _list_contracts(asked.request))


def _list_contracts(request: RevisionRequest) -> list[Mapping[str, Any]]:
    return [candidate.contract for candidate in request.candidates]


def open_reviser(settings: "Settings", name: str) -> LocalReviser | EndpointReviser:
    """`champion`, a trained sidecar by its name or folder, or `endpoint:` with a role or any
    model's name. Ends the command where there is no such model."""
    from orchestration.cli.evaluation import CHAMPION, ENDPOINT, choose_role
    from orchestration.cli.terminal import fail
    from orchestration.factories import open_warehouse
    from training.releases.in_service import find_model_in_service
    from training.role import get_untrained_model

    home = settings.home_path()
    if name.startswith(ENDPOINT):
        role = choose_role(settings, name.removeprefix(ENDPOINT))
        ledger = open_warehouse(settings).ledger
        return EndpointReviser(EndpointPredictor(role, ledger, stage="revise:sidecar"))
    if name == CHAMPION:
        name = find_model_in_service(home, "sidecar").model
        if name == get_untrained_model("sidecar"):
            fail(
                "--revise champion: no sidecar is better than the ladder alone yet, which is what"
                " serves; leave --revise out, name a trained sidecar, or endpoint:MODEL",
                1,
            )
    model = resolve_model(home, name, "sidecar")
    reviser = LocalReviser(home, model, device=settings.training.device)
    reviser.load()
    return reviser
