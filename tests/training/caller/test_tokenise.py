"""Rows as lessons of exactly the model's right turns, each learned once however it is packed."""

import json
import re
from copy import copy
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.synthesis.tables import TASKS
from tests.extensions.publishing.adapters import read_template
from tests.support.cases import cases
from tests.support.examples import examples
from tests.support.small_caller import make_small_tokenizer
from tests.synthesis.export_rows import TRAIN_SERVERS, pair, snapshot
from tests.training.conftest import embed, raw_tool
from tests.training.small_base import make_model
from training.caller import packing, settings, smollm2, train
from training.caller.tokenise import build_train_pool, make_lessons, make_row_lessons
from training.prompts.call_text import parse_calls
from training.prompts.render import NO_CALL, render_tool_schema, render_turns
from training.sets.split import SetPolicy
from training.sets.training_set import TrainingSet, build_training_set

Row = dict[str, Any]
SETTINGS = settings.resolve_caller_settings(smollm2.SMOLLM2, candidates=3)
# Qwen3 takes the empty thought out of earlier turns, so that a later prompt does not go on from an
# earlier answer; Llama-3.1 puts the tools before the first request.
TEMPLATES = (smollm2.SMOLLM2, "qwen2_5", "qwen3", "llama3_1")
_MARKS = re.compile(r"<\|[^|]*\|>|</?tool_call>")


def tokenizer(template: str) -> Any:
    made = copy(make_small_tokenizer())
    if template != smollm2.SMOLLM2:
        made.chat_template = read_template(template)
    return made


@pytest.fixture(scope="module")
def every() -> TrainingSet:
    pairs = [pair(server, task) for server in TRAIN_SERVERS for task in TASKS]
    snapshots = [snapshot(server, verb) for server in TRAIN_SERVERS for verb in ("find", "drop")]
    return build_training_set(
        pairs, snapshots, embed, SetPolicy(seen_tools=0.0, unseen_tools=0.0, near_cosine=1.0)
    )


def learned(made: Any, lessons: list[packing.TrainingLesson]) -> list[str]:
    texts = []
    for lesson in lessons:
        runs = groupby(enumerate(lesson.places), lambda each: each[1] - each[0])
        texts += [made.decode([lesson.ids[place] for _, place in run]) for _, run in runs]
    return texts


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
def test_exactly_the_models_turns_are_learned(every, template, task):
    made = tokenizer(template)
    rows = [row for row in every.rows if row["task"] == task]
    assert len(rows) == len(TRAIN_SERVERS)
    for row in rows:
        lessons, counts = make_lessons([row], build_train_pool([row], every.pool), made, SETTINGS)
        assert (counts["rows"], counts["too_long"], counts["not_renderable"]) == (1, 0, 0)
        texts = [_MARKS.sub("", text).strip() for text in learned(made, lessons)]
        for text, wanted in zip(texts, turns_of(row), strict=True):
            if isinstance(wanted, str):
                assert text == wanted
            else:
                assert parse_calls(text).calls == wanted
        assert counts["completion_tokens"] == sum(len(lesson.places) for lesson in lessons)


def test_a_conversation_is_one_lesson_where_the_template_goes_on_from_its_answers(every):
    [row, *_] = [row for row in every.rows if row["task"] == "sequential"]
    pool = build_train_pool([row], every.pool)
    whole, _ = make_lessons([row], pool, tokenizer("qwen2_5"), SETTINGS)
    apart, _ = make_lessons([row], pool, tokenizer("qwen3"), SETTINGS)
    assert [len(lesson.gaps) for lesson in whole] == [1]
    assert [len(lesson.gaps) for lesson in apart] == [0, 0]


SILENT = "{%- set messages = messages | rejectattr('role', 'equalto', 'tool') | list -%}"
REFUSES = (
    "{% if messages | selectattr('role', 'equalto', 'user') | list | length > 1 %}"
    "{{ raise_exception('one request only') }}{% endif %}"
)


@cases("before, tasks", (SILENT, ("sequential", "recovery")), (REFUSES, ("clarification",)))
def test_what_the_template_does_not_show_or_refuses_is_counted_and_left_out(every, before, tasks):
    made = tokenizer(smollm2.SMOLLM2)
    made.chat_template = before + made.chat_template
    pool = build_train_pool(every.rows, every.pool)
    lessons, counts = make_lessons(every.rows, pool, made, SETTINGS)
    assert counts["not_renderable"] == len(tasks) * len(TRAIN_SERVERS)
    assert lessons


