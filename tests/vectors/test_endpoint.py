"""An OpenAI-compatible endpoint as an embedder, over real HTTP on loopback."""

import gzip
import json
import traceback
from typing import Any

import numpy as np
import pytest

from assets.vectors.encoders import endpoint as endpoint_module
from assets.vectors.encoders.choose import open_embedder
from assets.vectors.encoders.embedder import BadEmbedder, EmbeddingFailed
from assets.vectors.encoders.endpoint import EndpointEncoder
from assets.vectors.encoders.hub import allow_embedder
from assets.vectors.encoders.saved import EncoderBroken, open_encoder, save_encoder
from tests.support.cases import cases
from tests.vectors.embeddings_endpoint import Say, embeddings_endpoint, vector, vectors

KEY = "sk-very-secret-0123456789"
PACKED = {"content-encoding": "gzip"}


def opened(url: str, **settings: Any) -> EndpointEncoder:
    return EndpointEncoder("small", base_url=url, **{"api_key": KEY, "backoff_s": 0.0, **settings})


def expected(texts: list[str]) -> np.ndarray:
    rows = np.array([vector(text) for text in texts])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_whole_index_comes_in_batches_in_its_order_and_a_packed_answer_is_unpacked():
    texts = [f"text {number % 150}" for number in range(200)]
    seen: list[tuple[int, int]] = []
    with embeddings_endpoint() as endpoint:
        found = opened(endpoint.url).embed(texts, on_done=lambda *done: seen.append(done))
    assert np.abs(found - expected(texts)).max() < 1e-6
    assert found.dtype == np.float32
    assert seen[-1] == (150, 150)
    assert len(endpoint.texts()) == 1 + 150  # one to learn the dimension
    assert max(len(body["input"]) for _, _, body in endpoint.asked) == 64
    path, headers, body = endpoint.asked[-1]
    assert (path, body["model"]) == ("/v1/embeddings", "small")
    assert headers["authorization"] == f"Bearer {KEY}"

    def pack(body: dict[str, Any], _: int) -> Say:
        packed = gzip.compress(json.dumps(vectors(body)).encode())
        return Say(packed, headers=PACKED)

    with embeddings_endpoint(pack) as endpoint:
        found = opened(endpoint.url, dim=8).embed(["a text"])
    assert np.abs(found - expected(["a text"])).max() < 1e-6


def test_the_id_names_model_dimension_and_host_and_no_text_is_sent_that_an_endpoint_refuses():
    with embeddings_endpoint() as endpoint:
        host = endpoint.url.removeprefix("http://").removesuffix("/v1")
        embedder = open_embedder(f"openai:small@{endpoint.url}/")
        assert (embedder.id, embedder.dim) == (f"openai:small/8@{host}", 8)
        assert "authorization" not in endpoint.asked[0][1]
    at_openai = EndpointEncoder("text-embedding-3-small", api_key=KEY, dim=1536)
    assert at_openai.id == "openai:text-embedding-3-small/1536"
    with embeddings_endpoint() as endpoint:
        made = opened(endpoint.url)
        found = made.embed(["", " \n", "half \ud800", "long " * 10_000])
    assert np.isfinite(found).all()
    assert endpoint.texts()[1:] == ["-", "-", "half ?", ("long " * 10_000)[:8_000]]
    assert made.embed([]).shape == (0, 8)


@cases(
    "fault",
    Say({"error": "busy"}, 429, {"retry-after": "0"}),
    Say({"error": "oops"}, 503),
    Say("<html>bad gateway</html>"),
    Say(drop=True),
)
def test_what_passes_is_tried_again(fault):
    with embeddings_endpoint([fault, fault, Say()]) as endpoint:
        found = opened(endpoint.url, dim=8).embed(["a text"])
    assert np.abs(found - expected(["a text"])).max() < 1e-6
    assert len(endpoint.asked) == 3


