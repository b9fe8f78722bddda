"""A training script: read the job, train, tell Dagster or the terminal, exit. Of several processes
the first alone tells; others only why they failed."""

import ctypes
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from training.runtime.device import is_main
from training.runtime.model_store import TrainingFailed, TrainingJob, read_job

Train = Callable[[TrainingJob, Callable[[dict[str, Any]], None]], dict[str, Any]]
Channel = tuple[Callable[[str], None], Callable[[dict[str, Any]], None]]
_PIPES = "DAGSTER_PIPES_CONTEXT"  # set by Dagster when it started this process
_PR_SET_PDEATHSIG = 1  # prctl(2)
_LONG = ("losses", "settings")  # parts of a card that the last line leaves out
_POINTS = 200  # of the loss curve in the last message


class LossLines:
    """Writes a line of figures every few seconds, the last step's always, and notes at once."""

    def __init__(self, write: Callable[[str], None], role: str, every_s: float = 3.0) -> None:
        self._write, self._role, self._every_s = write, role, every_s
        self._last = 0.0

    def __call__(self, figures: dict[str, Any]) -> None:
        if "note" in figures:
            self._write(f"{self._role} {figures['note']}")
            return
        now = time.monotonic()
        last = figures.get("step") == figures.get("steps")
        if now - self._last < self._every_s and not last:
            return
        self._last = now
        line = " ".join(f"{name}={value}" for name, value in figures.items())
        self._write(f"{self._role} {line}")


def run_script(role: str, train: Train, argv: list[str] | None = None) -> int:
    """Runs the training job named on the command line; returns the exit code."""
    # Spinning idle OpenMP threads slow a shared machine several times; read at torch's import.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    warnings.simplefilter("ignore", FutureWarning)
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1:
        _write_stderr(f"usage: python -m training.{role}.script JOB.json")
        return 2
    with _open_channel() as (write, send):
        try:
            card = train(read_job(Path(arguments[0])), LossLines(write, role))
        except TrainingFailed as error:
            message = str(error)
            line = message if message.startswith(f"{role}: ") else f"{role}: {message}"
            if is_main():
                write(line)
            else:
                _write_stderr(f"process {os.environ['RANK']}: {line}")
            return 1
        send({**card, "losses": thin_losses(card.get("losses", []))})
    if _PIPES in os.environ or not is_main():
        return 0
    short = {name: value for name, value in card.items() if name not in _LONG}
    sys.stdout.write(json.dumps(short) + "\n")
    return 0


def thin_losses(losses: Sequence[float], most: int = _POINTS) -> list[float]:
    """At most `most` of the losses, evenly spaced, the first and the last among them."""
    if len(losses) <= most:
        return list(losses)
    return [losses[round(at * (len(losses) - 1) / (most - 1))] for at in range(most)]


@contextmanager
def _open_channel() -> Iterator[Channel]:
    """(write a log line, send the card): through Pipes when Dagster started this process."""
    if _PIPES in os.environ and sys.platform == "linux":
        # A killed run must not leave its training behind to take the next one's processors.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if _PIPES not in os.environ or not is_main():
        yield (_write_stderr if is_main() else lambda _: None), lambda _: None
        return
    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes() as pipes:
        yield pipes.log.info, pipes.report_custom_message


def _write_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
