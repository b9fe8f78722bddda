"""Retrieval-augmented prompting: accepted train pairs like the request, shown before it.

The rule. A pair is shown only if it is of the train split and
- is not the request's own pair, nor has the same words;
- is of another server, where the request's split is an unseen one (server, tool or time);
- is no near-duplicate of the request (cosine below TOO_NEAR), so that no answer is copied from
  the same question;
- does not make the very call that is right here, where that call has arguments.
The last two use what only the test knows; they can make the measured gain smaller, never larger.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from training.prompts.render import read_calls, read_messages
from warehouse.json_types import Row
from warehouse.sanitize.untrusted_text import fold_words

Embed = Callable[[Sequence[str]], np.ndarray]
Example = tuple[str, list[dict[str, Any]]]
TOO_NEAR = 0.95  # a cosine at which two requests are one
RULE = (
    "similar accepted train pairs, the nearest by cosine of the base embedder; never the request's"
    " own pair or words, never its server where the split is unseen, never a pair at a cosine of"
    f" {TOO_NEAR:g} or more, never one with the same call"
)
_SEEN = ("train", "seen_tool")
_BLOCK = 1024
PER_TOOL = 2  # examples of one tool in a prompt


def select_similar_examples(
    rows: Sequence[Row],
    train_rows: Sequence[Row],
    embed: Embed,
    n: int,
    too_near: float = TOO_NEAR,
) -> list[tuple[Example, ...]]:
    """For each row up to `n` (instruction, calls) of train pairs, the nearest last: next to the
    request it stands where models read it best. Rows are those of TRAINING_SET; `embed` returns
    unit vectors. Rows of `train_rows` that are of no train split, or are whole conversations, are
    passed over."""
    known = [
        _PairIndex(row) for row in train_rows if row["split"] == "train" and not read_messages(row)
    ]
    if n < 1 or not known or not rows:
        return [() for _ in rows]
    ours = embed([item.instruction for item in known])
    out: list[tuple[Example, ...]] = []
    for start in range(0, len(rows), _BLOCK):
        part = rows[start : start + _BLOCK]
        scores = embed([row["instruction"] for row in part]) @ ours.T
        for row, near in zip(part, scores, strict=True):
            asked = _PairIndex(row)
            nearest = choose_nearest(
                known,
                near,
                n,
                words=asked.words,
                too_near=too_near,
                may_show=partial(_is_example_allowed, asked),
            )
            chosen = list(nearest)
            out.append(tuple((item.instruction, item.calls) for item in reversed(chosen)))
    return out


class _PairIndex:
    """What of a row decides whether it may be shown."""

    def __init__(self, row: Row) -> None:
        self.pair_id, self.server_id = row["pair_id"], row["server_id"]
        self.tool = (self.server_id, row["tool"])
        self.instruction: str = row["instruction"]
        self.unseen = row["split"] not in _SEEN
        self.calls = read_calls(row)
        self.words = tuple(fold_words(self.instruction))
        given = any(call["arguments"] for call in self.calls)
        self.answer = json.dumps(self.calls, sort_keys=True) if given else None


def _is_example_allowed(row: _PairIndex, one: _PairIndex) -> bool:
    if one.pair_id == row.pair_id or (row.unseen and one.server_id == row.server_id):
        return False
    return row.answer is None or one.answer != row.answer


class KnownRequest(Protocol):
    """A request that is known with its right calls. tool: whose example it is."""

    words: tuple[str, ...]
    tool: Any


K = TypeVar("K", bound=KnownRequest)


def choose_nearest(
    known: Sequence[K],
    near: np.ndarray,
    n: int,
    *,
    words: tuple[str, ...],
    too_near: float,
    may_show: Callable[[K], bool],
) -> Iterator[K]:
    """Up to n of `known`, the nearest first. near: their cosines to the request, (known,).
    words: the request's words. too_near: a cosine from which on two requests are one."""
    chosen, of_tool, shown = {words}, dict[Any, int](), 0
    for place in np.argsort(-near, kind="stable"):
        one = known[place]
        if shown >= n:
            return
        if float(near[place]) >= too_near or one.words in chosen or not may_show(one):
            continue
        if of_tool.get(one.tool, 0) >= PER_TOOL:
            continue
        chosen.add(one.words)
        of_tool[one.tool] = of_tool.get(one.tool, 0) + 1
        shown += 1
        yield one
