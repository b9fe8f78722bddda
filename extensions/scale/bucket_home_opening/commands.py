"""What each command does with a home in a bucket: write to it, read what was committed, neither."""

import os
import threading
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from extensions.scale.bucket.bucket import BucketUnavailable
from extensions.scale.bucket_home_opening.opening import Tell, hold_home, refresh_home
from orchestration.settings.load import load_settings
from orchestration.settings.model import PREFIX, Settings, config_path

# Those that write to home or ledger: what a model answered is paid for, and kept there.
WRITES = {
    *("run", "login", "logout", "judge", "review", "repair", "execute"),
    *("trajectories", "agent", "evaluate", "active-eval", "agent-eval", "contamination"),
    *("quarantine release", "quarantine hold", "reliability refresh", "reliability exclude"),
    *("reliability include", "log delete", "champion approve", "champion refuse"),
    *("champion restore", "release rollback", "release watch", "mcp-zero import"),
    *("ledger rebuild", "ledger repair", "batch harvest", "batch cancel", "takedown add"),
    *("takedown lift", "takedown renew", "audits", "gc --yes"),
}
# Those that need no home, or another one than the settings'.
ASIDE = {
    *("settings", "crawl", "parse", "demo-marketplaces", "probe", "trust", "grant", "scan"),
    *("verify", "match", "worlds", "index", "serve-token", "restore", "bucket"),
}
STAYS = {"serve", "proxy"}  # read what is committed while they go on
_REFRESHED_EVERY_S = 60.0
_ELSEWHERE = ("--help", "--place")  # options of who reads no home, or another one


@contextmanager
def open_home_for(words: Sequence[str], tell: Tell) -> Iterator[None]:
    """The home as the command of these words needs it, where it lives in a bucket. Raises
    BucketUnavailable, UnusableInput."""
    command = choose_command(words)
    if command in ASIDE or any(word.startswith(_ELSEWHERE) for word in words) or not is_set():
        yield
        return
    settings = load_settings()
    if command in WRITES:
        with hold_home(settings, tell):
            yield
        return
    refresh_home(settings, tell)
    stop = threading.Event()
    if command in STAYS:
        threading.Thread(target=_keep_fresh, args=(settings, stop, tell), daemon=True).start()
    try:
        yield
    finally:
        stop.set()


def choose_command(words: Sequence[str]) -> str:
    """The name under which a command stands above: its own, with that of its part or with `--yes`
    where these make the difference."""
    name, *rest = [*words, ""]
    longer = (f"{name} {word}" for word in rest)
    return next((one for one in longer if one in WRITES), name)


def is_set() -> bool:
    """Whether a bucket is named at all: other commands do not read the settings for that."""
    if os.environ.get(f"{PREFIX}STORAGE__BUCKET"):
        return True
    try:
        return bool(tomllib.loads(config_path().read_text())["storage"]["bucket"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _keep_fresh(settings: Settings, stop: threading.Event, tell: Tell) -> None:
    while not stop.wait(_REFRESHED_EVERY_S):
        try:
            refresh_home(settings, tell)
        except (BucketUnavailable, OSError) as error:
            tell(f"not refreshed: {error}")
