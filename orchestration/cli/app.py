"""The `toolmill` command: wires settings to the packages and decides nothing.

JSON on stdout, progress and errors on stderr; exit 0 done, 1 the answer is no or it failed, 2 it
could not be asked, 130 Ctrl-C (docs/operations.md, "Exit codes").
Packages are imported inside each command, so that `toolmill --help` answers at once.
"""

import errno
import json
import os
import re
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from orchestration.cli import (
    contracts,
    crawling,
    evaluation,
    outcomes,
    pairs,
    releases,
    search,
    servers,
    serving,
)
from orchestration.cli.crawling import change_demo, open_replicas, require_marketplaces
from orchestration.cli.terminal import AsJson, count_noun, fail, print_json, print_line, print_page
from orchestration.settings.load import load_settings
from orchestration.settings.model import CONFIG, WORKDIR, Settings, config_path
from warehouse.errors import UnusableInput
from warehouse.extensions import COMMANDS, load_extensions
from warehouse.sanitize.untrusted_text import shorten_text

OURS = ("orchestration.", "assets.", "warehouse.", "training.", "serving.", "demo.", "extensions.")
ROOT = Path(__file__).resolve().parents[2]
_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # of the parser
_LONGEST = 500  # characters of such an error, which quotes what was typed
_INTERRUPTED = "interrupted; run again to go on where it stopped"


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Shows errors of our own code and the parser as one line on stderr, others as tracebacks."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except UnusableInput as error:
        fail(str(error), 2)
    except ModuleNotFoundError as error:
        if error.name is None or f"{error.name.partition('.')[0]}." in OURS:
            raise
        fail(
            f"this command needs the Python package {error.name!r}, which is not installed;"
            " `pip install 'toolmill[platform]'` has everything but training ('toolmill[train]')",
            2,
        )
    except BaseException as error:
        if _is_interrupt(error):
            fail(_INTERRUPTED, 130)
        if isinstance(error, _USAGE_ERROR) and type(error).__name__ != "NoArgsIsHelpError":
            usage: Any = error
            command = usage.ctx.command_path if usage.ctx else "toolmill"
            message = shorten_text(" ".join(usage.format_message().split()).rstrip("."), _LONGEST)
            fail(f"{message}; `{command} --help` lists what it takes".replace("?;", "?"), 2)
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            fail(f"{error.filename}: {error.strerror}; expected a path or a name", 2)
        if not isinstance(error, Exception) or not type(error).__module__.startswith(OURS):
            raise
        fail(str(error), 1)


def _is_interrupt(error: BaseException) -> bool:
    """Whether Ctrl-C ended what ran, wrapped by a group or followed by cancellation."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            return True
        if isinstance(cause, BaseExceptionGroup) and cause.subgroup(KeyboardInterrupt):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _join_help_lines(command: Any) -> None:
    """Joins the lines of each paragraph, of all commands below too: behind the first paragraph
    Typer breaks lines where the source does, whatever the terminal's width."""
    command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", command.help or "")
    for below in getattr(command, "commands", {}).values():
        _join_help_lines(below)


class OneLineErrors(TyperGroup):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        _join_help_lines(self)

    def make_context(self, *args: Any, **more: Any) -> Any:
        with one_line_errors():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        with one_line_errors():
            return super().invoke(ctx)


