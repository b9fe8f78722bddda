"""Cards of what is pushed: of the model's own card, with datasets and base that are on the hub, and
a loading section that needs no package of ours."""

import re
from collections.abc import Mapping
from typing import Any

_FRONT = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
_LOADING = re.compile(r"\n## Loading\n.*?(?=\n## |\Z)", re.DOTALL)

ADAPTER = """from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = AutoModelForCausalLM.from_pretrained("{base}"{revision})
model = PeftModel.from_pretrained(base, "{repo}")
tokenizer = AutoTokenizer.from_pretrained("{base}"{revision})"""
MERGED = """from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("{repo}")
tokenizer = AutoTokenizer.from_pretrained("{repo}")"""
ENCODER = """from peft import PeftModel
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{base}")
model[0].auto_model = PeftModel.from_pretrained(model[0].auto_model, "{repo}")
vectors = model.encode(["which hour is it in Paris?"])"""


def rewrite_card(text: str, snippet: str, changes: Mapping[str, Any]) -> str:
    """A model's card for the hub. changes: keys of its front matter, None takes one out. A card
    without front matter gets one."""
    import yaml

    found = _FRONT.match(text)
    held = yaml.safe_load(found[1]) if found else {}
    front = {**(held if isinstance(held, dict) else {}), **changes}
    kept = {key: value for key, value in front.items() if value is not None}
    body = _LOADING.sub("", text[found.end() :] if found else text).rstrip("\n")
    head = yaml.safe_dump(kept, sort_keys=False, allow_unicode=False)
    return f"---\n{head}---\n{body}\n\n## Loading\n\n```python\n{snippet}\n```\n"
