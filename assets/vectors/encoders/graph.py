"""MiniLM as an ONNX graph, made from its matrices by standard operators alone: ONNX Runtime's own
Attention was 9 to 25% slower here on one text of 10 to 100 tokens."""

from typing import Any

import numpy as np

from assets.vectors.encoders.weights import EncoderWeights

IDS, MASK, VECTORS = "ids", "mask", "vectors"
_OPSET, _IR = 20, 10  # Gelu and LayerNormalization; ONNX Runtime 1.18 and later read both
_FAR = np.float32(1e9)  # taken off the score of a padded place: its weight is 0.0 after the softmax


def build_onnx_graph(weights: EncoderWeights) -> bytes:
    """The serialised model: int64 `ids` and `mask` [texts, tokens] -> float32 `vectors`, the mean
    of each text's tokens."""
    graph = _OnnxGraph(weights)
    mask = graph.add("Cast", MASK, to=1)
    hidden = graph.add_embeddings()
    unseen = graph.add("Mul", graph.add("Sub", mask, np.float32(1)), _FAR)
    unseen = graph.add("Unsqueeze", unseen, np.array([1, 2]))
    for layer in range(weights.config["num_hidden_layers"]):
        hidden = graph.add_layer(hidden, unseen, f"encoder.layer.{layer}")
    masked = graph.add("Mul", hidden, graph.add("Unsqueeze", mask, np.array([2])))
    # The mean's divisor would be taken out again by the norm.
    total = graph.add("ReduceSum", masked, np.array([1]), keepdims=0)
    norm = graph.add("ReduceL2", total, np.array([1]), keepdims=1)
    graph.add("Div", total, norm, name=VECTORS)
    return graph.serialise()


class _OnnxGraph:
    """Nodes and constants, in the order in which they are made."""

    def __init__(self, weights: EncoderWeights) -> None:
        self._matrices, self._config = weights.matrices, weights.config
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def add(self, kind: str, *inputs: Any, name: str = "", **settings: Any) -> str:
        """The name of an operation's output; numbers among its inputs become constants."""
        from onnx import helper

        names = [item if isinstance(item, str) else self._add_constant(item) for item in inputs]
        name = name or f"n{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, names, [name], name=name, **settings))
        return name

    def _add_constant(self, value: Any) -> str:
        from onnx import numpy_helper

        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def serialise(self) -> bytes:
        from onnx import TensorProto, helper

        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "tokens"])
            for name in (IDS, MASK)
        ]
        shape = ["texts", self._config["hidden_size"]]
        output = helper.make_tensor_value_info(VECTORS, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self._nodes, "minilm", inputs, [output], self._constants)
        opsets = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR)
        return model.SerializeToString()

    def add_embeddings(self) -> str:
        words, kinds, places = (
            self._matrices[f"embeddings.{name}_embeddings.weight"]
            for name in ("word", "token_type", "position")
        )
        tokens, first = self.add("Shape", IDS, start=1, end=2), np.array([0])
        here = self.add("Slice", places + kinds[0], first, tokens, first)
        return self._add_norm(self.add("Add", self.add("Gather", words, IDS), here), "embeddings")

    def add_layer(self, x: str, unseen: str, name: str) -> str:
        attended = self._add_attention(x, unseen, f"{name}.attention.self")
        attended = self._add_linear(attended, f"{name}.attention.output.dense")
        x = self._add_norm(self.add("Add", attended, x), f"{name}.attention.output")
        inner = self.add("Gelu", self._add_linear(x, f"{name}.intermediate.dense"))
        outer = self._add_linear(inner, f"{name}.output.dense")
        return self._add_norm(self.add("Add", outer, x), f"{name}.output")

    def _add_attention(self, x: str, unseen: str, name: str) -> str:
        dim, heads = self._config["hidden_size"], self._config["num_attention_heads"]
        size = dim // heads

        def project(which: str, *order: int) -> str:
            apart = np.array([0, 0, heads, size])
            split = self.add("Reshape", self._add_linear(x, f"{name}.{which}"), apart)
            return self.add("Transpose", split, perm=order)

        q, v = (project(which, 0, 2, 1, 3) for which in ("query", "value"))
        k = project("key", 0, 2, 3, 1)
        scores = self.add("Mul", self.add("MatMul", q, k), np.float32(size**-0.5))
        shares = self.add("Softmax", self.add("Add", scores, unseen), axis=-1)
        joined = self.add("Transpose", self.add("MatMul", shares, v), perm=[0, 2, 1, 3])
        return self.add("Reshape", joined, np.array([0, 0, dim]))

    def _add_linear(self, x: str, name: str) -> str:
        product = self.add("MatMul", x, self._matrices[f"{name}.weight"].T)
        return self.add("Add", product, self._matrices[f"{name}.bias"])

    def _add_norm(self, x: str, name: str) -> str:
        scale, shift = (self._matrices[f"{name}.LayerNorm.{part}"] for part in ("weight", "bias"))
        near_zero = self._config["layer_norm_eps"]
        return self.add("LayerNormalization", x, scale, shift, axis=-1, epsilon=near_zero)
