"""Text to vectors: the `Embedder` interface and the embedders behind it.

The default is MiniLM by ONNX Runtime, for indexes with the adapter that the package ships: its
vectors agree with the torch model to 1e-6, and torch, with its import of seconds, stays out of
everything that serves.
"""

from assets.vectors.encoders.choose import SPECS, open_embedder, open_retriever
from assets.vectors.encoders.embedder import (
    BadEmbedder,
    Embedder,
    EmbeddingFailed,
    embed_queries,
)
from assets.vectors.encoders.general.shipped import find_general_folder, open_general
from assets.vectors.encoders.hub import allow_embedder
from assets.vectors.encoders.minilm import MiniLM
from assets.vectors.encoders.prompts import Prompts
from assets.vectors.encoders.saved import (
    EncoderBroken,
    EncoderMissing,
    find_encoder_folder,
    open_encoder,
    save_encoder,
)
from assets.vectors.encoders.weights import BASE, BadAdapter, find_base_path

__all__ = [
    "BASE",
    "SPECS",
    "BadAdapter",
    "BadEmbedder",
    "Embedder",
    "EmbeddingFailed",
    "EncoderBroken",
    "EncoderMissing",
    "MiniLM",
    "Prompts",
    "allow_embedder",
    "embed_queries",
    "find_base_path",
    "find_encoder_folder",
    "find_general_folder",
    "open_embedder",
    "open_encoder",
    "open_general",
    "open_retriever",
    "save_encoder",
]
