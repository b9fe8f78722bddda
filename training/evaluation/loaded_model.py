"""A causal model loaded to answer prompts: by torch, or on a CPU from a fast copy."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from training.caller.bases import find_card_base, load_adapter, load_base, load_caller
from training.caller.fast_generation import (
    FastCopyFailed,
    FastModel,
    build_fast_copy,
    find_fast_copy,
    has_fast_runtime,
    is_built,
)
from training.caller.generation import CallGrammar, CallGrammars, generate_completions
from training.caller.settings import PROFILES
from training.caller.shipped import WEIGHTS, find_caller_folder, read_caller_card
from training.caller.smollm2 import SMOLLM2, is_smollm2, name_smollm2_base, write_smollm2_base
from training.evaluation.predictor import CannotPredict
from training.prompts.templates import with_pad_token
from training.runtime.device import is_out_of_memory, pick_device
from training.runtime.model_store import CARD, TrainingFailed, read_card
from warehouse.storage.digest import digest
from warehouse.storage.files import hash_file

_CONFIG = "adapter_config.json"
_MOST_CONTEXT = 8192
_log = logging.getLogger(__name__)


class Generate(Protocol):
    """Greedy answers in the order of the prompts, each held to its grammar where there are some.
    `is_over` is asked before each step. Raises CannotPredict."""

    def __call__(
        self,
        prompts: Sequence[str],
        grammars: CallGrammars | None,
        constraints: Sequence[CallGrammar] | None,
        *,
        max_new: int,
        is_over: Callable[[], bool] | None = None,
    ) -> list[str]: ...


@dataclass(frozen=True)
class LoadedModel:
    """context: most tokens of a prompt. max_new: of an answer. is_small: over SmolLM2, which writes
    calls by a grammar only. shortlist: tools that it is shown at most, None: all that fit.
    vocabulary: numbers that it gives for a token."""

    tokenizer: Any
    vocabulary: int
    context: int
    max_new: int
    is_small: bool
    shortlist: int | None
    generation: Generate
    key: str = ""  # of a fast copy and its runtime, which write the same answer again

    def count_tokens(self, text: str) -> int:
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def generate(
        self,
        prompts: Sequence[str],
        grammars: CallGrammars | None,
        constraints: Sequence[CallGrammar] | None,
        *,
        max_new: int | None = None,
        is_over: Callable[[], bool] | None = None,
    ) -> list[str]:
        """As `Generate`; max_new None: the model's own limit."""
        limit = max_new or self.max_new
        return self.generation(prompts, grammars, constraints, max_new=limit, is_over=is_over)


def load_model(
    home: Path, model: str | Path, device: str, max_new: int | None, batch: int
) -> LoadedModel:
    """The model of a name under `<home>/models` or of a folder. batch: prompts that torch answers
    at once. max_new None: 96 over SmolLM2, else 512. Raises TrainingFailed, BadTemplate."""
    place = pick_device(device)
    copy = find_or_build_copy(home, model) if place == "cpu" and has_fast_runtime() else None
    if copy is not None:
        from transformers import AutoConfig, AutoTokenizer

        card = _read_card_of(home, model)
        base = find_card_base(home, card)
        tokenizer: Any = AutoTokenizer.from_pretrained(base)
        with_pad_token(tokenizer)
        fast, config = FastModel(copy, tokenizer), AutoConfig.from_pretrained(base)
        described = _describe(card, config, tokenizer, max_new, fast)
        runtimes = " ".join(map(version, ("onnxruntime-genai", "llguidance")))
        return replace(described, key=f"{copy.name} {runtimes}")
    loaded, tokenizer, card = _load_with_torch(home, model, place)
    with_pad_token(tokenizer)
    if model != SMOLLM2 and is_smollm2(
        str(card.get("base"))
    ):  # a third faster than beside its base
        loaded = loaded.merge_and_unload()
    torch = TorchGeneration(loaded.eval(), tokenizer, str(model)[:60], batch)
    return _describe(card, loaded.config, tokenizer, max_new, torch)


