"""A BERT under training: what its frozen layers say of a text is computed once and kept.

The base's own dropout is off: its masks were a third of the time and of the memory, and what the
frozen layers say could not be kept. On 656 pairs Recall@1 was the same within its interval.
"""

from collections.abc import Sequence
from typing import Any

from assets.vectors.encoders.embedder import Prompts
from assets.vectors.encoders.minilm import MOST_TOKENS, find_base_folder, resolve_prompts
from assets.vectors.encoders.sentence_model import count_prompt_tokens
from training.retriever.gradient_cache import Item, Passes
from training.retriever.lora import add_adapter
from training.retriever.settings import RetrieverSettings
from training.runtime.device import make_autocast
from training.runtime.model_store import TrainingFailed


def open_bert(base: str, settings: RetrieverSettings, device: str) -> tuple[Any, "BertPasses"]:
    """A base with a new adapter, and how it encodes. Raises TrainingFailed, BadEmbedder."""
    from transformers import AutoModel, AutoTokenizer

    for name in ("query_tokens", "text_tokens"):
        if (asked := getattr(settings, name)) > MOST_TOKENS:
            raise TrainingFailed(
                f"retriever {name} is {asked}, and the encoder that serves this base reads"
                f" {MOST_TOKENS}; expected at most that, or a base after sentence-transformers:"
            )
    folder = str(find_base_folder(base))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    plain = AutoModel.from_pretrained(folder, add_pooling_layer=False)
    model = add_adapter(plain, settings).to(device)
    prompts = resolve_prompts(base, settings.prompts)
    prompts.require_room(lambda text: count_prompt_tokens(tokenizer, text), MOST_TOKENS)
    return model, BertPasses(model, tokenizer, settings, device, prompts)


class BertPasses(Passes):
    """A BERT with an adapter in its upper layers, pooled by the mean."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        settings: RetrieverSettings,
        device: str,
        prompts: Prompts | None = None,
    ) -> None:
        super().__init__(tokenizer, settings, device, prompts)
        self._core = model.base_model.model
        layers = self._core.encoder.layer
        self._lower = layers[: settings.first_layer]
        self._upper = layers[settings.first_layer :]
        self._kept: dict[Item, Any] = {}
        self._room = settings.cache_mb << 20

    def prepare_texts(self, items: Sequence[Item]) -> None:
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

    def _read_tokens(self, item: Item) -> list[int]:
        most = item.tokens
        if item.prompt:  # on top of the text's own, and cut where the served encoder cuts
            most = max(most, min(most + self._count_prompt(item.prompt), MOST_TOKENS))
        text = f"{item.prompt}{item.text}"
        return self._tokenizer(text, truncation=True, max_length=most)["input_ids"]

    def _encode_chunk(self, chunk: Sequence[Item]) -> Any:
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

    def _run_frozen_layers(self, chunk: Sequence[Item]) -> list[Any]:
        """What the frozen layers say of each text, without its padding."""
        import torch

        with torch.no_grad(), make_autocast(self._device):
            each = [
                self._core.embeddings(input_ids=torch.tensor([self._ids[i]], device=self._device))
                for i in chunk
            ]
            hidden, mask = self._pad_states([one[0] for one in each])
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