app = typer.Typer(
    cls=OneLineErrors, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


_PANELS = {  # as `--help` shows them
    "Servers and contracts": (crawling, servers, contracts),
    "Pairs": (pairs,),
    "Calls that really run": (outcomes,),
    "Search and serve": (search, serving),
    "Models and releases": (evaluation, releases),
}


def add_commands(commands: typer.Typer, name: str | None, panel: str) -> None:
    """Adds commands at the top, or under a group's name. A group that exists takes them in."""
    if name is None:
        for entry in (*commands.registered_commands, *commands.registered_groups):
            entry.rich_help_panel = panel
        app.registered_commands += commands.registered_commands
        app.registered_groups += commands.registered_groups
        return
    for group in app.registered_groups:
        if group.name == name and group.typer_instance is not None:
            group.typer_instance.registered_commands += commands.registered_commands
            return
    app.add_typer(commands, name=name, rich_help_panel=panel)


for _panel, _modules in _PANELS.items():
    for _module in _modules:
        add_commands(_module.app, None, _panel)
for _extension in load_extensions(COMMANDS).values():
    _name = _extension.info.name
    add_commands(
        _extension,
        _name if isinstance(_name, str) else None,
        _extension.rich_help_panel or "Extensions",
    )


def main() -> None:
    app()


def _prepare(settings: Settings) -> Path:
    """Claims the home, says which it is, and points Dagster at an instance of its own in there."""
    from orchestration.factories import open_warehouse
    from orchestration.runs.instance import check_postgres, make_config
    from warehouse.storage.files import write_atomically

    home, state = settings.home_path(), settings.state_path()
    warehouse = open_warehouse(settings)
    warehouse.check_writable()
    print_line(f"home: {home}", err=True)
    instance = Path(os.environ.setdefault("DAGSTER_HOME", str(state / "dagster")))
    if warehouse.ledger_url:
        warehouse.ledger.close()  # one line, where it cannot be opened, before anything starts
    config = make_config()
    check_postgres()
    if instance == state / "dagster":
        write_atomically(instance / "dagster.yaml", config)
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TQDM_DISABLE", "1")  # libraries' bars would break the lines of a run
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # Threads of torch that spin as they wait: ten likelihoods beside other work 81 s, not 10.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return home


def _print_version(wanted: bool) -> None:
    if wanted:
        print_line(version("toolmill"))
        raise typer.Exit


@app.callback()
def toolmill(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="print the version"),
    ] = False,
) -> None:
    """Keep language models fluent in MCP tools as they change.

    `toolmill run` goes through everything once, on demo marketplaces of this machine unless
    toolmill.toml says otherwise; `toolmill dev` shows it in the Dagster UI, `toolmill search` and
    `toolmill serve` use what it made. Exit 0: done, or yes; 1: no, or it failed; 2: it could not
    be asked."""


@app.command()
def settings(
    everything: Annotated[bool, typer.Option("--all", help="print every setting")] = False,
) -> None:
    """Print the settings that differ from their defaults as JSON; secrets are masked."""
    chosen = load_settings()
    print_page(json.dumps(chosen.public() if everything else chosen.changed(), indent=2))


@app.command()
def run(
    marketplace: Annotated[
        list[str] | None,
        typer.Option("--marketplace", "-m", help="only this one; several times; default: all"),
    ] = None,
    day: Annotated[int | None, typer.Option(help="the demo's day (1 or 2)")] = None,
    server: Annotated[
        str | None, typer.Option(help="one server again, by its id; the rows of all others stay")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="only estimate it: exit 1 where it would pass the budget")
    ] = False,
) -> None:
    """Run everything once, without a daemon: crawl, launch, snapshot, synthesise, train, serve."""
    from orchestration.runs.processes import warm_up
    from warehouse.home import check_home, require_home

    require_marketplaces(marketplace or ())
    chosen = change_demo(load_settings(), day, None)
    if plan and server:
        fail("--plan estimates a whole run: leave out --server, or --plan", 2)
    if plan:
        require_home(chosen.home_path())
        from orchestration.plan import make_plan

        estimate = make_plan(chosen, marketplace)
        print_page("\n".join(estimate.describe()))
        if estimate.exceeded:
            fail(estimate.exceeded, 1)
        return
    check_home(chosen.home_path())
    warm_up()
    _prepare(chosen)
    from orchestration.plan import describe_run
    from orchestration.runs.nightly import run_once, run_one_server, summarise_server
    from orchestration.runs.summary import summarise_run

    if server is None:
        print_page(describe_run(chosen, marketplace), err=True)
        with open_replicas(chosen):
            result = run_once(chosen, only=marketplace)
        print_page(summarise_run(chosen, result), err=True)
    else:
        with open_replicas(chosen):
            result = run_one_server(chosen, server, marketplace)
        print_page(json.dumps(summarise_server(chosen, server, result), indent=2))
    if result.failed:
        sys.exit(1)