words = st.text(st.characters(codec="utf-8", exclude_characters="<|>"), min_size=1, max_size=12)


def make_calls(title: str, **weight: int) -> Row:
    function = {"name": "find_file", "arguments": {"title": title}}
    calls = [{"id": "c", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls, **weight}


right, wrong = (st.builds(make_calls, words, **of) for of in ({}, {"weight": st.just(0)}))
models = st.builds(lambda text: {"role": "assistant", "content": text}, words) | right | wrong
users = st.builds(lambda text: {"role": "user", "content": text}, words)
results = st.builds(lambda text: {"role": "tool", "tool_call_id": "c", "content": text}, words)
others = users | results


@examples(60)
@given(
    users, st.lists(st.tuples(models, others), max_size=3), models, st.sampled_from(TEMPLATES[:3])
)
def test_of_whatever_is_said_the_right_turns_are_learned(first, middle, last, template):
    made = tokenizer(template)
    messages = [first, *(one for two in middle for one in two), last]
    turns = render_turns(made, [render_tool_schema(raw_tool("find", "file"))], messages)
    lessons = make_row_lessons(made, turns)
    ids = [made(text, add_special_tokens=False)["input_ids"] for _, text in turns if text]
    assert learned(made, lessons) == [made.decode(one) for one in ids]
    right = [one for one in messages if one["role"] == "assistant" and one.get("weight") != 0]
    assert len(turns) == len(right)
    for (_, text), message in zip(turns, right, strict=True):
        if message.get("tool_calls"):
            assert parse_calls(_MARKS.sub("", text)).calls == [message["tool_calls"][0]["function"]]
        else:
            assert message["content"].strip() in text


@st.composite
def lessons(draw: st.DrawFn) -> packing.TrainingLesson:
    spans = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=4))
    ids, start, gaps = [], spans[0][0], []
    for context, answer in spans:
        if ids:
            gaps.append((len(ids), len(ids) + context))
        ids += [draw(st.integers(1, 90)) for _ in range(context + answer)]
    return packing.TrainingLesson(ids, start, tuple(gaps))


@examples(60)
@given(st.lists(lessons(), min_size=1, max_size=4))
def test_packed_or_padded_the_same_tokens_are_told(rows):
    wanted = [[row.ids[at] for at in row.places] for row in rows]
    packed = packing.pack_batch(rows, 0)
    labels, flat = packed["labels"][0].tolist(), packed["input_ids"][0].tolist()
    assert labels == [token for each in wanted for token in each]
    assert [flat[at + 1] for at in packed["logits_to_keep"].tolist()] == labels
    padded = packing.pad_batch(rows, 0)
    kept = padded["logits_to_keep"].tolist()
    for row, row_labels, each in zip(rows, padded["labels"].tolist(), wanted, strict=True):
        learned_at = [at for at, one in zip(kept, row_labels, strict=True) if one != -100]
        assert [label for label in row_labels if label != -100] == each
        assert [at + 1 for at in learned_at] == row.places
        assert row.learned == len(each)


LESSONS = [
    packing.TrainingLesson([3 + i, *range(10, 10 + 3 * i), 7, 8, 9], 2 + i) for i in range(1, 6)
]
RANGES = {"per_update": (1, 20), "epochs": (1, 3), "seed": (0, 9), "pass_rows": (1, 5)}
RANGES |= {"processes": (1, 3)}
PLANS = st.fixed_dictionaries({name: st.integers(*range_) for name, range_ in RANGES.items()})
LENGTHS = st.lists(st.integers(1, 120), min_size=1, max_size=60)


@given(LENGTHS, PLANS, st.none() | st.integers(1, 200))
@examples(150)
def test_every_row_is_learned_once_an_epoch_within_the_limit(lengths, chosen, limit):
    made = packing.plan_passes(lengths, pass_tokens=limit, **chosen)
    seen = sorted(row for part in made.passes for row in part)
    assert seen == sorted([*range(len(lengths))] * chosen["epochs"])
    assert len(made.passes) == made.updates * made.per_update
    assert made.per_update % chosen["processes"] == 0
    for part in made.passes:
        if limit is None:
            assert len(part) <= chosen["pass_rows"]
        else:
            assert len(part) <= 1 or sum(lengths[row] for row in part) <= limit
    assert 0 < packing.compute_efficiency(made, lengths, padded=limit is None) <= 1
    # However they are packed, an update takes the same rows.
    other = packing.plan_passes(
        lengths, pass_tokens=None, **{**chosen, "processes": 2, "pass_rows": 1}
    )
    assert made.updates == other.updates
    for update in range(1, made.updates + 1):
        assert sorted(made.get_update_rows(update)) == sorted(other.get_update_rows(update))


