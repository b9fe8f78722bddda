"""The tiny base's language: its chat template and its tokenizer.

The template takes whole schemas and shortens them itself. The tools stand after the request, each
as its first words, its name, a token for the type of each required parameter and the parameter, the
first few optional ones: so a word of a tool can look back at the same word of the request, which
one layer learns. A call is plain JSON.

Every piece of a word is there with and without a space, `_` or `/` before it, and cut alike:
`Budget` in a request and `"Budget"` in a call differ by no more. Copying is what is to be learned.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

WORDS = 10  # of a description
OPTIONAL = 5  # parameters that are shown though they are not required
END, PAD, USER, CALL, NONE = "<|end|>", "<|pad|>", "<|user|>", "<|call|>", "<|none|>"
_TYPES = ("str", "int", "num", "bool", "arr", "list", "obj", "any")
SPECIAL = (
    END, PAD, USER, CALL, NONE, "<|tool|>", "<|:|>",
    *(f"<|{kind}{how}|>" for how in ("", "?") for kind in _TYPES),
)  # fmt: skip
# What stands between the words of a call, each one token: a value's own first and last characters
# never melt into it.
NAME, AFTER_NAME = '{"name": "', ('", "arguments": {"', '", "arguments": {}}')
SCAFFOLD = (
    NAME, *AFTER_NAME, '": "', '", "', '": ', ', "', '"}}',
    "}}", '"}', '": ["', '"]', '": {"', '"]}}', '": [{"', '"}]',
)  # fmt: skip
SPACE = "Ġ"  # how byte-level BPE writes a space
# What a piece may begin with, each piece with and without: `_get` and `/home` are one piece, since
# after a bare `_` or `/` too many things follow to copy the right one.
LEADS = (SPACE, "_", "/")
_PIECES = r"[ _/]?(?:[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_A-Za-z]+)| ?\d| ?[^\sA-Za-z\d]|\s"

_KIND = """
{%- macro first_type(s) -%}
{%- if s.type is string -%}{{ s.type }}
{%- elif s.type -%}{{ s.type | reject('equalto', 'null') | first }}
{%- elif s.anyOf is iterable and s.anyOf is not string -%}
{{ s.anyOf | select('mapping') | map(attribute='type') | select('string')
   | reject('equalto', 'null') | first }}
{%- endif -%}
{%- endmacro -%}
{%- macro kind(s) -%}
{%- set k = first_type(s) | trim -%}
{%- if k == 'integer' -%}int{%- elif k == 'number' -%}num{%- elif k == 'boolean' -%}bool
{%- elif k == 'object' -%}obj
{%- elif k == 'array' -%}
{%- if s['items'] is mapping and s['items'].type not in ['string', none] -%}list
{%- else -%}arr{%- endif -%}
{%- elif k == 'string' or s.enum -%}str{%- else -%}any{%- endif -%}
{%- endmacro -%}
"""
_BLOCK = """
{%- macro block(f) -%}
{%- set words = (f.description or '').split() -%}
<|tool|>{{ words[:WORDS] | join(' ') | lower | replace('<|', '< |') }}<|:|>{{ f.name }}
{%- set p = f.parameters or {} -%}
{%- set need = p.required or [] -%}
{%- set seen = namespace(optional=0) -%}
{%- for name, s in (p.properties or {}) | dictsort -%}
{%- if name in need -%}<|{{ kind(s) }}|>{{ name }}
{%- elif seen.optional < OPTIONAL -%}
{%- set seen.optional = seen.optional + 1 -%}<|{{ kind(s) }}?|>{{ name }}
{%- endif -%}
{%- endfor -%}
{%- endmacro -%}
"""
_CALLS = """
{%- macro written(called) -%}
{%- for c in called -%}
{"name": "{{ (c.function.name | tojson)[1:] }}, "arguments": {
{%- for name, value in c.function.arguments | dictsort -%}
{{ name | tojson }}: {{ value | tojson }}{%- if not loop.last -%}{{ ', ' }}{%- endif -%}
{%- endfor -%}
}}
{%- endfor -%}
{%- endmacro -%}
"""
_TURNS = """
{%- macro shown(text) -%}{{ (text or '') | replace('<|', '< |') }}{%- endmacro -%}
{%- set last = namespace(user=-1) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set last.user = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for m in messages -%}
{%- if m.role == 'user' -%}<|user|>{{ shown(m.content) }}
{%- if loop.index0 == last.user -%}
{%- for t in tools or [] -%}{{ block(t.function) }}{%- endfor -%}
{%- endif -%}
{%- elif m.role == 'assistant' -%}<|call|>
{%- if m.tool_calls -%}{{ written(m.tool_calls) }}
{%- else -%}<|none|>{{ shown(m.content) }}{%- endif -%}
<|end|>
{%- elif m.role == 'tool' -%}<|:|>{{ shown(m.content) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|call|>{%- endif -%}
"""
# A system message is the same every time and is left out: 10 tokens of every prompt.
TEMPLATE = _KIND + _BLOCK + _CALLS + _TURNS
for _name, _value in (("WORDS", WORDS), ("OPTIONAL", OPTIONAL)):
    TEMPLATE = TEMPLATE.replace(_name, str(_value))


def make_tokenizer(texts: Iterable[str], vocabulary: int) -> Any:
    """A tokenizer trained on `texts`: `vocabulary` pieces of words, each with and without a space
    before it, the special tokens and the scaffold; its chat template is TEMPLATE."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, trainers
    from transformers import PreTrainedTokenizerFast

    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = _build_splitter(_PIECES.replace("[ _/]?", "").replace(" ?", ""))
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=_list_alphabet(), show_progress=False
    )
    learned.train_from_iterator(texts, trainer)
    raw = Tokenizer(_with_spaces(json.loads(learned.to_str())["model"]))
    raw.pre_tokenizer = _build_splitter(_PIECES)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in SPECIAL])
    raw.add_tokens([AddedToken(each, normalized=False) for each in SCAFFOLD])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[each for each in SPECIAL if each not in (END, PAD)],
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def _with_spaces(learned: Mapping[str, Any]) -> Any:
    """The BPE with twins of every piece that begin with a space, `_` or `/`. Joining those are the
    last merges of all, so a word is cut alike with and without them."""
    from tokenizers import models

    merges = [
        tuple(m) if isinstance(m, list) else tuple(m.split(" ", 1)) for m in learned["merges"]
    ]
    pieces = dict.fromkeys(learned["vocab"])
    for piece in learned["vocab"]:
        for lead in LEADS if piece not in LEADS else ():
            if lead == SPACE or piece.isalpha():
                pieces[lead + piece] = None
                merges.append((lead, piece))
    return models.BPE(vocab={piece: at for at, piece in enumerate(pieces)}, merges=merges)


def _build_splitter(pieces: str) -> Any:
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pieces), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _list_alphabet() -> list[str]:
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())
