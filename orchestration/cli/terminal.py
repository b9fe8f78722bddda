"""Terminal: JSON on stdout, one line of error on stderr, and the exit code."""

import json
import sys
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


def fail(message: str, code: int) -> NoReturn:
    """Ends the command: 1 found or failed, 2 usage."""
    typer.echo(message, err=True)
    sys.exit(code)
