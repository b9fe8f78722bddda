"""Servers that misbehave when they are called: each is an outcome, and the next call works."""

import asyncio
import json
import threading
from dataclasses import replace

import pytest

from assets.servers.calls import connection
from assets.servers.probe import json_message
from tests.serving.calling import LIMITS, read_text
from tests.support.cases import cases


def when(what: str) -> str:
    """A server that does `what` for x = 13, and answers otherwise."""
    return f"def do(m, x):\n    if x != 13: return say(m, 'fine')\n    {what}\ncalls(do)\n"


@cases(
    "what, kind",
    ("os._exit(7)", "crashed"),
    ("time.sleep(600)", "timeout_call"),
    ("return", "timeout_call"),
    ("answer(m['id'] + 77, {'content': []})", "protocol_error"),
    ("answer(str(m['id']) + 'x', {'content': []})", "protocol_error"),
    ("[os.write(1, b'x' * 65536) for _ in iter(int, 1)]", "oversize"),  # without a newline
    ("[notify('x', y='y' * 9000) for _ in iter(int, 1)]", "oversize"),
    ("say(m, 'x' * 50_000_000)", "oversize"),
    ("os.close(1); time.sleep(600)", "timeout_call"),
    ("answer(m['id'], ['a', 'list'])", "protocol_error"),
    ("answer(m['id'], {'content': 'text'})", "protocol_error"),
    ('os.write(1, b\'{"jsonrpc": "2.0", "id": %d, "result": {"content": [], "x": [0\''
     " % m['id'] + b',0' * 270_000 + b']}}\\n')", "oversize"),  # very many values
    ("x = [bytearray(1 << 20) for _ in range(4000)]", "out_of_memory"),
)  # fmt: skip
async def test_what_a_server_does_in_a_call_is_an_outcome_and_the_next_works(bench, what, kind):
    memory_mb = 512 if "50_000_000" in what else 128
    async with bench.launch(when(what), memory_mb=memory_mb) as running:
        assert (await running.call(1)).status == "ok"
        slow = kind in ("timeout_call", "protocol_error")
        found = await running.call(13, timeout_s=1.0 if slow else 20.0)
        blame = {"timeout_call": "tool", "out_of_memory": "policy"}.get(kind, "server")
        assert (found.status, found.error_kind, found.blame) == ("failed", kind, blame), found
        assert found.hint
        after = await running.call(2)
        assert (after.status, read_text(after)) == ("ok", "fine"), after


async def test_a_call_that_is_late_is_cancelled_and_a_server_that_lives_stays(bench):
    """It is told, it answers a ping, and so it is kept: the next call finds the same process."""
    source = """
pending = []
while True:
    m = read()
    if m.get("method") == "initialize": welcome(m)
    elif m.get("method") == "tools/list": answer(m["id"], {"tools": TOOLS})
    elif m.get("method") == "ping": answer(m["id"], {})
    elif m.get("method") == "notifications/cancelled": pending.append(m["params"]["requestId"])
    elif m.get("method") == "tools/call" and m["params"]["arguments"]["x"] != 13:
        say(m, f"{os.getpid()} {len(pending)}")
    elif m.get("method") == "tools/call": late = m
"""
    async with bench.launch(source) as running:
        first = read_text(await running.call(1))
        late = await running.call(13, timeout_s=0.3)
        second = read_text(await running.call(2))
    assert (late.error_kind, first.split()[1], second.split()[1]) == ("timeout_call", "0", "1")
    assert first.split()[0] == second.split()[0]


async def test_a_call_in_flight_beside_one_that_hangs_is_answered(bench):
    source = """
import threading
def do(m, x):
    threading.Thread(target=lambda: (time.sleep(600 if x == 13 else 1.2), say(m, x))).start()
calls(do)
"""
    async with bench.launch(source) as running:
        hung, fine = await asyncio.gather(running.call(13, timeout_s=0.5), running.call(5))
    assert (hung.error_kind, read_text(fine)) == ("timeout_call", "5")