@app.command()
def dev(
    port: Annotated[int, typer.Option(min=1, max=65_535, help="of the Dagster UI")] = 3000,
) -> None:
    """Start the Dagster UI and daemon, with the demo marketplaces when the source is demo."""
    from orchestration.runs.instance import open_instance, size_pools
    from orchestration.runs.processes import run_until_signalled, silence_warnings

    silence_warnings()
    chosen = load_settings()
    home = _prepare(chosen)
    with socket.socket() as sock:  # Dagster would go on without its UI
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError as error:
            problem = f"port {port} on 127.0.0.1 is taken ({error.strerror})"
            fail(f"{problem}; end the other program, or choose another with --port", 1)
    with open_instance() as instance:
        size_pools(instance)
    # Dagster loads the `.env` of its working directory over the environment: it starts where there
    # is none, and the code location goes back to where the user is.
    env = {
        **os.environ,
        "TOOLMILL_HOME": str(home),
        "TOOLMILL_STATE": str(chosen.state_path()),
        **({CONFIG: str(config_path().resolve())} if config_path().is_file() else {}),
        WORKDIR: str(Path.cwd()),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(ROOT / "workspace.yaml")]
    command += ["-h", "127.0.0.1", "-p", str(port)]
    with open_replicas(chosen):
        print_line(f"Dagster UI: http://127.0.0.1:{port}", err=True)
        status = run_until_signalled(command, cwd=Path(os.environ["DAGSTER_HOME"]), env=env)
    sys.exit(1 if status else 0)


@app.command()
def spend(as_json: AsJson = False) -> None:
    """Print what every stage has cost: calls, tokens and US dollars.

    The JSON also has costs per accepted pair and marketplace, and `unknown` attempts that may have
    been paid unseen: timed out, without connection, or cut off with a killed run; `error` says
    which."""
    from assets.synthesis.pair_report import count_accepted_pairs, make_spend_rows
    from assets.synthesis.tables import JUDGEMENTS
    from orchestration.factories import open_made_warehouse

    settings = load_settings()
    warehouse = open_made_warehouse(settings)
    ledger = warehouse.ledger
    accepted, distinct = count_accepted_pairs(warehouse.tables.read(JUDGEMENTS))
    spent, costs, unknown = ledger.spent(), ledger.costs(), ledger.list_unknown()
    if as_json:
        stages = make_spend_rows(costs, accepted, distinct)
        attempts = [attempt.__dict__ for attempt in unknown]
        print_json({"spent_usd": spent, "stages": stages, "costs": costs, "unknown": attempts})
        return
    per_pair = f", {spent / distinct:.6f} USD each" if distinct else ""
    budget = f"{settings.budget_usd:.2f}"
    print_line(f"{spent:.4f} USD spent, of {budget}; {distinct:,} accepted pairs{per_pair}")
    for stage, of_stage in groupby(costs, key=itemgetter("stage")):
        rows = list(of_stage)
        calls, usd = (sum(row[name] for row in rows) for name in ("effects", "usd"))
        tokens = sum(row["prompt_tokens"] + row["completion_tokens"] for row in rows)
        failed = sum(row["effects"] for row in rows if row["status"] == "failed")
        of_model = f"{tokens:>12,.0f} tokens" if tokens else f"{'':<19}"
        noun = "call " if calls == 1 else "calls"
        figures = f"{calls:>9,} {noun} {of_model} {usd:>10.4f} USD"
        print_line(f"  {stage:<14} {figures}{f'  {failed:,} failed' if failed else ''}")
    losses = Counter((each.stage, each.partition, each.error or "cut off") for each in unknown)
    for (stage, partition, error), count in losses.items():
        print_line(f"  unknown: {count_noun(count, 'call')} of {stage}, {partition}: {error}")
