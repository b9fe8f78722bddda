"""Rows as lessons: of every task exactly the model's right turns are learned."""

import json
import re
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.synthesis.tables import TASKS
from tests.support.examples import examples
from tests.support.small_caller import make_small_tokenizer
from tests.synthesis.export_rows import TRAIN_SERVERS, pair, snapshot
from tests.training.conftest import embed, raw_tool
from training.caller.packing import TrainingLesson, pack_batch, pad_batch
from training.caller.settings import resolve_caller_settings
from training.caller.smollm2 import SMOLLM2
from training.caller.tokenise import build_train_pool, make_lessons, make_row_lessons
from training.prompts.call_text import parse_calls
from training.prompts.render import NO_CALL, render_tool_schema, render_turns
from training.sets.split import SetPolicy
from training.sets.training_set import TrainingSet, build_training_set

Row = dict[str, Any]
SETTINGS = resolve_caller_settings(SMOLLM2, candidates=3)
# Qwen3 takes the empty thought out of earlier turns, so that a later prompt does not go on from an
# earlier answer; Llama-3.1 puts the tools before the first request.
TEMPLATES = (SMOLLM2, "qwen2_5", "qwen3", "llama3_1")
_MARKS = re.compile(r"<\|[^|]*\|>|</?tool_call>")


def tokenizer(template: str) -> Any:
    made = copy(make_small_tokenizer())
    if template != SMOLLM2:
        trl = pytest.importorskip("trl")
        folder = Path(trl.__file__).parent / "chat_templates"
        made.chat_template = (folder / f"{template}.jinja").read_text()
    return made


@pytest.fixture(scope="module")
def every() -> TrainingSet:
    """A training set that has a row of every task in its train split."""
    pairs = [pair(server, task) for server in TRAIN_SERVERS for task in TASKS]
    snapshots = [snapshot(server, verb) for server in TRAIN_SERVERS for verb in ("find", "drop")]
    return build_training_set(
        pairs, snapshots, embed, SetPolicy(seen_tools=0.0, unseen_tools=0.0, near_cosine=1.0)
    )


def learned(made: Any, lessons: list[TrainingLesson]) -> list[str]:
    """The text of each run of tokens that are learned, in order."""
    out = []
    for lesson in lessons:
        spans: list[list[int]] = []
        for place in lesson.places:
            if spans and place == spans[-1][-1] + 1:
                spans[-1].append(place)
            else:
                spans.append([place])
        out += [made.decode([lesson.ids[at] for at in span]) for span in spans]
    return out


def turns_of(row: Row) -> list[Any]:
    """What the model is to say in a row, by the pair's own conversation: calls, or words."""
    calls = [{"name": c["name"], "arguments": c["arguments"]} for c in json.loads(row["calls"])]
    match row["task"]:
        case "no_tool":
            return [NO_CALL]
        case "missing_parameter":
            return ["Which title do you mean?"]
        case "clarification":
            return ["Which title?", calls]
        case "sequential":
            return [[call] for call in calls]
        case _:
            return [calls]


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("task", TASKS)
def test_exactly_the_models_turns_are_learned(every: TrainingSet, template: str, task: str) -> None:
    made = tokenizer(template)
    rows = [row for row in every.rows if row["task"] == task]
    assert len(rows) == len(TRAIN_SERVERS)
    for row in rows:
        pool = build_train_pool([row], every.pool)
        lessons, counts = make_lessons([row], pool, made, SETTINGS)
        assert (counts["rows"], counts["too_long"], counts["not_renderable"]) == (1, 0, 0)
        texts = [_MARKS.sub("", text).strip() for text in learned(made, lessons)]
        for text, wanted in zip(texts, turns_of(row), strict=True):
            if isinstance(wanted, str):
                assert text == wanted
            else:
                assert parse_calls(text).calls == wanted
        assert counts["completion_tokens"] == sum(len(lesson.places) for lesson in lessons)


def test_a_conversation_is_one_lesson_where_the_template_goes_on_from_its_answers(
    every: TrainingSet,
) -> None:
    [row, *_] = [row for row in every.rows if row["task"] == "sequential"]
    pool = build_train_pool([row], every.pool)
    whole, _ = make_lessons([row], pool, tokenizer("qwen2_5"), SETTINGS)
    apart, _ = make_lessons([row], pool, tokenizer("qwen3"), SETTINGS)
    assert [len(lesson.gaps) for lesson in whole] == [1]
    assert [len(lesson.gaps) for lesson in apart] == [0, 0]


