"""The options of the command `proxy`."""

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str, typer.Argument(help="with --local: a caller's name or folder, constrained:NAME")
]
Upstream = Annotated[str, typer.Option(help="base address, like https://api.openai.com/v1")]
Local = Annotated[bool, typer.Option("--local", help="answer with a model that runs here: MODEL")]
First = Annotated[
    bool, typer.Option("--first-call", help="with --upstream: MODEL writes only the first call")
]
Waiting = Annotated[int, typer.Option(min=0, help="requests that wait for MODEL")]
Host = Annotated[str, typer.Option(help="beyond this machine only with a token")]
Port = Annotated[int, typer.Option(min=0, max=65_535)]
Token = Annotated[
    str, typer.Option(envvar="PROXY_TOKEN", help="secret that clients send, 20 characters")
]
KeyEnv = Annotated[
    str, typer.Option(help="variable with the upstream's key; default: the client's is sent on")
]
Timeout = Annotated[float, typer.Option(min=0.1, help="seconds without a byte")]
Total = Annotated[float, typer.Option(min=1, help="seconds of one request")]
MaxBody = Annotated[int, typer.Option(min=1, help="bytes of one request")]
MaxTools = Annotated[int, typer.Option(min=1, help="tools of one request")]
Concurrency = Annotated[int, typer.Option(min=1, help="requests at once")]
History = Annotated[
    Path | None,
    typer.Option(help="history.json, or a folder with a served index: names that changed"),
]
IndexPlace = Annotated[
    Path | None,
    typer.Option(help='a release, an index or a home: picks tools where `tools` is "auto"'),
]
Candidates = Annotated[int, typer.Option(min=1, max=100, help="with --index: tools picked a turn")]
Search = Annotated[
    bool, typer.Option("--tool-search", help="answer the searches for tools that models make")
]
SearchRounds = Annotated[
    int, typer.Option(min=1, max=20, help="with --tool-search: answers of one request that search")
]
Examples = Annotated[
    int, typer.Option(min=0, max=20, help="accepted calls of like requests in a prompt")
]
ExamplesFrom = Annotated[
    Path | None, typer.Option(help="with --examples: an export in the format messages")
]
Revise = Annotated[
    str, typer.Option(help="rewrites calls that are left: a model of the upstream, local:NAME")
]
ReviseUrl = Annotated[str, typer.Option(help="another endpoint for --revise")]
ReviseKeyEnv = Annotated[
    str, typer.Option(help="variable with its key; default: the upstream's, at its origin alone")
]
ReviseTimeout = Annotated[float, typer.Option(min=0.1, help="seconds of a call")]
