"""Sentence-transformers models of two narrow layers with random weights, as their makers ship them:
ModernBERT pooled by its first token, Qwen3 by its last after an instruction, BERT by the mean."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assets.vectors.encoders.weights import find_base_path

INSTRUCTION = "Instruct: Find the tool for a request\nQuery:"
_PARTS = ("Transformer", "Pooling", "Normalize")


def make_modern_bert(folder: Path) -> Path:
    from transformers import ModernBertConfig, ModernBertModel

    config = ModernBertConfig(
        **_narrow(), global_attn_every_n_layers=1, pad_token_id=0, cls_token_id=101,
        sep_token_id=102, bos_token_id=101, eos_token_id=102,
    )  # fmt: skip
    return _save(folder, ModernBertModel(config), "cls")


def make_qwen3(folder: Path) -> Path:
    from transformers import Qwen3Config, Qwen3Model

    config = Qwen3Config(
        **_narrow(), num_key_value_heads=1, head_dim=16, pad_token_id=0, eos_token_id=102
    )
    prompts = {"query": INSTRUCTION, "document": ""}
    return _save(folder, Qwen3Model(config), "lasttoken", prompts, padding_side="left")


def make_bert(folder: Path, prompts: dict[str, str] | None = None) -> Path:
    from transformers import BertConfig, BertModel

    return _save(folder, BertModel(BertConfig(**_narrow())), "mean", prompts)


def add_dense(model: Path, activation: str = "torch.nn.modules.activation.Tanh") -> Path:
    """Puts a Dense layer of 32 to 12 numbers before the norm; returns its folder."""
    import torch
    from safetensors.torch import save_file

    modules = json.loads((model / "modules.json").read_text())
    made = {"idx": 2, "name": "2", "path": "dense", "type": "sentence_transformers.models.Dense"}
    write(model / "modules.json", [*modules[:2], made, {**modules[2], "idx": 3, "name": "3"}])
    write(model / "dense" / "config.json", {"in_features": 32, "out_features": 12, "bias": True,
                                            "activation_function": activation})  # fmt: skip
    weights = {"linear.weight": torch.randn(12, 32), "linear.bias": torch.randn(12)}
    save_file(weights, str(model / "dense" / "model.safetensors"))
    return model / "dense"


def edit_tensors(file: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    from safetensors.torch import load_file, save_file

    held = load_file(str(file))
    edit(held)
    save_file(held, str(file), {"format": "pt"})


def _narrow() -> dict[str, int]:
    import torch

    torch.manual_seed(3)
    return {
        "vocab_size": 30_522, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 64,
    }  # fmt: skip


def _save(
    folder: Path,
    model: Any,
    pooling: str,
    prompts: dict[str, str] | None = None,
    padding_side: str = "right",
) -> Path:
    model.save_pretrained(str(folder))
    for name in ("tokenizer.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copy(find_base_path() / name, folder / name)
    config = json.loads((find_base_path() / "tokenizer_config.json").read_text())
    write(folder / "tokenizer_config.json", {**config, "padding_side": padding_side})
    modules = [
        {"idx": at, "name": str(at), "path": f"{at}_{kind}" if at else "",
         "type": f"sentence_transformers.models.{kind}"}
        for at, kind in enumerate(_PARTS)
    ]  # fmt: skip
    write(folder / "modules.json", modules)
    write(folder / "sentence_bert_config.json", {"max_seq_length": 32, "do_lower_case": False})
    (folder / "2_Normalize").mkdir()
    modes = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}
    chosen = {f"pooling_mode_{name}": kind == pooling for kind, name in modes.items()}
    write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 32, **chosen})
    if prompts is not None:
        write(folder / "config_sentence_transformers.json", {"prompts": prompts})
    return folder


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))