@given(LENGTHS, st.integers(1, 8))
def test_balanced_groups_hold_all_rows_and_differ_by_one_row_at_most(lengths, parts):
    made = packing.balance_rows(range(len(lengths)), lengths, parts)
    assert sorted(row for part in made for row in part) == list(range(len(lengths)))
    sums = [sum(lengths[row] for row in part) for part in made]
    if len(made) == parts:
        assert max(sums) - min(sums) <= max(lengths)


def learned_by(model: Any, passes: list[dict[str, Any]]) -> tuple[float, dict[str, Any]]:
    """Summed loss and the gradients over passes, as one update adds them."""
    model.zero_grad()
    total = 0.0
    for each in passes:
        loss = model(**each, num_items_in_batch=10, use_cache=False).loss
        loss.backward()
        total += float(loss)
    return total, {name: weight.grad.clone() for name, weight in model.named_parameters()}


@cases("kind", "segments", "sdpa", "eager")
def test_a_packed_pass_has_the_loss_and_the_gradients_of_its_rows(kind):
    import torch

    model = make_model(64)
    alone = learned_by(model, [packing.pad_batch([row], 0) for row in LESSONS])
    beside = learned_by(model, [packing.pad_batch(LESSONS, 0)])
    model.set_attn_implementation(packing.pick_attention(kind, model.config, "cpu"))
    together = learned_by(model, [packing.pack_batch(LESSONS, 0)])
    for loss, gradients in (beside, together):
        assert loss == pytest.approx(alone[0], rel=1e-5)
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, alone[1][name], rtol=1e-4, atol=1e-6)


def test_the_loss_is_that_of_the_whole_logits():
    import torch

    model = make_model(64)
    [row] = LESSONS[3:4]
    made = packing.pack_batch([row], 0)
    labels = torch.tensor([[-100] * row.start + row.ids[row.start :]])
    whole = model(input_ids=made["input_ids"], labels=labels).loss
    assert float(model(**made).loss) == pytest.approx(float(whole), rel=1e-5)


@cases("build", packing.pack_batch, packing.pad_batch)
def test_an_empty_pass_teaches_nothing(build):
    loss, gradients = learned_by(make_model(64), [build([], 0)])
    assert loss == 0.0
    assert all(float(gradient.abs().max()) == 0.0 for gradient in gradients.values())


def test_a_model_whose_rows_see_one_another_is_told(monkeypatch):
    model = make_model(64)
    model.set_attn_implementation(packing.pick_attention("auto", model.config, "cpu"))
    assert model.config._attn_implementation == packing.SEGMENTS
    assert packing.find_row_mixing(model, LESSONS, "cpu") is None
    walk = packing._attend_by_segment
    monkeypatch.setattr(
        packing, "_attend_by_segment", lambda *a, **k: walk(*a, **k | {"segments": ()})
    )
    model.set_attn_implementation(packing.pick_attention("segments", model.config, "cpu"))
    assert "differs by" in (packing.find_row_mixing(model, LESSONS, "cpu") or "")
    monkeypatch.undo()
    packing.pick_attention("segments", model.config, "cpu")


def test_a_model_with_a_sliding_window_is_packed_by_its_own_masks_and_one_without_any_not_at_all():
    config = SimpleNamespace(layer_types=("full_attention", "sliding_attention"))
    assert [packing.pick_attention(kind, config, "cpu") for kind in ("auto", "eager")] == [
        "sdpa",
        "eager",
    ]
    from transformers import AutoModelForCausalLM, Gemma2Config

    config = Gemma2Config(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config)
    own, notes = model.config._attn_implementation, []
    chosen = settings.resolve_caller_settings("local")
    assert not train._enable_packing(model, LESSONS, chosen, "cpu", notes.append)
    assert model.config._attn_implementation == own
    assert notes[0].startswith("packing is off")
