"""Providers of other protocols, as an installed package registers them."""

import asyncio
from importlib.metadata import EntryPoint

import pytest
from pydantic import BaseModel, ValidationError

from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.writing.writer import PairWriter
from orchestration.settings.schema import RolesSection
from tests.support.cases import cases
from warehouse.llm import chat, endpoint
from warehouse.llm.client import LLM, LLMError, ModelCompletion, ModelRequest, Role
from warehouse.llm.json_answers import find_fenced, strip_fence

ASK = [{"role": "user", "content": "Name a bird."}]


class Bird(BaseModel):
    word: str


class AcmeProvider:
    """What another package would bring."""

    def version(self) -> str:
        return ""

    async def answer(self, request: ModelRequest) -> ModelCompletion:
        assert request.role.base_url == "http://127.0.0.1:9/acme"
        return ModelCompletion('{"word": "heron"}', "stop", request.role.model, 3, 2)


class NeedsMore:
    def __init__(self, key: str) -> None:
        self.key = key


class Faulty(AcmeProvider):
    async def answer(self, request: ModelRequest) -> ModelCompletion:
        raise RuntimeError("the key is sk-abc")


class Careless(AcmeProvider):
    async def answer(self, request: ModelRequest) -> ModelCompletion:
        return {"text": "heron"}  # type: ignore[return-value]


class Misspelt(AcmeProvider):
    async def answer(self, request: ModelRequest) -> ModelCompletion:
        return self.anser(request)  # type: ignore[attr-defined]


class Leaving:
    def __init__(self) -> None:
        raise SystemExit(0)


class Quitting(AcmeProvider):
    async def answer(self, request: ModelRequest) -> ModelCompletion:
        raise SystemExit(0)


class Versionless:
    async def answer(self, request: ModelRequest) -> ModelCompletion: ...


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch):
    ours = ("Faulty", "Careless", "Versionless", "Misspelt", "Leaving", "Quitting")
    classes = {"acme": "AcmeProvider", "broken": "NeedsMore"} | {of.lower(): of for of in ours}
    classes |= {"nameless": "Nobody", "openai": "NeedsMore"}
    places = {name: f"{__name__}:{of}" for name, of in classes.items()}
    places["lost"] = "acme_nosuch:Provider"
    points = [EntryPoint(name, place, endpoint.GROUP) for name, place in places.items()]
    monkeypatch.setattr(endpoint, "entry_points", lambda group: points)
    endpoint.load_protocols.cache_clear()
    yield
    endpoint.load_protocols.cache_clear()


def role(protocol: str, base_url: str | None = "http://127.0.0.1:9/acme") -> Role:
    return Role("judge", model="a-1", protocol=protocol, base_url=base_url, usd_in=1.0)


def test_a_registered_protocol_answers_once_and_its_answer_is_kept(ledger):
    async def ask(llm: LLM) -> bool:
        reply = await llm.complete("judge", ASK, schema=Bird)
        await llm.aclose()
        assert reply.value.word == "heron"
        return reply.cached

    answers = [asyncio.run(ask(LLM([role("acme")], ledger))) for _ in range(2)]
    assert answers == [False, True]
    assert ledger.spent("usd") == pytest.approx(3e-6)


def test_another_protocol_is_another_question_and_openai_keeps_its_keys():
    assert role("acme").identity() == {**role("openai").identity(), "protocol": "acme"}
    assert "protocol" not in role("openai").identity()


@cases(
    "protocol, told",
    ("acmee", "expected one of openai, acme"),
    ("broken", "NeedsMore, which fails with TypeError when it is made"),
    ("leaving", r"Leaving, which fails with SystemExit at test_protocols\.py:\d+ __init__"),
    ("lost", "fails with ModuleNotFoundError of 'acme_nosuch'.*other protocol than 'lost'"),
    ("nameless", "fails with AttributeError of 'Nobody' when it is made"),
    ("versionless", r"Versionless without version\(\)"),
)
def test_what_cannot_be_made_is_one_clear_error(ledger, protocol, told):
    with pytest.raises(LLMError, match=told) as caught:
        LLM([role(protocol)], ledger).identity("judge")
    assert caught.value.kind == "no_provider"


@cases(
    "protocol, told",
    ("faulty", r"Faulty, which fails with RuntimeError at test_protocols\.py:\d+ answer"),
    ("misspelt", r"fails with AttributeError of 'anser' at test_protocols\.py:\d+ answer"),
    ("quitting", "Quitting, which fails with SystemExit at"),
    ("careless", "Careless, which answers with a dict"),
)
def test_a_fault_of_a_provider_names_its_place_and_no_words(ledger, protocol, told):
    llm = LLM([role(protocol)], ledger)
    with pytest.raises(LLMError, match=told) as caught:
        asyncio.run(llm.complete("judge", ASK, schema=Bird))
    assert caught.value.kind == "provider_failed"
    assert "sk-abc" not in str(caught.value)


def test_ours_cannot_be_replaced_and_a_conversation_wants_openai(ledger):
    assert LLM([role("openai")], ledger).identity("judge")["version"] == ""
    with pytest.raises(LLMError, match=r"protocol 'acme'.*roles\.judge\.protocol"):
        chat.ChatClient(role("acme"), ledger, stage="s")


def test_settings_name_the_installed_protocols():
    assert RolesSection.model_validate({"judge": {"protocol": "acme"}}).judge.protocol == "acme"
    with pytest.raises(ValidationError, match=r"'acmee': expected one of openai, acme, broken"):
        RolesSection.model_validate({"judge": {"protocol": "acmee"}})
    with pytest.raises(ValidationError, match="batch = true wants protocol 'openai'"):
        RolesSection.model_validate({"judge": {"protocol": "acme", "batch": True}})


def test_private_tools_do_not_leave_by_another_protocol():
    asked = role("acme", None)
    with pytest.raises(Exception, match="would send private tools to acme"):
        PairWriter((asked,), SynthesisPolicy()).make_llm(None, "private")  # type: ignore[arg-type]


@cases(
    "text, inner",
    ("```json\n{}\n```", "{}"),
    ("  ```python f(x=1)```\n", "f(x=1)"),
    ("```\n[1]", "[1]"),  # an answer that was cut
    ("``````", ""),
    ("```a``` b ```c```", "a``` b ```c"),
    ("{}", None),
    ("see ```{}```", None),
)
def test_a_text_that_is_one_fence_is_what_stands_in_it(text, inner):
    assert strip_fence(text) == inner


def test_every_fence_of_a_text_is_found_and_an_open_one_at_its_end():
    assert find_fenced("first ```json {}``` then ``` ``` and ```tool_code f()") == ["{}", "f()"]
