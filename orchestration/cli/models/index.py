"""The commands `index` and `search`: any file of servers as an index, and questions to one."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.terminal import fail, print_json, print_line, report_lines, require_known
from orchestration.settings.load import allow_models, load_settings
from warehouse.errors import UnusableInput

if TYPE_CHECKING:
    from assets.vectors.encoders.embedder import Embedder
    from serving.router import Ask, Router

app = typer.Typer(add_completion=False)

STRATEGIES = ("ours", "mcp-zero", "dense", "bm25", "rrf")
Retriever = Annotated[
    Path | None, typer.Option("--retriever", help="folder of a trained adapter, as var/models/NAME")
]


@app.command()
def index(
    servers: Annotated[Path, typer.Argument(help="JSON Lines: a server with its tools a line")],
    out: Annotated[Path, typer.Option("--out", help="folder; vectors already there are kept")],
    retriever: Retriever = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            help="general, minilm, onnx:MODEL, sentence-transformers:MODEL or openai:MODEL;"
            " default: the setting embedder.model"
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", show_default=False, help="one JSON object (the default)")
    ] = True,
) -> None:
    """Make an index that `search` and `serve` read, of any file of servers and their tools."""
    from serving.adhoc import index_command

    encoder = _open_encoder(retriever, embedder)
    print_json(index_command(servers, out, encoder, report_lines()))


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
    place: Annotated[
        Path | None, typer.Option("--index", help="folder of `index`; default: the served one")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="at most so many hits, 1 to 1000")] = 5,
    stretch: Annotated[int, typer.Option(help="up to so many more, as good as the last")] = 0,
    trim: Annotated[
        bool, typer.Option("--trim", help="leave out hits far behind the first")
    ] = False,
    strategy: Annotated[str, typer.Option(help=", ".join(STRATEGIES))] = "ours",
    retriever: Retriever = None,
    native: Annotated[
        str | None, typer.Option(help="the answer as an API takes it: anthropic, openai")
    ] = None,
    call_id: Annotated[str, typer.Option(help="with --native: of the model's call")] = "call_0",
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Find tools in the released index, or in one made by `index`."""
    require_known("--native", [native] if native else None, ("anthropic", "openai"))
    require_known("--strategy", [strategy], STRATEGIES)
    _check_questions(query, tool if server is None else server, queries, native)
    from serving.adhoc import open_routed, search_command
    from serving.router import Ask

    settings = load_settings()
    allow_models(settings)
    encoder = _open_retriever(retriever) if retriever else None
    asked = None if queries is None else _read_queries(queries)
    router = open_routed(place or settings.home_path(), encoder, report_lines())
    more = {"k": k, "strategy": strategy, "stretch": stretch, "trim": trim}
    ask = Ask(query=query, server=server, tool=tool, **more)
    if asked is not None:
        _print_answers(router, asked, ask)
    elif native:
        from serving.discovery.functions import write_native_answer

        print_json(write_native_answer(native, router, router.find(ask).hits, call_id))
    else:
        found = search_command(router, ask)
        print_json(found) if as_json else _print_hits(found)


def _check_questions(
    query: str | None, parts: str | None, queries: Path | None, native: str | None
) -> None:
    """Ends the command unless there is one question, or one file of them."""
    if native and queries is not None:
        fail("--native answers one search; leave out --queries", 2)
    if sum(one is not None for one in (query, parts, queries)) != 1:
        fail('give one of "QUERY", --server / --tool, or --queries FILE', 2)


def _open_encoder(retriever: Path | None, spec: str | None) -> "Embedder":
    """The encoder that the options name, else that of the settings."""
    from assets.vectors.encoders.choose import open_embedder
    from orchestration.factories import make_index_embedder

    if retriever is None:
        return open_embedder(spec) if spec else make_index_embedder(load_settings())
    return _open_retriever(retriever, spec)


def _open_retriever(folder: Path, spec: str | None = None) -> "Embedder":
    """A trained adapter over the base that it names, which the user names too, or over `spec`."""
    from assets.vectors.encoders.choose import open_retriever

    allow_models(load_settings())
    return open_retriever(folder, base=spec)


def _read_queries(path: Path) -> list[dict[str, str]]:
    """The questions of a file, read whole before anything is answered."""
    from warehouse.user_files import read_json_lines

    parts = {"instruction": "query", "server": "server", "tool": "tool"}
    found = []
    for number, row in read_json_lines(path):
        query = {parts[name]: row[name] for name in parts if row.get(name) is not None}
        if not query or not all(isinstance(text, str) for text in query.values()):
            raise UnusableInput(
                f"{path}, line {number}: expected a text in `instruction`, `server` or `tool`"
            )
        found.append(query)
    if not found:
        raise UnusableInput(f"{path}: no row in it; give one question a line")
    return found


def _print_answers(router: "Router", asked: list[dict[str, str]], ask: "Ask") -> None:
    """An answer a line; exit 1 where one is an error."""
    from serving.adhoc import search_many

    wrong = 0
    for answer in search_many(router, asked, ask):
        print_json(answer)
        wrong += "error" in answer
    if wrong:
        fail(f"{wrong} of {len(asked)} queries were not answered: `error` says why", 1)


def _print_hits(found: dict[str, Any]) -> None:
    if found["no_tool"]:
        print_line(f"no suitable tool (probability of one: {found['suitable']:.2f}); nearest:")
    for hit in found["hits"]:
        description = json.dumps(hit["description"][:90], ensure_ascii=False)[1:-1]
        mark = "  [unverified]" if "unverified" in hit["flags"] else ""
        known = hit["reliability"]
        works = f"  works {_describe_share(known)}" if known and known["n"] else ""
        print_line(f"{hit['score']:.3f}  {hit['tool_id']}{mark}{works}  {description}")


def _describe_share(known: dict[str, float]) -> str:
    """`96% [78%, 100%] (n 1)`: of one call alone the share is mostly what like tools did before."""
    low, high = known["low"], known["high"]
    return f"{known['mean']:.0%} [{low:.0%}, {high:.0%}] (n {known['n']:g})"
