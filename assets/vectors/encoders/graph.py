"""MiniLM as an ONNX graph, made from its matrices by standard operators alone: ONNX Runtime's own
Attention was 9 to 25% slower here on one text of 10 to 100 tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from assets.vectors.encoders.weights import EncoderWeights

IDS, MASK, VECTORS = "ids", "mask", "vectors"
_OPSET, _IR = 20, 10  # Gelu and LayerNormalization; ONNX Runtime 1.18 and later read both
_FAR = np.float32(1e9)  # taken off the score of a padded place: its weight is 0.0 after the softmax


def build_onnx_graph(weights: EncoderWeights) -> bytes:
    """The serialised model: int64 `ids` and `mask` [texts, tokens] -> float32 `vectors`, the mean
    of each text's tokens."""
    graph = _OnnxGraph()
    mask = graph.add_operation("Cast", MASK, to=1)
    hidden = _add_embeddings(graph, weights)
    unseen = graph.add_operation(
        "Mul",
        graph.add_operation("Sub", mask, graph.add_constant(np.float32(1))),
        graph.add_constant(_FAR),
    )
    unseen = graph.add_operation("Unsqueeze", unseen, graph.add_constant(np.array([1, 2])))
    for layer in range(weights.config["num_hidden_layers"]):
        hidden = _add_layer(graph, weights, hidden, unseen, f"encoder.layer.{layer}")
    masked = graph.add_operation(
        "Mul", hidden, graph.add_operation("Unsqueeze", mask, graph.add_constant(np.array([2])))
    )
    first = graph.add_constant(np.array([1]))
    # The mean's divisor would be taken out again by the norm.
    total = graph.add_operation("ReduceSum", masked, first, keepdims=0)
    norm = graph.add_operation("ReduceL2", total, first, keepdims=1)
    graph.add_operation("Div", total, norm, name=VECTORS)
    return graph.serialise(weights.config["hidden_size"])


class _OnnxGraph:
    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def add_constant(self, value: Any) -> str:
        from onnx import numpy_helper

        name = f"c{len(self._constants)}"
        array = np.asarray(value, order="C")
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def add_operation(self, kind: str, *inputs: str, name: str = "", **settings: Any) -> str:
        from onnx import helper

        name = name or f"n{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], name=name, **settings))
        return name

    def serialise(self, dim: int) -> bytes:
        from onnx import TensorProto, helper

        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "tokens"])
            for name in (IDS, MASK)
        ]
        output = helper.make_tensor_value_info(VECTORS, TensorProto.FLOAT, ["texts", dim])
        graph = helper.make_graph(self._nodes, "minilm", inputs, [output], self._constants)
        opsets = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR)
        return model.SerializeToString()


def _add_embeddings(graph: _OnnxGraph, weights: EncoderWeights) -> str:
    matrices = weights.matrices
    words = graph.add_constant(matrices["embeddings.word_embeddings.weight"])
    kind = matrices["embeddings.token_type_embeddings.weight"][0]
    places = graph.add_constant(matrices["embeddings.position_embeddings.weight"] + kind)
    tokens = graph.add_operation("Shape", IDS, start=1, end=2)
    first = graph.add_constant(np.array([0]))
    here = graph.add_operation("Slice", places, first, tokens, first)
    return _add_norm(
        graph,
        weights,
        graph.add_operation("Add", graph.add_operation("Gather", words, IDS), here),
        "embeddings",
    )


def _add_layer(graph: _OnnxGraph, weights: EncoderWeights, x: str, unseen: str, name: str) -> str:
    attended = _add_attention(graph, weights, x, unseen, f"{name}.attention.self")
    attended = _add_linear(graph, weights, attended, f"{name}.attention.output.dense")
    x = _add_norm(
        graph, weights, graph.add_operation("Add", attended, x), f"{name}.attention.output"
    )
    inner = graph.add_operation(
        "Gelu", _add_linear(graph, weights, x, f"{name}.intermediate.dense")
    )
    outer = _add_linear(graph, weights, inner, f"{name}.output.dense")
    return _add_norm(graph, weights, graph.add_operation("Add", outer, x), f"{name}.output")


def _add_attention(
    graph: _OnnxGraph, weights: EncoderWeights, x: str, unseen: str, name: str
) -> str:
    dim, heads = weights.config["hidden_size"], weights.config["num_attention_heads"]
    size = dim // heads
    apart = graph.add_constant(np.array([0, 0, heads, size]))

    def part(which: str, order: Sequence[int]) -> str:
        split = graph.add_operation(
            "Reshape", _add_linear(graph, weights, x, f"{name}.{which}"), apart
        )
        return graph.add_operation("Transpose", split, perm=list(order))

    q, k, v = part("query", (0, 2, 1, 3)), part("key", (0, 2, 3, 1)), part("value", (0, 2, 1, 3))
    scores = graph.add_operation(
        "Mul", graph.add_operation("MatMul", q, k), graph.add_constant(np.float32(size**-0.5))
    )
    shares = graph.add_operation("Softmax", graph.add_operation("Add", scores, unseen), axis=-1)
    joined = graph.add_operation(
        "Transpose", graph.add_operation("MatMul", shares, v), perm=[0, 2, 1, 3]
    )
    return graph.add_operation("Reshape", joined, graph.add_constant(np.array([0, 0, dim])))


def _add_linear(graph: _OnnxGraph, weights: EncoderWeights, x: str, name: str) -> str:
    matrix = graph.add_constant(weights.matrices[f"{name}.weight"].T)
    return graph.add_operation(
        "Add",
        graph.add_operation("MatMul", x, matrix),
        graph.add_constant(weights.matrices[f"{name}.bias"]),
    )


def _add_norm(graph: _OnnxGraph, weights: EncoderWeights, x: str, name: str) -> str:
    arrays = [weights.matrices[f"{name}.LayerNorm.{part}"] for part in ("weight", "bias")]
    scale, shift = (graph.add_constant(part) for part in arrays)
    near_zero = weights.config["layer_norm_eps"]
    return graph.add_operation("LayerNormalization", x, scale, shift, axis=-1, epsilon=near_zero)
