"""A BERT of two narrow layers with MiniLM's tokenizer: a base that trains in a second."""

import json
import shutil
from pathlib import Path

from assets.vectors.encoders.weights import find_base_path


def small_bert(folder: Path, seed: int = 3) -> Path:
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    config = BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    BertModel(config).save_pretrained(str(folder))
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copy(find_base_path() / name, folder / name)
    modules = [
        {"type": f"sentence_transformers.models.{kind}", "path": f"{at}_{kind}" if at else ""}
        for at, kind in enumerate(("Transformer", "Pooling", "Normalize"))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder
