"""Adapters of random weights over small bases: a trained caller's files, made in a moment."""

from pathlib import Path
from typing import Any

import pytest

from tests.training.small_base import make_tokenizer
from training.runtime.model_store import save_model

NAME = "a" * 64


def read_template(name: str) -> str:
    """A chat template as its makers published it, out of the installed TRL."""
    trl = pytest.importorskip("trl")  # here: a second, that no other test needs

    return (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text()


def save_base(folder: Path, kind: str = "qwen3", template: str = "qwen3", **shape: Any) -> Path:
    """A base of random weights of an architecture, with a published template."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = make_tokenizer(template=read_template(template))
    torch.manual_seed(1)
    config = AutoConfig.for_model(
        kind, vocab_size=len(tokenizer) + 3,  # as real ones: more numbers than pieces
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=2048, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, **shape,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, dtype=config.dtype or torch.float32)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


def save_adapter(home: Path, base: str, load: str, name: str = NAME, role: str = "caller") -> str:
    """A finished caller over a base, its weights random; its name. load: the base's folder."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(2)
    model: Any = AutoModelForCausalLM.from_pretrained(load, dtype=torch.float32)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
    config = LoraConfig(r=4, target_modules=targets, init_lora_weights=False, task_type="CAUSAL_LM")
    adapted = get_peft_model(model, config)
    card = {"name": name, "role": role, "base": base, "base_name": load, "training_set": "set1"}
    save_model(home, name, card, lambda folder: adapted.save_pretrained(str(folder)))
    return name
