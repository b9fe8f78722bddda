"""Who answers a benchmark: predictors whose answers are kept, arms around them, answers of a file.

NAME, smollm2, baseline, endpoint:ROLE_or_MODEL   shown the tools that an item offers
retrieval             no model: the router's first hit among them, its arguments copied
must-call:NAME        a local model held to one call by a grammar of the tools it is shown
active:NAME           MCP-Zero: the model asks, the router answers, until it calls
active-example:NAME   the same with one worked example in the prompt
calls:FILE            the calls of a file, by item
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from assets.contracts.canonical import canonicalize_contract, contract_digest
from assets.contracts.repair.json_text import parse_arguments
from assets.contracts.tool_id import ToolId
from assets.vectors.encoders.embedder import Embedder
from orchestration.cli.search import read_calls
from serving.adhoc import VectorCache
from serving.agent_loop import AgentModel, AgentRun, run_agent
from serving.index.build import build_index
from serving.index.folder import load_index
from serving.index.model import IndexSource
from serving.ranking.query import ToolQuery
from serving.repair.drafts import read_drafts
from serving.router import Router
from training.caller.shipped import find_caller_folder
from training.caller.smollm2 import SMOLLM2, name_smollm2_base
from training.evaluation.adapter_predictor import CONSTRAINED, AdapterPredictor, resolve_model
from training.evaluation.baselines import copy_slots
from training.evaluation.predictor import (
    CannotPredict,
    OnDone,
    PredictionAnswer,
    PredictionRequest,
    Predictor,
    PredictorKind,
    make_failed_answer,
)
from training.prompts.call_text import normalise_call
from training.prompts.render import NO_CALL, SYSTEM
from warehouse.errors import UnusableInput
from warehouse.json_types import Contract
from warehouse.ledger.attempts import EffectOutcome
from warehouse.ledger.ledger import Ledger
from warehouse.llm.chat import ChatClient, ChatTurn
from warehouse.llm.roles import LLMError
from warehouse.progress import SilentProgress
from warehouse.storage.digest import digest
from warehouse.storage.files import hash_file
from warehouse.user_files import read_json_lines

RETRIEVAL, ACTIVE, EXAMPLE, CALLS = "retrieval", "active:", "active-example:", "calls:"
MUST_CALL = "must-call:"
STAGE = "bench"
_OPEN = 4  # routers that are open at once: neighbouring items share one
_HITS = 5
_WEIGHTS = (".safetensors", ".bin", ".json", ".model", ".jinja")
_FORM = 3  # of kept answers: raise it where the same question would be answered otherwise
_DONE = ("planned", "answered", "empty", "turn_limit")


class KeptPredictor:
    """A local predictor whose answers are in the ledger under its weights and the whole question,
    so that a run which was stopped asks nothing twice. identity: what its answers depend on."""

    def __init__(self, predictor: Predictor, ledger: Ledger, identity: Any) -> None:
        self.label = predictor.label
        self.kind: PredictorKind = predictor.kind
        self._predictor, self._ledger = predictor, ledger
        self._identity = digest([_FORM, SYSTEM, NO_CALL, predictor.label, identity])

    def predict(
        self, requests: Sequence[PredictionRequest], on_done: OnDone | None = None
    ) -> list[PredictionAnswer]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: PredictionRequest) -> PredictionAnswer:
        asked = [request.instruction, request.tools, sorted(request.keep), list(request.before)]

        def ask() -> EffectOutcome:
            (answer,) = self._predictor.predict([request])
            spent = answer.prompt_tokens, answer.completion_tokens
            return EffectOutcome(json.dumps(asdict(answer)).encode(), self.label, *spent)

        key = digest([STAGE, self._identity, asked])
        return PredictionAnswer(**json.loads(self._ledger.once(STAGE, key, ask)))


class CallingPredictor:
    """A local model that writes one call whatever it is asked."""

    kind: PredictorKind = "adapter"

    def __init__(self, predictor: AdapterPredictor) -> None:
        self.label = f"{MUST_CALL}{predictor.label}"
        self._predictor = predictor

    def predict(
        self, requests: Sequence[PredictionRequest], on_done: OnDone | None = None
    ) -> list[PredictionAnswer]:
        answer = self._predictor.answer_one
        return [answer(request, None, lambda: False, must_call=True) for request in requests]


def identify_model(home: Path, name: str) -> str:
    """Digest of a local model's files. Raises UnusableModel, TrainingFailed."""
    model = resolve_model(home, name.removeprefix(CONSTRAINED))
    if model == SMOLLM2:
        return name_smollm2_base()
    folder = model if isinstance(model, Path) else find_caller_folder(home, model)
    files = sorted(path for path in folder.iterdir() if path.suffix in _WEIGHTS)
    return digest([[path.name, hash_file(path)] for path in files])


