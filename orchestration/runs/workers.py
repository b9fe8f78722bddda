"""Processes that run tasks: one a core, warm for every job of a run, since imports cost seconds
(LanceDB and Great Expectations alone five of processor time)."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import dagster as dg

from assets.partitions import SERVER_TAG
from orchestration.definitions import build_defs
from orchestration.runs.console import ConsoleLine, name_partition, send_lines, terminal
from orchestration.runs.instance import (
    make_process_tags,
    open_instance,
    place_runs,
    silence_retries,
)
from orchestration.runs.processes import CORES
from orchestration.sensors import INTERRUPTED
from training.role import list_role_assets


@dataclass(frozen=True)
class RunTask:
    """A job to run: all of it, one partition (or one server of that), one role's part of the
    training, or some assets. tags: of its run, beside our own."""

    job: str
    partition: str | None = None
    role: str | None = None
    server: str | None = None
    names: tuple[str, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()

    def list_assets(self) -> list[dg.AssetKey] | None:
        if self.names:
            return [dg.AssetKey(name) for name in self.names]
        return list(map(dg.AssetKey, list_role_assets(self.role))) if self.role else None


@dataclass(frozen=True)
class TaskOutcome:
    task: RunTask
    run_id: str
    success: bool
    seconds: float
    failed_steps: list[str] = field(default_factory=list)
    interrupted: bool = False

    def as_row(self) -> dict[str, Any]:
        fields = asdict(self)
        task = fields.pop("task")
        del task["names"], task["tags"]
        return {**task, **fields}


_GRACE_S = 5.0  # a step that ends in it is recorded as failed; any other at the next run's start
_RUNNER: "list[TaskRunner]" = []  # of a worker process
_GIVEN: dict[str, str] = {}  # its environment at the start


class WorkerDied(RuntimeError):
    """A worker process ended before its task did."""


class WorkerPool:
    """Runs tasks side by side; on one core one after another, in this process. Effects that two of
    them ask for are carried out once: the ledger lets the second one wait."""

    def __init__(self, instance: dg.DagsterInstance, show: Callable[[ConsoleLine], None]) -> None:
        self._instance, self._show = instance, show
        self._pool: ProcessPoolExecutor | None = None
        self._lines: Any = None
        self._runner: TaskRunner | None = None

    def __enter__(self) -> "WorkerPool":
        if CORES > 1:
            context = multiprocessing.get_context("forkserver")
            self._lines = context.SimpleQueue()
            arguments = (self._lines, dict(os.environ))
            self._pool = ProcessPoolExecutor(CORES, context, _start_worker, arguments)
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, *tasks: RunTask) -> Iterable[TaskOutcome]:
        """Outcomes in the order of the tasks. Raises WorkerDied; KeyboardInterrupt at the end."""
        if self._pool is None:
            runner = self._runner = self._runner or TaskRunner(self._instance)
            return (runner.execute(task) for task in tasks)
        # Two trainings with as many threads as cores each wait for one another at every product.
        threads = max(1, CORES // len(tasks))
        with _drain(self._lines, self._show):
            futures = [self._pool.submit(_run_task, task, threads) for task in tasks]
            try:
                return _await_results(futures)
            except BrokenProcessPool as error:
                raise WorkerDied(
                    "a process that ran some of this was killed, most often for want of memory;"
                    " run again: what it had done is not done again"
                ) from error
            except KeyboardInterrupt:
                _interrupt(futures)
                raise


def _await_results(futures: Sequence[Future[TaskOutcome]]) -> list[TaskOutcome]:
    """The outcomes when all are there; wakes now and then, since a wait alone hears no Ctrl-C."""
    waiting = set(futures)
    while waiting:
        _, waiting = wait(waiting, timeout=0.2, return_when=FIRST_EXCEPTION)
    return [future.result() for future in futures]


def _interrupt(futures: Sequence[Future[TaskOutcome]]) -> None:
    """Ends the workers' steps as Ctrl-C does, then the workers, and those that do not end, too."""
    for future in futures:
        future.cancel()
    workers = multiprocessing.active_children()
    for worker in workers:
        if worker.pid is not None:
            os.kill(worker.pid, signal.SIGINT)
    wait(futures, timeout=_GRACE_S)
    for worker in workers:
        worker.kill()


@contextmanager
def _drain(lines: Any, show: Callable[[ConsoleLine], None]) -> Iterator[None]:

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
    _GIVEN.update(environment)
    os.environ.update(environment)  # the fork server may be older than the caller's settings
    silence_interrupts()
    silence_retries()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    send_lines(lines.put)
    # the caller has no use for the code location

    _RUNNER[:] = [TaskRunner(open_instance())]


def silence_interrupts() -> None:
    """Until a run goes on; the fork server that this was copied from blocks them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _end_with_parent() -> None:
    """Ends this process when the one that started it is gone: nobody would read its result."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL)


def _run_task(task: RunTask, threads: int) -> TaskOutcome:
    _set_threads(threads)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return _RUNNER[0].execute(task)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _set_threads(threads: int) -> None:
    """Of torch in this process, and of what it starts; what the user set wins."""
    if "OMP_NUM_THREADS" in _GIVEN:
        return
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)


_QUIET = {"loggers": {"console": {"config": {}}}}


class TaskRunner:
    """Code location and instance of its runs. resources: in place of those of the settings."""

    def __init__(
        self, instance: dg.DagsterInstance, resources: Mapping[str, Any] | None = None
    ) -> None:
        self._defs = build_defs(resources=resources, loggers={"console": terminal})
        self._instance = instance
        place_runs(instance)

    def execute(self, task: RunTask) -> TaskOutcome:
        """Runs a task to its end; a failed step is in the outcome, not raised."""
        started = time.monotonic()
        name_partition(task.partition)
        result = self._defs.resolve_job_def(task.job).execute_in_process(
            instance=self._instance,
            partition_key=task.partition,
            asset_selection=task.list_assets(),
            tags={
                **make_process_tags(),
                **dict(task.tags),
                **({SERVER_TAG: task.server} if task.server else {}),
            },
            run_config=_QUIET,
            raise_on_error=False,
        )
        failures = [event for event in result.all_events if event.is_step_failure]
        interrupted = any(_is_interruption(event) for event in failures)
        if interrupted:
            self._instance.add_run_tags(result.run_id, dict([INTERRUPTED]))
        return TaskOutcome(
            task,
            result.run_id,
            result.success,
            round(time.monotonic() - started, 1),
            [str(event.step_key) for event in failures],
            interrupted,
        )


def _is_interruption(event: dg.DagsterEvent) -> bool:
    """Whether Ctrl-C ended the step: Dagster turns it into a failed one."""
    error = event.step_failure_data.error
    return error is not None and error.cls_name == "DagsterExecutionInterruptedError"
