"""Examples: of the tools at hand, whose calls fit, the nearest last."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from extensions.proxy import examples_book
from extensions.proxy.answer import ProxyParts
from extensions.proxy.examples_book import ExampleBook, KnownCall, read_examples, write_example_text
from tests.extensions.proxy.samples import CHAT_TOOLS, PARAMETERS, TOOLS, make_completion
from tests.extensions.proxy.upstream_script import run_proxied
from warehouse.errors import UnusableInput

WEATHER = {"weather": {"name": "weather", "inputSchema": PARAMETERS}}


def known(text: str, name: str = "weather", **arguments: Any) -> KnownCall:
    return KnownCall(text, ({"name": name, "arguments": arguments or {"city": "Rome"}},))


def test_the_nearest_stand_last_and_only_what_fits_is_taken() -> None:
    examples_book = ExampleBook(
        [
            known("rain in Rome tomorrow"),
            known("how is the weather in Rome"),
            known("weather in Paris", town="Paris"),  # the parameter is gone
            known("weather in Oslo now", name="forecast"),
        ],
        3,
    )
    found = examples_book.find_like("what is the weather in Bonn", WEATHER)
    assert [one.instruction for one in found] == [
        "rain in Rome tomorrow", "how is the weather in Rome"
    ]  # fmt: skip
    assert examples_book.find_like("weather", {}) == examples_book.find_like(" ", WEATHER) == []
    assert examples_book.find_like("How is the weather in Rome?", WEATHER)[
        -1
    ].instruction.startswith("rain")


def test_two_of_a_tool_at_most_and_vectors_where_there_are() -> None:
    listed = [known(f"request number {at}") for at in range(5)]

    def embed(texts: Any) -> np.ndarray:
        angles = np.array([0.0, *(0.9 - 0.1 * at for at in range(len(texts) - 1))])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)

    found = ExampleBook(listed, 5, embed).find_like("something else", WEATHER)
    assert [one.instruction for one in found] == ["request number 3", "request number 4"]


def write_export(folder: Path, *lines: Any) -> Path:
    (folder / "data").mkdir()
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    (folder / "data" / "train.jsonl").write_text(text)
    return folder


def make_line(arguments: Any = None, **more: Any) -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments or {"city": "Rome"}}
    answer = {"role": "assistant", "content": "", "tool_calls": [{"function": function}], **more}
    return {"messages": [{"role": "user", "content": "weather in Rome"}, answer]}


def test_an_export_is_read_and_wrong_calls_are_no_examples(tmp_path: Path) -> None:
    asks = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "?"}]}
    lines = make_line(), make_line(weight=0), asks, "no JSON", [], {"messages": []}
    assert read_examples(write_export(tmp_path, *lines)) == [known("weather in Rome")]


def test_a_line_without_an_end_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples_book, "_LONGEST", 500)
    right = make_line()
    folder = write_export(tmp_path, "x" * 500, right, "y" * 1_700, right, "z" * 900)
    assert read_examples(folder) == [known("weather in Rome")] * 2
    monkeypatch.setattr(examples_book, "_MOST_READ", 1)
    assert read_examples(folder) == [known("weather in Rome")]


def test_a_folder_that_is_no_export_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match=r"train\.jsonl: No such file.*toolmill export"):
        read_examples(tmp_path)
    with pytest.raises(UnusableInput, match="no line holds a request with calls"):
        read_examples(write_export(tmp_path, "{}"))


def test_examples_stand_before_what_goes_to_the_upstream() -> None:
    import httpx2

    examples_book = ExampleBook([known("how is the weather in Rome")], 2)
    with run_proxied(parts=ProxyParts(examples=examples_book)) as running:
        running.script.body = make_completion()
        said = [{"role": "user", "content": "weather in Bonn"}]

        def send(path: str, **body: Any) -> Any:
            httpx2.post(f"{running.url}/v1/{path}", json={"model": "m", **body}, trust_env=False)
            return json.loads(running.script.seen[-1][2])

        sent = send("chat/completions", messages=said, tools=CHAT_TOOLS)["messages"]
        assert sent == [
            {
                "role": "system",
                "content": write_example_text([known("how is the weather in Rome")]),
            },
            *said,
        ]
        sent = send("responses", input="weather in Bonn", instructions="brief", tools=TOOLS)
        assert sent["instructions"].startswith("brief\n\nCalls of like requests")
        assert send("responses", input="weather in Bonn")["input"] == "weather in Bonn"
