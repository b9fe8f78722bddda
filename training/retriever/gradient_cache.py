"""Vectors and gradients of a batch in bounded memory, whatever model gives the vectors.

chunks           distinct texts of about one length together, so that little is padded
over the budget  chunks are first computed without a graph; when the loss has told the gradient
                 of every vector, each is computed again and gone back through alone (GradCache:
                 Gao et al. 2021, arXiv 2101.06983)
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from assets.vectors.encoders.embedder import Prompts
from assets.vectors.encoders.sentence_model import count_prompt_tokens
from training.retriever.settings import RetrieverSettings

_CHUNK = 2048  # padded tokens; beyond it a CPU gains nothing
_ALIKE = 0.8  # the shortest text of a chunk, of the longest


class CachedText(NamedTuple):
    """A text, how many of its tokens count, and the words that the model wants before it."""

    text: str
    tokens: int
    prompt: str = ""


class EncoderPasses(ABC):
    """A model under training, run on batches of texts."""

    def __init__(
        self,
        tokenizer: Any,
        settings: RetrieverSettings,
        device: str,
        prompts: Prompts | None = None,
    ) -> None:
        """`prompts`: with those of the base filled in."""
        self._tokenizer, self._settings, self._device = tokenizer, settings, device
        self.prompts = prompts or Prompts()
        self._ids: dict[CachedText, list[int]] = {}
        self._before: dict[str, int] = {}

    @abstractmethod
    def _read_tokens(self, item: CachedText) -> list[int]:
        """What the model reads of a text, cut, with its special tokens."""

    @abstractmethod
    def _encode_chunk(self, chunk: Sequence[CachedText]) -> Any:
        """Unit vectors [len(chunk), dim] of texts whose tokens were read, with their graph."""

    def list_queries(self, texts: Sequence[str]) -> list[CachedText]:
        """Requests as items."""
        return [
            CachedText(text, self._settings.query_tokens, self.prompts.query or "")
            for text in texts
        ]

    def list_documents(self, texts: Sequence[str]) -> list[CachedText]:
        """Tools' texts as items."""
        return [
            CachedText(text, self._settings.text_tokens, self.prompts.document or "")
            for text in texts
        ]

    def prepare_texts(self, items: Sequence[CachedText]) -> None:
        """Reads all texts of a training before its first step."""
        self._tokenise_texts(items)

    def encode_texts(self, items: Sequence[CachedText]) -> Any:
        """Unit vectors of texts, without a graph; [len(items), dim] on the CPU."""
        import torch

        self._tokenise_texts(items)
        states: dict[CachedText, Any] = {}
        with torch.no_grad():
            for chunk in self._split_chunks(items):
                states |= dict(zip(chunk, self._encode_chunk(chunk).cpu(), strict=True))
        return torch.stack([states[item] for item in items])

    def compute_likeness(self, items: Sequence[CachedText]) -> np.ndarray:
        """Vectors [len(items), dim or more] whose cosines are bounded as MiniLM's are."""
        return self.encode_texts(items).float().numpy()

    def add_gradients(
        self, items: Sequence[CachedText], loss_of: Callable[[Any], Any]
    ) -> tuple[Any, int]:
        """Adds the gradient of `loss_of(unit vectors of items)`; returns (loss, tokens).

        A loss that is not a number adds nothing.
        """
        import torch

        self._tokenise_texts(items)
        chunks = self._split_chunks(items)
        kept_graphs = self._choose_kept_graphs(chunks)
        made = []
        for chunk, graph in zip(chunks, kept_graphs, strict=True):
            with torch.set_grad_enabled(graph):
                made.append(self._encode_chunk(chunk))
        flat = torch.cat([part.detach() for part in made]).requires_grad_()
        place = {item: at for at, item in enumerate(item for chunk in chunks for item in chunk)}
        loss = loss_of(flat[[place[item] for item in items]])
        tokens = sum(len(self._ids[item]) for item in place)
        if not torch.isfinite(loss):
            return loss, tokens
        loss.backward()
        assert flat.grad is not None
        grads = flat.grad.split([len(chunk) for chunk in chunks])
        for at in sorted(
            range(len(chunks)), key=lambda at: not kept_graphs[at]
        ):  # free the held first
            part, made[at] = made[at], None
            if not kept_graphs[at]:
                part = self._encode_chunk(chunks[at])
            part.backward(grads[at])
        return loss.detach(), tokens

    def _choose_kept_graphs(self, chunks: Sequence[Sequence[CachedText]]) -> list[bool]:
        """Which chunks keep their graph: as many as the budget takes, and always the last."""
        out, left = [], self._settings.hold_tokens
        for chunk in reversed(chunks):
            tokens = sum(len(self._ids[item]) for item in chunk)
            out.append(tokens <= left or not out)
            left -= tokens if out[-1] else 0
        return out[::-1]

    def _split_chunks(self, items: Sequence[CachedText]) -> list[list[CachedText]]:
        """Distinct texts after one prompt, the longest first, those of about one length
        together."""
        order = sorted(set(items), key=lambda item: (item.prompt, -len(self._ids[item]), item))
        out: list[list[CachedText]] = []
        for item in order:
            longest = len(self._ids[out[-1][0]]) if out else 0
            full = (len(out[-1]) + 1) * longest > _CHUNK if out else True
            other = bool(out) and item.prompt != out[-1][0].prompt
            if full or other or len(self._ids[item]) < _ALIKE * longest:
                out.append([])
            out[-1].append(item)
        return out

    def _tokenise_texts(self, items: Sequence[CachedText]) -> None:
        for item in dict.fromkeys(items):
            if item not in self._ids:
                self._ids[item] = self._read_tokens(item)

    def _count_prompt(self, prompt: str) -> int:
        """Tokens of a prompt, which come on top of the text's own."""
        if prompt not in self._before:
            self._before[prompt] = count_prompt_tokens(self._tokenizer, prompt)
        return self._before[prompt]
