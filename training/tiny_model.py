"""The tiny base's weights before anything is learned.

What belongs here: its shape, and the circuits that its first weights hold. What does not: training
them (`tiny_pretraining.py`), the language (`tiny_text.py`).

Some heads start as what thousands of steps would have to find: looking at the token before, at the
mark of the tool that a word stands under, at what followed the same token earlier (copying), at
where a word of the request stands among the tools, and gathering those marks. Everything is trained
from there. Tried while it was made, one seed each, pieces and rates changing beside the weights:
with ten tools, 425 steps from random weights chose the right one in 5% of new exercises (chance is
10%), 300 steps from these in 53% (57 choices, the words before them given).

The residual stream starts in parts: WORD (what a token is), MARK (which mark it is), BEFORE (the
token before), BLOCK (the mark it stands under), and two constants.
"""

from dataclasses import dataclass
from typing import Any

from training.tiny_text import LEADS, MARKS, NONE, SCAFFOLD, SPECIAL, USER

_BEFORE, _MARK = 32, 20  # dimensions
_SCALE = 0.08  # of embeddings
_SHARP = 2.0  # of queries and keys after their norm: the best match weighs e^27 against none
_NEAR = 1 / 900  # rotations slower than this per token carry content, faster ones place
_SAME = 0.7  # how much the same mark counts beside the same word
_COPIED, _POINTED = 0.15, 0.3  # how loud copies and marks are written
_ALL_MARKS = (*(f"<|t{i}|>" for i in range(1, MARKS + 1)), USER, "<|tools|>")


def make_model(tokenizer: Any, shape: Any) -> Any:
    """A Qwen3 of `shape` (TinySettings), its first weights set; smaller ones than three layers of
    width 128 start at random."""
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
    if shape.width >= 128 and shape.layers >= 3 and shape.heads >= 3 and shape.head >= 48:
        _Circuits(model, tokenizer, shape).set()
    return model


@dataclass
class _Circuits:
    model: Any
    tokenizer: Any
    shape: Any

    def set(self) -> None:
        import torch

        with torch.no_grad():
            self._parts()
            self._embeddings()
            self._likeness()
            self._token_before()
            self._mark_above()
            self._what_followed()
            self._same_word_among_tools()
            self._gather()

    def _parts(self) -> None:
        import torch

        width = self.shape.width
        self.random = torch.Generator().manual_seed(self.shape.seed)
        free = self._orthogonal(width - 2)
        basis = torch.cat([torch.zeros(2, width - 2), free])
        sizes = [_BEFORE, _MARK, _MARK, width - 2 - _BEFORE - 2 * _MARK]
        self.before, self.block, self.mark, self.word = basis.split(sizes, dim=1)
        self.one, self.is_mark = torch.eye(width)[0], torch.eye(width)[1]
        half = self.shape.head // 2
        self.turns = self.shape.theta ** (-torch.arange(half) / half)

    def _embeddings(self) -> None:
        """`Title`, ` title` and `title` start close together; marks share a direction."""
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
            if piece in _ALL_MARKS or piece == NONE:
                table[at] += self.mark @ self._normal(_MARK) * _SCALE * 1.9
            table[at, 0] = _SCALE * 4
            table[at, 1] = _SCALE * 8 * (piece in _ALL_MARKS)

    def _likeness(self) -> None:
        """Half of the heads start by looking for their like and copying it."""
        half = self.shape.heads // 2 * self.shape.head
        for layer in self.model.model.layers:
            at = layer.self_attn
            at.q_norm.weight.fill_(_SHARP)
            at.k_norm.weight.fill_(_SHARP)
            at.k_proj.weight[:half] = at.q_proj.weight[:half]
            at.v_proj.weight[:half].normal_(0, 0.03, generator=self.random)
            at.o_proj.weight[:, :half] = at.v_proj.weight[:half].T

    def _token_before(self) -> None:
        import torch

        half = len(self.turns)
        here, there = torch.zeros(2 * half), torch.zeros(2 * half)
        here[:4] = 1
        there[:4], there[half : half + 4] = torch.cos(self.turns[:4]), torch.sin(self.turns[:4])
        self._looks(0, 0, torch.outer(here, self.one), torch.outer(there, self.one))
        self._writes(0, 0, self.word[:, :_BEFORE], self.before, _SCALE)

    def _mark_above(self) -> None:
        place = self._dims((self.turns > 1 / 200) & (self.turns < 1 / 25))
        marks = 2 * self.is_mark - self.one
        self._looks(0, 1, place.outer(self.one), place.outer(marks))
        self._writes(0, 1, self.mark, self.block, _SCALE)

    def _what_followed(self) -> None:
        import torch

        slow = self._slow()
        half = len(slow) // 2
        rows = torch.cat([slow[4:half], slow[half + 4 :]])
        size, same = len(rows), torch.cat([slow[:4], slow[half : half + 4]])
        asked, held = (torch.zeros(self.shape.head, self.shape.width) for _ in range(2))
        asked[rows], held[rows] = self.word[:, :size].T, self.before[:, :size].T
        # Under the same mark first: `jira` begins the names of half of the tools.
        asked[same] = held[same] = _SAME * self.block[:, : len(same)].T
        for head, part in (
            (0, self.word[:, : self.shape.head]),
            (1, self.word[:, -self.shape.head :]),
        ):
            self._looks(1, head, asked, held)
            self._writes(1, head, part, part, _COPIED)

    def _same_word_among_tools(self) -> None:
        """Requests and calls themselves are looked away from: a word would find itself."""
        import torch

        slow = self._slow()
        half = len(slow) // 2
        aside = slow[[0, 1, half, half + 1]]
        rows = torch.cat([slow[2:half], slow[half + 2 :]])
        mixed = self.word @ self._orthogonal(self.word.shape[1])[:, : len(rows)]
        asked = torch.zeros(self.shape.head, self.shape.width)
        asked[rows] = mixed.T
        held = asked.clone()
        asked[aside] = 0.6 * self.one
        held[aside] = -0.9 * self._under(USER)
        self._looks(1, 2, asked, held)
        self._writes(1, 2, self.block, self.mark, _POINTED)

    def _gather(self) -> None:
        place = self._dims((self.turns > 1 / 600) & (self.turns < 1 / 100))
        # Only where the mark comes next: elsewhere it would be in the way of the words.
        asked = self._like(SCAFFOLD[0]) - self.one
        self._looks(2, 0, place.outer(asked), place.outer(4 * self._under(USER) - self.one))
        self._writes(2, 0, self.mark, self.mark, _POINTED)

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

    def _under(self, token: str) -> Any:
        """The direction in BLOCK of words that stand under this token."""
        at = self.tokenizer.convert_tokens_to_ids(token)
        known = self.mark.T @ self.model.model.embed_tokens.weight[at]
        return self.block @ (known / known.norm())

    def _like(self, token: str) -> Any:
        """The direction in WORD of this token."""
        at = self.tokenizer.convert_tokens_to_ids(token)
        known = self.word.T @ self.model.model.embed_tokens.weight[at]
        return self.word @ (known / known.norm())

    def _slow(self) -> Any:
        import torch

        rows = torch.nonzero(self.turns < _NEAR).flatten()
        return torch.cat([rows, rows + len(self.turns)])

    def _dims(self, chosen: Any) -> Any:
        import torch

        return torch.cat([chosen.float(), torch.zeros(len(self.turns))])

    def _normal(self, size: int) -> Any:
        import torch

        return torch.randn(size, generator=self.random)

    def _orthogonal(self, size: int) -> Any:
        import torch

        return torch.linalg.qr(torch.randn(size, size, generator=self.random))[0]
