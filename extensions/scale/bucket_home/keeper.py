"""What goes on beside the work on a home in a bucket: its lease is renewed, and it is committed."""

import _thread
import threading
from collections.abc import Callable

from extensions.scale.bucket.bucket import BucketUnavailable
from extensions.scale.bucket_home.policy import StoragePolicy
from extensions.scale.bucket_home.root import HomeLost


class Keeper:
    """Renews the lease and commits beside the work. lost: why there is nothing more to keep; the
    work is then interrupted, since what it pays for would not be kept."""

    lost: HomeLost | None = None

    def __init__(
        self,
        policy: StoragePolicy,
        renew: Callable[[], object],
        commit: Callable[[], object],
        tell: Callable[[str], None],
    ) -> None:
        """commit: where one is due."""
        self._tell = tell
        self._stop, self._stop_commits = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._interrupts = threading.current_thread() is threading.main_thread()
        wait_s = min(10.0, policy.commit_minutes * 20)
        self._threads = [
            threading.Thread(target=self._keep, args=one, daemon=True)
            for one in (
                (self._stop, policy.lease_minutes * 15, renew),
                (self._stop_commits, wait_s, commit),
            )
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end_work(self) -> None:
        """From here on nothing is interrupted."""
        with self._lock:
            self._interrupts = False

    def stop_commits(self) -> None:
        """Returns when none is under way."""
        self._stop_commits.set()
        self._threads[1].join()

    def stop(self) -> None:
        self._stop.set()
        self._threads[0].join()

    def _keep(self, stop: threading.Event, wait_s: float, work: Callable[[], object]) -> None:
        told = ""
        while not stop.wait(wait_s):
            try:
                work()
            except HomeLost as error:
                self._end(error)
                return
            except (BucketUnavailable, OSError) as error:  # the next try may find it up again
                if str(error) != told:
                    told = str(error)
                    self._tell(f"not committed yet: {told}")

    def _end(self, error: HomeLost) -> None:
        with self._lock:
            self.lost = error
            if self._interrupts:
                self._interrupts = False
                _thread.interrupt_main()
