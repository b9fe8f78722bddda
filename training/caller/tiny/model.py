"""The tiny base's weights before anything is learned.

Two heads start as what thousands of steps would have to find, copying: one looks at the token
before, the next layer's at what followed the same token earlier. Everything else is random, and all
is trained from there. On two cores 120 seconds took the loss of an argument's tokens to 0.6 from
these weights, and 150 seconds to 2.0 from random ones, which wrote names well and no value right.

The residual stream starts in parts: WORD (what a token is), BEFORE (the token before), a constant.
"""

from dataclasses import dataclass
from typing import Any

from training.caller.tiny.text import LEADS, SCAFFOLD, SPECIAL

_BEFORE = 32  # dimensions
_SCALE = 0.08  # of embeddings
_SHARP = 2.0  # of queries and keys after their norm: the best match weighs e^27 against none
_NEAR = 1 / 900  # rotations slower than this per token carry content, faster ones place
_COPIED = 0.15  # how loud copies are written


def make_model(tokenizer: Any, shape: Any) -> Any:
    """A Qwen3 of `shape` (TinySettings), its copying heads set; one that has no room for them
    starts at random."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.width,
        intermediate_size=shape.width * 2,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        head_dim=shape.head,
        max_position_embeddings=shape.context,
        rope_parameters={"rope_type": "default", "rope_theta": shape.theta},
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    if shape.width >= 128 and shape.layers >= 2 and shape.heads >= 2 and shape.head >= 48:
        _Copying(model, tokenizer, shape).set()
    return model


@dataclass
class _Copying:
    model: Any
    tokenizer: Any
    shape: Any

    def set(self) -> None:
        import torch

        with torch.no_grad():
            self._parts()
            self._embeddings()
            for layer in self.model.model.layers[:2]:
                layer.self_attn.q_norm.weight.fill_(_SHARP)
                layer.self_attn.k_norm.weight.fill_(_SHARP)
            self._token_before()
            self._what_followed()

    def _parts(self) -> None:
        import torch

        width = self.shape.width
        self.random = torch.Generator().manual_seed(self.shape.seed)
        basis = torch.cat([torch.zeros(1, width - 1), self._orthogonal(width - 1)])
        self.before, self.word = basis.split([_BEFORE, width - 1 - _BEFORE], dim=1)
        self.one = torch.eye(width)[0]
        half = self.shape.head // 2
        self.turns = self.shape.theta ** (-torch.arange(half) / half)

    def _embeddings(self) -> None:
        """`Title`, ` title` and `title` start close together."""
        import torch

        table = self.model.model.embed_tokens.weight
        own = self.word.shape[1]
        spaced, capital = self._normal(own) * 0.3, self._normal(own) * 0.3
        stems: dict[str, torch.Tensor] = {}
        for at, piece in enumerate(self.tokenizer.convert_ids_to_tokens(range(len(table)))):
            vector = self._normal(own)
            if piece not in SPECIAL and piece not in SCAFFOLD:
                bare = piece[1:] if piece.startswith(LEADS) and len(piece) > 1 else piece
                vector = stems.setdefault(bare.lower(), vector).clone()
                vector += spaced * (bare != piece) + capital * (bare != bare.lower())
            table[at] = self.word @ vector * _SCALE
            table[at, 0] = _SCALE * 4

    def _token_before(self) -> None:
        import torch

        half = len(self.turns)
        here, there = torch.zeros(2 * half), torch.zeros(2 * half)
        here[:4] = 1
        there[:4], there[half : half + 4] = torch.cos(self.turns[:4]), torch.sin(self.turns[:4])
        self._looks(0, 0, torch.outer(here, self.one), torch.outer(there, self.one))
        self._writes(0, 0, self.word[:, :_BEFORE], self.before, _SCALE)

    def _what_followed(self) -> None:
        import torch

        rows = torch.nonzero(self.turns < _NEAR).flatten()
        rows = torch.cat([rows, rows + len(self.turns)])[:_BEFORE]
        asked, held = (torch.zeros(self.shape.head, self.shape.width) for _ in range(2))
        asked[rows], held[rows] = self.word[:, : len(rows)].T, self.before[:, : len(rows)].T
        for head, part in (
            (0, self.word[:, : self.shape.head]),
            (1, self.word[:, -self.shape.head :]),
        ):
            self._looks(1, head, asked, held)
            self._writes(1, head, part, part, _COPIED)

    def _looks(self, layer: int, head: int, asked: Any, held: Any) -> None:
        at, rows = self._head(layer, head)
        at.q_proj.weight[rows], at.k_proj.weight[rows] = asked, held

    def _writes(self, layer: int, head: int, read: Any, written: Any, loud: float) -> None:
        at, rows = self._head(layer, head)
        used = slice(rows.start, rows.start + read.shape[1])
        at.o_proj.weight[:, rows] = 0
        at.v_proj.weight[used], at.o_proj.weight[:, used] = read.T, loud * written

    def _head(self, layer: int, head: int) -> tuple[Any, slice]:
        size = self.shape.head
        return self.model.model.layers[layer].self_attn, slice(head * size, head * size + size)

    def _normal(self, size: int) -> Any:
        import torch

        return torch.randn(size, generator=self.random)

    def _orthogonal(self, size: int) -> Any:
        import torch

        return torch.linalg.qr(torch.randn(size, size, generator=self.random))[0]
