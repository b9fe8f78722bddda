"""An answer within its bounds, whatever it holds: no secret, nothing that no encoder takes."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.servers.calls.content import shape_result
from assets.servers.calls.result import CallFailed, CallLimits
from tests.contracts.strategies import values
from warehouse.sanitize.scrubber import Scrubber

SMALL = CallLimits(text_kb=1, media_mb=1, total_mb=1, structured_kb=1, blocks=3)
SECRET = "hunter2-hunter2-hunter2"
SCRUB = Scrubber({"KEY": SECRET})

KINDS = ["text", "image", "audio", "resource", "resource_link"]

blocks = st.fixed_dictionaries(
    {"type": st.sampled_from([*KINDS, "x"]) | values},
    optional={
        "text": st.text() | values,
        "data": st.sampled_from(["aGk=", "%"]) | values,
        "uri": st.text(max_size=5) | values,
        "resource": st.dictionaries(st.sampled_from(["uri", "text", "blob"]), st.text()) | values,
        "size": values,
    },
)
raws = st.fixed_dictionaries(
    {}, optional={"content": st.lists(blocks | values, max_size=6) | values,
                  "structuredContent": values, "isError": values},
)  # fmt: skip


@given(raws)
def test_whatever_a_server_answers_is_known_blocks_or_no_answer(raw):
    if not isinstance(raw.get("content", []), list):
        with pytest.raises(CallFailed, match="expected a list"):
            shape_result(raw, SCRUB, SMALL)
        return
    made = shape_result(raw, SCRUB, SMALL)
    json.dumps([made.content, made.structured], ensure_ascii=False).encode()
    assert len(made.content) <= SMALL.blocks + 1
    assert {one["type"] for one in made.content} <= {*KINDS}
    assert made.is_error is (raw.get("isError") is True)


@given(st.integers(0, 3000), st.integers(1, 4000), st.sampled_from(["a", "é", "😀"]))
def test_a_secret_at_a_cut_leaves_no_part_of_itself(before, after, filler):
    """1,024 bytes are kept: the secret stands before, at, or behind the cut."""
    text = filler * before + SECRET + filler * after
    (made,) = shape_result({"content": [{"type": "text", "text": text}]}, SCRUB, SMALL).content
    assert "hunter" not in made["text"]
    assert len(made["text"].encode()) <= 1024 + 200


def test_many_secrets_before_a_cut_leave_none_behind_it():
    """Labels are shorter than secrets: scrubbing moves what stands behind the cut before it."""
    text = (SECRET + " ") * 2000
    (made,) = shape_result({"content": [{"type": "text", "text": text}]}, SCRUB, SMALL).content
    assert "unter" not in made["text"]
    assert "left out" in made["text"]


@pytest.mark.parametrize("kind", ["image", "audio"])
def test_a_secret_in_the_bytes_of_a_medium_is_taken_out(kind):
    import base64

    for start in (0, 1, 2, 48_990, 49_151):  # also across the pieces that are searched
        data = base64.b64encode(b"." * start + SECRET.encode() + b"." * 99_000).decode()
        block = {"type": kind, "data": data, "mimeType": "x/y"}
        (made,) = shape_result({"content": [block]}, SCRUB, replace(SMALL, total_mb=8)).content
        assert made == {"type": kind, "data": "W3NlY3JldF0=", "mimeType": "x/y"}


def test_what_is_left_of_the_room_goes_to_later_blocks():
    many = [{"type": "text", "text": "x" * 1000}] * 5
    made = shape_result({"content": many}, SCRUB, SMALL).content
    assert [len(one["text"]) for one in made[:3]] == [1000] * 3
    assert made[3]["text"] == "[2 of 5 content blocks are left out here by toolmill]"


def test_structured_content_that_is_no_object_is_told():
    made = shape_result({"content": [], "structuredContent": [1]}, SCRUB, SMALL)
    assert made.structured is None
    assert made.problems[0]["found"] == "list"
