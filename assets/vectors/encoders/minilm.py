"""MiniLM, the default encoder, made from its pretrained weights."""

from pathlib import Path

from assets.vectors.encoders.bases import find_base, find_base_folder, name_base
from assets.vectors.encoders.embedder import BadEmbedder
from assets.vectors.encoders.graph import build_onnx_graph, quantise_graph
from assets.vectors.encoders.layout.head import Head
from assets.vectors.encoders.session import FP32, INT8, PRECISIONS, OnnxEncoder
from assets.vectors.encoders.weights import (
    BASE,
    BadAdapter,
    Weights,
    is_other_base,
    read_adapter_base,
    read_weights,
)

MOST_TOKENS = 128  # where a text is cut


class MiniLM(OnnxEncoder):
    """all-MiniLM-L6-v2 with mean pooling, optionally with a LoRA adapter merged into its weights.

    A text longer than `max_tokens` word pieces is cut there. `precision` "int8" takes half the time
    and a quarter of the space, and loses: it keeps 8.7 of the ten tools nearest to a request, and
    Recall@1 differed by -0.003 [-0.013, 0.007] on 1,219 requests. So it is another encoder, with
    an id of its own, and not the default. `base`: another BERT (`bases.py`).
    Raises BadAdapter, BadEmbedder.
    """

    def __init__(
        self,
        adapter: Path | None = None,
        *,
        max_tokens: int = MOST_TOKENS,
        threads: int | None = None,
        precision: str = FP32,
        base: str = BASE,
    ) -> None:
        if precision not in PRECISIONS:
            raise BadEmbedder(f"precision {precision!r}: expected one of {', '.join(PRECISIONS)}")
        self._adapter, self._base = adapter, name_base(base)
        # MiniLM's own files are known to be whole: to name the encoder, they need not be read.
        named = (adapter, max_tokens, precision, self._base)
        name, weights, head = _read_model(*named, adapted_alone=self._base == BASE)
        super().__init__(
            self.model,
            (find_base_folder(self._base) / "tokenizer.json").read_bytes(),
            name=name,
            max_tokens=max_tokens,
            precision=precision,
            threads=threads,
            dim=len(head.layers[-1].weight) if head.layers else weights.config["hidden_size"],
        )

    def model(self) -> bytes:
        """The ONNX file, made again. Raises BadEmbedder where the adapter is another by now."""
        name, model = _build_session(self._adapter, self.max_tokens, self.precision, self._base)
        if name != self.id:
            raise BadEmbedder(
                f"{self._adapter}: changed since {self.id} was opened (now {name}); open it again"
            )
        return model


def _build_session(
    adapter: Path | None, max_tokens: int, precision: str, base: str
) -> tuple[str, bytes]:
    """(id, ONNX file)"""
    name, weights, head = _read_model(adapter, max_tokens, precision, base)
    model = build_onnx_graph(weights, head)
    return name, quantise_graph(model) if precision == INT8 else model


def _read_model(
    adapter: Path | None,
    max_tokens: int,
    precision: str,
    base: str,
    *,
    adapted_alone: bool = False,
) -> tuple[str, Weights, Head]:
    """(id, weights, what pools their tokens); adapted_alone: see `read_weights`."""
    named = read_adapter_base(adapter) if adapter else None
    if named and is_other_base(named, base):
        raise BadAdapter(
            f"{adapter}: this adapter belongs to another base model: it was trained on {named}, not"
            f" on {base}; take that base, or train it again"
        )
    found = find_base(base)
    weights = read_weights(adapter, found.folder, adapted_alone=adapted_alone)
    most = weights.config["max_position_embeddings"]
    if not 3 <= max_tokens <= most:
        raise BadEmbedder(f"max_tokens {max_tokens}: {base} takes 3 to {most}")
    name = f"{base.rpartition('/')[2]}/{max_tokens}"  # a folder's place is not its identity
    if weights.adapter:
        name += f"+{weights.adapter[:16]}"
    return f"{name}/{INT8}" if precision == INT8 else name, weights, found.head
