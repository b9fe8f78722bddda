"""How long the prompts of a training set are, by a tokenizer that is there on every machine."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from training.prompts.render import NO_CALL, SYSTEM, is_learnt, render_tool_schema
from training.prompts.rows import list_turns, read_message_calls, read_messages
from training.sets.candidates import MIXED, draw_candidates
from training.sets.pool import Pool, select_split_pool
from training.sets.split import SPLITS
from warehouse.json_types import Row

Count = Callable[[Sequence[str]], list[int]]
CANDIDATES = (10, 100)
LIMIT = 8192
TOKENIZER = "minilm-l6-v2 word pieces"
_ROWS = 300  # rows a split that are counted, evenly over their ids: figures are of these


def compute_token_statistics(
    rows: Sequence[Row],
    pool: Mapping[str, Mapping[str, Any]],
    count: Count | None = None,
    tokenizer: str = TOKENIZER,
) -> dict[str, Any]:
    """Percentiles of prompt and completion tokens per split at 10 and 100 mixed candidates, and how
    many rows would lose distractors at 8,192 tokens."""
    made = _Counter(count or make_word_piece_counter(), pool)
    splits = {}
    for split in SPLITS:
        part = _sample_evenly([row for row in rows if row["split"] == split])
        if part:
            shown = select_split_pool(pool, split)
            splits[split] = {
                "n": len(part),
                "completion": _compute_percentiles(made.count_completions(part)),
            } | {f"prompt_{n}": made.count_prompts(part, shown, n) for n in CANDIDATES}
    return {"tokenizer": tokenizer, "limit": LIMIT, "distractors": MIXED, "splits": splits}


@cache
def make_word_piece_counter() -> Count:
    """Token counts by MiniLM's tokenizer, nothing cut."""
    from tokenizers import Tokenizer

    from assets.vectors.encoders.weights import find_base_path

    tokenizer = Tokenizer.from_file(str(find_base_path() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def counted(texts: Sequence[str]) -> list[int]:
        made = tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [len(one.ids) for one in made]

    return counted


class _Counter:
    def __init__(self, count: Count, pool: Mapping[str, Mapping[str, Any]]) -> None:
        self._count = count
        texts = {
            name: _to_json_text(render_tool_schema(pool[name]["contract"])) for name in sorted(pool)
        }
        self._tools = dict(zip(texts, count(list(texts.values())), strict=True))
        self._system = count([SYSTEM])[0]

    def count_completions(self, rows: Sequence[Row]) -> list[int]:
        return self._count(list(map(_join_answers, rows)))

    def count_prompts(self, rows: Sequence[Row], pool: Pool, n: int) -> dict[str, Any]:
        asked = self._count(list(map(_join_context, rows)))
        completions = self.count_completions(rows)
        names = {id(pool[name]): name for name in pool}
        shown = [draw_candidates(row, pool, n) for row in rows]
        tools = [sum(self._tools[names[id(one)]] for one in offer) for offer in shown]
        lengths = [self._system + a + t for a, t in zip(asked, tools, strict=True)]
        over = sum(length + own > LIMIT for length, own in zip(lengths, completions, strict=True))
        fewest = min(len(offer) for offer in shown)
        return {**_compute_percentiles(lengths), "over_limit": over, "fewest_candidates": fewest}


def _join_answers(row: Row) -> str:
    """All that the model writes in a row."""
    if not (messages := read_messages(row)):
        [turn] = list_turns(row)
        return _to_json_text(turn.calls) if turn.calls else NO_CALL
    return "\n".join(_write_message(message) for message in messages if is_learnt(message))


def _join_context(row: Row) -> str:
    """All that is said to the model in a row, tools aside."""
    messages = read_messages(row)
    contents = [_write_message(message) for message in messages if not is_learnt(message)]
    return "\n".join(contents) or row["instruction"]


def _write_message(message: Row) -> str:
    calls = read_message_calls(message)
    return _to_json_text(calls) if calls else str(message.get("content") or "")


def _compute_percentiles(counts: Sequence[int]) -> dict[str, int]:
    low, high = np.percentile(counts, [50, 95])
    return {"p50": round(float(low)), "p95": round(float(high)), "max": max(counts)}


def _sample_evenly(rows: Sequence[Row]) -> list[Row]:
    ordered = sorted(rows, key=lambda row: row["pair_id"])
    if len(ordered) <= _ROWS:
        return ordered
    return [ordered[at * len(ordered) // _ROWS] for at in range(_ROWS)]


def _to_json_text(held: Any) -> str:
    return json.dumps(held, ensure_ascii=False)
