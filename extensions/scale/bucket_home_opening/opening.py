"""Opening the home that `[storage] bucket` names; without that setting nothing is asked."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

from orchestration.settings.model import Settings
from warehouse.dagster_state import POSTGRES
from warehouse.errors import UnusableInput

if TYPE_CHECKING:
    from extensions.scale.bucket_home.session import BucketHome

Tell = Callable[[str], None]


def open_bucket_home(settings: Settings, tell: Tell) -> "BucketHome | None":
    """The home in the bucket of the settings; None where it is on this disk alone. Raises
    UnusableInput."""
    if settings.storage.bucket is None:
        return None
    from extensions.scale.bucket.bucket import open_bucket
    from extensions.scale.bucket_home.session import BucketHome

    try:
        bucket = open_bucket(settings.storage.bucket)
    except UnusableInput as error:
        raise UnusableInput(f"TOOLMILL_STORAGE__BUCKET ([storage] bucket): {error}") from None
    return BucketHome(
        bucket,
        settings.home_path(),
        settings.state_path(),
        settings.storage,
        version("toolmill"),
        tell,
        shared_events=POSTGRES in os.environ,
    )


@contextmanager
def hold_home(settings: Settings, tell: Tell) -> Iterator[None]:
    """Holds the home while something is written to it, and commits that. Raises HomeHeld where
    another machine works on it, HomeLost, BucketUnavailable."""
    home = open_bucket_home(settings, tell)
    if home is None:
        yield
        return
    with home.hold():
        yield


def refresh_home(settings: Settings, tell: Tell) -> None:
    """Makes the folder what was committed last. Raises BucketUnavailable."""
    home = open_bucket_home(settings, tell)
    if home is not None:
        home.refresh()