class RouterPools:
    """A request's tools -> the router of an index of them alone, under `place`. What is known of a
    pool's tools (means, rare words) is then what a user of that pool would have. servers: facts of
    servers by id."""

    def __init__(
        self, place: Path, encoder: Embedder, servers: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self._place, self._encoder, self._servers = place, encoder, servers or {}
        self.encoder_id = encoder.id
        self._vectors = VectorCache(place, encoder, SilentProgress())
        self._routers: OrderedDict[str, Router] = OrderedDict()

    def open(self, tools: Sequence[Contract]) -> Router:
        key = digest(sorted(digest(dict(tool)) for tool in tools))
        if key not in self._routers:
            rows = [_make_index_row(tool) for tool in tools]
            names = {row["server_id"] for row in rows}
            servers = {name: facts for name, facts in self._servers.items() if name in names}
            source = IndexSource(rows, servers=servers)
            version = build_index(self._place, source, self._vectors, embedder=self._encoder.id)
            self._routers[key] = Router(load_index(self._place, version), self._encoder)
            while len(self._routers) > _OPEN:
                self._routers.popitem(last=False)
        self._routers.move_to_end(key)
        return self._routers[key]


def _get_tool_id(tool: Contract) -> ToolId:
    """Of a tool that is named by its id; any other is the one tool of a server of its name."""
    name = str(tool["name"])
    return ToolId.parse(name) if "::" in name else ToolId(name, name)


def _make_index_row(tool: Contract) -> dict[str, Any]:
    tool_id = _get_tool_id(tool)
    contract = canonicalize_contract({**tool, "name": tool_id.tool})
    return {
        "server_id": tool_id.server_id,
        "tool": tool_id.tool,
        "contract_digest": contract_digest(contract),
        "contract": json.dumps(contract, ensure_ascii=False),
        "marketplace": STAGE,
    }


class RouterPredictor:
    """Retrieval alone; `facts["hits"]` has the names of the first five."""

    label = RETRIEVAL
    kind: PredictorKind = "baseline"

    def __init__(self, pools: RouterPools) -> None:
        self._pools = pools

    def predict(
        self, requests: Sequence[PredictionRequest], on_done: OnDone | None = None
    ) -> list[PredictionAnswer]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: PredictionRequest) -> PredictionAnswer:
        by_id = {str(_get_tool_id(tool)): tool for tool in request.tools}
        if not by_id:
            return PredictionAnswer([], "no_call", seconds=None)
        router = self._pools.open(request.tools)
        hits = router.find(ToolQuery(query=request.instruction, k=_HITS)).hits
        tools = [by_id[hit.tool_id] for hit in hits]
        calls = [
            {"name": tool["name"], "arguments": copy_slots(tool, request.instruction)}
            for tool in tools[:1]
        ]
        facts = {"hits": [tool["name"] for tool in tools], "tool_tokens": 0}
        return PredictionAnswer(calls, "call" if calls else "no_call", seconds=None, facts=facts)


OpenSpeaker = Callable[[], AbstractAsyncContextManager[AgentModel]]


class ActivePredictor:
    """A model that is shown no tool and asks for them. `facts["first"]` is the router's first hit
    for its first request, `facts["asked_for"]` what that request says the tool should do."""

    def __init__(
        self, label: str, kind: PredictorKind, open_speaker: OpenSpeaker, pools: RouterPools
    ) -> None:
        self.label = label
        self.kind: PredictorKind = kind
        self._open_speaker, self._pools = open_speaker, pools

    def predict(
        self, requests: Sequence[PredictionRequest], on_done: OnDone | None = None
    ) -> list[PredictionAnswer]:
        return [asyncio.run(self._ask(request)) for request in requests]

    async def _ask(self, request: PredictionRequest) -> PredictionAnswer:
        messages = request.before or [{"role": "user", "content": request.instruction}]
        router = self._pools.open(request.tools)
        async with self._open_speaker() as speaker:
            run = await run_agent(
                [*map(dict, messages)], speaker, router, read_calls=read_calls,
                example=self.label.startswith(EXAMPLE),
            )  # fmt: skip
        names = {str(_get_tool_id(tool)): str(tool["name"]) for tool in request.tools}
        return _describe_run(run, names)


def _describe_run(run: AgentRun, names: Mapping[str, str]) -> PredictionAnswer:
    """names: tool id -> the name under which an item offers it."""
    spent: dict[str, Any] = {
        "prompt_tokens": run.prompt_tokens,
        "completion_tokens": run.completion_tokens,
        "usd": run.usd,
    }
    if run.ended not in _DONE:
        return make_failed_answer(run.ended, **spent)
    answers = [answer for searched in run.rounds for answer in searched.answers]
    hits = answers[0].hits if answers else ()
    first = next((query for searched in run.rounds for query in searched.asked), None)
    facts = {
        "asked_for": (first.tool or first.server or first.query) if first else None,
        "first": names.get(hits[0].tool_id, "") if hits else "",
        "tool_tokens": run.tool_tokens,
        "turns": run.turns,
        "searches": len(run.rounds),
    }
    calls = []
    for call in run.calls:
        named = normalise_call(names.get(call.tool_id or "", call.name), call.arguments)
        calls += [named] if named else []
    kind = "call" if calls else "prose" if run.answer.strip() else "no_call"
    return PredictionAnswer(calls, kind, run.answer, seconds=None, facts=facts, **spent)


