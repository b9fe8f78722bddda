"""A local model: a trained caller's name, `smollm2` untuned, or a folder of an adapter or model."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from assets.synthesis.verify.model_text import has_english_words
from assets.vectors.encoders.embedder import BadEmbedder, Embedder
from assets.vectors.encoders.weights import BadAdapter
from assets.vectors.lexical import BM25
from training.caller.generation import CallGrammars
from training.caller.shipped import GENERAL
from training.caller.smollm2 import SMOLLM2
from training.evaluation.baselines import complete_cut_call, ground_call
from training.evaluation.loaded_model import LoadedModel, load_model
from training.evaluation.predictor import (
    CannotPredict,
    OnDone,
    PredictionAnswer,
    PredictionRequest,
    PredictorKind,
    UnusableModel,
    make_failed_answer,
    parse_answer,
)
from training.prompts.render import (
    NO_CALL,
    PromptParts,
    RenderedPrompt,
    fit_prompt,
    read_message_calls,
)
from training.prompts.templates import BadTemplate, render_prompt_text
from training.runtime.model_store import CARD, TrainingFailed, read_card
from warehouse.json_types import Contract
from warehouse.ledger.attempts import LOCAL_ANSWER, EffectOutcome
from warehouse.ledger.ledger import Ledger
from warehouse.storage.digest import digest

_KEPT = 20_000  # texts whose vectors are remembered
# Of requests of training servers (n = 360), 95% of the right tools that come first are nearer. Of
# others (n = 360 each), 96% are, and 66% of the first tools where none is right are not.
_LEAST_COSINE = 0.171


class ToolRanking:
    """By the cosine of the shipped retriever, or by BM25 where its weights are not installed."""

    def __init__(self) -> None:
        self._known: dict[str, np.ndarray] = {}

    @cached_property
    def _encoder(self) -> Embedder | None:
        from assets.vectors.encoders.minilm import open_general

        try:
            return open_general()
        except (BadAdapter, BadEmbedder):
            return None

    def rank(self, request: str, tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Places of the tools, the nearest first; of equally near ones the first offered."""
        return np.argsort(-np.round(self._score(request, tools), 5), kind="stable").tolist()

    def fits_none(self, request: str, tools: Sequence[Mapping[str, Any]]) -> bool:
        """Whether there is no tool, or an English request is far from all. The retriever reads no
        other language well: of requests in 60 languages it would refuse more than half."""
        if not tools or self._encoder is None or not has_english_words(request):
            return not tools
        return bool(self._score(request, tools).max() < _LEAST_COSINE)

    def _score(self, request: str, tools: Sequence[Mapping[str, Any]]) -> np.ndarray:
        texts = [tool_text(tool) for tool in tools]
        if self._encoder is None:
            return BM25.build(texts).score(request)
        return self._embed(texts) @ self._embed([request])[0]

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        assert self._encoder is not None
        if len(self._known) > _KEPT:
            self._known.clear()
        fresh = [text for text in dict.fromkeys(texts) if text not in self._known]
        if fresh:
            vectors = np.asarray(self._encoder.embed(fresh))
            self._known |= dict(zip(fresh, vectors, strict=True))
        return np.stack([self._known[text] for text in texts])


TOO_LONG = "too_long"  # not even the right tools fit the model's context
NOT_RENDERABLE = "not_renderable"  # a conversation that the model's chat template cannot hold
CONSTRAINED = "constrained:"  # before a model's name: no call can be written that does not fit
_OTHERS = {"caller": "baseline or ", "sidecar": "champion or "}
_PART = 128  # prompts between two words of progress
_UNASKED = PredictionAnswer([], "no_call")