@cases("busy", "time.sleep(1.0)", "time.sleep(600)")
async def test_a_caller_that_gives_up_leaves_the_server_usable_or_replaced(bench, busy):
    async with bench.launch(when(busy)) as running:
        await running.call(1)
        waiting = asyncio.create_task(running.call(13))
        await asyncio.sleep(0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        after = await running.call(2, timeout_s=20.0)  # a start takes seconds on a busy machine
    assert (after.status, read_text(after)) == ("ok", "fine")


async def test_a_call_in_flight_when_the_caller_closes_is_told(bench):
    async with bench.launch(when("time.sleep(600)")) as running:
        await running.call(1)
        waiting = asyncio.create_task(running.call(13))
        await asyncio.sleep(0.2)
        await running.caller.close()
        found = await waiting
    assert (found.status, found.error_kind, found.blame) == ("failed", "closed", "us")


async def test_a_server_that_died_while_nobody_called_is_started_once_more(bench):
    source = """
def do(m, x):
    say(m, os.getpid())
    sys.stdout.flush()
    if x == 13: os._exit(0)
calls(do)
"""
    async with bench.launch(source) as running:
        first = await running.call(13)
        await asyncio.sleep(0.3)
        second = await running.call(1)
    assert [first.status, second.status] == ["ok", "ok"]


async def test_a_call_that_may_have_been_carried_out_is_not_repeated(bench, monkeypatch):
    """The server ends while it works: it is told so, and asked only once."""
    source = "def do(m, x):\n    print('working', file=sys.stderr)\n    os._exit(3)\ncalls(do)\n"
    launched, start = [], connection.start
    monkeypatch.setattr(connection, "start", lambda *how: launched.append(1) or start(*how))
    found = await bench.call(source)
    assert (found.error_kind, len(launched)) == ("crashed", 1)
    assert "whether it did its work is not known" in found.hint


STARTS = {
    "sys.exit(3)": "crashed",
    "sys.exit('Error: NOTION_API_KEY is required')": "needs_secret",
    "import no_such_module_anywhere": "needs_software",
    "time.sleep(600)": "timeout_start",
    "welcome(read()); time.sleep(600)": "timeout_list",
    "print('ready', flush=True); time.sleep(600)": "protocol_error",
    "while True: os.write(1, b'x' * 65536)": "oversize",
}


@pytest.mark.parametrize("source", STARTS)
async def test_a_server_that_does_not_start_is_told_as_the_probe_tells_it(bench, source):
    found = await bench.call(source)
    assert (found.status, found.error_kind) == ("failed", STARTS[source]), found


async def test_a_server_that_takes_long_to_start_goes_on_starting(bench):
    # At work: one that only sleeps is taken to hang.
    busy = "until = time.monotonic() + 1.5\nwhile time.monotonic() < until: pass\n"
    limits = replace(LIMITS, launch_s=0.5)
    async with bench.launch(busy + when("pass"), limits=limits) as running:
        first = await running.call()
        assert first.error_kind == "timeout_start"
        assert first.hint.endswith("goes on starting: call again in a moment")
        for _ in range(100):
            second = await running.call()
            if second.status == "ok":
                break
        assert second.status == "ok"


async def test_each_bad_block_costs_itself_alone(bench):
    source = """
blocks = [{'type': 'text', 'text': 'kept \\ud800'}, {'type': 'text', 'text': 7}, 'loose', {},
    {'type': 'hologram', 'data': ''}, {'type': 'image', 'data': '%%%', 'mimeType': 'image/png'},
    {'type': 'image', 'data': 'aGk=', 'mimeType': 'image/png', 'evil': 1},
    {'type': 'resource', 'resource': {'uri': 'x:y', 'text': 'inside'}},
    {'type': 'resource', 'resource': {'uri': 'x:y', 'blob': 'aGk='}},
    {'type': 'resource_link', 'uri': 'x:y', 'name': 'n', 'size': 3},
    {'type': 'audio', 'data': 'aGk=', 'mimeType': 'audio/wav'}]
calls(lambda m, x: answer(m['id'], {'content': blocks}))
"""
    found = await bench.call(source)
    assert found.status == "ok"
    kinds = [one["type"] for one in found.content]
    assert kinds == ["text"] * 6 + ["image", "resource", "resource", "resource_link", "audio"]
    assert found.content[0]["text"] == "kept ?"
    assert all("left out" in one["text"] for one in found.content[1:6])
    assert found.content[6] == {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    assert found.content[9]["size"] == 3


async def test_a_large_answer_is_cut_and_says_so(bench):
    source = """
def do(m, x):
    many = [{'type': 'text', 'text': 'é' * 300_000}, {'type': 'image', 'data': 'aGkh' * 300_000}]
    answer(m['id'], {'content': many + [{'type': 'text', 'text': str(n)} for n in range(200)],
                     'structuredContent': {'a': 'x' * 600_000}})
calls(do)
"""
    limits = replace(LIMITS, text_kb=100, media_mb=1, blocks=20)
    found = await bench.call(source, limits=limits)
    text, image, *rest = [one["text"] for one in found.content]
    assert len(text.encode()) < 100 * 1024 + 200
    assert "cut here by toolmill: 497,600 of 600,000 bytes left out" in text
    assert "1,200,000 bytes is left out" in image
    assert rest[-1].startswith("[182 of 202 content blocks are left out")
    assert found.structured is None
    assert "left out" in found.problems[0]["fix"]


MANY = json_message.MAX_VALUES
FULL = {
    "lists": "[" + "[]," * MANY + "[]]",
    "objects": "[" + '{"a":1},' * (MANY // 2) + "1]",
    "numbers": "[0" + ",1.5" * MANY + "]",
    "texts": '[""' + ',""' * MANY + "]",
    "members": "{" + ",".join(f'"{n}":0' for n in range(MANY + 1)) + "}",
    "beside a text": '["' + ',[{\\"' * 9 + '"' + ",0" * MANY + "]",
}


@pytest.mark.parametrize("text", FULL.values(), ids=FULL)
def test_a_message_of_very_many_values_is_refused_before_it_is_parsed(monkeypatch, text):
    monkeypatch.setattr(json_message.json, "loads", lambda *_, **__: pytest.fail("it was parsed"))
    with pytest.raises(json_message.OversizeMessage, match="more than 262,144 values"):
        json_message.parse_message(text)


@cases("inside", ",[{", '\\"', "\\\\", '\\\\\\"', "\\u005b")
def test_what_stands_in_a_text_is_no_value(inside):
    text = f'["{inside * MANY}", 7]'
    assert json_message.parse_message(text) == json.loads(text)


async def test_a_large_message_is_parsed_by_another_thread(bench, monkeypatch):
    """The loop is shared by all calls: 16 MB of lists held it for 26 s."""
    threads, parse = [], json_message.parse_message

    def parse_here(text):
        threads.append((len(text) > 1 << 16, threading.current_thread().name == "calls"))
        return parse(text)

    monkeypatch.setattr(json_message, "parse_message", parse_here)
    result = await bench.call("calls(lambda m, x: say(m, 'x' * x))", 100_000)
    assert (len(read_text(result)), {large for large, _ in threads}) == (100_000, {True, False})
    assert not [threads for large, on_loop in threads if large and on_loop]