class FilePredictor:
    """Answers of a file: JSON Lines of `{"id": item, "calls": [...]}`, calls in any vendor's shape.
    An item that the file does not have is a failed answer. Raises UnusableInput."""

    kind: PredictorKind = "baseline"

    def __init__(self, path: Path) -> None:
        self.label = f"{CALLS}{path.name}"
        self._path, self._calls = path, dict(read_rows(path))

    def predict(
        self, requests: Sequence[PredictionRequest], on_done: OnDone | None = None
    ) -> list[PredictionAnswer]:
        return [self._answer(request.item_id) for request in requests]

    def require_items(self, ids: Sequence[str], name: str) -> None:
        """Raises UnusableInput for a row of no item."""
        unknown = next((item for item in self._calls if item not in set(ids)), None)
        if unknown is not None:
            raise UnusableInput(
                f"{self._path}: no item {unknown[:80]!r} in {name}; expected an id like"
                f" {next(iter(ids), '-')!r}"
            )

    def _answer(self, item_id: str) -> PredictionAnswer:
        if item_id not in self._calls:
            return make_failed_answer("not_in_file")
        calls = self._calls[item_id]
        return PredictionAnswer(calls, "call" if calls else "no_call", seconds=None)


_CALL = '{"name": "...", "arguments": {...}}'


def read_rows(path: Path) -> list[tuple[str, list[Any]]]:
    """(id, calls) of each row of a calls file."""
    rows = []
    for line, row in read_json_lines(path):
        where = f"{path}, line {line}"
        if not isinstance(row.get("id"), str) or not isinstance(row.get("calls"), list):
            expected = f'{{"id": "...", "calls": [{_CALL}, ...]}}'
            raise UnusableInput(f"{where}: found {row!r:.120}; expected {expected}")
        calls = [_parse_call(call, f"{where}, call {i}") for i, call in enumerate(row["calls"])]
        rows.append((row["id"], calls))
    if not rows:
        raise UnusableInput(f'{path}: empty; expected {{"id": "...", "calls": [{_CALL}]}} a line')
    return rows


def _parse_call(value: Any, where: str) -> dict[str, Any]:
    """A call that a model wrote, in any vendor's shape: arguments that are no object are a verdict,
    not an error."""
    drafts = read_drafts(value) if isinstance(value, dict) else []
    if len(drafts) != 1 or not drafts[0].name:
        raise UnusableInput(f"{where}: found {value!r:.120}; expected a call {_CALL}")
    arguments = drafts[0].arguments
    if isinstance(arguments, str) and "arguments" not in value:  # else it is what the model wrote
        arguments = next(iter(parse_arguments(arguments).values), arguments)
    return {"name": drafts[0].name, "arguments": arguments}


class SeededChat:
    """A conversation by one seed, closed at the end of the context."""

    def __init__(self, chat: ChatClient, seed: int) -> None:
        self._chat, self._seed = chat, seed

    async def __aenter__(self) -> "SeededChat":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._chat.aclose()

    async def say(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> ChatTurn:
        return await self._chat.say(messages, tools, seed=self._seed)


class LocalSpeaker:
    """One loaded model; greedy. Raises LLMError: `too_long` for what its context does not hold,
    `bad_template` for what its chat template fails on."""

    def __init__(self, predictor: AdapterPredictor) -> None:
        self._predictor = predictor

    async def say(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> ChatTurn:
        """The next turn; calls as the model's text holds them."""
        label = self._predictor.label
        try:
            answer = self._predictor.converse(
                [_read_arguments(message) for message in messages], tools
            )
        except CannotPredict as error:  # a template is a program: it may fail on one conversation
            raise LLMError("bad_template", str(error), "a prompt", "use another model") from error
        if answer.error is not None:
            raise LLMError(
                answer.error,
                f"{answer.prompt_tokens:,} tokens for {label}",
                "what its context holds",
                "offer fewer tools, or use a model with a longer context",
            )
        calls = tuple((str(call["name"]), call["arguments"]) for call in answer.calls)
        return ChatTurn(
            answer.text, calls, "stop", label, answer.prompt_tokens, answer.completion_tokens
        )


def _read_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose calls have their arguments as objects: endpoints take JSON texts, chat
    templates take objects."""
    calls = []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = json.loads(function["arguments"])
        calls.append({**call, "function": {**function, "arguments": arguments}})
    return {**message, **({"tool_calls": calls} if calls else {})}
