"""Rollouts: the served prompt token by token, and what completions are worth."""

from functools import cache
from typing import Any

from extensions.sidecar.grpo_training import (
    RolloutBatch,
    prepare_prompts,
    summarise_scores,
    tokenise_prompt,
)
from extensions.sidecar.prompt import make_revision_request, render_revision_prompt
from extensions.sidecar.rewards import COPIED, RevisionScore
from extensions.sidecar.rewards import RIGHT as IS_RIGHT
from tests.extensions.sidecar.rewards.rows import DRAFTS, RIGHT, make_row, write_call
from tests.support.small_caller import make_small_tokenizer

ROWS = [make_row(kind, server_id=f"npm:{kind}") for kind in (*DRAFTS, "untouched", "ask")]
COPY = write_call({"name": "book_room", "arguments": DRAFTS["wrong_type"][1]})


@cache
def load_tokenizer() -> Any:
    return make_small_tokenizer()


def make_rollouts() -> RolloutBatch:
    return prepare_prompts(load_tokenizer(), ROWS, 2000)[0]


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
    made, counts = prepare_prompts(load_tokenizer(), [*ROWS, long], 900)
    assert (made.rows, len(made.prompts)) == (ROWS, len(ROWS))
    assert counts == {"rows": len(ROWS) + 1, "too_long": 1}


def test_an_update_is_a_point_of_the_curve() -> None:
    made = make_rollouts()
    places = [at for at, row in enumerate(made.rows) if row.kind in ("wrong_type", "missing")]
    copied, right = made.take_rewards(places, [COPY, write_call(RIGHT)])
    assert copied < right == 1.0
    assert (made.curve[0]["update"], made.curve[0]["is_right"]) == (1, 0.5)


def test_parts_that_were_not_measured_are_not_averaged() -> None:
    scores = [RevisionScore(1.0, IS_RIGHT, {"kept": 1.0}), RevisionScore(0.0, COPIED, {})]
    found = summarise_scores(scores)
    assert (found["kept"], found["reward"], found["is_copied"]) == (1.0, 0.5, 0.5)
    assert summarise_scores([]) == {}
