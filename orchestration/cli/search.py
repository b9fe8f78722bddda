"""Commands that look tools up: `index`, `search` and `agent`."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.evaluation import choose_role, list_roles
from orchestration.cli.terminal import (
    AsJson,
    fail,
    print_json,
    print_line,
    report_lines,
    require_known,
)
from orchestration.settings.load import allow_models, load_settings
from orchestration.settings.model import Settings
from warehouse.errors import UnusableInput
from warehouse.extensions import load_hook
from warehouse.sanitize.untrusted_text import shorten_text

if TYPE_CHECKING:
    from assets.vectors.encoders.embedder import Embedder
    from serving.agent_loop import AgentRun
    from serving.router import ServedRouter
    from warehouse.llm.chat import ChatClient
    from warehouse.llm.roles import Role

app = typer.Typer()
STAGE = "agent"  # of the ledger
Place = Annotated[
    Path | None, typer.Option("--index", help="folder of `index`; default: the served one")
]


@app.command()
def index(
    servers: Annotated[Path, typer.Argument(help="JSON Lines: a server with its tools a line")],
    out: Annotated[Path, typer.Option("--out", help="folder; vectors already there are kept")],
    retriever: Annotated[
        Path | None, typer.Option(help="folder of a trained adapter, as var/models/NAME")
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            help="general, minilm, sentence-transformers:MODEL or openai:MODEL;"
            " default: the setting embedder.model"
        ),
    ] = None,
    mcp_zero: Annotated[
        bool,
        typer.Option("--mcp-zero", help="SERVERS is MCP-Zero's data; --embedder made its vectors"),
    ] = False,
) -> None:
    """Build an index for `search` and `serve` from any file of servers and their tools."""
    from serving.adhoc import index_command

    if mcp_zero:
        made_by = embedder or "openai:text-embedding-3-large"
        print_json(load_hook("index_mcp_zero")(servers, out, made_by))
        return
    encoder = _open_encoder(retriever, embedder)
    search_from = load_settings().serve.search_from
    print_json(index_command(servers, out, encoder, report_lines(), search_from))


@app.command()
def search(
    query: Annotated[
        str | None, typer.Argument(help="what the tool should do, in any words")
    ] = None,
    server: Annotated[str | None, typer.Option(help="what kind of server, in words")] = None,
    tool: Annotated[str | None, typer.Option(help="what the tool does, in words")] = None,
    queries: Annotated[
        Path | None,
        typer.Option(help="JSON Lines with `instruction`, `server` or `tool`; an answer a line"),
    ] = None,
    place: Place = None,
    k: Annotated[int, typer.Option("-k", help="at most so many hits, 1 to 1000")] = 5,
    strategy: Annotated[str, typer.Option(help="ours, or a baseline (docs/router.md)")] = "ours",
    native: Annotated[
        str | None,
        typer.Option(
            help="the answer as an API takes it: anthropic, openai, openai-strict, gemini"
        ),
    ] = None,
    call_id: Annotated[str, typer.Option(help="with --native: id of the model's call")] = "call_0",
    as_json: AsJson = False,
) -> None:
    """Find tools in the released index, or in one made by `index`."""
    from serving.adhoc import open_routed, search_command, search_many
    from serving.discovery.functions import APIS, write_native_answer
    from serving.ranking.query import STRATEGIES, ToolQuery

    require_known("--strategy", [strategy], STRATEGIES)
    require_known("--native", [native] if native else [], APIS)
    if native and queries is not None:
        fail("--native answers one search; leave out --queries", 2)
    asked_ways = (query, tool if server is None else server, queries)
    if sum(item is not None for item in asked_ways) != 1:
        fail('give one of "QUERY", --server / --tool, or --queries FILE', 2)
    settings = load_settings()
    allow_models(settings)
    questions = None if queries is None else _read_queries(queries)
    router = open_routed(place or settings.home_path())
    ask = ToolQuery(query=query, server=server, tool=tool, k=k, strategy=strategy)
    if native:
        print_json(write_native_answer(native, router, router.find(ask).hits, call_id))
        return
    if questions is None:
        answer = search_command(router, ask)
        print_json(answer) if as_json else _print_hits(answer)
        return
    wrong = 0
    for answer in search_many(router, questions, ask):
        print_json(answer)
        wrong += "error" in answer
    if wrong:
        fail(f"{wrong} of {len(questions)} queries were not answered: `error` says why", 1)


def _open_encoder(retriever: Path | None, spec: str | None) -> "Embedder":
    """A trained adapter over the base that it names, which the user names too, or over `spec`."""
    from assets.vectors.encoders.choose import open_embedder, open_retriever
    from orchestration.factories import make_index_embedder

    if retriever is None:
        return open_embedder(spec) if spec else make_index_embedder(load_settings())
    allow_models(load_settings())
    return open_retriever(retriever, base=spec)


def _read_queries(path: Path) -> list[dict[str, str]]:
    """The questions of a file, read whole before anything is answered."""
    from warehouse.user_files import read_json_lines

    fields = {"instruction": "query", "server": "server", "tool": "tool"}
    results = []
    for number, row in read_json_lines(path):
        query = {fields[name]: row[name] for name in fields if row.get(name) is not None}
        if not query or not all(isinstance(text, str) for text in query.values()):
            raise UnusableInput(
                f"{path}, line {number}: expected a text in `instruction`, `server` or `tool`"
            )
        results.append(query)
    if not results:
        raise UnusableInput(f"{path}: no row in it; give one question a line")
    return results


def _print_hits(answer: dict[str, Any]) -> None:
    if answer["no_tool"]:
        print_line(f"no suitable tool (probability of one: {answer['suitable']:.2f}); nearest:")
    for hit in answer["hits"]:
        description = shorten_text(" ".join(hit["description"].split()), 90, whole_words=True)
        mark = "  [unverified]" if "unverified" in hit["flags"] else ""
        works, share = "", hit["reliability"]
        if share and share["n"]:
            # Of one call alone the share is mostly what similar tools did before.
            low, high = share["low"], share["high"]
            works = f"  works {share['mean']:.0%} [{low:.0%}, {high:.0%}] (n {share['n']:g})"
        print_line(f"{hit['score']:.3f}  {hit['tool_id']}{mark}{works}  {description}")


@app.command()
def agent(
    task: Annotated[str, typer.Argument(help="what should be done, in words")],
    place: Place = None,
    model: Annotated[
        str, typer.Option(help="a role, a model's name at OPENAI_BASE_URL, or offline (rules)")
    ] = "actor",
    as_json: AsJson = False,
) -> None:
    """Let a model find tools by asking for them (MCP-Zero's active loop), and plan its calls.

    Exit 1 where it neither called nor answered."""
    from serving.agent_loop import describe_run, write_lines
    from serving.export import open_served

    settings = load_settings()
    role = resolve_role(settings, model)
    allow_models(settings)
    router = open_served(place or settings.home_path())
    index = router.current().index.version
    agent_run = asyncio.run(_plan_task(settings, task, role, router))
    who = {"provider": role.provider if role else "offline", "model": role.model if role else None}
    report = {"task": task, **who, "index": index, **describe_run(agent_run)}
    if as_json:
        print_json(report)
    for line in () if as_json else write_lines(report):
        print_line(line)
    if not agent_run.is_done:
        raise typer.Exit(1)


def resolve_role(settings: Settings, name: str) -> "Role | None":
    from warehouse.llm.roles import OFFLINE

    roles = list_roles(settings)
    if name == OFFLINE or (name in roles and roles[name].model == OFFLINE):
        return None
    return choose_role(settings, name)


def open_chat(settings: Settings, role: "Role") -> "ChatClient":
    from orchestration.factories import open_warehouse
    from warehouse.llm.chat import ChatClient

    return ChatClient(role, open_warehouse(settings).ledger, stage=STAGE)


def read_calls(text: str) -> list[tuple[str, Any]]:
    from training.prompts.call_text import parse_calls

    return [(str(call["name"]), call["arguments"]) for call in parse_calls(text).calls]


async def _plan_task(
    settings: Settings, task: str, role: "Role | None", router: "ServedRouter"
) -> "AgentRun":
    from serving.agent_loop import OfflineSpeaker, run_agent
    from training.evaluation.baselines import copy_slots

    if role is None:
        return await run_agent(task, OfflineSpeaker(copy_slots), router, read_calls=read_calls)
    chat = open_chat(settings, role)
    try:
        return await run_agent(task, chat, router, read_calls=read_calls)
    finally:
        await chat.aclose()
