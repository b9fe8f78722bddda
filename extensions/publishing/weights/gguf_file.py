"""GGUF: a merged model as one file for llama.cpp and Ollama, at the precision that it has.

Names of tensors and keys are those of the package `gguf`, which llama.cpp publishes. Smaller
precisions are made of this file by the engines themselves (`llama-quantize`, `ollama create -q`).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from extensions.publishing.weights.gguf_tensors import plan_tensors, read_tensors
from extensions.publishing.weights.gguf_vocabulary import (
    NOT_KNOWN,
    NoGguf,
    add_vocabulary,
    read_vocabulary,
)

# model types of a config; GGUF's architectures have the same names
ARCHITECTURES = ("llama", "qwen2", "qwen3")
_BY_HAND = "convert the merged folder with llama.cpp's convert_hf_to_gguf.py"


def write_gguf(folder: Path, path: Path, name: str) -> dict[str, Any]:
    """Writes the merged model of a folder; name: as engines show it. Returns {architecture,
    tensors, pre_tokenizer, exact_tokens: whether an engine cuts texts as the tokenizer does}.

    Raises NoGguf; then there is no file.
    """
    import gguf

    config = json.loads((folder / "config.json").read_bytes())
    kind = _check_config(config)
    heads = int(config["num_attention_heads"])
    shared = int(config.get("num_key_value_heads") or heads)
    vocabulary = read_vocabulary(folder, int(config["vocab_size"]))
    tensors = plan_tensors(folder, kind, int(config["num_hidden_layers"]))
    writer = gguf.GGUFWriter(path, kind)
    try:
        _add_shape(writer, config, name)
        add_vocabulary(writer, vocabulary)
        for tensor in tensors:
            writer.add_tensor_info(tensor.to, tensor.shape, *tensor.storage)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        turned = {"q_proj.weight": heads, "k_proj.weight": shared} if kind == "llama" else {}
        for values in read_tensors(tensors, turned):
            writer.write_tensor_data(values)
    except BaseException:
        writer.close()
        path.unlink(missing_ok=True)
        raise
    writer.close()
    facts = {"architecture": kind, "tensors": len(tensors), "pre_tokenizer": vocabulary.pre}
    return {**facts, "exact_tokens": vocabulary.pre != NOT_KNOWN}


def _check_config(config: Mapping[str, Any]) -> str:
    kind = str(config.get("model_type"))
    if kind not in ARCHITECTURES:
        raise NoGguf(
            f"model_type {kind[:40]!r}: expected one of {', '.join(ARCHITECTURES)}; {_BY_HAND}"
        )
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    scaled = str(rope.get("rope_type") or rope.get("type") or "default")
    if scaled != "default" or config.get("use_sliding_window"):
        found = f"rope {scaled[:40]!r}" if scaled != "default" else "a sliding window"
        raise NoGguf(f"a {kind} with {found} is not written here; {_BY_HAND}")
    return kind


def _add_shape(writer: Any, config: Mapping[str, Any], name: str) -> None:
    heads = int(config["num_attention_heads"])
    width = int(config.get("head_dim") or config["hidden_size"] // heads)
    rope = config.get("rope_parameters") or {}
    writer.add_type("model")
    writer.add_name(name)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(float(rope.get("rope_theta") or config.get("rope_theta") or 10_000))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
