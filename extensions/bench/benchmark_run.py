"""A benchmark as a task of Inspect (https://inspect.aisi.org.uk).

Items are its samples, a predictor is its model, the benchmark's judge its scorer; its log has rows.
"""
# pyright: reportMissingImports=false

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from extensions.bench.benchmark_items import BenchmarkSet
from serving.discovery.session import estimate_tokens
from training.evaluation.caller_items import CallerItem
from training.evaluation.predictor import (
    OnDone,
    PredictionAnswer,
    PredictionRequest,
    Predictor,
    make_failed_answer,
)
from warehouse.errors import UnusableInput
from warehouse.json_types import Row

PROVIDER = "toolmill"
_LONGEST = 2_000  # characters of an answer's text in a row


@dataclass(frozen=True)
class BenchmarkModel:
    """label: as rows name it. open_predictor: of a seed. at_once: items under way together.
    identity: what its answers depend on, for the card."""

    label: str
    open_predictor: Callable[[int], Predictor]
    at_once: int = 1
    identity: str = ""


class NoAnswer(RuntimeError):
    """A question that got no answer: an error of its sample."""


def require_inspect() -> str:
    """Its version. Raises UnusableInput where it is not installed."""
    try:
        from inspect_ai import __version__
    except ImportError as error:
        raise UnusableInput(
            f"benchmarks are tasks of Inspect, which does not load ({error}); pip install"
            " 'toolmill[bench]'"
        ) from None
    return str(__version__)


def run_inspect(
    held: BenchmarkSet,
    items: Sequence[CallerItem],
    model: BenchmarkModel,
    logs: Path,
    *,
    seed: int = 0,
    epochs: int = 1,
    on_done: OnDone | None = None,
) -> tuple[list[Row], Path]:
    """(a row for each item and epoch, Inspect's log): asks a model every item, `epochs` times by
    seeds of their own. What gets no answer is a failed row. Raises UnusableInput, CannotPredict."""
    require_inspect()
    from inspect_ai import eval as run_task
    from inspect_ai.model import GenerateConfig, get_model

    _register_provider()
    answers = _AnswerSource(model, seed)
    answers.open_predictor(1)  # a model that is none is told now
    config = GenerateConfig(max_connections=model.at_once)
    (log,) = run_task(
        make_task(held, items, lambda done: on_done and on_done(done, len(items) * epochs)),
        model=get_model(f"{PROVIDER}/{model.label}", config=config, memoize=False, answers=answers),
        log_dir=str(logs),
        display="none",
        epochs=epochs,
        fail_on_error=False,
        max_samples=model.at_once,
        log_realtime=False,
        ctl_server=False,
    )
    by_id = {item.item_id: item for item in items}
    rows = []
    for sample in log.samples or ():
        item, place = by_id[str(sample.id)], (str(sample.id), sample.epoch)
        why = sample.error.message if sample.error else "no score"
        failure = answers.failures.get(place) or make_failed_answer(" ".join(why.split())[:300])
        scores = list((sample.scores or {}).values())
        failed = {"failed": True, "error": failure.error, **_list_costs(failure)}
        row = (scores[0].metadata if scores else None) or failed
        rows.append({"model": model.label, **_describe_item(item), "epoch": sample.epoch, **row})
    if log.status != "success" or len(rows) != len(items) * epochs:
        raise RuntimeError(f"{held.name}: Inspect ended the run ({log.status}); see {log.location}")
    return rows, Path(str(log.location))


def make_task(
    held: BenchmarkSet, items: Sequence[CallerItem], on_item: Callable[[int], Any]
) -> Any:
    """The Inspect task: one question with its tools, one answer, the benchmark's own judge.
    on_item: of how many items are done."""
    from inspect_ai import Task
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import GenerateConfig, get_model
    from inspect_ai.scorer import Score, mean, scorer, stderr
    from inspect_ai.solver import solver

    by_id = {item.item_id: item for item in items}
    done = count(1)

    @solver
    def ask_with_tools() -> Any:
        async def solve(state: Any, _: Any) -> Any:
            item = by_id[str(state.sample_id)]
            tools = [_make_tool_info(tool) for tool in item.tools]
            config = GenerateConfig(seed=state.epoch)
            answers: list[PredictionAnswer] = []

            async def ask(messages: Sequence[Mapping[str, Any]]) -> PredictionAnswer:
                state.messages = [_make_message(turn, item.item_id) for turn in messages]
                state.output = await get_model().generate(
                    state.messages, tools=tools, config=config
                )
                state.messages.append(state.output.message)
                answers.append(PredictionAnswer(**(state.output.metadata or {})["answer"]))
                return answers[-1]

            try:
                if held.play:
                    verdict = await held.play(item, ask)
                else:
                    said = item.before or [{"role": "user", "content": item.instruction}]
                    assert held.judge
                    verdict = held.judge(item, await ask(said))
            finally:
                on_item(next(done))
            state.metadata["row"] = _make_row(item, verdict, answers)
            return state

        return solve

    @scorer(metrics={name: [mean(), stderr(cluster="group")] for name in held.measures})
    def judge_answer() -> Any:
        async def score(state: Any, _: Any) -> Any:
            row = state.metadata["row"]
            value = {name: float(row[name]) for name in held.measures}
            return Score(value=value, answer=row["called"], metadata=row)

        return score

    samples = [
        Sample(
            input=[_make_message(turn, item.item_id) for turn in item.before] or item.instruction,
            target=json.dumps(item.expected, ensure_ascii=False),
            id=item.item_id,
            metadata={"category": item.split, "group": str(item.row["server_id"])},
        )
        for item in items
    ]
    dataset = MemoryDataset(samples, name=held.name)
    return Task(dataset=dataset, solver=ask_with_tools(), scorer=judge_answer(), name=held.name)


