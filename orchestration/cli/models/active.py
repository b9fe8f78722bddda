"""The command `agent`: a model asks for tools in its own words until it has the one it needs."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.models.index import STRATEGIES
from orchestration.cli.models.predictors import choose_role, list_roles
from orchestration.cli.models.serve import make_caller
from orchestration.cli.terminal import print_json, print_line, require_known
from orchestration.settings.derive import derive_policy
from orchestration.settings.load import allow_models, load_settings
from orchestration.settings.model import Settings

if TYPE_CHECKING:
    from assets.servers.calls.log import CallLog
    from serving.agent_loop import AgentLimits, AgentRun
    from serving.router import ServedRouter
    from warehouse.llm.chat import Chat
    from warehouse.llm.roles import Role

app = typer.Typer(add_completion=False)

STAGE = "agent"
Model = Annotated[
    str, typer.Option(help="a role, a model's name at OPENAI_BASE_URL, or offline (rules)")
]
Place = Annotated[
    Path | None, typer.Option("--index", help="folder of `index`; default: the served one")
]


@app.command()
def agent(
    task: Annotated[str, typer.Argument(help="what should be done, in words")],
    place: Place = None,
    model: Model = "actor",
    example: Annotated[
        bool, typer.Option("--example", help="show the model one worked example")
    ] = False,
    strategy: Annotated[str, typer.Option(help=", ".join(STRATEGIES))] = "ours",
    k: Annotated[int, typer.Option("-k", min=1, max=50, help="tools shown for a request")] = 5,
    rounds: Annotated[
        int, typer.Option(min=1, max=100, help="at most so many rounds of asking for tools")
    ] = 8,
    tokens: Annotated[
        int, typer.Option(min=1, help="at most so many tokens of lines that show tools")
    ] = 4_000,
    turns: Annotated[
        int, typer.Option(min=1, max=200, help="at most so many answers of the model")
    ] = 12,
    run: Annotated[
        bool, typer.Option("--run", help="run its calls, as `serve` does; default: plan only")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Let a model find tools by asking for them (MCP-Zero's active loop), and plan its calls. Exit
    1 where it neither called nor answered."""
    from assets.servers.calls.log import CallLog
    from serving.agent_loop import AgentLimits, describe_run, write_lines
    from serving.export import open_checked
    from serving.router import ServedRouter

    require_known("--strategy", [strategy], STRATEGIES)
    settings = load_settings()
    role = resolve_role(settings, model)
    allow_models(settings)
    where = place or settings.home_path()
    router = ServedRouter(where, open_checked())
    index = router.current().index.version
    limits = AgentLimits(turns=turns, k=k, rounds=rounds, tokens=tokens)
    options = {"example": example, "strategy": strategy}
    outcomes = CallLog(where, settings.serve.log.days) if run else None
    made = asyncio.run(_run_task(settings, task, role, router, limits, options, outcomes))
    who = {"provider": role.provider if role else "offline", "model": role.model if role else None}
    report = {"task": task, **who, "index": index, **describe_run(made)}
    if as_json:
        print_json(report)
    for line in () if as_json else write_lines(report):
        print_line(line)
    if not made.is_done:
        raise typer.Exit(1)


def resolve_role(settings: Settings, name: str) -> "Role | None":
    """Whose model converses; None where rules take its place."""
    from warehouse.llm.roles import OFFLINE

    roles = list_roles(settings)
    if name == OFFLINE or (name in roles and roles[name].model == OFFLINE):
        return None
    return choose_role(settings, name)


def open_chat(settings: Settings, role: "Role") -> "Chat":
    """The role's conversations, paid through the home's ledger."""
    from orchestration.factories import open_warehouse
    from warehouse.llm.chat import Chat

    return Chat(role, open_warehouse(settings).ledger, stage=STAGE)


def read_calls(text: str) -> list[tuple[str, Any]]:
    """The calls in a model's text."""
    from training.prompts.parse_calls import parse_calls

    return [(str(call["name"]), call["arguments"]) for call in parse_calls(text).calls]


async def _run_task(
    settings: Settings,
    task: str,
    role: "Role | None",
    router: "ServedRouter",
    limits: "AgentLimits",
    options: dict[str, Any],
    outcomes: "CallLog | None",
) -> "AgentRun":
    """outcomes: where those of its calls are kept, beside the index as `serve` keeps them; None
    where it only plans."""
    from serving.agent_loop import OfflineSpeaker, make_runner, run_agent
    from serving.meta.context import Desk
    from serving.meta.policy import MetaPolicy
    from training.evaluation.predictors.slot_copy import copy_slots

    calls = outcomes is not None and settings.serve.calls.enabled
    caller = make_caller(settings, router, 0) if calls else None
    chat = open_chat(settings, role) if role else None
    runner = None
    if outcomes is not None:
        policy = derive_policy(MetaPolicy, settings.serve.calls)
        runner = make_runner(Desk(router, caller, policy, outcomes), policy.local)
    try:
        speaker = chat or OfflineSpeaker(copy_slots)
        return await run_agent(
            task, speaker, router, limits=limits, run=runner, read_calls=read_calls, **options
        )
    finally:
        if chat is not None:
            await chat.aclose()
        if caller is not None:
            await caller.close()
