"""A GGUF file holds the merged weights as llama.cpp lays them out."""

from typing import Any

import numpy as np
import pytest

from extensions.publishing.weights import interleave_heads, write_gguf
from training.caller.smollm2 import write_smollm2_base


def test_rotated_pairs_become_neighbours_head_by_head():
    rows = np.arange(12)[:, None] * np.ones((1, 3))
    laid = interleave_heads(rows, 2)[:, 0].tolist()
    assert laid == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]


@pytest.mark.slow
def test_transformers_reads_back_what_was_written(tmp_path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = write_smollm2_base(tmp_path)
    model: Any = AutoModelForCausalLM.from_pretrained(str(base), dtype=torch.float16)
    with torch.no_grad():
        model.model.layers[3].self_attn.q_proj.weight[7] += 0.25
    merged = tmp_path / "merged"
    model.save_pretrained(str(merged))
    tokenizer: Any = AutoTokenizer.from_pretrained(str(base))
    tokenizer.save_pretrained(str(merged))
    write_gguf(merged, tmp_path / "model.gguf", "a-caller")
    read: Any = AutoModelForCausalLM.from_pretrained(
        str(tmp_path), gguf_file="model.gguf", dtype=torch.float32
    )
    ids = tokenizer("Déjà vu in Oslo for 3 days", return_tensors="pt").input_ids
    with torch.inference_mode():
        gap = (read(ids).logits - model.float()(ids).logits).abs().max()
    assert gap < 1e-3
    other: Any = AutoTokenizer.from_pretrained(str(tmp_path), gguf_file="model.gguf")
    assert other.chat_template == tokenizer.chat_template
    assert other("Déjà vu").input_ids == tokenizer("Déjà vu").input_ids
