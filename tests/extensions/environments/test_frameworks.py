"""The exported package in the frameworks that it is for, each in an environment of its own.

Their packages come from the index once; nothing that is played then leaves loopback.
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from extensions.environments.export import export_environment
from extensions.environments.tasks import select_tasks
from tests.extensions.environments.release_home import HELD_OUT, PAIR, fill_home
from training.caller.bases import load_base
from training.caller.shipped import find_general_folder
from training.caller.smollm2 import write_smollm2_base
from training.prompts.call_text import parse_calls
from training.prompts.render import render_conversation, render_tool_schema
from training.releases.release import find_release
from warehouse.home import claim_home
from warehouse.store import Warehouse

NAME = "some_env"
PINNED = {
    "openenv": ["openenv==0.10.0", "rfc8785==0.1.4"],
    "verifiers": ["verifiers==0.4.0", "rfc8785==0.1.4"],
}
HERE = Path(__file__).parent


@pytest.fixture
def out(warehouse: Warehouse, tmp_path: Path) -> Path:
    claim_home(warehouse.home)
    release = find_release(warehouse.home, fill_home(warehouse))
    made = select_tasks(warehouse, release["training_set"])
    export_environment(made, tmp_path / NAME, release, None)
    return tmp_path / NAME


@pytest.fixture(scope="module", params=list(PINNED))
def framework(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(name, interpreter) of an environment with one framework."""
    folder = tmp_path_factory.mktemp(request.param) / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin/pip"), "install", "-q", *PINNED[request.param]]
    subprocess.run(install, check=True, timeout=900, capture_output=True)
    return request.param, folder / "bin/python"


def play(python: Path, script: str, out: Path, *arguments: str) -> dict[str, Any]:
    paths = f"{out.parent}{os.pathsep}{HERE}"
    away = {"HF_HUB_OFFLINE": "1", "GRADIO_ANALYTICS_ENABLED": "False", "HOME": str(out.parent)}
    command = [str(python), str(HERE / script), NAME, *arguments]
    how: Any = {"env": {**os.environ, "PYTHONPATH": paths, **away}, "cwd": out.parent}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, **how)
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.registry
def test_their_own_evaluators_tell_reference_from_perturbed(framework: Any, out: Path) -> None:
    name, python = framework
    if name == "verifiers":
        kinds = ("reference", "perturbed")
        right, wrong = (play(python, "verifiers_rollouts.py", out, kind, "10") for kind in kinds)
        assert right["errors"] == wrong["errors"] == []
        assert set(right["rewards"].values()) == {1.0}
        assert len(wrong["rewards"]) == 4
        assert max(wrong["rewards"].values()) < 1 <= wrong["misses"]
        return
    told = play(python, "openenv_rollouts.py", out)
    assert (told["scores"]["reference"], len(told["scores"]["perturbed"])) == ([1.0] * 4, 4)
    assert max(told["scores"]["perturbed"]) < 1
    assert told["over_mcp"]["done"] is True
    ended, other = told["states"]
    assert (ended["done"], other["done"]) == (True, False)
    assert ended["task_id"] != other["task_id"]


@dataclass
class PackageReward:
    """The package's score of completions, as a reward function of TRL. rows: its data set."""

    package: Any
    rows: list[dict[str, Any]] = field(default_factory=list)
    references: dict[str, str] = field(default_factory=dict)
    rewarded: list[float] = field(default_factory=list)
    __name__ = "package_reward"

    def __call__(self, completions: list[str], task: list[str], **_: Any) -> list[float]:
        made = zip(task, [parse_calls(text).calls for text in completions], strict=True)
        rewards = [self.package.score_calls(name, calls).reward for name, calls in made]
        self.rewarded += rewards
        return rewards


@pytest.fixture
def rewarding(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """(reward, model, tokenizer) over two tasks and SmolLM2."""
    monkeypatch.syspath_prepend(str(out.parent))
    package = importlib.import_module(f"{NAME}.episode")
    model, tokenizer = load_base(str(write_smollm2_base(tmp_path)), "cpu")
    episode, reward = package.Episode(), PackageReward(package)
    for name in (PAIR, HELD_OUT):
        row = episode.reset(name)
        tools = [render_tool_schema(tool) for tool in episode.list_tools()]
        prompt, completion = render_conversation(tokenizer, tools, row["request"], row["reference"])
        reward.rows.append({"prompt": prompt, "task": name})
        reward.references[name] = completion
    yield reward, model, tokenizer
    for name in [item for item in sys.modules if item.split(".")[0] == NAME]:
        del sys.modules[name]


@pytest.mark.slow
def test_reference_calls_as_the_model_writes_them_are_worth_1(rewarding: Any) -> None:
    reward, _, _ = rewarding
    own = list(reward.references.values())
    assert reward(own, task=[PAIR, HELD_OUT]) == [1.0, 1.0]
    assert max(reward(own, task=[HELD_OUT, PAIR])) < 1
    assert reward(["In words alone."], task=[PAIR]) == [0.0]


@pytest.mark.slow
def test_trl_moves_our_caller_by_the_packages_reward(rewarding: Any, tmp_path: Path) -> None:
    """The shipped caller's samples are worth more and less, so that there is something to learn;
    SmolLM2 untuned writes no call."""
    from datasets import Dataset
    from peft import PeftModel
    from trl import GRPOConfig, GRPOTrainer

    reward, base, tokenizer = rewarding
    model = PeftModel.from_pretrained(base, find_general_folder(), is_trainable=True)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    options = GRPOConfig(
        output_dir=str(tmp_path / "grpo"), max_steps=1, num_generations=8, learning_rate=1e-4,
        per_device_train_batch_size=8, max_completion_length=48, use_cpu=True, bf16=False,
        report_to="none", save_strategy="no", logging_steps=1, seed=7,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=model, reward_funcs=[reward], args=options,
        train_dataset=Dataset.from_list(reward.rows), processing_class=tokenizer,
    )  # fmt: skip
    trainer.train()
    [log] = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert log["reward"] == pytest.approx(sum(reward.rewarded) / 8)
    assert 0 <= min(reward.rewarded) < max(reward.rewarded)
    assert log["grad_norm"] > 0
    assert any(not weight.equal(before[name]) for name, weight in model.named_parameters())
