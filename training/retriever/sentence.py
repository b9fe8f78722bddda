"""Any sentence-transformers model under training: pooled, prompted and cut as its modules say."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from assets.vectors.encoders.embedder import Prompts
from assets.vectors.encoders.hub import SENTENCE, split_reference
from assets.vectors.encoders.sentence_model import (
    clean_text,
    open_sentence_model,
    require_prompt_room,
)
from assets.vectors.scale import REFERENCE, CosineScale
from training.retriever.gradient_cache import Item, Passes
from training.retriever.lora import add_adapter
from training.retriever.settings import RetrieverSettings
from training.runtime.device import make_autocast

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


class SentencePasses(Passes):
    """A SentenceTransformer whose transformer is trained."""

    def __init__(
        self, sentence: Any, settings: RetrieverSettings, device: str, prompts: Prompts
    ) -> None:
        super().__init__(sentence.tokenizer, settings, device, prompts)
        self._sentence = sentence
        self._about: dict[str, dict[str, Any]] = {}  # by prompt

    def compute_likeness(self, items: Sequence[Item]) -> np.ndarray:
        """On MiniLM's scale: other encoders have unrelated texts at cosines of .7 and more."""
        known = self.encode_texts(
            [item._replace(text=text) for text in REFERENCE for item in items[:1]]
        )
        return CosineScale(known.float().numpy(), "retriever").apply(
            super().compute_likeness(items)
        )

    def _read_tokens(self, item: Item) -> list[int]:
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

    def _encode_chunk(self, chunk: Sequence[Item]) -> Any:
        """Unit vectors of one chunk by all of the model's modules."""
        import torch

        rows = {"input_ids": [self._ids[item] for item in chunk]}
        padded = self._tokenizer.pad(rows, return_tensors="pt").to(self._device)
        features = {**padded, **self._about[chunk[0].prompt]}
        with make_autocast(self._device):
            made = self._sentence(features)["sentence_embedding"]
        return torch.nn.functional.normalize(made.float(), dim=-1)
