"""Tasks with real tools as an environment: an OpenEnv server and a taskset of `verifiers`."""

from importlib import import_module
from typing import Any

# Both frameworks are optional, and neither is imported for the other.
_WHERE = {
    "Episode": "episode",
    "ToolEnv": "client",
    "ToolTaskset": "taskset",
    "ToolHarness": "taskset",
    "load_environment": "taskset",
}
__all__ = ["Episode", "ToolEnv", "ToolHarness", "ToolTaskset", "load_environment"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    except ModuleNotFoundError as error:
        raise AttributeError(f"{name} needs the package {error.name!r}: install it") from error
