"""A training set over made-up rows, and predictors that follow a script."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestration.cli.app import main

# The folder's fixtures once more, of this folder's own `made`: a session makes each only once.
from tests.training.conftest import (  # noqa: F401
    embed,
    make_rows,
    pool,
    rows,
    test_rows,
    train_rows,
)
from tests.training.small_base import make_base
from training.evaluation.caller_items import CallerItem, TestPlan, make_items
from training.evaluation.predictor import (
    OnDone,
    PredictionAnswer,
    PredictionRequest,
    PredictorKind,
    parse_answer,
)
from training.sets.pool import save_pool
from training.sets.split import SetPolicy
from training.sets.training_set import TRAINING_SET, TrainingSet, build_training_set
from warehouse.store import Warehouse

PLAN = TestPlan(candidates=(6, 12), per_split=10, per_large=4, perturbations=6, irrelevance=5,
                phantom=5)  # fmt: skip
Say = Callable[[PredictionRequest], PredictionAnswer]


class Scripted:
    kind: PredictorKind = "baseline"

    def __init__(self, label: str, say: Say) -> None:
        self.label, self._say = label, say

    def predict(
        self, asked: Sequence[PredictionRequest], on_done: OnDone | None = None
    ) -> list[PredictionAnswer]:
        return [self._say(one) for one in asked]


def run_main(patch: pytest.MonkeyPatch, capsys: Any, *words: object) -> tuple[int, str, str]:
    patch.setattr("sys.argv", ["toolmill", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def texts(say: Callable[[PredictionRequest], str]) -> Say:
    return lambda asked: parse_answer(say(asked))


@pytest.fixture(scope="session")
def made() -> TrainingSet:
    """the made-up set, with held-out tools and requests, and a row that no tool serves."""
    snapshots, pairs = make_rows()
    aside = {**pairs[0], "pair_id": "p1:aside", "instruction": "What is the plural of cactus?"}
    aside |= {"offered": f'["{pairs[0]["contract_digest"]}"]', "task": "no_tool"}
    aside |= {"arguments": None, "calls": "[]"}
    both = [*pairs, aside, *_make_conversations(pairs)]
    policy = SetPolicy(unseen_tools=0.3, seen_tools=0.3, near_cosine=1.0)
    return build_training_set(both, snapshots, embed, policy)


def _make_conversations(pairs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    own = next(row for row in pairs if row["tool"] == "find_note")
    named = {name: own[name] for name in ("server_id", "tool", "contract_digest")}
    right = json.loads(own["arguments"])
    user = {"role": "user", "content": "Please find some note."}
    asks = {"role": "assistant", "content": "What is its title?"}
    made, wrong = (
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function",
             "function": {"name": "find_note", "arguments": json.dumps(given)}}]}
        for given in (right, {})
    )  # fmt: skip
    error = {"role": "tool", "tool_call_id": "c", "content": "title is required"}
    answer = {"role": "user", "content": "'Blue Sky', and 2 of them."}
    conversations = {
        "missing_parameter": [user, asks],
        "clarification": [user, asks, answer, made],
        "recovery": [user, wrong, error, made],
    }
    talks = [
        {**own, "pair_id": f"p1:{task}", "task": task, "messages": json.dumps(messages),
         "instruction": f"{user['content']} ({task})", "calls": json.dumps([
             {**named, "arguments": right}]), "offered": json.dumps([own["contract_digest"]])}
        for task, messages in conversations.items()
    ]  # fmt: skip
    talks[0] |= {"calls": "[]", "arguments": None}
    return talks


@pytest.fixture(scope="session")
def items(made: TrainingSet) -> list[CallerItem]:
    return make_items(made.rows, made.pool, PLAN)


@pytest.fixture(scope="session")
def right(items: Sequence[CallerItem]) -> dict[str, list[dict[str, Any]]]:
    return {item.item_id: item.expected for item in items}


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="session")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(str(base))
    config = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    folder = tmp_path_factory.mktemp("adapter")
    get_peft_model(model, config).save_pretrained(str(folder))
    return folder


@pytest.fixture
def home(tmp_path: Path, made: TrainingSet) -> Path:
    return publish_set(tmp_path / "home", made.rows, made)


def publish_set(home: Path, published: Sequence[dict[str, Any]], made: TrainingSet) -> Path:
    warehouse = Warehouse(home=home, state=home / "state")
    staged = warehouse.tables.stage(TRAINING_SET, TRAINING_SET.frame(published))
    warehouse.tables.promote(staged, "test", [])
    save_pool(home, staged.digest, made.pool)
    return home
