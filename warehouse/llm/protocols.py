"""Who speaks to the endpoint of a role: OpenAI's protocol, or one of an installed package.

A package registers its own as an entry point of the group `toolmill.providers` that names a class
with the methods of `Provider`, made without arguments: address, key, model and time-out come with
each request's role.
"""

import importlib
import traceback
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from warehouse.llm.roles import OPENAI, Completion, LLMError, Provider, Request

GROUP = "toolmill.providers"
_IMPORTING = ("<frozen ", str(Path(importlib.__file__).parent))  # frames that say nothing


@cache
def load_protocols() -> dict[str, EntryPoint]:
    """The protocols of installed packages by name; `openai` is ours and cannot be replaced."""
    found = {point.name: point for point in entry_points(group=GROUP)}
    return {name: point for name, point in sorted(found.items()) if name != OPENAI}


def open_provider(protocol: str) -> Provider:
    """A new provider that speaks `protocol`. Raises LLMError `no_provider` where none is installed
    under that name, or what is installed cannot be made."""
    if protocol == OPENAI:
        from warehouse.llm.endpoint import Endpoint

        return Endpoint()
    known = load_protocols()
    if protocol not in known:
        expected = f"one of {', '.join((OPENAI, *known))}"
        hint = f"install the package that registers it under {GROUP}"
        raise LLMError("no_provider", f"protocol {protocol!r:.80}", expected, hint)
    point = known[protocol]
    expected = "a class without arguments, with version() and answer(request)"
    hint = f"correct that package, or choose another protocol than {protocol!r:.80} for the role"
    try:
        made = point.load()()
        missing = [name for name in ("version", "answer") if not callable(getattr(made, name, 0))]
    except (Exception, SystemExit) as error:  # another package's code
        found = f"{point.value}, which fails with {_describe_place(error)}"
        raise LLMError("no_provider", found, expected, hint) from error
    if missing:
        raise LLMError("no_provider", f"{point.value} without {missing[0]}()", expected, hint)
    return _Guarded(point, made)


class _Guarded:
    """Another package's provider, whose faults are told by where they are: its words may hold a
    key."""

    def __init__(self, point: EntryPoint, made: Any) -> None:
        self._point, self._made = point, made

    def version(self) -> str:
        return str(self._made.version())

    async def answer(self, request: Request) -> Completion:
        hint = "correct that package; what it answered before is kept"
        try:
            found = await self._made.answer(request)
        except LLMError:
            raise
        except (Exception, SystemExit) as error:
            told = f"{self._point.value}, which fails with {_describe_place(error)}"
            raise LLMError("provider_failed", told, "a Completion or an LLMError", hint) from error
        if not isinstance(found, Completion):
            told = f"{self._point.value}, which answers with a {type(found).__name__}"
            raise LLMError("provider_failed", told, "a Completion", hint)
        return found

    async def aclose(self) -> None:
        if close := getattr(self._made, "aclose", None):
            await close()


def _describe_place(error: BaseException) -> str:
    """`ModuleNotFoundError of 'acme' at provider.py:12 answer`, as far as they are known. Names
    alone: a message may hold a key."""
    told = type(error).__name__
    if isinstance(error, ImportError | AttributeError) and error.name:
        told += f" of {error.name!r:.80}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and not frame.filename.startswith(_IMPORTING)
    ]
    if not frames:
        return f"{told} when it is made"
    return f"{told} at {Path(frames[-1].filename).name}:{frames[-1].lineno} {frames[-1].name}"
