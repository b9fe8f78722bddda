"""Rollouts: the served prompt token by token, groups that fail, the worked example."""

from functools import cache
from typing import Any

from extensions.sidecar.prompt import RevisionRow, make_revision_request, render_revision_prompt
from extensions.sidecar.rewards import COPIED, RevisionScore
from extensions.sidecar.rewards import RIGHT as IS_RIGHT
from extensions.sidecar.rollouts import (
    RolloutBatch,
    WorkedExamples,
    is_failed,
    prepare_prompts,
    render_example_prompt,
    summarise_scores,
    tokenise_prompt,
)
from extensions.sidecar.settings import WEIGHTS
from tests.extensions.sidecar.rewards.rows import DRAFTS, RIGHT, make_row, write_call
from tests.support.small_caller import make_small_tokenizer

ROWS = [make_row(kind, server_id=f"npm:{kind}") for kind in (*DRAFTS, "untouched", "ask")]
COPY = write_call({"name": "book_room", "arguments": DRAFTS["wrong_type"][1]})


@cache
def load_tokenizer() -> Any:
    return make_small_tokenizer()


def make_rollouts(
    rows: list[RevisionRow] = ROWS, limit: int = 2000, group: int = 2
) -> RolloutBatch:
    kept, prompts, _ = prepare_prompts(load_tokenizer(), rows, limit)
    return RolloutBatch(load_tokenizer(), kept, prompts, WEIGHTS, limit, group, 32)


def test_a_rollout_is_asked_as_it_is_taught_and_served_token_by_token() -> None:
    tokenizer, made = load_tokenizer(), make_rollouts()
    for row, prompt in zip(made.rows, made.prompts, strict=True):
        served = render_revision_prompt(tokenizer, make_revision_request(row))
        taught = tokenizer(served, add_special_tokens=False)["input_ids"]
        assert tokenise_prompt(tokenizer, prompt) == taught


def test_no_second_first_token_is_put_before_what_the_template_writes() -> None:
    class Doubling:
        def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
            return {"input_ids": [1] * add_special_tokens + [ord(sign) for sign in text]}

    assert tokenise_prompt(Doubling(), "ab") == [97, 98]


def test_a_prompt_that_is_too_long_is_left_out_and_counted() -> None:
    long = make_row("missing", conversation=({"role": "user", "content": "so " * 900},))
    kept, prompts, counts = prepare_prompts(load_tokenizer(), [*ROWS, long], 900)
    assert (len(kept), len(prompts), counts) == (
        len(ROWS), len(ROWS), {"rows": len(ROWS) + 1, "too_long": 1},
    )  # fmt: skip


def test_a_group_fails_where_all_are_worth_the_same_and_none_is_right() -> None:
    copied, right = RevisionScore(0.07, COPIED), RevisionScore(1.0, IS_RIGHT)
    assert is_failed([copied, copied])
    assert not is_failed([copied, RevisionScore(0.3, "wrong")])  # partial credit is a signal
    assert not is_failed([right, right])


def test_failed_groups_are_counted_and_written_again_with_a_worked_example() -> None:
    made = make_rollouts()
    [wrong_type] = [at for at, row in enumerate(made.rows) if row.kind == "wrong_type"]
    [missing] = [at for at, row in enumerate(made.rows) if row.kind == "missing"]
    asked = [wrong_type, wrong_type, missing, missing]
    right = write_call(RIGHT)
    assert made.find_failed(asked, [COPY, COPY, right, COPY]) == [0]
    prompt = made.write_again(wrong_type)
    assert prompt is not None
    assert prompt.endswith(made.prompts[wrong_type][-40:])
    assert '"guests": 4' in prompt
    made.count_replaced(asked, [COPY, right, right, COPY], [0])
    assert made.take_rewards(asked, [COPY, right, right, COPY])[1:3] == [1.0, 1.0]
    figures = made.tally.get_figures()
    known = {name: figures[name] for name in ("groups", "failed", "replaced", "differing")}
    assert known == {"groups": 2, "failed": 1, "replaced": 1, "differing": 1}
    assert figures["failed_share"]["n"] == 2
    assert figures["curve"][0]["update"] == 1
    assert figures["curve"][0]["is_right"] == 0.5


def test_the_worked_example_is_of_another_server_and_alike() -> None:
    same = make_row("missing", server_id="npm:other", problems=("x",))
    examples = WorkedExamples([*ROWS, same], [len(ROWS)] * (len(ROWS) + 1))
    own = next(row for row in ROWS if row.kind == "missing")
    assert examples.pick_example(own) == same
    ask = next(row for row in ROWS if row.kind == "ask")
    assert examples.pick_example(ask) is None  # only a question teaches to ask
    assert WorkedExamples([own], [1]).pick_example(own) is None


def test_an_example_brings_its_tool_and_its_answer() -> None:
    other = {**ROWS[0].contracts[0], "name": "hire_boat", "description": "Hires a boat."}
    right = {"name": "hire_boat", "arguments": {"room": "Pike", "guests": 2}}
    example = make_row("missing", contracts=(other,), right=(right,), server_id="npm:boats")
    prompt = render_example_prompt(load_tokenizer(), ROWS[0], example)
    assert all(part in prompt for part in ("hire_boat", "Pike", "book_room", "cancel_room"))


def test_a_prompt_that_an_example_makes_too_long_is_left_as_it_is() -> None:
    longest = max(
        len(tokenise_prompt(load_tokenizer(), prompt)) for prompt in make_rollouts().prompts
    )
    made = make_rollouts(limit=longest)
    assert made.write_again(0) is None


def test_parts_that_were_not_measured_are_not_averaged() -> None:
    scores = [RevisionScore(1.0, IS_RIGHT, {"executed": 1.0}), RevisionScore(0.0, COPIED, {})]
    found = summarise_scores(scores)
    assert (found["executed"], found["reward"], found["is_copied"]) == (1.0, 0.5, 0.5)
    assert summarise_scores([]) == {}
