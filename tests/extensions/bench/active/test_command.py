"""`toolmill active-eval`, and a local model in a conversation."""

import asyncio
import json
from pathlib import Path

import pytest

from extensions.bench.active_cases import LocalSpeaker
from tests.extensions.bench.active.test_active import bank
from tests.serving.agent.test_command import home  # noqa: F401
from tests.serving.test_adhoc import CLOCK, MAIL, run, written
from training.evaluation.adapter_predictor import AdapterPredictor
from warehouse.home import claim_home
from warehouse.llm.roles import LLMError


def test_api_bank_in_every_arm_without_a_model(tmp_path: Path) -> None:
    asked = ("active-eval", "--set", "api-bank", "--data", bank(tmp_path / "b"), "--limit", 2)
    code, out, err = run(*asked, "--out", tmp_path / "out", "--json")
    assert code == 0, err
    report = json.loads(out)
    assert (report["provider"], report["cases"], report["of_cases"]) == ("offline", 2, 4)
    assert set(report["cells"]["all"]["arms"]) == {
        "retrieval", "standard", "active", "active_example"
    }  # fmt: skip
    assert len((tmp_path / "out" / "items.jsonl").read_text().splitlines()) == 8


def test_needles_of_files(tmp_path: Path) -> None:
    servers = written(tmp_path / "servers.jsonl", CLOCK, MAIL)
    rows = [{"tool_id": "npm:mail::send_email", "instruction": "send an email to Ada"}]
    asked = written(tmp_path / "asked.jsonl", *rows)
    code, out, err = run(
        "active-eval",
        "--data",
        servers,
        "--requests",
        asked,
        "--arm",
        "retrieval",
        "--arm",
        "active",
    )
    assert code == 0, err
    assert "| size 3 | active |" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--set", "other"), 2, "known: needle, api-bank"),
        (("--set", "api-bank"), 2, "--data DIR"),
        (("--set", "api-bank", "--data", "none"), 2, "all_apis.csv"),
        (("--data", "none"), 2, "--requests FILE together"),
        (("--arm", "best"), 2, "known: retrieval"),
    ],
)
def test_bad_input_is_one_error(arguments: tuple[str, ...], code: int, message: str) -> None:
    found = run("active-eval", *arguments)
    assert found[0] == code, found
    assert message in found[2]
    assert found[1] == ""


def test_a_home_without_a_training_set_says_what_to_run_or_give(tmp_path: Path) -> None:
    claim_home(tmp_path / "home")
    code, _, error = run("active-eval")
    assert code == 2
    assert "run `make run` first, or give --data" in error


def test_a_local_model_converses_and_says_what_does_not_fit(
    small_caller: Path, tmp_path: Path
) -> None:
    speaker = LocalSpeaker(AdapterPredictor(tmp_path, small_caller, max_new=8))
    messages = [{"role": "system", "content": "Help."}, {"role": "user", "content": "Hello."}]
    turn = asyncio.run(speaker.say(messages, []))
    assert turn.prompt_tokens > 0
    assert turn.completion_tokens <= 9
    call = {"id": "1", "type": "function", "function": {"name": "x", "arguments": '{"a": 1}'}}
    called = [{"role": "assistant", "content": "", "tool_calls": [call]},
              {"role": "tool", "tool_call_id": "1", "content": "done"}]  # fmt: skip
    after = asyncio.run(speaker.say([*messages, *called], []))
    assert after.prompt_tokens > turn.prompt_tokens
    with pytest.raises(LLMError, match="too_long"):
        asyncio.run(speaker.say([{"role": "user", "content": "word " * 50_000}], []))
