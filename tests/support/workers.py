"""Runs pytest with xdist's workers forked from one process that has imported what tests import.

Torch, transformers, Great Expectations, Dagster and our own modules are 12 core-seconds of imports
that each of six workers paid for itself, the test modules 3. Meanwhile the other core compiles the
test modules. No import may use Polars' threads: a fork would wait for them for ever. A worker that
is started later, in place of one that crashed, is an ordinary process.
"""

import argparse
import gc
import importlib
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import tempfile
import types
import warnings
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pytest
from _pytest.config import _prepareconfig
from execnet import gateway_base, gateway_io

from tests.support.paths import ROOT
from tests.support.precompile import PACKAGES, list_rewritten
from tests.support.python_process import end_process, start_server

# Files of an export, which import its frameworks where it is installed.
EXPORTED = "extensions.environments.package"
# Without LanceDB: its runtime and its thread are not to be forked.
LIBRARIES = (
    *("pyarrow.dataset", "anthropic", "openai", "mcp", "great_expectations", "peft"),
    *("transformers.models.bert.modeling_bert", "transformers.models.qwen3.modeling_qwen3"),
    *("sklearn.linear_model", "sentence_transformers", "matplotlib.pyplot"),
    "orchestration.definitions",
)


class ForkedIO(gateway_base.Popen2IO):
    """Pipes to a worker that waits for execnet's first line, as `Popen2IOMaster` has them."""

    def __init__(self, pid: int, stdin: BinaryIO, stdout: BinaryIO) -> None:
        self.pid = pid
        super().__init__(stdin, stdout, gateway_base.get_execmodel("thread"))

    def wait(self) -> int | None:
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:
            return None

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def import_tests() -> None:
    """As a worker would, asserts rewritten; one that fails or is skipped is left for it to tell."""
    config = _prepareconfig(["tests"])
    for path in list_rewritten():
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    config._ensure_unconfigure()


def fork_workers(count: int) -> list[ForkedIO]:
    workers: list[ForkedIO] = []
    for _ in range(count):
        stdin, stdout = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            for worker in workers:  # or no worker sees the end of its input when pytest is killed
                worker.close_write()
                worker.close_read()
            os.close(stdin[1])
            os.close(stdout[0])
            for old, new in ((stdin[0], 0), (stdout[1], 1)):
                os.dup2(old, new)
                os.close(old)
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            sys.argv = ["-c"]
            exec(eval(sys.stdin.readline()), main.__dict__)
            end_process(0)
        os.close(stdin[0])
        os.close(stdout[1])
        workers.append(ForkedIO(pid, os.fdopen(stdin[1], "wb"), os.fdopen(stdout[0], "rb")))
    return workers


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-n", type=int, default=0)
    gc.disable()
    with (
        warnings.catch_warnings(),
        subprocess.Popen([sys.executable, "-m", "tests.support.precompile"]) as compiling,
    ):
        warnings.simplefilter("ignore")
        for name in LIBRARIES:
            importlib.import_module(name)
        for package in PACKAGES:
            for module in pkgutil.walk_packages([package], f"{package}."):
                if not module.name.endswith("__main__") and not module.name.startswith(EXPORTED):
                    importlib.import_module(module.name)
        import_tests()
    if compiling.returncode:
        return compiling.returncode
    folder = Path(tempfile.mkdtemp())
    server = start_server(folder)
    waiting = fork_workers(parser.parse_known_args(arguments)[0].n)
    start = gateway_io.create_io

    def create_io(spec: object, execmodel: object) -> object:
        return waiting.pop(0) if waiting else start(spec, execmodel)  # type: ignore[arg-type]

    gateway_io.create_io = create_io  # type: ignore[assignment]
    try:
        return pytest.main(arguments)
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
        shutil.rmtree(folder)


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