def test_a_try_waits_as_long_as_it_is_told(monkeypatch):
    waited: list[float] = []
    monkeypatch.setattr(endpoint_module.time, "sleep", waited.append)
    busy = Say({}, 429, {"retry-after": "17"})
    with embeddings_endpoint([busy, Say({}, 500), Say()]) as endpoint:
        opened(endpoint.url, dim=8, backoff_s=0.5).embed(["a"])
    assert waited == [17.0, 1.0]


@cases(
    "fault, tries, why",
    (Say({}, 503), endpoint_module.ATTEMPTS, r"status 503 .*\(4 tries\).* run again later"),
    (Say({}, 429, {"retry-after": "3600"}), 1, "asks to wait 3600 s"),
    (Say({"error": {"code": "insufficient_quota"}}, 429), 1, "pay for more"),
    (Say({"error": f"Incorrect API key: {KEY}"}, 401), 1, "status 401, .* correct the key"),
    (Say({"error": f"no model for {KEY}"}, 404), 1, "check base_url .* model's name"),
    (Say({"error": "input too long"}, 400), 1, "input too long.* the length that it takes"),
    (Say({}, 307, {"location": "http://127.0.0.1:9/"}), 1, "status 307"),
    (Say(drop=True), endpoint_module.ATTEMPTS, "start the endpoint"),
    (Say("half a {"), endpoint_module.ATTEMPTS, "with no JSON"),
    (Say({"data": []}), 1, "expected one list of numbers for each text"),
    (Say({"data": [{"embedding": "AAAA"}]}), 1, "expected one list of numbers"),
    (Say({"data": [{"index": 5, "embedding": [1.0] * 8}]}), 1, "expected one list"),
    (Say({"data": [{"embedding": [1.0] * 8}] * 2}), 1, "2 vectors"),
    (Say({"data": [{"embedding": [1.0] * 9}]}), 1, "9 numbers, expected 8 as before"),
    (Say({"data": [{"embedding": [0.0] * 8}]}), 1, "norm 0.0"),
    (Say('{"data": [{"embedding": [NaN, 1, 1, 1, 1, 1, 1, 1]}]}'), 1, "norm nan"),
    (Say('{"data": [{"embedding": [' + "9" * 401 + "]}]}"), 1, "expected one list of numbers"),
    (Say("[" * 100_000), endpoint_module.ATTEMPTS, "no JSON that can be read"),
    (Say(gzip.compress(bytes(40 << 20)), headers=PACKED), 1, "more than 16,777,216 bytes"),
)
def test_what_does_not_pass_is_one_clear_error(fault, tries, why):
    with embeddings_endpoint([fault]) as endpoint:
        with pytest.raises(EmbeddingFailed, match=why) as caught:
            opened(endpoint.url, dim=8).embed(["a text"])
        assert endpoint.url in str(caught.value)
    assert len(endpoint.asked) == tries
    assert KEY not in "".join(traceback.format_exception(caught.value))
    assert "\n" not in str(caught.value)


def test_what_drips_does_not_listen_or_changes_its_dimension_is_found_out(unused_tcp_port):
    with (
        embeddings_endpoint([Say(drip_s=0.05)]) as endpoint,
        pytest.raises(EmbeddingFailed, match=r"no whole answer within 0.1 s"),
    ):
        opened(endpoint.url, dim=8, timeout_s=0.1).embed(["a text"])
    with pytest.raises(EmbeddingFailed, match="start the endpoint, or correct base_url"):
        opened(f"http://127.0.0.1:{unused_tcp_port}/v1")
    with embeddings_endpoint(lambda body, n: Say(vectors(body, 8 if n == 1 else 6))) as endpoint:
        made = opened(endpoint.url)
        with pytest.raises(EmbeddingFailed, match="6 numbers, expected 8"):
            made.embed(["a"])


def test_after_a_failure_nothing_more_is_asked():
    with (
        embeddings_endpoint([Say({"error": "no"}, 400)]) as endpoint,
        pytest.raises(EmbeddingFailed),
    ):
        opened(endpoint.url, dim=8).embed([str(number) for number in range(64 * 40)])
    assert len(endpoint.asked) < 40


