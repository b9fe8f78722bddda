"""A training row as text: candidate tools, the instruction, and the call the model must write.

What belongs here: choosing candidates, the chat-template rendering, reading a call back out of
model text. What does not: tokenising and loss masks (`caller.py`).
"""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from assets.contracts.canonical import parameters

Contract = Mapping[str, Any]
SYSTEM = "Choose one tool and write its call as JSON."
_TYPES = ("string", "integer", "number", "boolean", "array", "object")


class BadTemplate(ValueError):
    """A tokenizer whose chat template cannot render a tool call."""


def candidates(
    row: Mapping[str, Any], pool: Mapping[str, Contract], n: int, *, hard: int = 2
) -> list[Contract]:
    """The row's contract among `n - 1` others in an order of its own: up to `hard` look-alikes
    from the row's negatives, the rest drawn from `pool` (contract digest -> contract).

    A function of the row and the pool alone: the same on every machine and night.
    """
    seed = hashlib.sha256(row["pair_id"].encode()).digest()
    rng = random.Random(int.from_bytes(seed[:8]))
    gold = row["contract_digest"]
    taken = {pool[gold]["name"]}
    chosen = [pool[gold]]
    near = [name for name in json.loads(row["negatives"]) if name in pool][:hard]
    others = sorted(pool.keys() - {gold, *near})
    for name in [*near, *rng.sample(others, len(others))]:
        if len(chosen) == n:
            break
        if pool[name]["name"] not in taken:
            taken.add(pool[name]["name"])
            chosen.append(pool[name])
    rng.shuffle(chosen)
    return chosen


def tool_schema(contract: Contract, words: int | None = None) -> dict[str, Any]:
    """The contract as an OpenAI-style function; `words` cuts the descriptions (tiny contexts)."""
    described = contract.get("description", "")
    if words is None:
        schema = contract.get("inputSchema", {"type": "object", "properties": {}})
        body = {"description": described, "parameters": schema}
    else:
        short = {name: {"type": _type(schema)} for name, schema in parameters(contract)}
        required = contract.get("inputSchema", {}).get("required") or []
        needed = {name: kind for name, kind in short.items() if name in required}
        cut = " ".join(described.split()[:words])
        body = {"description": cut, "parameters": {"type": "object", "properties": needed}}
    return {"type": "function", "function": {"name": contract["name"], **body}}


def render(
    tokenizer: Any,
    tools: Sequence[Mapping[str, Any]],
    instruction: str,
    call: Mapping[str, Any] | None = None,
) -> tuple[str, str]:
    """(prompt, completion) through the tokenizer's own chat template; completion "" without call.

    Raises BadTemplate when the tokenizer has none, or one that rewrites the prompt once an answer
    is there.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise BadTemplate(f"{tokenizer.name_or_path}: no chat template; use an instruct model")
    asked = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": instruction}]
    options = {"tools": list(tools), "tokenize": False}
    prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True, **options)
    if call is None:
        return prompt, ""
    answer = {"role": "assistant", "content": "", "tool_calls": [_tool_call(call)]}
    whole = tokenizer.apply_chat_template([*asked, answer], **options)
    if not whole.startswith(prompt):
        raise BadTemplate(f"{tokenizer.name_or_path}: its template rewrites the prompt")
    return prompt, whole[len(prompt) :]


def parse_call(text: str) -> dict[str, Any] | None:
    """The first JSON object in model text that has a `name`; None for prose and broken JSON."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            found, _ = decoder.raw_decode(text, start)
        except ValueError:
            found = None
        if isinstance(found, dict) and isinstance(found.get("name"), str):
            held = found.get("arguments")
            return {"name": found["name"], "arguments": held if isinstance(held, dict) else {}}
        start = text.find("{", start + 1)
    return None


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    held = {"name": call["name"], "arguments": dict(call["arguments"])}
    return {"type": "function", "function": held}


def _type(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    kind = next((k for k in kind if k != "null"), None) if isinstance(kind, list) else kind
    return kind if kind in _TYPES else "string"
