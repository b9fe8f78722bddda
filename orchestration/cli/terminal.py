"""JSON on stdout, one line of error on stderr, and the exit code; no third-party text moves the
cursor, hides or reorders what stands there."""

import json
import logging
import re
import sys
from collections.abc import Collection, Iterable
from typing import Annotated, Any, NoReturn

import typer

from warehouse.sanitize.untrusted_text import escape_json, escape_lines, escape_text

AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object")]
By = Annotated[str, typer.Option("--by", help="who decides")]
Why = Annotated[str, typer.Option("--why", help="the reason, as the history keeps it")]
_LONGEST_WORD = 500  # characters of a word in an error


def print_line(text: str, *, err: bool = False) -> None:
    """One line, whatever stands in it."""
    typer.echo(escape_text(text), err=err)


def count_noun(count: float, noun: str) -> str:
    """`1 call`, `1,024 calls`, `2 queries`."""
    several = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}{'e' * noun.endswith('ch')}s"
    return f"{count:,.0f} {noun if round(count) == 1 else several}"


def print_page(text: str, *, err: bool = False) -> None:
    typer.echo(escape_lines(text), err=err)


def print_markdown(text: str) -> None:
    """Markdown of ours: laid out on a terminal, as it is in a file or pipe."""
    if not sys.stdout.isatty():
        print_page(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console(markup=False, highlight=False).print(Markdown(escape_lines(text), hyperlinks=False))


def print_json(obj: Any) -> None:
    typer.echo(escape_json(json.dumps(obj, ensure_ascii=False, default=str)))


def report_lines() -> Any:
    from warehouse.progress import ProgressLines

    return ProgressLines(lambda line: print_line(line, err=True))


def require_texts(**options: str) -> None:
    for name, text in options.items():
        if not text.strip():
            fail(f"--{name} is empty, expected a text", 2)


def require_known(option: str, given: Iterable[str] | None, known: Collection[str]) -> None:
    for word in given or ():
        if word not in known:
            fail(f"{option} {word[:40]!r} does not exist; known: {', '.join(known)}", 2)


class EscapedLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return escape_lines(super().format(record))


def log_to_terminal() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(EscapedLines("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def fail(message: str, code: int) -> NoReturn:
    """Ends the command: 1 the answer is no, or it failed; 2 it could not be asked. A long word is
    repeated by its beginning: a name or path that was given may be of any length."""
    typer.echo(escape_lines(re.sub(rf"(\S{{{_LONGEST_WORD}}})\S+", r"\1…", message)), err=True)
    sys.exit(code)