@cases(
    "url, why",
    ("ftp://host/v1", "expected http"),
    ("host/v1", "expected http"),
    ("http://[::1/v1", "expected http"),
    ("http://user:word@host/v1", "credentials or a query"),
    ("https://host/v1?key=secret", "credentials or a query"),
)
def test_an_address_that_cannot_be_used_or_holds_a_secret_is_refused(url, why):
    with pytest.raises(BadEmbedder, match=why) as caught:
        EndpointEncoder("small", base_url=url)
    assert "word" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_key_is_needed_at_openai_and_must_be_one():
    with pytest.raises(BadEmbedder, match="no key; set OPENAI_API_KEY"):
        open_embedder("openai:text-embedding-3-small")
    with pytest.raises(BadEmbedder, match="no line of ASCII") as caught:
        EndpointEncoder("small", base_url="http://127.0.0.1:9/v1", api_key="sk-se\ncret")
    assert "cret" not in str(caught.value).replace("secret", "")


@cases("setting", "EMBEDDER", "OPENAI")
def test_a_saved_endpoint_is_opened_without_its_key_in_the_file(setting, tmp_path, monkeypatch):
    with embeddings_endpoint() as endpoint:
        if setting == "OPENAI":
            monkeypatch.setenv("OPENAI_BASE_URL", f"{endpoint.url}/")
        else:
            allow_embedder(f"openai:small@{endpoint.url}/")
        monkeypatch.setenv(f"{setting}_API_KEY", KEY)
        embedder = open_embedder(f"openai:small@{endpoint.url}")
        folder = save_encoder(embedder, tmp_path)
        asked = len(endpoint.asked)
        again = open_encoder(tmp_path, embedder.id)
        assert len(endpoint.asked) == asked  # opening costs no request
        assert (again.id, again.dim) == (embedder.id, embedder.dim)
        assert (again.embed(["x"]) == embedder.embed(["x"])).all()
        assert endpoint.asked[-1][1]["authorization"] == f"Bearer {KEY}"
        assert [path.name for path in folder.iterdir()] == ["encoder.json"]
        card = (folder / "encoder.json").read_text()
        assert KEY not in card
        assert "API_KEY" not in card
        (folder / "encoder.json").write_text(card.replace('"model": "small"', '"model": "large"'))
        with pytest.raises(EncoderBroken, match="opens as 'openai:large/8"):
            open_encoder(tmp_path, embedder.id)


@cases("variable", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "EMBEDDER_API_KEY")
@cases("named", None, "http://127.0.0.1:9/v1")
def test_a_third_party_card_chooses_neither_address_nor_key(variable, named, tmp_path, monkeypatch):
    with embeddings_endpoint() as endpoint:
        embedder = open_embedder(f"openai:small@{endpoint.url}")
        card = save_encoder(embedder, tmp_path) / "encoder.json"
        card.write_text(json.dumps({**json.loads(card.read_text()), "api_key_env": variable}))
        monkeypatch.setenv(variable, KEY)
        if named:
            monkeypatch.setenv("OPENAI_BASE_URL", named)
        asked = len(endpoint.asked)
        with pytest.raises(BadEmbedder, match="TOOLMILL_EMBEDDER__MODEL") as refused:
            open_encoder(tmp_path, embedder.id)
        assert len(endpoint.asked) == asked
        assert endpoint.url in str(refused.value)
        monkeypatch.delenv(variable)
        monkeypatch.setenv("UNRELATED_API_KEY", KEY)
        allow_embedder(f"openai:small@{endpoint.url}")  # the user names it: no key of others
        card.write_text(card.read_text().replace(variable, "UNRELATED_API_KEY"))
        open_encoder(tmp_path, embedder.id).embed(["x"])
        assert "authorization" not in endpoint.asked[-1][1]
