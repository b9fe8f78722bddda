"""The vocabulary of a GGUF file: pieces, merges, special tokens, and how a text is cut before."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# How a text is cut before its pieces are merged: llama.cpp has rules of its own by name, and takes
# no other pattern. Pattern of a tokenizer.json -> the name of the same rule.
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PRE_TOKENIZERS = {_QWEN: "qwen2", _QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|"): "llama-bpe"}
NOT_KNOWN = "default"


class NoGguf(ValueError):
    """A model that cannot be written as GGUF here: what was found, and what to do."""


@dataclass(frozen=True)
class Vocabulary:
    """Pieces by id with their kinds, merges, ids of special tokens by name (None: it has none), the
    name of the rule that cuts texts, the chat template."""

    tokens: list[str]
    kinds: list[Any]
    merges: list[str]
    special: dict[str, int | None]
    pre: str
    template: str | None


def read_vocabulary(folder: Path, size: int) -> Vocabulary:
    """The byte-level BPE of a folder, filled up to `size` numbers. Raises NoGguf for another."""
    from gguf import TokenType
    from transformers import AutoTokenizer

    raw = json.loads((folder / "tokenizer.json").read_bytes())
    model = raw["model"]
    if model.get("type") != "BPE" or model.get("byte_fallback"):
        raise NoGguf(
            f"a tokenizer of type {str(model.get('type'))[:40]!r} is not written here; expected a"
            " byte-level BPE; convert the merged folder with llama.cpp's convert_hf_to_gguf.py"
        )
    tokens, kinds = [f"[PAD{at}]" for at in range(size)], [TokenType.UNUSED] * size
    for text, at in model["vocab"].items():
        tokens[at], kinds[at] = text, TokenType.NORMAL
    for one in raw["added_tokens"]:
        tokens[one["id"]] = one["content"]
        kinds[one["id"]] = TokenType.CONTROL if one["special"] else TokenType.USER_DEFINED
    merges = [one if isinstance(one, str) else " ".join(one) for one in model["merges"]]
    tokenizer: Any = AutoTokenizer.from_pretrained(str(folder))
    special = {name: getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    pre = _find_rule(raw.get("pre_tokenizer") or {})
    return Vocabulary(tokens, kinds, merges, special, pre, tokenizer.chat_template)


def add_vocabulary(writer: Any, made: Vocabulary) -> None:
    """Writes it into a `gguf.GGUFWriter`."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(made.pre)
    writer.add_token_list(made.tokens)
    writer.add_token_types(made.kinds)
    writer.add_token_merges(made.merges)
    for name, at in made.special.items():
        if at is not None:
            getattr(writer, f"add_{name}_token_id")(at)
    writer.add_add_bos_token(False)  # the chat template writes what begins a prompt
    if made.template:
        writer.add_chat_template(made.template)


def _find_rule(pre: Mapping[str, Any]) -> str:
    parts = pre.get("pretokenizers") or [pre]
    patterns = [(part.get("pattern") or {}).get("Regex") for part in parts if "pattern" in part]
    if len(patterns) == 1:
        return _PRE_TOKENIZERS.get(str(patterns[0]), NOT_KNOWN)
    plain = [part.get("type") for part in parts] == ["ByteLevel"] and not patterns
    own = plain and parts[0].get("use_regex", True) and not parts[0].get("add_prefix_space")
    return "gpt-2" if own else NOT_KNOWN
