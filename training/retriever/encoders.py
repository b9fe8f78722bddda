"""LoRA of a retriever's base: which layers it adapts, and the weights that it starts from."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from assets.vectors.encoders.embedder import Prompts
from assets.vectors.encoders.hub import SENTENCE, split_reference
from assets.vectors.encoders.minilm import (
    GENERAL_WEIGHTS,
    MOST_TOKENS,
    find_general_folder,
    make_general_name,
)
from assets.vectors.encoders.sentence_model import (
    clean_text,
    open_sentence_model,
    require_prompt_room,
)
from assets.vectors.encoders.weights import BASE, find_base_path
from assets.vectors.scale import REFERENCE, CosineScale
from training.retriever.gradient_cache import CachedText, EncoderPasses
from training.retriever.settings import NONE, RetrieverSettings, find_other_shape
from training.runtime.device import make_autocast
from training.runtime.model_store import TrainingFailed


def add_adapter(model: Any, settings: RetrieverSettings) -> Any:
    """A transformer with a new adapter of its linear layers, all other weights frozen. Raises
    TrainingFailed."""
    from peft import LoraConfig, get_peft_model

    return get_peft_model(
        model,
        LoraConfig(
            r=settings.rank,
            lora_alpha=settings.alpha,
            target_modules=list_linear_layers(model, settings.first_layer),
        ),
    )


def list_linear_layers(model: Any, first_layer: int) -> list[str]:
    """Names of the linear modules in the layers of a transformer from `first_layer` on: attention
    and feed-forward, by whatever names its architecture has for them.

    Where no list of as many layers as its configuration counts is found, all but the pooler.
    Raises TrainingFailed for more frozen layers than there are, and where nothing is left.
    """
    import torch

    layers = getattr(model.config, "num_hidden_layers", None)
    if layers is not None and first_layer >= layers:
        raise TrainingFailed(
            f"retriever first_layer is {first_layer}, the base has {layers} layers;"
            f" expected 0 to {layers - 1}"
        )
    linear = [name for name, each in model.named_modules() if isinstance(each, torch.nn.Linear)]
    stacks = [
        re.escape(name)
        for name, each in model.named_modules()
        if isinstance(each, torch.nn.ModuleList) and len(each) == layers
    ]
    if stacks:
        inside = re.compile(rf"(?:{'|'.join(stacks)})\.(\d+)\.")
        matches = [(name, inside.match(name)) for name in linear]
        results = [name for name, at in matches if at and int(at[1]) >= first_layer]
    else:
        results = [name for name in linear if not name.startswith("pooler.")]
    if not results:
        raise TrainingFailed(
            f"retriever: a {type(model).__name__} has no linear layers that LoRA could adapt;"
            " choose another base"
        )
    return results


def load_start(model: Any, base: str, settings: RetrieverSettings) -> None:
    """Puts the shipped adapter's weights into one of the same shape; nothing where `start` is none.
    Raises TrainingFailed."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    start = settings.start
    if start == NONE:
        return
    shipped = make_general_name()
    if base != BASE or start != shipped:
        raise TrainingFailed(
            f"retriever: start is {start} over {base}; expected {shipped} over {BASE}, the"
            f" adapter of this package, or {NONE}"
        )
    if other := find_other_shape(settings):
        raise TrainingFailed(f"retriever {other}")
    set_peft_model_state_dict(model, load_file(str(find_general_folder() / GENERAL_WEIGHTS)))


def open_minilm(settings: RetrieverSettings, device: str) -> tuple[Any, "BertPasses"]:
    """MiniLM with a new adapter, and how it encodes. Raises TrainingFailed, BadEmbedder."""
    from transformers import AutoModel, AutoTokenizer

    for name in ("query_tokens", "text_tokens"):
        if (limit := getattr(settings, name)) > MOST_TOKENS:
            raise TrainingFailed(
                f"retriever {name} is {limit}, and the encoder that serves MiniLM reads"
                f" {MOST_TOKENS}; expected at most that, or an embedder after {SENTENCE}"
            )
    folder = str(find_base_path())
    plain = AutoModel.from_pretrained(folder, add_pooling_layer=False)
    model = add_adapter(plain, settings).to(device)
    return model, BertPasses(model, AutoTokenizer.from_pretrained(folder), settings, device)


