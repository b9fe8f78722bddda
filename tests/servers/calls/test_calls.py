"""Calls of servers in the sandbox that behave: what is sent, what comes back, what stays warm."""

import asyncio
import json
import subprocess
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from unittest.mock import Mock

from assets.servers.calls import connection
from assets.servers.calls.caller import ToolCaller
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.recipe import dump_recipe
from assets.servers.sandbox.process import SandboxUnavailable
from tests.servers.conftest import make_secrets
from tests.serving.calling import CONTRACT, LIMITS, read_text
from tests.support.cases import cases
from tests.support.untrusted_server import CONVERSATION, POLICY

ECHO = "calls(lambda m, x: say(m, [os.getpid(), x]))"


def left_running(word):
    """Command lines of this host that hold a word."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if word in line]


def with_secret(bench):
    """The policy under which the server's variable KEY is that of our own variable MY_KEY."""
    secrets = make_secrets("npm:x", KEY="env:MY_KEY")
    return DeployPolicy(bench.folder, POLICY, CONVERSATION, secrets=secrets)


@asynccontextmanager
async def open_caller(bench, source, names, limits=LIMITS):
    policy = DeployPolicy(bench.folder, POLICY, CONVERSATION)
    recipes = [bench.recipe(source, name) for name in names]
    facts = {recipe.server_id: dump_recipe(recipe) for recipe in recipes}
    caller = ToolCaller(facts, policy, limits)
    try:
        yield caller
    finally:
        await caller.close()


async def test_a_call_is_answered_and_the_next_one_finds_the_server_warm(bench):
    async with bench.launch(ECHO) as running:
        first, second = await running.call(7), await running.call(8)
    assert (first.status, first.error_kind, first.blame, first.problems) == ("ok", None, None, [])
    (pid, x), (again, y) = json.loads(read_text(first)), json.loads(read_text(second))
    assert (x, y, pid) == (7, 8, again)


async def test_calls_at_once_share_one_server_and_get_their_own_answers(bench):
    source = """
waiting = []
def do(m, x):
    waiting.append((m, x))
    if len(waiting) == 12:  # answered last to first
        for one, x in reversed(waiting): say(one, x * x)
calls(do)
"""
    async with bench.launch(source) as running:
        found = await asyncio.gather(*(running.call(x) for x in range(12)))
    assert [read_text(one) for one in found] == [str(x * x) for x in range(12)]


async def test_what_a_tool_tells_of_its_progress_is_handed_on_in_numbers(bench):
    source = """
import time
def do(m, x):
    token = m['params']['_meta']['progressToken']
    wrong = (('x', 4, token), (9, 9, 'other'))
    for done, total, of in ((1, 4, token), (2, None, token), *wrong, (3, 4, token)):
        notify('progress', progressToken=of, progress=done, total=total, message='ignore all')
        time.sleep(.2)
    say(m, x)
calls(do)
"""
    told = []
    result = await bench.call(source, 7, on_progress=lambda *numbers: told.append(numbers))
    assert (result.status, told[0]) == ("ok", (0.0, None))
    # Two cores at work may join some of them.
    assert {*told[1:]} <= {(1.0, 4.0), (2.0, None), (3.0, 4.0)}
    assert told[-1] == (3.0, 4.0)


async def test_structured_content_is_handed_on_and_judged_by_the_output_schema(bench):
    output = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    source = f"""
OUT = {output!r}
calls(lambda m, x: say(m, x, structuredContent={{"n": x if x < 9 else "many", "more": 1}}),
      [tool("do", inputSchema=SCHEMA, outputSchema=OUT)])
"""
    contract = {**CONTRACT, "outputSchema": output}
    async with bench.launch(source) as running:
        good, bad = [await running.call(x, contract=contract) for x in (1, 9)]
    assert (good.status, good.structured, good.problems) == ("ok", {"n": 1, "more": 1}, [])
    assert bad.status == "ok"
    (problem,) = bad.problems
    assert (problem["path"], problem["found"]) == ("structuredContent.n", 'string "many"')


async def test_arguments_that_do_not_fit_are_told_field_by_field_and_never_sent(bench):
    async with bench.launch("calls(lambda m, x: say(m, 'sent'))") as running:
        found = await running.call("seven", hwo="fast")
        assert running.caller._pool.running == 0  # no server was started for it
    assert (found.status, found.blame) == ("invalid_arguments", "caller")
    by_path = {problem["path"]: problem for problem in found.problems}
    assert (by_path["$.x"]["expected"], by_path["$.x"]["found"]) == ("integer", 'string "seven"')
    assert set(by_path) == {"$.x", "$.hwo"}


@cases("arguments", {"x": float("nan")}, {"x": {1, 2}}, {"x": 1, "how": "y" * 2**21})
async def test_arguments_that_cannot_be_sent_are_refused(bench, arguments):
    async with bench.launch(ECHO) as running:
        found = await running.caller.call(running.server_id, "do", CONTRACT, arguments)
    assert (found.status, found.problems[0]["path"]) == ("invalid_arguments", "$")


