"""Code fences in a model's text."""

import pytest

from warehouse.llm.json_answers import find_fenced, strip_fence


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("```json\n{}\n```", "{}"),
        ("  ```python f(x=1)```\n", "f(x=1)"),
        ("```\n[1]", "[1]"),  # an answer that was cut
        ("``````", ""),
        ("```a``` b ```c```", "a``` b ```c"),
        ("{}", None),
        ("see ```{}```", None),
    ],
)
def test_a_text_that_is_one_fence_is_what_stands_in_it(text: str, inner: str | None) -> None:
    assert strip_fence(text) == inner


def test_every_fence_of_a_text_is_found_and_an_open_one_at_its_end() -> None:
    text = "first ```json {}``` then ``` ``` and ```tool_code f()"
    assert find_fenced(text) == ["{}", "f()"]


def test_a_fence_of_white_space_alone_costs_no_time() -> None:
    assert strip_fence("```" + " " * 2_000_000 + "x") == "x"