def find_or_build_copy(home: Path, model: str | Path) -> Path | None:
    """The fast copy of SmolLM2 or its adapter, built if absent; None if it cannot be."""
    card, files = _read_card_of(home, model), list[str]()
    if model != SMOLLM2:
        folder = model if isinstance(model, Path) else find_caller_folder(home, model)
        if not (is_smollm2(str(card.get("base"))) and (folder / WEIGHTS).is_file()):
            return None
        files = [hash_file(path) for path in (folder / WEIGHTS, folder / _CONFIG) if path.is_file()]
    copy = find_fast_copy(home, digest([card["base"], files]))
    if is_built(copy):
        return copy
    loaded, tokenizer, _ = _load_with_torch(home, model, "cpu")
    loaded = loaded.float()  # or the merged weights are rounded as the frozen ones were
    try:
        build_fast_copy(copy, loaded if model == SMOLLM2 else loaded.merge_and_unload(), tokenizer)
    except FastCopyFailed as error:
        _log.warning("%s answers by torch, which is slower: %s", str(model)[:60], error)
        return None
    return copy


def _describe(
    card: Mapping[str, Any], config: Any, tokenizer: Any, max_new: int | None, generation: Generate
) -> LoadedModel:
    settings = card.get("settings") or {}
    small = is_smollm2(str(card.get("base")))
    profile = asdict(PROFILES[SMOLLM2]) if small else {}
    room = int(getattr(config, "max_position_embeddings", 0) or _MOST_CONTEXT)
    new = max_new or (96 if small else 512)
    context = min(int(settings.get("context") or _MOST_CONTEXT), room)
    return LoadedModel(
        tokenizer=tokenizer,
        vocabulary=int(config.vocab_size),
        context=max(context - new, context // 2),
        max_new=new,
        is_small=small,
        shortlist=settings.get("shortlist") or profile.get("shortlist"),
        generation=generation,
    )


def _load_with_torch(
    home: Path, model: str | Path, device: str
) -> tuple[Any, Any, Mapping[str, Any]]:
    if model == SMOLLM2:
        return *load_base(str(write_smollm2_base(home)), device), _read_card_of(home, model)
    if isinstance(model, str):
        return load_caller(home, model, device)
    card = _read_card_of(home, model)
    if (model / _CONFIG).exists() or card.get("role") in ("caller", "sidecar"):
        base = find_card_base(home, card) if card.get("base") else None
        return *load_adapter(model, base, device, card or None), card
    if not (model / "config.json").exists():
        file_names = ", ".join(sorted(path.name for path in model.iterdir())[:5]) or "nothing"
        raise TrainingFailed(
            f"{model} holds no model (found {file_names}); expected adapter_config.json with"
            " adapter_model.safetensors, or config.json with a causal model and its tokenizer"
        )
    return *load_base(str(model), device), card


def _read_card_of(home: Path, model: str | Path) -> Mapping[str, Any]:
    """The card of a name or folder; {} where there is none. SmolLM2 untuned has the base alone."""
    if model == SMOLLM2:
        return {"base": name_smollm2_base()}
    if isinstance(model, str):
        return read_caller_card(home, model) or {}
    try:
        return read_card(model) or {}
    except ValueError as error:
        raise TrainingFailed(
            f"{model / CARD} is no JSON ({error}); copy the model's folder again"
        ) from None


class TorchGeneration:
    """By torch, in batches; where memory runs out, with half the batch from then on."""

    def __init__(self, model: Any, tokenizer: Any, label: str, batch: int) -> None:
        self._model, self._tokenizer, self._label = model, tokenizer, label
        self._batch = batch

    def __call__(
        self,
        prompts: Sequence[str],
        grammars: CallGrammars | None,
        constraints: Sequence[CallGrammar] | None,
        *,
        max_new: int,
        is_over: Callable[[], bool] | None = None,
    ) -> list[str]:
        def limit(places: Sequence[int], begun: int) -> Callable[[Any, Any], Any]:
            assert grammars
            assert constraints
            return grammars.make_processor([constraints[at] for at in places], begun)

        while True:
            try:
                return generate_completions(
                    self._model,
                    self._tokenizer,
                    prompts,
                    max_new=max_new,
                    batch=self._batch,
                    limit=limit if grammars else None,
                    is_over=is_over,
                )
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if self._batch == 1:
                    raise CannotPredict(
                        f"{self._label}: out of memory with one prompt of"
                        f" {max(map(len, prompts)):,} characters; use a device with more memory, or"
                        " fewer candidates"
                    ) from error
            self._batch = max(1, self._batch // 2)
