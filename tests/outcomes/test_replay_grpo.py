"""The shapes that TRL's GRPOTrainer takes: an environment of tools, a function of rewards."""

import inspect
import json
from pathlib import Path

import pytest

from assets.outcomes.replay_environment import (
    make_environment_factory,
    make_prompt_rows,
)
from tests.outcomes.recorded import READ, WRITE, find_task, recording

MADE = recording()
BOTH = find_task(MADE, "Read /a, then write x into /b.")


def test_a_rollout_calls_tools_and_is_rewarded_once() -> None:
    environment = make_environment_factory(MADE)()
    [row] = [row for row in make_prompt_rows(MADE) if row["task"] == BOTH]
    assert row["prompt"] == [{"role": "user", "content": MADE.tasks[BOTH].request}]
    output = environment.reset(**row)
    assert '"name": "read"' in output
    assert '"name": "write"' in output
    assert environment.call_tool("read", '{"path": "/a"}') == "first"
    assert "expected" in environment.call_tool("read", "{broken") or environment.get_reward() < 1
    environment.reset(**row)
    for item in (READ, WRITE):
        environment.call_tool(item["name"], json.dumps(item["arguments"]))
    assert environment.get_reward() == 1.0
    environment.call_tool("read", '{"path": "/unseen"}')
    assert environment.get_reward() is None  # TRL leaves such a rollout out of the update


def test_only_what_the_model_may_call_is_a_tool() -> None:
    factory = make_environment_factory(MADE)
    names = [name for name, _ in inspect.getmembers(type(factory()), predicate=inspect.isfunction)]
    assert [name for name in names if not name.startswith("_")] == [
        "call_tool", "get_reward", "reset",
    ]  # fmt: skip
    transformers = pytest.importorskip("transformers.utils")
    schema = transformers.get_json_schema(factory().call_tool)["function"]
    assert set(schema["parameters"]["properties"]) == {"tool", "arguments"}


def test_two_rollouts_do_not_see_one_another() -> None:
    factory = make_environment_factory(MADE)
    item, other = factory(), factory()
    for each in (item, other):
        each.reset(task=BOTH)
    item.call_tool("write", json.dumps(WRITE["arguments"]))
    assert item.get_reward() > 0
    assert other.get_reward() == 0.0


@pytest.mark.slow
def test_trl_makes_a_step_with_the_environment(
    small_caller: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    transformers = pytest.importorskip("transformers")
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    base = str(small_caller)
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    templates = Path(trl.__file__).parent / "chat_templates"
    tokenizer.chat_template = (templates / "qwen3.jinja").read_text()
    settings = trl.GRPOConfig(
        output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=2, num_generations=2,
        max_completion_length=8, use_cpu=True, bf16=False, report_to=[], save_strategy="no",
        disable_tqdm=True,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=base,
        args=settings,
        train_dataset=datasets.Dataset.from_list(make_prompt_rows(MADE)),
        environment_factory=make_environment_factory(MADE),
        processing_class=tokenizer,
    )
    built = trainer.train()
    assert built.global_step == 1
    assert built.metrics["rewards/ReplayWorld/mean"] == 0.0  # it calls nothing in the form of Qwen3