class AdapterPredictor:
    """`model`: a name under `<home>/models`, or a folder, loaded at the first question. `max_new`:
    tokens of an answer, None: 96 over SmolLM2, else 512. `constrained` (always over SmolLM2): only
    fitting calls (`training.caller.generation`). With a `shortlist` it sees so many of the tools,
    nearest by the shipped retriever, and makes no first call far from all. On a CPU SmolLM2 answers
    from an eight-bit copy. `ledger`: keeps such answers, so that none is generated twice."""

    kind: PredictorKind = "adapter"

    def __init__(
        self,
        home: Path,
        model: str | Path,
        *,
        device: str = "auto",
        batch: int = 64,
        max_new: int | None = None,
        constrained: bool = False,
        ledger: Ledger | None = None,
    ) -> None:
        self._home, self._model, self._constrained = home, model, constrained
        label = str(model) if isinstance(model, str) else f"folder:{model}"
        self.label = CONSTRAINED + label if constrained else label
        self._grammars: CallGrammars | None = None
        self._ranking = ToolRanking()
        self._grammars_on_demand: CallGrammars | None = None
        self._device, self._batch, self._max_new, self._ledger = device, batch, max_new, ledger
        self._loaded: LoadedModel | None = None
        self.quarantined: dict[str, str] = {}  # tool -> why less than its schema held it

    def load(self) -> None:
        """Loads it now. Raises CannotPredict naming what does not fit, and the fix."""
        self._open()

    def _open(self) -> LoadedModel:
        if self._loaded is not None:
            return self._loaded
        try:
            loaded = load_model(self._home, self._model, self._device, self._max_new, self._batch)
            if self._constrained or loaded.is_small:
                self._grammars = CallGrammars(loaded.tokenizer, loaded.vocabulary)
        except (TrainingFailed, BadTemplate) as error:
            is_folder = isinstance(self._model, Path)  # not one of ours that came to harm
            kind = UnusableModel if is_folder else CannotPredict
            raise kind(" ".join(str(error).split())) from error
        self._loaded = loaded
        return loaded

    def predict(
        self, requests: Sequence[PredictionRequest], on_done: OnDone | None = None
    ) -> list[PredictionAnswer]:
        loaded = self._open()
        requests = [self._shorten(item, loaded) for item in requests]
        prompts = [self._prepare_prompt(loaded, item) for item in requests]
        out = [prompt if isinstance(prompt, PredictionAnswer) else _UNASKED for prompt in prompts]
        # One prompt of one grammar has one answer, however many requests it is of.
        alike: dict[str, list[int]] = {}
        fit: dict[str, tuple[RenderedPrompt, list[Contract]]] = {}
        for at, prompt in enumerate(prompts):
            if isinstance(prompt, RenderedPrompt):
                candidates = _list_shown(requests[at], prompt)
                key = digest([prompt.prompt, candidates])
                fit.setdefault(key, (prompt, candidates))
                alike.setdefault(key, []).append(at)
        # Alike long together: a batch is as long as its longest.
        order = sorted(fit, key=lambda key: (fit[key][0].tokens, key))
        for start in range(0, len(order), _PART):
            part = order[start : start + _PART]
            both = [fit[key] for key in part]
            answers = self._predict_part(
                [prompt for prompt, _ in both], [candidates for _, candidates in both]
            )
            for key, answer in zip(part, answers, strict=True):
                for at in alike[key]:
                    out[at] = self._complete(loaded, requests[at], answer)
            if on_done:
                on_done(min(start + _PART, len(order)), len(order))
        return out

    def answer_one(
        self,
        request: PredictionRequest,
        most_tokens: int | None,
        is_over: Callable[[], bool],
        *,
        must_call: bool = False,
    ) -> PredictionAnswer:
        """One answer of so many tokens (None: as loaded), ended once `is_over()`. must_call: held
        by grammar to one call of a tool shown. Raises CannotPredict."""
        loaded = self._open()
        request = self._shorten(request, loaded)
        prompt = self._prepare_prompt(loaded, request, must_call=must_call)
        if isinstance(prompt, PredictionAnswer):
            return prompt
        most = min(most_tokens or loaded.max_new, loaded.max_new)
        candidates = _list_shown(request, prompt)
        [answer] = self._predict_part(
            [prompt], [candidates], must_call=must_call, max_new=most, is_over=is_over
        )
        if most == loaded.max_new and not is_over():
            answer = self._complete(loaded, request, answer)
        cut = answer.completion_tokens >= most and not answer.calls
        return replace(answer, shown=len(candidates), cut=cut)

    def converse(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> PredictionAnswer:
        """One answer, failed if too long; tools: OpenAI functions. Raises CannotPredict."""
        try:
            prompt = render_prompt_text(self.tokenizer, [*map(dict, messages)], tools)
        except BadTemplate as error:
            raise CannotPredict(" ".join(str(error).split())) from error
        tokens = len(self.tokenizer(prompt, add_special_tokens=False)["input_ids"])
        if tokens > self.context:
            return make_failed_answer(TOO_LONG, prompt_tokens=tokens)
        contracts = [_read_contract(tool) for tool in tools]
        return self.answer_prompts([(prompt, tokens)], [contracts])[0]

    @property
    def tokenizer(self) -> Any:
        return self._open().tokenizer

    @property
    def context(self) -> int:
        return self._open().context

    def answer_prompts(
        self, prompts: Sequence[tuple[str, int]], candidates: Sequence[Sequence[Contract]]
    ) -> list[PredictionAnswer]:
        """Answers to whole prompts (text, tokens) that fit; shown: the tools of each."""
        rendered = [RenderedPrompt(prompt, "", (), (), tokens) for prompt, tokens in prompts]
        return self._predict_part(rendered, candidates) if rendered else []

    def _shorten(self, request: PredictionRequest, loaded: LoadedModel) -> PredictionRequest:
        """The request with the tools of its shortlist, and those that were called before."""
        most = loaded.shortlist
        if most is None or len(request.tools) <= most:
            return request
        called = {
            call["name"] for message in request.before for call in read_message_calls(message)
        }
        near = self._ranking.rank(request.request_text, request.tools)[:most]
        tools = [
            tool for at, tool in enumerate(request.tools) if at in near or tool["name"] in called
        ]
        return replace(request, tools=tools)

    def _prepare_prompt(
        self, loaded: LoadedModel, request: PredictionRequest, *, must_call: bool = False
    ) -> RenderedPrompt | PredictionAnswer:
        """The prompt, or the answer where there is none. A model with a shortlist calls one of the
        tools that it is shown whatever is asked: the ranking says when none of them fits."""
        answered = any(message["role"] == "assistant" for message in request.before)
        chooses = loaded.shortlist is not None and not answered and not must_call
        if chooses and self._ranking.fits_none(request.request_text, request.tools):
            return parse_answer(NO_CALL, shown=len(request.tools))
        prompt_parts = PromptParts(request.instruction, None, request.keep, request.before)
        try:
            prompt = fit_prompt(loaded.tokenizer, prompt_parts, request.tools, loaded.context)
        except BadTemplate as error:
            if request.before:
                return make_failed_answer(NOT_RENDERABLE, shown=0)
            raise CannotPredict(" ".join(str(error).split())) from error
        return prompt or make_failed_answer(TOO_LONG, shown=0)

    def _complete(
        self, loaded: LoadedModel, request: PredictionRequest, answer: PredictionAnswer
    ) -> PredictionAnswer:
        """A small model's endless call (3%) is cut to what was whole; what the request does not say
        is taken out, unless a conversation says it in other turns."""
        if not loaded.is_small:
            return answer
        calls, text = answer.calls, request.request_text
        if not calls and answer.completion_tokens >= loaded.max_new:
            cut = complete_cut_call(answer.text, request.tools, text)
            calls = [cut] if cut else []
        if not calls:
            return answer
        if not request.before:
            calls = [ground_call(call, request.tools, text) for call in calls]
        return replace(answer, calls=calls, kind="call")

    def _predict_part(
        self,
        prompts: Sequence[RenderedPrompt],
        candidates: Sequence[Sequence[Contract]],
        *,
        must_call: bool = False,
        **options: Any,
    ) -> list[PredictionAnswer]:
        loaded = self._open()
        began = time.perf_counter()
        grammars = self._open_grammars(loaded) if must_call else self._grammars
        limits = grammars and [
            grammars.write_grammar(each, must_call=must_call) for each in candidates
        ]
        for grammar in limits or ():
            self.quarantined |= grammar.quarantined
        keys = [digest([loaded.key, loaded.max_new, each.prompt]) for each in prompts]
        if limits:
            keys = [digest([key, each.text]) for key, each in zip(keys, limits, strict=True)]
        ledger = self._ledger if loaded.key and not options else None
        known = {key: data.decode() for key in keys if ledger and (data := ledger.seen(key))}
        due = [at for at, key in enumerate(keys) if key not in known]
        texts = loaded.generate(
            [prompts[at].prompt for at in due],
            grammars,
            limits and [limits[at] for at in due],
            **options,
        )
        took = (time.perf_counter() - began) / max(len(due), 1)
        fresh = {keys[at]: text for at, text in zip(due, texts, strict=True)}
        if ledger:
            for key, text in fresh.items():
                outcome = EffectOutcome(text.encode(), str(self._model), repeatable=True)
                ledger.once(LOCAL_ANSWER, key, lambda outcome=outcome: outcome)
        return [
            parse_answer(
                text := known[key] if key in known else fresh[key],
                prompt_tokens=prompt.tokens,
                completion_tokens=loaded.count_tokens(text),
                seconds=None if key in known else took,
                shown=len(prompt.shown),
            )
            for prompt, key in zip(prompts, keys, strict=True)
        ]

    def _open_grammars(self, loaded: LoadedModel) -> CallGrammars:
        """Of a model that is not `constrained` too: made once, where a call is asked for."""
        if self._grammars_on_demand is None:
            try:
                self._grammars_on_demand = self._grammars or CallGrammars(
                    loaded.tokenizer, loaded.vocabulary
                )
            except BadTemplate as error:
                raise CannotPredict(" ".join(str(error).split())) from error
        return self._grammars_on_demand


def resolve_model(home: Path, text: str, role: str = "caller") -> str | Path:
    """The model of a role that a user names: a folder, a name under `<home>/models`, or its unique
    beginning. Raises UnusableModel naming what is there."""
    if text in (GENERAL, SMOLLM2) and role == "caller":
        return text
    if Path(text).is_dir():
        return Path(text)
    models = sorted(
        path.parent.name
        for path in (home / "models").glob(f"*/{CARD}")
        if _is_of_role(path, role, required=bool(text) and path.parent.name.startswith(text))
    )
    matching = [name for name in models if text and name.startswith(text)]
    if len(matching) == 1:
        return matching[0]
    count = f"{len(matching)} of {len(models)} {role}s in {home / 'models'} begin so"
    names = (
        ", ".join([GENERAL, SMOLLM2] * (role == "caller") + [n[:12] for n in models[:5]]) or "none"
    )
    raise UnusableModel(
        f"model {text[:80]!r}: no such folder, and {count}; expected a folder, a {role}'s name"
        f" (known: {names}), {_OTHERS.get(role, '')}endpoint:ROLE_or_MODEL"
    )


def _is_of_role(path: Path, role: str, *, required: bool) -> bool:
    """Whether a card is of this role; unreadable ones are not, or raise if `required`."""
    try:
        card = read_card(path.parent)
    except ValueError as error:
        flaw = str(error)
    else:
        if isinstance(card, dict):
            return bool(card.get("role") == role)
        flaw = f"{type(card).__name__}, expected an object"
    if required:
        raise UnusableModel(f"{path} is no card ({flaw}); copy the model's folder again")
    return False


def _list_shown(request: PredictionRequest, prompt: RenderedPrompt) -> list[Contract]:
    return [tool for tool in request.tools if tool["name"] in prompt.shown]


def _read_contract(tool: Mapping[str, Any]) -> Contract:
    function = tool["function"]
    return {"name": function["name"], "inputSchema": function.get("parameters")}