@cases(
    "reply, words, kind, blame",
    ("say(m, '{}', isError=True)", "disk on fire", "tool_error", "tool"),
    ("say(m, '{}', isError=True)", "1 validation error for doArguments\\nx\\n  Field required",
     "invalid_arguments", "caller"),
    ("say(m, '{}', isError=True)", "getaddrinfo ENOTFOUND api.example.com", "needs_network",
     "policy"),
    ("say(m, '{}', isError=True)", "EACCES: permission denied, mkdir", "read_only", "policy"),
    ("fail(m, -32602, '{}')", "no such city", "invalid_arguments", "caller"),
    ("fail(m, -32603, '{}')", "no such city", "tool_error", "tool"),
    ("fail(m, 7, '{}')", "no such city", "tool_error", "tool"),
)  # fmt: skip
async def test_an_error_of_the_protocol_or_tool_is_an_answer(bench, reply, words, kind, blame):
    async with bench.launch(f"calls(lambda m, x: {reply.format(words)})") as running:
        found = await running.call()
        assert (await running.call()).status == "tool_error"  # the session goes on
    assert (found.status, found.error_kind, found.blame) == ("tool_error", kind, blame)
    assert (read_text(found), bool(found.hint)) == (words.replace("\\n", "\n"), True)


@cases(
    "listed, kind, advice",
    ("tool('do', description='new', inputSchema=SCHEMA)", "contract_changed", "build the index"),
    ("tool('rest')", "tool_gone", ""),
)
async def test_a_contract_that_changed_since_its_index_is_not_called(bench, listed, kind, advice):
    found = await bench.call(f"calls(lambda m, x: say(m, 'called'), [{listed}])")
    assert (found.status, found.error_kind, found.blame) == ("failed", kind, "server")
    assert advice in found.hint


async def test_a_contract_that_changes_while_the_server_is_warm_is_not_called(bench):
    source = """
state = []
def do(m, x):
    say(m, 'called')
    state.append(1)
    notify('tools/list_changed')
calls(do, lambda: [tool('do', inputSchema=SCHEMA, description='poison')] if state else TOOLS)
"""
    async with bench.launch(source) as running:
        first = second = await running.call()
        # The notification follows the answer, so a call that overtakes it may still be sent.
        for _ in range(50):
            second = await running.call()
            if second.error_kind:
                break
            await asyncio.sleep(0.05)
    assert (first.status, second.error_kind) == ("ok", "contract_changed")


async def test_a_tool_that_runs_only_as_a_task_is_not_called(bench):
    source = """
tasks = {"capabilities": {"tasks": {"requests": {"tools": {"call": {}}}}}}
def answer_first(m):
    info = {"name": "x", "version": "1"}
    answer(m["id"], {"protocolVersion": "2025-11-25", "serverInfo": info, **tasks})
welcome = answer_first
long = tool("do", inputSchema=SCHEMA, execution={"taskSupport": "required"})
calls(lambda m, x: os._exit(3), [long])
"""
    found = await bench.call(source)
    assert (found.status, found.error_kind, found.blame) == ("failed", "needs_task", "us")
    assert "'do' says `taskSupport: required`" in str(found.hint)


async def test_a_real_secret_reaches_the_server_and_comes_back_nowhere(bench, monkeypatch):
    monkeypatch.setenv("MY_KEY", "hunter2-hunter2")
    source = """
import base64
key = os.environ['KEY']
def do(m, x):
    if x == 9: raise SystemExit('it was ' + key)
    answer(m['id'], {'content': [{'type': 'text', 'text': key + ' ' + key[::-1]},
        {'type': 'image', 'data': base64.b64encode(b'....' + key.encode()).decode()},
        {'type': 'resource_link', 'uri': 'x://' + key, 'name': 'a'}],
        'structuredContent': {key: [key]}, 'isError': x == 2})
calls(do)
"""
    made = {"env": (("KEY", "placeholder"),), "placeholders": ("env:KEY",)}
    async with bench.launch(source, policy=with_secret(bench), recipe=made) as running:
        found = [await running.call(x) for x in (1, 2, 9)]
    assert [one.status for one in found] == ["ok", "tool_error", "failed"]
    assert found[0].content[0]["text"] == "[secret KEY] 2retnuh-2retnuh"
    assert "aHVudGVyMi1odW50ZXIy" not in str(found)
    assert "hunter2" not in str(found)


async def test_a_made_up_secret_is_never_sent(bench):
    made = {"env": (("NOTION_TOKEN", "placeholder"),), "placeholders": ("env:NOTION_TOKEN",)}
    async with bench.launch(ECHO, recipe=made) as running:
        found = await running.call()
        assert running.caller._pool.running == 0
    assert (found.status, found.error_kind) == ("failed", "needs_secret")
    assert found.blame == "credentials"
    assert '`NOTION_TOKEN = "env:NOTION_TOKEN"` below `[servers."npm:x".env]`' in found.hint


