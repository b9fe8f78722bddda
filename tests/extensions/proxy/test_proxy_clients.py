"""LangChain and the Agents SDK, unchanged, behind the proxy: in an environment of their own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extensions.proxy.samples import BROKEN, make_completion, make_response, stream_chat
from tests.extensions.proxy.upstream_script import run_proxied

LANGCHAIN = """
import sys
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

@tool
def weather(city: str, days: int = 1) -> str:
    "Weather of a city."
    return city

model = ChatOpenAI(model="m", base_url=sys.argv[1], api_key="k", max_retries=0)
model = model.bind_tools([weather])
if sys.argv[2] == "stream":
    made = None
    for chunk in model.stream("weather in Bonn?"):
        made = chunk if made is None else made + chunk
else:
    made = model.invoke("weather in Bonn?")
[call] = made.tool_calls
print(call["name"], call["args"], made.invalid_tool_calls)
"""
AGENTS = """
import sys
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from agents import OpenAIResponsesModel
from openai import AsyncOpenAI

seen = []

@function_tool
def weather(city: str, days: int) -> str:
    "Weather of a city."
    seen.append((city, days))
    return "sunny"

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=sys.argv[1], api_key="k", max_retries=0)
kind = OpenAIResponsesModel if sys.argv[2] == "responses" else OpenAIChatCompletionsModel
agent = Agent(
    name="a", tools=[weather], model=kind("m", client), tool_use_behavior="stop_on_first_tool"
)
made = Runner.run_sync(agent, "weather in Bonn?")
print(seen, made.final_output)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has both packages."""
    folder = tmp_path_factory.mktemp("clients") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin/pip"), "install", "-q", "langchain-openai", "openai-agents"]
    subprocess.run(install, check=True, timeout=540, capture_output=True)
    return folder / "bin/python"


@pytest.mark.slow
@pytest.mark.registry
@pytest.mark.parametrize(
    ("script", "way", "expected"),
    [
        (LANGCHAIN, "whole", "weather {'city': 'Bonn', 'days': 2} []"),
        (LANGCHAIN, "stream", "weather {'city': 'Bonn', 'days': 2} []"),
        (AGENTS, "chat", "[('Bonn', 2)] sunny"),
        (AGENTS, "responses", "[('Bonn', 2)] sunny"),
    ],
)
def test_a_client_gets_a_call_that_fits(
    python: Path, tmp_path: Path, script: str, way: str, expected: str
) -> None:
    (tmp_path / "client.py").write_text(script)
    with run_proxied() as running:
        running.script.body = make_completion(BROKEN)
        if way == "responses":
            running.script.body = json.dumps(make_response(BROKEN)).encode()
        running.script.parts = stream_chat(BROKEN) if way == "stream" else None
        made = subprocess.run(
            [str(python), str(tmp_path / "client.py"), f"{running.url}/v1", way],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert made.stdout.strip() == expected, made.stderr[-2000:]
