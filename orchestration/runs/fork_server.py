"""The process that workers are copied from; light, so that it can start before anything heavy."""

import os
from multiprocessing import forkserver

CORES = max(1, len(os.sched_getaffinity(0)))


def warm_up() -> None:
    """Starts it, so that it imports what workers need while the caller imports the same.

    Workers are not forked from the caller: a copy would hold the locks of threads it has not.
    """
    if CORES > 1:
        # Pandas is a second of LanceDB's import; LanceDB starts threads, so no fork of it is safe.
        preload = ["orchestration.runs.runner", "pandas", "pyarrow.dataset"]
        forkserver.set_forkserver_preload(preload)
        forkserver.ensure_running()
