"""Who speaks to the endpoint of a role: OpenAI's protocol, or one of an installed package.

A package registers its own as an entry point of the group `toolmill.providers` that names a class
with the methods of `Provider`, made without arguments: address, key, model and time-out come with
each request's role.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from warehouse.llm.roles import OPENAI, LLMError, Provider

GROUP = "toolmill.providers"


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
    try:
        return point.load()()
    except Exception as error:  # another package's code
        found = f"{point.value}, which fails with {type(error).__name__}: {error}"[:200]
        hint = "correct or remove the package that names it"
        raise LLMError("no_provider", found, "a class without arguments", hint) from error
