"""The `toolmill` command in this process: its imports, seconds of each call, are paid once."""

import os
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from typer.testing import CliRunner

from orchestration.cli.app import app
from tests.support.paths import ROOT


def invoke_toolmill(*arguments: str, home: Path, typed: str | None = None, **settings: str):
    """Exit status, stdout and stderr of a command over `home`; other settings by name. typed: what
    stands on its standard input."""
    env = {**os.environ, "TOOLMILL_HOME": str(home), **settings}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        done = CliRunner().invoke(app, arguments, input=typed, env=env)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def toolmill(*arguments: str, answer: str = "") -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command in the folder and environment of the test."""
    done = CliRunner().invoke(app, list(arguments), input=answer)
    return done.exit_code, done.stdout, done.stderr
