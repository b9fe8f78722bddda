"""The first JSON value of a text, whatever stands behind it, without counting its lines."""

import json
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.repair import json_text
from assets.contracts.repair.json_text import load_first
from tests.contracts.strategies import values


@given(values, st.text(max_size=8), st.integers(0, 40), st.integers(20, 60))
def test_a_value_longer_than_the_first_look_is_read_all_the_same(value, behind, cut, window):
    text = json.dumps(value)
    for shown in (text + behind, text[: max(0, len(text) - cut)] + behind):
        with patch.object(json_text, "_WINDOW", 1_000_000):
            whole = load_first(f"x {shown}", 1)
        with patch.object(json_text, "_WINDOW", window):
            assert load_first(f"x {shown}", 1) == whole


def test_a_broken_value_at_each_mark_is_told_without_the_text_before_it():
    text = '<tool_call>{"name": ' * 20
    with patch.object(json_text, "_DECODER", wraps=json_text._DECODER) as decoder:
        assert load_first(text * 600, text.rindex("{")) == (None, None)
    longest = max(len(call.args[0]) for call in decoder.raw_decode.call_args_list)
    assert longest <= json_text._WINDOW
