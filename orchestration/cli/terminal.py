"""Terminal: JSON on stdout, one line of error on stderr, and the exit code."""

import json
import sys
from collections.abc import Collection, Iterable
from typing import Any, NoReturn

import typer


def print_json(obj: Any) -> None:
    """One JSON value on one line of stdout; escaped where third-party text is no Unicode (half of
    a surrogate pair), which no terminal or file could take."""
    text = json.dumps(obj, ensure_ascii=False, default=str)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(obj, default=str)
    typer.echo(text)


def report_lines() -> Any:
    """Progress as lines on stderr."""
    from warehouse.progress import Lines

    return Lines(lambda line: typer.echo(line, err=True))


def require_known(option: str, given: Iterable[str] | None, known: Collection[str]) -> None:
    """Ends the command on the first word that is none of the known ones."""
    for word in given or ():
        if word not in known:
            fail(f"{option} {word[:40]!r} does not exist; known: {', '.join(known)}", 2)


def fail(message: str, code: int) -> NoReturn:
    """Ends the command: 1 found or failed, 2 usage."""
    typer.echo(message, err=True)
    sys.exit(code)
