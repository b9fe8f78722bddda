"""Streams of chat completions as servers other than OpenAI's send them."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from extensions.proxy.calls import CallRepair, read_offer
from extensions.proxy.chat_calls import ChatStream
from extensions.proxy.exchange import EventReader
from tests.extensions.proxy.upstream_script import BROKEN, CHAT_TOOLS, PARAMETERS, VALID, make_chunk
from tests.support.cases import cases

DONE = b"data: [DONE]\n\n"
FAILED = b'data: {"error": {"message": "overloaded"}}\n\n'
END = make_chunk({}, "tool_calls")
FIXED = {"city": "Bonn", "days": 2}


def part(text: str, name: str = "", call_id: str = "", index: int | None = 0) -> bytes:
    """A chunk with a part of a call; what is empty is left out."""
    at = {} if index is None else {"index": index}
    inner = {"arguments": text, **({"name": name} if name else {})}
    entry = {**at, **({"id": call_id} if call_id else {}), "function": inner}
    return make_chunk({"tool_calls": [entry]})


async def stream(raw: bytes, tools: Any = CHAT_TOOLS) -> tuple[bytes, list[dict[str, Any]]]:
    """(what a client gets, the notes)."""
    asked = [{"role": "user", "content": "weather?"}]
    offer = read_offer({"messages": asked, "tools": tools}, 10)
    assert offer is not None
    repair = CallRepair(offer)
    chat, reader = ChatStream(repair, 100_000), EventReader(100_000)
    sent = [await chat.feed(event) for event in reader.take(raw)]
    return b"".join([*sent, *chat.drain()]), repair.notes


def list_entries(raw: bytes) -> list[dict[str, Any]]:
    chunks = [event.data or {} for event in EventReader(100_000).take(raw)]
    deltas = [one["delta"] for chunk in chunks for one in chunk.get("choices", [])]
    return [entry for delta in deltas for entry in delta.get("tool_calls", [])]


def list_calls(raw: bytes) -> list[tuple[str, str]]:
    functions = [entry["function"] for entry in list_entries(raw)]
    return [(function.get("name", ""), function["arguments"]) for function in functions]


def join_calls(raw: bytes) -> list[tuple[str, str]]:
    """(name, arguments) of each call, as the SDK puts them together."""
    calls: dict[int, list[str]] = {}
    for entry in list_entries(raw):
        call = calls.setdefault(entry["index"], ["", ""])
        call[0] += entry["function"].get("name") or ""
        call[1] += entry["function"].get("arguments") or ""
    return [(name, text) for name, text in (calls[index] for index in sorted(calls))]


@pytest.mark.parametrize("last", [DONE, FAILED])
@pytest.mark.parametrize("text", [VALID, BROKEN])
async def test_a_call_comes_before_the_end_of_a_stream_that_says_no_reason(last, text):
    raw = part(text, "weather", "a") + last
    sent, notes = await stream(raw)
    assert sent.endswith(last)
    assert list_calls(sent) == [("weather", text)]
    assert [note["left"][0].partition(":")[0] for note in notes] == (
        [] if text == VALID else ["cut_off"]  # nobody said that it is whole
    )


@pytest.mark.parametrize("index", [0, None])
async def test_two_calls_of_one_index_are_two(index):
    first, second = part(VALID, "weather", "a", index), part(VALID, "weather", "b", index)
    sent, notes = await stream(first + second + END + DONE)
    assert (join_calls(sent), notes) == ([("weather", VALID)] * 2, [])
    sent, notes = await stream(first + part(BROKEN, "weather", "b", index) + END + DONE)
    (_, one), (_, other) = join_calls(sent)
    assert (one, json.loads(other)) == (VALID, FIXED)
    assert [(note["call"], "repaired" in note) for note in notes] == [("b", True)]


def raw_part(name: str | None, arguments: Any, call_id: Any = "", index: int = 0) -> bytes:
    inner = {"name": name, "arguments": arguments}
    return make_chunk({"tool_calls": [{"index": index, "id": call_id, "function": inner}]})


W, OTHER, NOW = "weather", '{"city": "Rome"}', ("now", "{}")
BOTH = FIRST, SECOND = [(W, VALID), (W, OTHER)]
OBJECTS = json.loads(VALID), json.loads(OTHER)
THREE = [{"id": "", "function": {"name": W, "arguments": text}} for text in (VALID, OTHER, VALID)]
NOW_TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}


@cases(
    "parts, calls",
    ([(W, VALID), (W, OTHER)], BOTH),  # whole calls without ids
    ([(W, VALID, None), (W, OTHER, None)], BOTH),
    ([(W, VALID, "c"), (W, OTHER, "c")], BOTH),  # one id for all
    ([(W, VALID, "c"), ("now", "{}", "c")], [FIRST, NOW]),
    # In pieces, the second begun with its name.
    ([(W, VALID[:9]), (None, VALID[9:], None), (W, OTHER[:5]), ("", OTHER[5:])], BOTH),
    ([(W, OBJECTS[0]), (W, OBJECTS[1])], [(W, json.dumps(OBJECTS[0])), SECOND]),
    # Null for no arguments: beside others, twice, without ids, and before pieces.
    ([("now", None, "a"), (W, OTHER, "b"), ("now", None, "c")], [NOW, SECOND, NOW]),
    ([("now", None, "a"), ("now", None, "b")], [NOW, NOW]),
    ([("now", None), (W, None), (None, OTHER)], [NOW, SECOND]),
    ([(W, None, "a"), (None, OTHER[:9], None), (None, OTHER[9:], None)], [SECOND]),
    ([(W, OTHER, "a"), (W, "", "a")], [SECOND]),  # a name repeated with nothing
    # An index that a renumbered call has taken.
    ([(W, VALID, "a"), (W, OTHER, "b"), ("now", "{}", "c", 1)], [*BOTH, NOW]),
    ([(W, VALID, "a"), (W, VALID, "a")], [FIRST]),  # a whole call sent again
    ([(W, VALID, "a"), (None, OTHER, None)], BOTH),  # whole arguments without a name
    ([(None, VALID, "a"), (W, "", "a")], [FIRST]),  # a name that comes last
    ([("", VALID[:9], "a"), (W, VALID[9:], None)], [FIRST]),  # a name behind an empty one
    ([make_chunk({"tool_calls": THREE})], [*BOTH, FIRST]),
)
async def test_calls_that_share_an_index_get_one_each(parts, calls):
    raw = [part if isinstance(part, bytes) else raw_part(*part) for part in parts]
    sent, _ = await stream(b"".join([*raw, END, DONE]), [*CHAT_TOOLS, NOW_TOOL])
    assert join_calls(sent) == calls
    begun = set[int]()  # the first part of each call has its name, and no part an empty one
    for entry in list_entries(sent):
        assert entry["function"].get("name") != ""
        assert entry["index"] in begun or entry["function"]["name"]
        begun.add(entry["index"])


async def test_a_name_in_pieces_or_repeated_is_one_name():
    names = part("", "wea", "a") + part("", "ther")
    assert (await stream(names + part(VALID) + END))[0] == names + part(VALID) + END
    sent, _ = await stream(names + part(BROKEN) + END)
    assert [name for name, _ in list_calls(sent)] == ["wea", "ther", ""]
    assert json.loads(list_calls(sent)[2][1]) == FIXED
    sent, _ = await stream(part("", "Wea", "a") + part("", "ther") + part(VALID) + END)
    assert [name for name, _ in list_calls(sent)] == ["weather", "", ""]
    parts = part(VALID[:9], "weather", "a") + part(VALID[9:], "weather", "a") + END
    assert join_calls((await stream(parts))[0]) == [("weather", VALID)]
    renamed = part(VALID[:9], "Weather", "a") + part(VALID[9:], "Weather", "a") + END
    [(name, text)] = join_calls((await stream(renamed))[0])
    assert (name, json.loads(text)) == ("weather", FIXED)
    names = part("", "wea", "a") + part("", "weather") + part(BROKEN)
    sent, notes = await stream(names + END)
    assert [name for name, _ in list_calls(sent)] == ["wea", "ther", ""]
    assert json.loads(list_calls(sent)[2][1]) == FIXED
    assert notes[0]["tool"] == "weather"


SEARCHES: Any = [
    {"type": "function", "function": {"name": name, "parameters": PARAMETERS}}
    for name in ("search", "search_files")
]


def join_names(raw: bytes) -> str:
    return "".join(name for name, _ in list_calls(raw))


@pytest.mark.parametrize("rest", [["_files"], ["-files"], ["-fi", "les"], ["Files"]])
async def test_a_name_whose_first_piece_is_a_tool_is_one_name(rest):
    pieces = [part("", "search", "a"), *(part("", one) for one in rest)]
    sent, _ = await stream(b"".join([*pieces, part(VALID), END]), SEARCHES)
    assert join_names(sent) == "search_files"


async def test_what_was_sent_is_kept_another_name_is_another_call_and_an_error_of_null_ends_none():
    tools = json.loads(json.dumps(SEARCHES).replace("search_files", "Search_Files"))
    sent, _ = await stream(part("", "search", "a") + part(VALID, "_files") + END, tools)
    assert join_names(sent) == "search_files"
    raw = part(BROKEN, "search", "a") + part(BROKEN, "search_files", "b") + END
    sent, _ = await stream(raw, SEARCHES)
    assert [json.loads(one) for _, one in list_calls(sent)] == [FIXED, FIXED]
    parts = [part(BROKEN[:9], "weather", "a"), part(BROKEN[9:]), END]
    raw = b"".join(parts).replace(b"data: {", b'data: {"error": null, ')
    sent, _ = await stream(raw)
    assert json.loads("".join(one for _, one in list_calls(sent))) == FIXED
    first = raw_part(W, VALID, "a") + raw_part(W, OTHER, "b")
    second = first.replace(b'"choices": [{"index": 0', b'"choices": [{"index": 1')
    sent, _ = await stream(first + second + END + DONE)
    assert sent.count(b'"index":1,"id":"b"') == 2


@pytest.mark.parametrize("text", [VALID, BROKEN])
async def test_parts_with_an_id_each_are_one_call(text):
    cuts: Iterable[tuple[int, str]] = enumerate(["", text[:9], text[9:20], text[20:]])
    raw = b"".join(part(one, "weather", f"a{at}") for at, one in cuts) + END
    sent, notes = await stream(raw)
    assert json.loads("".join(one for _, one in list_calls(sent))) == FIXED
    assert len(notes) == (text == BROKEN)
    assert sent.replace(b" ", b"").count(b'"id":"a') == 1  # clients join ids as they join names


@pytest.mark.parametrize("odd", [b"[0]", b"{}"])
@pytest.mark.parametrize("nth", [1, 2])
async def test_a_part_whose_index_is_no_number_passes_as_it_came(odd, nth):
    pieces = part(VALID, "weather", "a").split(b'"index": 0')
    raw = b'"index": 0'.join(pieces[:nth]) + b'"index": ' + odd + b'"index": 0'.join(pieces[nth:])
    end = END.replace(b'"index": 0', b'"index": ' + odd) if nth == 1 else END
    assert (await stream(raw + end + DONE))[0] == raw + end + DONE