@dataclass
class _AnswerSource:
    """What the provider asks: one predictor for each seed. failures: by (item, epoch)."""

    model: BenchmarkModel
    seed: int
    failures: dict[tuple[str, int], PredictionAnswer] = field(default_factory=dict)
    _predictors: dict[int, Predictor] = field(default_factory=dict)

    def open_predictor(self, epoch: int) -> Predictor:
        if epoch not in self._predictors:
            self._predictors[epoch] = self.model.open_predictor(self.seed + epoch - 1)
        return self._predictors[epoch]

    async def ask(self, request: PredictionRequest, epoch: int) -> PredictionAnswer:
        """Raises NoAnswer."""
        predict = self.open_predictor(epoch).predict
        (answer,) = await asyncio.to_thread(predict, [request])
        if answer.error is not None:
            self.failures[request.item_id, epoch] = answer
            raise NoAnswer(answer.error)
        return answer


def _register_provider() -> None:
    """Makes `toolmill/LABEL` a model of Inspect in this process."""
    from inspect_ai.model import (
        ChatCompletionChoice,
        ChatMessageAssistant,
        ModelAPI,
        ModelOutput,
        ModelUsage,
        modelapi,
    )
    from inspect_ai.tool import ToolCall

    @modelapi(name=PROVIDER)
    class PredictorApi(ModelAPI):
        """Answers by a predictor."""

        def __init__(self, model_name: str, answers: Any = None, **_: Any) -> None:
            super().__init__(model_name)
            self._answers = answers

        def should_retry(self, ex: BaseException) -> bool:
            return False  # our client has tried again already

        async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> Any:
            messages = tuple(map(_read_message, input))
            text = [item["content"] for item in messages if item["role"] == "user"][-1]
            contracts = [tool.options["contract"] for tool in tools]
            before = messages if len(messages) > 1 else ()
            request = PredictionRequest(input[0].metadata["item"], text, contracts, before=before)
            answer = await self._answers.ask(request, config.seed)
            calls = [
                ToolCall(id=f"call_{at}", function=str(call["name"]), arguments=call["arguments"])
                for at, call in enumerate(answer.calls)
                if isinstance(call["arguments"], dict)
            ]
            message = ChatMessageAssistant(content=answer.text, tool_calls=calls or None)
            usage = ModelUsage(
                input_tokens=answer.prompt_tokens,
                output_tokens=answer.completion_tokens,
                total_tokens=answer.prompt_tokens + answer.completion_tokens,
                total_cost=answer.usd,
            )
            return ModelOutput(
                model=self.model_name,
                choices=[ChatCompletionChoice(message=message)],
                usage=usage,
                metadata={"answer": asdict(answer)},
            )


def _make_message(turn: Mapping[str, Any], item_id: str) -> Any:
    """A message of a chat as Inspect has it, with its item."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, ChatMessageUser
    from inspect_ai.tool import ToolCall

    facts, content = {"item": item_id}, turn["content"]
    if turn["role"] == "user":
        return ChatMessageUser(content=content, metadata=facts)
    if turn["role"] == "tool":
        return ChatMessageTool(content=content, tool_call_id=turn["tool_call_id"])
    calls = [
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in turn.get("tool_calls") or ()
    ]
    return ChatMessageAssistant(content=content, tool_calls=calls or None, metadata=facts)


def _read_message(message: Any) -> dict[str, Any]:
    turn = {"role": message.role, "content": message.text}
    if message.role == "tool":
        turn["tool_call_id"] = message.tool_call_id
    calls = message.tool_calls if message.role == "assistant" else None
    functions = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.function, "arguments": call.arguments},
        }
        for call in calls or ()
    ]
    return {**turn, "tool_calls": functions} if functions else turn


def _make_tool_info(tool: Mapping[str, Any]) -> Any:
    """The contract is among its options: Inspect's own schema does not hold every keyword."""
    from inspect_ai.tool import ToolInfo, ToolParams

    try:
        parameters = ToolParams.model_validate(tool["inputSchema"])
    except ValueError:
        parameters = ToolParams()
    return ToolInfo(
        name=tool["name"],
        description=str(tool.get("description") or ""),
        parameters=parameters,
        options={"contract": dict(tool)},
    )


def _describe_item(item: CallerItem) -> Row:
    return {
        "item_id": item.item_id,
        "category": item.split,
        "group": str(item.row["server_id"]),
        "request": item.instruction,
        "offered": len(item.tools),
        "expected": json.dumps(item.expected, ensure_ascii=False),
    }


def _make_row(item: CallerItem, verdict: Row, answers: Sequence[PredictionAnswer]) -> Row:
    """The columns that the answers to an item decide; what they cost is added up."""
    last = answers[-1]
    calls = [call for answer in answers for call in answer.calls]
    row = {"tool_tokens": estimate_tokens(json.dumps(item.tools)), **last.facts, **verdict}
    row |= {"failed": False, "error": None, "answer_kind": last.kind}
    row |= {"called": json.dumps(calls, ensure_ascii=False, default=str)}
    costs = [_list_costs(answer) for answer in answers]
    known = [cost["seconds"] for cost in costs if cost["seconds"] is not None]
    names = ("prompt_tokens", "completion_tokens", "usd")
    spent = {name: sum(cost[name] for cost in costs) for name in names}
    return {**row, "text": last.text[:_LONGEST], **spent, "seconds": sum(known) if known else None}


def _list_costs(answer: PredictionAnswer) -> Row:
    names = ("prompt_tokens", "completion_tokens", "seconds", "usd")
    return {name: getattr(answer, name) for name in names}
