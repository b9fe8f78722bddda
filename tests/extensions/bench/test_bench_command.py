"""`toolmill bench` over a scripted endpoint: exact scores, one question once, cards, bad input."""

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from assets.contracts.canonical import tool_text
from assets.outcomes.worlds.tree import WorldFailed
from extensions.bench.benchmark_card import find_repeated, summarise_model
from extensions.bench.benchmark_items import BenchmarkPlan, choose_items
from extensions.bench.tool_choices import read_live_mcp, read_mcp_atlas, read_metatool
from tests.extensions.bench import test_bfcl as bfcl
from tests.extensions.bench.test_agent import publish
from tests.extensions.bench.test_needles import bank
from tests.outcomes.test_trajectory_play import Files
from tests.outcomes.worlds.files import write_world
from tests.support.cases import cases
from tests.support.openai_endpoint import Endpoint, Say, Script, openai_endpoint
from tests.training.evaluation.conftest import run_main
from tests.training.evaluation.scripted_agent import row
from tests.training.evaluation.test_predictors import called
from tests.vectors.conftest import WordEmbedder
from training.sets.training_set import TRAINING_SET
from warehouse.errors import UnusableInput

Run = Callable[..., tuple[int, str, str]]
Row = dict[str, Any]
ALARMS = [f"Wake me at {hour}." for hour in ("six", "seven", "eight", "nine")]


@pytest.fixture
def toolmill(tmp_path: Path, monkeypatch, capsys) -> Run:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    for name, value in (("HOME", str(home)), ("EMBEDDER__MODEL", "minilm")):
        monkeypatch.setenv(f"TOOLMILL_{name}", value)
    return partial(run_main, monkeypatch, capsys, "bench")


@pytest.fixture
def card(toolmill: Run) -> Callable[..., Row]:
    def run(*arguments: object) -> Row:
        code, printed, err = toolmill(*arguments, "--json")
        assert code == 0, err
        return json.loads(printed)

    return run


@pytest.fixture
def serve(inspect_ai, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Endpoint]]:
    with ExitStack() as stack:

        def start(script: Script) -> Endpoint:
            endpoint = stack.enter_context(openai_endpoint(script))
            monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
            return endpoint

        yield start


def write_bank(folder: Path, requests: Sequence[str] = ALARMS) -> Path:
    """API-Bank's files with one dialogue a request: an alarm at the hour that ends it."""
    bank(folder)
    spoken = folder / "lv1-lv2-samples" / "level-1-given-desc"
    (spoken / "a.jsonl").unlink()
    for place, text in enumerate(requests):
        values = {"time": text.rstrip(".").split()[-1]}
        call = {"role": "API", "api_name": "AddAlarm", "param_dict": values}
        turns = [{"role": "User", "text": text}, call]
        (spoken / f"d{place}.jsonl").write_text("\n".join(map(json.dumps, turns)))
    return folder