def test_a_result_that_the_template_does_not_show_is_counted_and_left_out(
    every: TrainingSet,
) -> None:
    made = tokenizer(SMOLLM2)
    silent = "{%- set messages = messages | rejectattr('role', 'equalto', 'tool') | list -%}"
    made.chat_template = silent + made.chat_template
    lessons, counts = make_lessons(
        every.rows, build_train_pool(every.rows, every.pool), made, SETTINGS
    )
    assert counts["not_renderable"] == 2 * len(TRAIN_SERVERS)  # sequential, recovery
    assert lessons


def test_a_conversation_that_the_template_refuses_is_counted_and_left_out(
    every: TrainingSet,
) -> None:
    made = tokenizer(SMOLLM2)
    refuses = "{% if messages | selectattr('role', 'equalto', 'user') | list | length > 1 %}"
    refuses += "{{ raise_exception('one request only') }}{% endif %}"
    made.chat_template = refuses + made.chat_template
    _, counts = make_lessons(every.rows, build_train_pool(every.rows, every.pool), made, SETTINGS)
    assert counts["not_renderable"] == len(TRAIN_SERVERS)  # clarification


words = st.text(st.characters(codec="utf-8", exclude_characters="<|>"), min_size=1, max_size=12)
calls = st.builds(
    lambda value: [{"id": "c", "type": "function",
                    "function": {"name": "find_file", "arguments": {"title": value}}}],
    words,
)  # fmt: skip
models = st.one_of(
    st.builds(lambda text: {"role": "assistant", "content": text}, words),
    st.builds(
        lambda made, weight: {"role": "assistant", "content": None, "tool_calls": made} | weight,
        calls,
        st.sampled_from([{}, {"weight": 0}]),
    ),
)
others = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, words),
    st.builds(lambda text: {"role": "tool", "tool_call_id": "c", "content": text}, words),
)


@examples(60)
@given(
    st.builds(lambda text: {"role": "user", "content": text}, words),
    st.lists(st.tuples(models, others), max_size=3),
    models,
    st.sampled_from(TEMPLATES[:3]),
)
def test_whatever_is_said_its_right_turns_are_learned_and_nothing_else(
    first: Row, middle: list[tuple[Row, Row]], last: Row, template: str
) -> None:
    made = tokenizer(template)
    messages = [first, *(one for two in middle for one in two), last]
    turns = render_turns(made, [render_tool_schema(raw_tool("find", "file"))], messages)
    lessons = make_row_lessons(made, turns)
    assert learned(made, lessons) == [made.decode(_ids(made, text)) for _, text in turns if text]
    right = [one for one in messages if one["role"] == "assistant" and one.get("weight") != 0]
    assert len(turns) == len(right)
    for (_, text), message in zip(turns, right, strict=True):
        if message.get("tool_calls"):
            assert parse_calls(_MARKS.sub("", text)).calls == [
                {
                    "name": "find_file",
                    "arguments": message["tool_calls"][0]["function"]["arguments"],
                }
            ]
        else:
            assert message["content"].strip() in text


def _ids(made: Any, text: str) -> list[int]:
    return made(text, add_special_tokens=False)["input_ids"]


@st.composite
def lessons(draw: st.DrawFn) -> TrainingLesson:
    spans = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=4))
    ids, start, gaps = [], spans[0][0], []
    for context, answer in spans:
        if ids:
            gaps.append((len(ids), len(ids) + context))
        ids += draw(
            st.lists(st.integers(1, 90), min_size=context + answer, max_size=context + answer)
        )
    return TrainingLesson(ids, start, tuple(gaps))


@examples(60)
@given(st.lists(lessons(), min_size=1, max_size=4))
def test_packed_or_padded_the_same_tokens_are_told(rows: list[TrainingLesson]) -> None:
    wanted = [[row.ids[at] for at in row.places] for row in rows]
    packed = pack_batch(rows, 0)
    assert packed["labels"][0].tolist() == [token for each in wanted for token in each]
    flat = packed["input_ids"][0].tolist()
    assert [flat[at + 1] for at in packed["logits_to_keep"].tolist()] == packed["labels"][
        0
    ].tolist()
    padded = pad_batch(rows, 0)
    kept = padded["logits_to_keep"].tolist()
    for row, row_labels, each in zip(rows, padded["labels"].tolist(), wanted, strict=True):
        learned_at = [at for at, one in zip(kept, row_labels, strict=True) if one != -100]
        assert [label for label in row_labels if label != -100] == each
        assert [at + 1 for at in learned_at] == row.places
        assert row.learned == len(each)
