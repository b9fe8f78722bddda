"""Tasks side by side: one process a core, each running whole tasks."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from orchestration.runs.console import Line, send_lines
from orchestration.runs.fork_server import CORES
from orchestration.runs.instance import open_instance
from orchestration.runs.runner import Outcome, Runner, Task

_GRACE_S = 5.0  # a step that ends in it is recorded as failed; any other at the next run's start
_RUNNER: list[Runner] = []  # of a worker process


class WorkerDied(RuntimeError):
    """A worker process ended before its task did."""


def run_side_by_side(tasks: Sequence[Task], show: Callable[[Line], None]) -> list[Outcome]:
    """Runs the tasks on as many cores as there are; returns the outcomes in their order.

    Effects that two of them ask for are carried out once: the ledger lets the second one wait.
    Raises WorkerDied; KeyboardInterrupt after the workers have ended their steps.
    """
    context = multiprocessing.get_context("forkserver")
    lines = context.SimpleQueue()
    workers = min(CORES, len(tasks))
    # Two trainings with as many threads as cores each wait for one another at every product.
    threads = {"OMP_NUM_THREADS": str(max(1, CORES // workers))}
    pool = ProcessPoolExecutor(workers, context, _start_worker, (lines, {**threads, **os.environ}))
    with _drain(lines, show):
        try:
            return _await_results([pool.submit(_run_task, task) for task in tasks])
        except BrokenProcessPool as error:
            raise WorkerDied(
                "a process that ran some of this was killed, most often for want of memory; run"
                " again: what it had done is not done again"
            ) from error
        except KeyboardInterrupt:
            _interrupt(multiprocessing.active_children())
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _await_results(futures: Sequence[Future[Outcome]]) -> list[Outcome]:
    """The outcomes when all are there; wakes now and then, since a wait alone hears no Ctrl-C."""
    waiting = set(futures)
    while waiting:
        _, waiting = wait(waiting, timeout=0.2, return_when=FIRST_EXCEPTION)
    return [future.result() for future in futures]


def _interrupt(workers: Sequence[Any]) -> None:
    """Ends the workers' steps as Ctrl-C does, and those that do not end, too."""
    for worker in workers:
        os.kill(worker.pid, signal.SIGINT)
    deadline = time.monotonic() + _GRACE_S
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
        worker.kill()


@contextmanager
def _drain(lines: Any, show: Callable[[Line], None]) -> Iterator[None]:
    """Shows what the workers say until they have ended."""

    def read() -> None:
        while (line := lines.get()) is not None:
            show(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield
    finally:
        # By a thread: a worker that was killed while it wrote holds the queue's lock for good.
        threading.Thread(target=lines.put, args=(None,), daemon=True).start()
        reader.join(timeout=5)


def _start_worker(lines: Any, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)  # the fork server may be older than the caller's settings
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # heard while a run goes on
    threading.Thread(target=_end_with_parent, daemon=True).start()
    send_lines(lines.put)
    _RUNNER[:] = [Runner(open_instance())]


def _end_with_parent() -> None:
    """Ends this process when the one that started it is gone: nobody would read its result."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL)


def _run_task(task: Task) -> Outcome:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return _RUNNER[0].execute(task)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