def write_metatool(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    about = {"Weather": "Tells the weather.", "News & Co": "Reads the news.", "Maps": "Shows maps."}
    (folder / "plugin_des.json").write_text(json.dumps(about))
    (folder / "all_clean_data.csv").write_text(
        'Query,Tool\n"Is it raining, or not?",Weather\nWhat happened today?,News & Co\n'
    )
    pairs = [{"query": "Rain and headlines?", "tool": ["Weather", "News & Co"]}]
    (folder / "multi_tool_query_golden.json").write_text(json.dumps(pairs))
    return folder


def read_items(out: Path) -> list[Row]:
    return [json.loads(line) for line in (out / "items.jsonl").read_text().splitlines()]


def get_request(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def set_alarm(body: dict[str, Any], hour: str | None = None) -> Say:
    """Calls the alarm as an endpoint does, at the hour that was said or at another."""
    assert "AddAlarm" in {tool["function"]["name"] for tool in body["tools"]}
    time = hour or get_request(body).rstrip(".").split()[-1]
    return called(("AddAlarm", json.dumps({"time": time})))


needs_inspect = pytest.mark.usefixtures("inspect_ai")


@pytest.fixture
def inspect_ai() -> None:
    pytest.importorskip("inspect_ai", reason="uv pip install 'toolmill[bench]'")


def test_a_scripted_endpoint_gets_its_score_exactly_and_is_asked_once(card, serve, tmp_path):
    """Three right calls of four, one of them as text; the fourth at another hour."""
    data, out = write_bank(tmp_path / "bank"), tmp_path / "out"

    def say(body: dict[str, Any], _: int) -> Say:
        if "six" in get_request(body):
            return set_alarm(body, "noon")
        if "seven" in get_request(body):
            return Say(json.dumps({"name": "AddAlarm", "arguments": {"time": "seven"}}))
        return set_alarm(body)

    endpoint = serve(say)
    words = ("api-bank", "--data", data, "--model", "endpoint:m", "--out", out)
    first = card(*words)
    assert len(endpoint.requests) == 4
    again = card(*words)
    assert len(endpoint.requests) == 4, "answers are in the ledger"
    (model,) = first["models"]
    measures = {name: figure["value"] for name, figure in model["measures"].items()}
    assert measures == {"ast_ok": 0.75, "tool_ok": 1.0, "valid": 1.0}
    assert (model["asked"], model["answered"], model["failures"]) == (4, 4, {})
    assert model["errors"] == {"wrong_value": 1}
    assert model["cost"]["prompt_tokens"] > 0
    assert model["cost"]["timed"] == 4
    (kept,) = again["models"]
    assert (kept["measures"], kept["cost"]["timed"]) == (model["measures"], 0)
    assert (first["items"], first["seed"], first["epochs"], first["groups"]) == (4, 0, 1, 1)
    assert set(first["versions"]) == {"toolmill", "inspect_ai", "python", "data"}
    assert first["prompts"] == again["prompts"]
    right = {row["item_id"]: row["ast_ok"] for row in read_items(out)}
    assert right == {"d0:2": False, "d1:2": True, "d2:2": True, "d3:2": True}
    page = (out / "card.md").read_text()
    assert "| endpoint:m | 4 | 0.750 [0.750, 0.750] |" in page
    assert "too few for an interval" in page
    assert (out / "logs" / model["log"]).stat().st_size > 0
    card(*words, "--seed", "7")
    assert len(endpoint.requests) == 8, "another seed is another question"


def test_each_epoch_is_asked_by_a_seed_of_its_own(card, serve, tmp_path):
    def say(body: dict[str, Any], _: int) -> Say:
        return set_alarm(body, None if body["seed"] == 5 else "noon")

    endpoint, data = serve(say), write_bank(tmp_path / "bank")
    drawn = ("--epochs", "2", "--seed", "5", "--limit", "3")
    (model,) = card("api-bank", "--data", data, "--model", "endpoint:m", *drawn)["models"]
    assert sorted(body["seed"] for body in endpoint.requests) == [5, 5, 5, 6, 6, 6]
    assert (model["answered"], model["measures"]["ast_ok"]["value"]) == (6, 0.5)


def test_an_endpoint_that_fails_halfway_is_asked_for_the_rest(toolmill, card, serve, tmp_path):
    broken = {"now": True}

    def say(body: dict[str, Any], _: int) -> Say:
        late = "eight" in get_request(body) or "nine" in get_request(body)
        return Say("no", status=400) if broken["now"] and late else set_alarm(body)

    endpoint = serve(say)
    words = ("api-bank", "--data", write_bank(tmp_path / "bank"), "--model", "endpoint:m")
    code, printed, err = toolmill(*words, "--json")
    assert code == 1
    assert "2 questions got no answer; run again" in err.splitlines()[-1]
    (model,) = json.loads(printed)["models"]
    assert (model["answered"], model["failures"]) == (2, {"bad_request": 2})
    assert model["measures"]["ast_ok"]["value"] == 1.0
    broken["now"], sent = False, len(endpoint.requests)
    (model,) = card(*words)["models"]
    assert len(endpoint.requests) == sent + 2
    assert (model["answered"], model["measures"]["ast_ok"]["value"]) == (4, 1.0)


def test_prose_is_an_outcome_and_models_are_compared_with_the_first(card, serve, tmp_path):
    def say(body: dict[str, Any], _: int) -> Say:
        if body["model"] == "prose":
            return Say("I would look out of the window.")
        names = [tool["function"]["name"] for tool in body["tools"]]
        weather, news = (next(n for n in names if part in n) for part in ("Weather", "News"))
        wanted = {"Is": [weather], "What": [weather], "Rain": [news, weather]}
        return called(*((name, "{}") for name in wanted[get_request(body).split()[0]]))

    serve(say)
    models = ("--model", "endpoint:m", "--model", "endpoint:prose", "--model", "baseline")
    data = write_metatool(tmp_path / "meta")
    chooses, prose, rules = card("metatool", "--data", data, *models)["models"]
    assert chooses["measures"]["tool_ok"]["value"] == round(2 / 3, 4)
    assert chooses["categories"]["two tools"]["tool_ok"]["value"] == 1.0
    assert chooses["errors"] == {"wrong_tool": 1}
    none = {"value": 0.0, "low": 0.0, "high": 0.0, "n": 3}
    assert (prose["measures"], prose["errors"]) == ({"tool_ok": none, "parsed": none}, {"prose": 3})
    assert (prose["difference"]["value"], prose["difference"]["n"]) == (-0.6667, 3)
    assert rules["answered"] == 3


@needs_inspect
def test_calls_of_a_file_get_bfcls_verdicts(toolmill, card, tmp_path):
    calls: list[Row] = [
        {"id": f"simple_python_{at}", "calls": [{"name": "add", "arguments": arguments}]}
        for at, arguments in enumerate(({"a": 0}, {"a": 7}, "x"))
    ]
    calls.append({"id": "irrelevance_0", "calls": []})
    path = tmp_path / "calls.jsonl"
    path.write_text("\n".join(map(json.dumps, calls)))
    data, out, names = tmp_path / "bfcl", tmp_path / "out", [f"simple_python_{n}" for n in range(3)]
    truths = [bfcl.truth(name, at) for at, name in enumerate(names)]
    bfcl.write(data, "BFCL_v4_simple_python.json", [*map(bfcl.question, names)], truths)
    bfcl.write(data, "BFCL_v4_irrelevance.json", [bfcl.question("irrelevance_0")])
    words = ("bfcl", "--data", data, "--model", f"calls:{path}", "--out", out)
    made = card(*words)
    (model,) = made["models"]
    assert model["measures"]["bfcl"]["value"] == model["measures"]["ours"]["value"] == 0.5
    rows = read_items(out)
    assert {row["item_id"]: row["error_kind"] for row in rows} == {
        "simple_python_0": None, "simple_python_1": "wrong_value",
        "simple_python_2": "not_an_object", "irrelevance_0": None,
    }  # fmt: skip
    expected = {row["item_id"]: json.loads(row["expected"]) for row in rows}
    assert expected["simple_python_2"] == [{"name": "add", "arguments": {"a": 2}}]
    assert expected["irrelevance_0"] == []
    assert made["contamination"]["contracts"]["n"] == 1
    path.write_text(json.dumps({"id": "x", "calls": []}))
    code, _, err = toolmill(*words)
    assert code == 2
    assert "no item 'x' in bfcl; expected an id like" in err


@needs_inspect
def test_retrieval_alone_needs_no_model(toolmill, tmp_path):
    code, printed, err = toolmill("metatool", "--data", write_metatool(tmp_path / "meta"))
    assert code == 0, err
    assert "| retrieval | 3 |" in printed
    assert "| two tools | retrieval | 1 | 0.000" in printed, "one hit is no pair"


NO_EXTRA = "pip install 'toolmill[bench]'"


@cases(
    "words, message",
    (("api-bank", "--data", "bank"), NO_EXTRA),
    (("worlds",), NO_EXTRA),
    (("other",), "known: api-bank"),
    (("api-bank",), "expected --data DIR"),
    (("bfcl", "--data", "none"), "none is no folder"),
    (("needle", "--option", "size=8"), "known: requests, sizes"),
    (("bfcl", "--option", "sizes=8"), "'sizes' does not exist"),
)
def test_bad_words_or_no_extra_are_one_line(toolmill, tmp_path, monkeypatch, words, message):
    if message == NO_EXTRA:
        monkeypatch.chdir(write_bank(tmp_path / "bank").parent)
        monkeypatch.setitem(sys.modules, "inspect_ai", None)
    monkeypatch.setattr("extensions.bench.world_tasks.list_worlds", lambda _: pytest.fail("listed"))
    code, printed, err = toolmill(*words)
    assert (code, printed) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1


@cases(
    "name, text, message",
    ("plugin_des.json", "[]", "plugin_des.json: expected one object of tool names"),
    ("plugin_des.json", '{"Maps": "x"}', "'Weather' is not in it; take all files from one"),
    ("all_clean_data.csv", "query,tool\na,b\n", "expected a CSV with columns Query and Tool"),
    ("multi_tool_query_golden.json", "{}", 'expected a JSON list of {"query"'),
    ("multi_tool_query_golden.json", '[{"query": "x", "tool": ["Maps"]}]', "entry 1"),
)
def test_a_metatool_file_of_another_version_is_named(tmp_path, name, text, message):
    folder = write_metatool(tmp_path / "meta")
    (folder / name).write_text(text)
    with pytest.raises(UnusableInput, match=re.escape(message)) as error:
        read_metatool(BenchmarkPlan(folder))
    assert str(folder / name) in str(error.value)


def write_live_mcp(folder: Path) -> Path:
    """A sample in the shape of LiveMCPBench at 7bf29af: servers with tools, tasks with notes."""
    geo = {"name": "geocode", "description": "Finds a place.", "inputSchema": {"type": "object"}}
    servers = [
        {"name": "Maps", "category": "Travel", "config": {"mcpServers": {}}, "tools": {
            "maps": {"server_name": "maps", "tools": [geo, {**geo, "name": "find_parking"}]}}},
        {"name": "Papers", "tools": {"papers": {"tools": [{"name": "search_papers"}]}}},
    ]  # fmt: skip
    tasks = [
        {"task_id": "t1", "Question": "Where to park?", "category": "Travel", "answers": "",
         "Annotator Metadata": {"Tools": "1. find_parking\n2. geocode", "Number of tools": "2"}},
        {"task_id": "t2", "Question": "Sing.", "Annotator Metadata": {"Tools": "1. sing"}},
    ]  # fmt: skip
    files = {"tools/LiveMCPTool/tools.json": servers, "annotated_data/all_annotations.json": tasks}
    for name, rows in files.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(json.dumps(rows))
    return folder


def test_a_task_of_livemcpbench_or_mcp_atlas_is_asked_among_the_tools_that_are_there(tmp_path):
    plan = BenchmarkPlan(write_live_mcp(tmp_path / "live"))
    held = read_live_mcp(plan)
    (item,) = held.items
    assert {tool["name"] for tool in item.tools} == {
        "maps::geocode", "maps::find_parking", "papers::search_papers"
    }  # fmt: skip
    assert [call["name"] for call in item.expected] == ["maps::find_parking", "maps::geocode"]
    assert (item.split, held.left_out) == ("Travel", {"no_listed_tool": 1})
    tasks = tmp_path / "live" / "annotated_data" / "all_annotations.json"
    tasks.write_text('[{"task_id": "t1", "question": "x"}]')
    with pytest.raises(UnusableInput, match=r"all_annotations\.json: expected a JSON list of obj"):
        read_live_mcp(plan)
    plan = write_atlas(tmp_path / "atlas")
    held = read_mcp_atlas(plan)
    (item,) = held.items
    assert [tool["name"] for tool in item.tools] == ["calculator_calculate", "calculator_help"]
    assert [call["name"] for call in item.expected] == ["calculator_calculate"]
    assert (item.row["server_id"], held.left_out) == ("calculator", {"no_listed_tool": 1})
    with pytest.raises(UnusableInput, match=r"expected --data FILE\.csv"):
        read_mcp_atlas(BenchmarkPlan(tmp_path))
    assert plan.data is not None
    plan.data.write_text("task_id,prompt\n1,x\n")
    with pytest.raises(UnusableInput, match=r"tasks\.csv: expected columns TASK, ENABLED_TOOLS"):
        read_mcp_atlas(plan)


def write_atlas(folder: Path) -> BenchmarkPlan:
    """A sample in the shape of MCP-Atlas' sample_tasks.csv at 619939a, and a keyless server."""
    folder.mkdir(parents=True)
    calls = [{"function": {"name": "calculator_calculate", "arguments": "{}"}, "id": "1"}]
    trajectory = [
        {"role": "assistant", "content": "I add.", "tool_calls": calls},
        {"role": "tool", "content": [{"type": "text", "text": "3"}], "tool_call_id": "1"},
    ]
    other = json.dumps(trajectory).replace("calculator_calculate", "notion_search")
    enabled = json.dumps(["calculator_calculate", "calculator_help", "notion_search"])
    with (folder / "tasks.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["TASK", "ENABLED_TOOLS", "PROMPT", "TRAJECTORY", "GTFA_CLAIMS"])
        rows.writerow(["a", enabled, "How much is 1 + 2?", json.dumps(trajectory), "['3']"])
        rows.writerow(["b", enabled, "Find my page.", other, "[]"])
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("calculate", "help")]
    server = {"qualified_name": "calculator", "tools": tools}
    (folder / "servers.jsonl").write_text(json.dumps(server))
    options = {"tools": str(folder / "servers.jsonl")}
    return BenchmarkPlan(folder / "tasks.csv", options=options)


def test_a_scripted_endpoint_gets_its_score_in_every_choice_of_tools(card, serve, tmp_path):
    """Right in one of the two cells of each request of API-Bank, and in LiveMCPBench and Atlas."""
    atlas = write_atlas(tmp_path / "atlas")
    right = ("AddAlarm", "maps__find_parking", "maps_find_parking", "calculator_calculate")

    def say(body: dict[str, Any], _: int) -> Say:
        names = [tool["function"]["name"] for tool in body["tools"]]
        if "GetToken" in names:  # among all APIs
            return called(("GetToken", "{}"))
        return called((next(n for n in names if n.startswith(right)), "{}"))

    serve(say)
    scores = {}
    for words in (
        ("api-bank-turns", "--data", write_bank(tmp_path / "bank")),
        ("livemcpbench", "--data", write_live_mcp(tmp_path / "live")),
        ("mcp-atlas", "--data", atlas.data, "--option", f"tools={atlas.options['tools']}"),
    ):
        (model,) = card(*words, "--model", "endpoint:m")["models"]
        figure = model["measures"]["tool_ok"]
        scores[words[0]] = (figure["value"], figure["n"])
    assert scores == {"api-bank-turns": (0.5, 8), "livemcpbench": (1.0, 1), "mcp-atlas": (1.0, 1)}


def say_in_world(body, number):
    """Writes where it should after a tool that is not there; reads another file; ends."""
    done = [turn for turn in body["messages"] if turn["role"] == "tool"]
    text = next(turn["content"] for turn in body["messages"] if turn["role"] == "user")
    if text.startswith("Write"):
        word, path = text.split()[1], text.split()[-1].rstrip(".")
        if not done:
            return called(("append_file", "{}"))
        assert "no tool 'append_file' is offered" in done[0]["content"]
        wrote = {"path": path, "content": word}
        return called(("write_file", json.dumps(wrote))) if len(done) == 1 else Say("Done.")
    return Say("It says so.") if done else called(("read_file", '{"path": "/nowhere/b.txt"}'))


def test_a_model_works_in_a_world_until_its_state_is_checked(card, serve, tmp_path, monkeypatch):
    @asynccontextmanager
    async def open_session(opened, *_):
        yield Files(opened)

    monkeypatch.setattr("extensions.bench.world_tasks.open_session", open_session)
    path, out = write_world(tmp_path / "worlds"), tmp_path / "out"
    endpoint = serve(say_in_world)
    words = ("worlds", "--data", path, "--option", "world=small", "--out", out)
    (model,) = card(*words, "--model", "endpoint:m")["models"]
    assert len(endpoint.requests) == 5
    card(*words, "--model", "endpoint:m")
    assert len(endpoint.requests) == 5, "every turn is kept"
    assert model["measures"]["done"] == {"value": 0.5, "low": 0.5, "high": 0.5, "n": 2}
    assert (model["measures"]["valid"]["value"], model["errors"]) == (0.5, {"wrong_end": 1})
    rows = read_items(out)
    assert sorted(row["steps"] for row in rows) == [1, 2]
    assert model["cost"]["prompt_tokens"] == sum(row["prompt_tokens"] for row in rows) > 0


@needs_inspect
def test_a_world_that_cannot_be_had_is_left_out_by_its_reason(toolmill, tmp_path, monkeypatch):
    @asynccontextmanager
    async def open_session(opened, fit, *_):
        raise WorldFailed(f"{fit.id}: no such package")
        yield

    monkeypatch.setattr("extensions.bench.world_tasks.open_session", open_session)
    data = write_world(tmp_path / "worlds")
    code, _, err = toolmill("worlds", "--data", data, "--option", "world=small")
    assert code == 2
    assert "worlds: no item in" in err
    assert err.startswith("launching 1/1 server=")
    assert "npm:files: no such package" in err


def test_repeated_requests_and_contracts_are_not_clean(tmp_path, warehouse):
    plan = BenchmarkPlan(write_metatool(tmp_path / "meta"))
    items = choose_items(read_metatool(plan), plan, None)
    news = next(tool for tool in items[0].tools if tool["name"] == "News & Co")
    rows = [
        row("a", instruction="IS IT RAINING or not", split="train", positive="another tool"),
        row("b", instruction="Show me a map.", split="train", positive=tool_text(news)),
    ]
    publish(warehouse, TRAINING_SET, rows)
    report, clean = find_repeated(warehouse, items, "metatool", WordEmbedder().embed)
    assert report["requests"]["rates"]["exact"]["value"] == round(1 / 3, 4)
    assert report["contracts"]["rates"]["exact"]["value"] == 0.5
    assert clean == frozenset(), "two ask for the news, one stands in the training set"


def test_an_interval_draws_whole_groups_and_failures_are_in_no_figure():
    def make_row(item: str, group: str, right: bool, **more: Any) -> Row:
        facts = {"item_id": item, "epoch": 1, "group": group, "category": "c", "failed": False}
        spent = {"prompt_tokens": 1, "completion_tokens": 1, "seconds": 2.0, "usd": 0.5}
        verdict = {"ok": right, "error_kind": None if right else "wrong_tool"}
        return {**facts, **spent, **verdict, **more}

    rows = [make_row(str(n), "same", n < 5) for n in range(10)]
    failed = {**make_row("f", "other", False, failed=True, error="timeout"), "ok": None}
    summary = summarise_model([*rows, failed], ("ok",), frozenset({"0", "9"}), rows[:5])
    figure = summary["measures"]["ok"]
    assert (figure["value"], figure["low"], figure["high"], figure["n"]) == (0.5, 0.5, 0.5, 10)
    assert summary["clean"]["ok"] == {"value": 0.5, "low": 0.5, "high": 0.5, "n": 2}
    assert summary["difference"]["n"] == 5
    assert (summary["asked"], summary["failures"]) == (11, {"timeout": 1})
    assert summary["cost"] | {"usd": 5.5, "seconds_per_100": 200.0} == summary["cost"]
