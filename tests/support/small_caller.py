"""A Llama of two narrow layers with SmolLM2's chat template that has just learnt to write calls."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from tests.training.conftest import DEEDS, THINGS, raw_tool
from training.caller.packing import pad_batch
from training.caller.smollm2 import TEMPLATE
from training.caller.tokenise import make_row_lessons
from training.prompts.render import NO_CALL, SYSTEM, render_conversation, render_tool_schema

_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_TITLES = ("Blue Sky", "Old Oak", "Red Sun", "Low Tide")
_STEPS, _ROWS = 100, 6


@cache
def make_small_tokenizer() -> Any:
    """Byte-level, of a few hundred pieces; each caller gets the same one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    options = {"vocab_size": 600, "special_tokens": _SPECIAL, "show_progress": False}
    trainer = trainers.BpeTrainer(**options, **alphabet)
    texts = [text for deed in DEEDS for thing in THINGS for text in _write_texts(deed, thing)]
    raw.train_from_iterator([SYSTEM, NO_CALL, *texts], trainer)
    marks = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, **marks)
    tokenizer.chat_template = TEMPLATE.read_text(encoding="utf-8")
    return tokenizer


def _write_texts(deed: str, thing: str) -> list[str]:
    tool = raw_tool(deed, thing)
    call = json.dumps({"name": tool["name"], "arguments": {"title": "Blue Sky", "count": 2}})
    request = f"Please {deed} 3 {thing}s called 'Old Oak'."
    shown = f"\n- title: string # title of the {thing}\n- count: integer"
    return [call, request, tool["description"], shown]


def save_small_caller(folder: Path) -> Path:
    """Trains it for some seconds and saves it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer, threads = make_small_tokenizer(), torch.get_num_threads()
    torch.set_num_threads(1)  # test files run beside each other
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096,
        tie_word_embeddings=True, bos_token_id=0, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    lessons = []
    for count, title in enumerate(_TITLES, 2):
        for at, thing in enumerate(THINGS):
            deeds = list(DEEDS)[at % 2 :]
            request = f"Please {deeds[0]} {count} {thing}s called '{title}'."
            call = {"name": f"{deeds[0]}_{thing}", "arguments": {"title": title, "count": count}}
            tools = [render_tool_schema(raw_tool(deed, thing)) for deed in deeds]
            conversation = render_conversation(tokenizer, tools, request, [call])
            lessons += make_row_lessons(tokenizer, [conversation])
    optimizer = torch.optim.AdamW(model.parameters(), 4e-3)
    for step in range(_STEPS):
        rows = [lessons[(step * _ROWS + at) % len(lessons)] for at in range(_ROWS)]
        model(**pad_batch(rows, tokenizer.pad_token_id)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.set_num_threads(threads)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder
