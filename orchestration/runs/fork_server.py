"""The process that workers are copied from; light, so that it can start before anything heavy."""

import os
import signal
import sys
import warnings
from multiprocessing import forkserver, resource_tracker

_STORAGES = [f"dagster._core.storage.{name}" for name in ("event_log", "runs", "schedules")]
CORES = max(1, len(os.sched_getaffinity(0)))


def warm_up() -> None:
    """Starts it, so that it imports what workers need while the caller imports the same.

    Workers are not forked from the caller: a copy would hold the locks of threads it has not.
    """
    silence_warnings()
    if CORES > 1:
        # Pandas and the rest are most of LanceDB's import; LanceDB starts threads, so no fork of it
        # is safe.
        preload = ["orchestration.runs.runner", *_STORAGES]
        preload += ["pandas", "pyarrow.dataset", "lance_namespace"]
        forkserver.set_forkserver_preload(preload)
        resource_tracker.ensure_running()  # it unblocks the signal, so it goes first
        # Until it has imported all that, Ctrl-C would end it with a traceback; workers inherit
        # the mask, and lift it once they have a handler of their own.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def silence_warnings() -> None:
    """Keeps warnings out of this process and what it starts, unless the user chose some.

    They are libraries' words to programmers; the resource tracker's tell of semaphores that
    killed workers held, and that it has removed.
    """
    if not sys.warnoptions and "PYTHONWARNINGS" not in os.environ:
        os.environ["PYTHONWARNINGS"] = "ignore"
        warnings.simplefilter("ignore")