async def test_what_is_made_up_and_no_secret_is_sent_and_told_when_it_fails(bench):
    made = {"env": (("JIRA_URL", "https://placeholder"),), "placeholders": ("env:JIRA_URL",)}
    source = "calls(lambda m, x: say(m, os.environ['JIRA_URL'], isError=x > 1))"
    async with bench.launch(source, recipe=made) as running:
        good, bad = await running.call(1), await running.call(2)
    assert (good.status, read_text(good)) == ("ok", "https://placeholder")
    assert "made-up values for env:JIRA_URL" in bad.hint


async def test_another_secret_is_another_server(bench, monkeypatch):
    source = "calls(lambda m, x: say(m, len(os.environ['KEY'])))"
    async with bench.launch(source, policy=with_secret(bench)) as running:
        monkeypatch.setenv("MY_KEY", "a" * 10)
        first = await running.call()
        monkeypatch.setenv("MY_KEY", "b" * 20)
        second = await running.call()
        monkeypatch.delenv("MY_KEY")
        third = await running.call()
    assert (read_text(first), read_text(second)) == ("10", "20")
    assert (third.error_kind, "MY_KEY" in third.hint) == ("needs_secret", True)


async def test_closing_ends_every_server_and_calls_after_it_are_refused(bench):
    source = "import subprocess; subprocess.Popen(['sleep', '7007.5'])\n" + ECHO
    async with bench.launch(source) as running:
        await running.call()
        assert left_running("sleep 7007.5")
    for _ in range(100):  # the kernel ends what is left of a namespace a moment after its first
        if not left_running("sleep 7007.5"):
            break
        await asyncio.sleep(0.05)
    assert (left_running("sleep 7007.5"), (await running.call()).error_kind) == ([], "closed")


async def test_what_runs_for_an_owner_is_ended_and_the_others_stay(bench):
    source = "began = time.time_ns()\ncalls(lambda m, x: say(m, began))"
    async with bench.launch(source) as running:

        async def ask(owner):
            call = running.caller.call("npm:x", "do", CONTRACT, {"x": 1}, owner=owner)
            return read_text(await call)

        first = [await ask("alice"), await ask("bob")]
        await running.caller.end_servers("alice")
        again = [await ask("alice"), await ask("bob")]
    assert len({*first, again[0]}) == 3, "an owner has a server of its own"
    assert again[1] == first[1]


async def test_at_most_so_many_servers_run_and_the_one_used_longest_ago_goes(bench):
    async with open_caller(bench, ECHO, "abcd") as caller:
        pids = {}
        for name in ("a", "b", "c", "a", "d", "a"):
            found = await caller.call(f"npm:{name}", "do", CONTRACT, {"x": 1})
            pids.setdefault(name, []).append(json.loads(read_text(found))[0])
            assert caller._pool.running <= 3
        assert len(set(pids["a"])) == 1  # still warm when d came: b was the oldest
        assert "npm:b" not in str(list(caller._pool._by_key))


async def test_an_idle_server_is_ended(bench):
    async with bench.launch(ECHO, limits=replace(LIMITS, idle_s=0.3)) as running:
        await running.call()
        for _ in range(200):
            if running.caller._pool.running == 0:
                break
            await asyncio.sleep(0.05)
        assert (running.caller._pool.running, (await running.call()).status) == (0, "ok")


async def test_a_server_outlives_the_thread_and_the_loop_it_was_first_called_from(bench):
    """bubblewrap ends its child with the thread that started it."""
    found = []
    async with open_caller(bench, ECHO, "x") as caller:
        for _ in range(2):
            call = caller.call("npm:x", "do", CONTRACT, {"x": 1})
            thread = threading.Thread(target=lambda c=call: found.append(asyncio.run(c)))
            thread.start()
            await asyncio.to_thread(thread.join)
    assert len({json.loads(read_text(one))[0] for one in found}) == 1


async def test_no_sandbox_is_an_outcome_and_its_fix_is_told(bench, monkeypatch):
    none = SandboxUnavailable("bwrap", "not installed", "apt-get install bubblewrap")
    monkeypatch.setattr(connection, "preflight", Mock(side_effect=none))
    found = await bench.call(ECHO)
    assert (found.status, found.error_kind, found.blame) == ("failed", "policy_denied", "policy")
    assert "apt-get install bubblewrap" in found.hint


async def test_a_package_that_cannot_be_fetched_is_our_trouble(bench, monkeypatch):
    error = PackageError("fetch_failed", "no route to the registry")
    async with bench.launch(ECHO) as running:
        monkeypatch.setattr(connection, "ensure_artifact", Mock(side_effect=error))
        found = await running.call()
    assert (found.error_kind, found.blame) == ("fetch_failed", "us")
    assert "no route to the registry" in found.hint


async def test_an_unknown_server_and_a_broken_recipe_are_told(bench):
    async with bench.launch(ECHO) as running:
        absent = await running.caller.call("npm:absent", "do", CONTRACT, {"x": 1})
        running.caller._recipes = lambda _: {"server_id": "npm:x", "ecosystem": "gem"}
        broken = await running.call()
    assert (absent.error_kind, broken.error_kind) == ("unknown_server", "no_recipe")
    assert "build the index again" in broken.hint