class BertPasses(EncoderPasses):
    """A BERT with an adapter in its upper layers, pooled by the mean."""

    def __init__(
        self, model: Any, tokenizer: Any, settings: RetrieverSettings, device: str
    ) -> None:
        super().__init__(tokenizer, settings, device)
        self._core = model.base_model.model
        layers = self._core.encoder.layer
        self._lower = layers[: settings.first_layer]
        self._upper = layers[settings.first_layer :]
        self._kept: dict[CachedText, Any] = {}
        self._room = settings.cache_mb << 20

    def prepare_texts(self, items: Sequence[CachedText]) -> None:
        """Reads all texts, and keeps what the frozen layers say of them while there is room.

        In one order whatever step a training goes on from: the same chunks round the same way.
        """
        super().prepare_texts(items)
        for chunk in self._split_chunks(items):
            states = self._run_frozen_layers(chunk)
            size = sum(state.numel() * state.element_size() for state in states)
            if size > self._room:
                break
            self._room -= size
            self._kept |= {item: state.clone() for item, state in zip(chunk, states, strict=True)}

    def _read_tokens(self, item: CachedText) -> list[int]:
        return self._tokenizer(item.text, truncation=True, max_length=item.tokens)["input_ids"]

    def _encode_chunk(self, chunk: Sequence[CachedText]) -> Any:
        """Unit vectors of one chunk by masked mean pooling."""
        import torch

        due = [item for item in chunk if item not in self._kept]
        fresh = dict(zip(due, self._run_frozen_layers(due), strict=True)) if due else {}
        hidden, mask = self._pad_states([self._kept.get(item, fresh.get(item)) for item in chunk])
        with make_autocast(self._device):
            for layer in self._upper:
                hidden = layer(hidden, mask)
        hidden = hidden.float()
        if mask is not None:
            hidden = hidden * mask[:, 0, 0, :, None]  # the divisor is taken out by the norm
        return torch.nn.functional.normalize(hidden.sum(1), dim=-1)

    def _run_frozen_layers(self, chunk: Sequence[CachedText]) -> list[Any]:
        """What the frozen layers say of each text, without its padding."""
        import torch

        with torch.no_grad(), make_autocast(self._device):
            each = [
                self._core.embeddings(input_ids=torch.tensor([self._ids[i]], device=self._device))
                for i in chunk
            ]
            hidden, mask = self._pad_states([item[0] for item in each])
            for layer in self._lower:
                hidden = layer(hidden, mask)
        return [one[: len(self._ids[item])] for one, item in zip(hidden, chunk, strict=True)]

    def _pad_states(self, states: Sequence[Any]) -> tuple[Any, Any]:
        """(states [texts, tokens, dim], the mask that attention reads; None: nothing is padded)."""
        import torch

        lengths = [len(state) for state in states]
        hidden = torch.nn.utils.rnn.pad_sequence(list(states), batch_first=True)
        if min(lengths) == max(lengths):
            return hidden, None
        counts = torch.tensor(lengths, device=hidden.device)
        mask = torch.arange(max(lengths), device=hidden.device)[None] < counts[:, None]
        return hidden, mask[:, None, None, :]


_KEPT = ("modality", "prompt_length")  # of what the model says of a text beside its tokens


def open_sentence(
    base: str, settings: RetrieverSettings, device: str
) -> tuple[Any, "SentencePasses"]:
    """A base whose transformer has a new adapter, and how it encodes; the modules after the
    transformer stay as they are. Raises TrainingFailed, BadEmbedder."""
    where, _ = split_reference(base.removeprefix(SENTENCE))
    opened = open_sentence_model(where, exact=True)
    sentence = opened.model.to(device).eval()
    for weight in sentence.parameters():
        weight.requires_grad = False
    model = add_adapter(sentence[0].auto_model, settings)  # in place: `sentence` runs it
    model.to(device)
    prompts = settings.prompts.fill(opened.prompts)
    require_prompt_room(sentence, prompts)
    return model, SentencePasses(sentence, settings, device, prompts)


class SentencePasses(EncoderPasses):
    """A SentenceTransformer whose transformer is trained."""

    def __init__(
        self, sentence: Any, settings: RetrieverSettings, device: str, prompts: Prompts
    ) -> None:
        super().__init__(sentence.tokenizer, settings, device, prompts)
        self._sentence = sentence
        self._about: dict[str, dict[str, Any]] = {}  # by prompt

    def compute_likeness(self, items: Sequence[CachedText]) -> np.ndarray:
        """On MiniLM's scale: other encoders have unrelated texts at cosines of .7 and more."""
        encoded = self.encode_texts(
            [item._replace(text=text) for text in REFERENCE for item in items[:1]]
        )
        return CosineScale(encoded.float().numpy(), "retriever").apply(
            super().compute_likeness(items)
        )

    def _read_tokens(self, item: CachedText) -> list[int]:
        read = self._preprocess(
            item.text, item.prompt, item.tokens + self._count_prompt(item.prompt)
        )
        self._about.setdefault(item.prompt, {name: read[name] for name in _KEPT if name in read})
        return read["input_ids"][0].tolist()

    def _preprocess(self, text: str, prompt: str, tokens: int) -> Any:
        most = min(tokens, self._sentence.max_seq_length or tokens)
        return self._sentence.preprocess(
            [clean_text(text)],
            prompt=prompt or None,
            processing_kwargs={"text": {"max_length": most}},
        )

    def _encode_chunk(self, chunk: Sequence[CachedText]) -> Any:
        """Unit vectors of one chunk by all of the model's modules."""
        import torch

        rows = {"input_ids": [self._ids[item] for item in chunk]}
        padded = self._tokenizer.pad(rows, return_tensors="pt").to(self._device)
        features = {**padded, **self._about[chunk[0].prompt]}
        with make_autocast(self._device):
            embeddings = self._sentence(features)["sentence_embedding"]
        return torch.nn.functional.normalize(embeddings.float(), dim=-1)
