"""What a model's search asks for."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from serving.ranking.query import Ask

_MOST = 4_000  # characters of a question
_LIKE = 'expected an object with words, like {"tool": "send an email"}'


class UnreadableSearch(ValueError):
    """Arguments that are no question, in one line for the model."""


def read_question(arguments: Any, k: int) -> Ask:
    """The question of a search: `server` and `tool` where the arguments have them, else all their
    texts. arguments: an object, or the text of one. Raises UnreadableSearch."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            raise UnreadableSearch(f"the arguments of the search are no JSON; {_LIKE}") from None
    if not isinstance(arguments, Mapping):
        raise UnreadableSearch(f"the arguments of the search are no object; {_LIKE}")
    server, tool = (_read_text(arguments.get(name)) for name in ("server", "tool"))
    if server or tool:
        return Ask(server=server or None, tool=tool or None, k=k)
    if not (words := _read_text(" ".join(_list_texts(arguments, 3)))):
        raise UnreadableSearch(f"the search holds no words; {_LIKE}")
    return Ask(query=words, k=k)


def join_words(ask: Ask) -> str:
    """The question as one text."""
    return " ".join(one for one in (ask.server, ask.tool, ask.query) if one)


def _read_text(value: Any) -> str:
    return " ".join(value[:_MOST].split()) if isinstance(value, str) else ""


def _list_texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:_MOST]
    elif depth and isinstance(value, Mapping | list):
        for one in list(value.values() if isinstance(value, Mapping) else value)[:20]:
            yield from _list_texts(one, depth - 1)
