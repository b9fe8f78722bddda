"""What is asked of find_tools, in any of its four ways."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from assets.outcomes.reliability.observation import TOKEN
from assets.servers.calls.log import query_digest
from serving.meta.access.policy import Token
from serving.meta.tools.arguments import BadField, Fields
from serving.meta.tools.schemas import (
    MAX_EXCLUDE,
    MAX_K,
    MAX_QUERY,
    MAX_REQUESTS,
    MAX_TEXT,
    REQUEST,
)
from serving.meta.untrusted_text import show_line
from serving.ranking.query import STRATEGIES
from warehouse.sanitize.quote import read_name

if TYPE_CHECKING:
    from serving.router import Ask, Router


@dataclass(frozen=True)
class Question:
    """One thing that is asked; `problems` without `ask` mean that it cannot be."""

    ask: "Ask | None"
    problems: tuple[str, ...] = ()

    @property
    def asked(self) -> str:
        """As the answer repeats it."""
        named = {name: getattr(self.ask, name, None) for name in ("query", "server", "tool")}
        return "; ".join(f"{name}: {show_line(text, 120)}" for name, text in named.items() if text)

    @property
    def words(self) -> str:
        """What is asked for, in the words of the question."""
        ask = self.ask
        return (ask.query or f"{ask.server or ''}\n{ask.tool or ''}") if ask else ""

    @property
    def digest(self) -> str:
        """What tells its outcomes apart from those of other questions."""
        return query_digest(self.words)


def read_questions(fields: Fields, token: Token, client: str | None = None) -> list[Question]:
    """What is asked, in one of four ways. client: as it names itself, where it is kept. Raises
    BadField where it is none or several."""
    from serving.ranking.reranking import write_client_key
    from serving.router import Ask

    shared = {
        "k": fields.number("k", 5, 1, MAX_K),
        "stretch": fields.number("stretch", 0, 0, MAX_K),
        "trim": fields.flag("trim"),
        "strategy": fields.choice("strategy", STRATEGIES, STRATEGIES[0]),
        "exclude": frozenset(map(read_name, fields.texts("exclude", MAX_EXCLUDE))),
        "context": fields.text("context", MAX_QUERY),
        "allowed": token.allow,
        "client": write_client_key(TOKEN + token.name, client),
    }
    text = fields.text("text", MAX_TEXT)
    several = fields.objects("requests", MAX_REQUESTS, REQUEST)
    words = _read_words(fields)
    for name, others in (("text", bool(words or several)), ("requests", bool(words))):
        if (text if name == "text" else several) and others:
            raise BadField(name, "beside query, server or tool", "only one way of asking")
    if text is not None:
        return _read_requests(text, shared)
    asked = [_read_words(one) for one in several] or [words]
    for at, one in enumerate(asked):
        if not one:
            field = f"requests[{at}]" if several else "query"
            raise BadField(
                field, "missing or blank", "what a tool should do, or server and/or tool"
            )
    return [Question(Ask(**one, **shared)) for one in asked]


def _read_words(fields: Fields) -> dict[str, str]:
    """What is asked in words, without what is left out."""
    texts = {name: fields.text(name, MAX_QUERY) for name in REQUEST}
    return {name: text for name, text in texts.items() if text}


def drop_shown(ask: "Ask", router: "Router", shown: Sequence[str]) -> "Ask":
    """The question without what was shown before, and its twins."""
    from serving.discovery.shown import list_barred

    return replace(ask, exclude=list_barred(router.index, shown, ask.exclude))


def _read_requests(text: str, shared: Mapping[str, Any]) -> list[Question]:
    from serving.discovery.request import parse
    from serving.router import Ask

    wanted = parse(text)
    if not wanted:
        expected = "at least one, with lines `server: …` and `tool: …`"
        raise BadField("text", "without a <tool_assistant> block", expected)
    return [
        Question(
            Ask(server=one.server, tool=one.tool, **shared) if one.usable else None,
            tuple(one.problems),
        )
        for one in wanted
    ]
