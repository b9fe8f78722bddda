"""Any OpenAI-compatible `/embeddings` endpoint. The key is in no id, error or saved encoder, and a
saved one is opened only at an address that the user's settings name."""

import json
import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from assets.vectors.encoders.embedder import (
    BadEmbedder,
    EmbeddingFailed,
    EncoderFiles,
    Progress,
    Prompts,
    normalise_rows,
    read_prompts,
)
from assets.vectors.encoders.hub import is_named
from warehouse.llm.roles import classify_status
from warehouse.network.http import parse_retry_after
from warehouse.sanitize.untrusted_text import drop_surrogates

ATTEMPTS = 4
BACKOFF_S = 0.5
_LONGEST_WAIT_S = 60.0  # an endpoint that asks for more is left alone, and the user is told
_MOST_BYTES = 16 << 20  # decoded; a batch of 64 vectors of 8,192 numbers is 12 MB
_LATER = "run again later: vectors already stored are kept"
_LOST = "check base_url (it ends before /embeddings) and the model's name"
_HINTS = {
    ("rate_limited", True): _LATER,
    ("rate_limited", False): "pay for more there",
    ("server_error", True): _LATER,
    ("auth", False): "correct the key: it is missing there, or refused",
    ("bad_request", False): "check that this model embeds texts, and the length that it takes",
}


class _FailedRequest(Exception):
    """A try that failed: why, whether another may pass, the seconds it is asked to wait."""

    def __init__(
        self, problem: str, hint: str, passing: bool = False, retry_after_s: float = 0.0
    ) -> None:
        super().__init__(problem)
        self.found, self.hint, self.passing = problem, hint, passing
        self.retry_after_s = retry_after_s


class EmbeddingsClient:
    """POSTs to one endpoint; safe to use from several threads. The key is in no error."""

    def __init__(self, base_url: str, key: str, *, timeout_s: float, backoff_s: float) -> None:
        import httpx2

        from warehouse.network.http import open_client

        self._url, self._key, self._timeout_s = f"{base_url}/embeddings", key, timeout_s
        self._backoff_s = backoff_s
        # Redirects are not followed: they could take the key to another host.
        headers = {"authorization": f"Bearer {key}"} if key else None
        self._client = open_client(
            trusted=[httpx2.URL(base_url).host],
            headers=headers,
            timeout=timeout_s,
            most_bytes=_MOST_BYTES,
        )

    def ask(self, model: str, texts: Sequence[str]) -> Any:
        """The JSON of the answer. Raises EmbeddingFailed naming endpoint, finding and fix."""
        body = {"model": model, "input": list(texts), "encoding_format": "float"}
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._send_once(body)
            except _FailedRequest as refused:
                wait_s = max(refused.retry_after_s, self._backoff_s * 2 ** (attempt - 1))
                delay = ""
                if refused.passing and wait_s > _LONGEST_WAIT_S:
                    delay = f", which asks to wait {wait_s:.0f} s"
                if not refused.passing or delay or attempt == ATTEMPTS:
                    tries = f" ({attempt} tries)" if attempt > 1 else ""
                    raise EmbeddingFailed(
                        f"{self._url}: {self._scrub_text(refused.found)}{delay}{tries}, expected"
                        f" vectors"
                        f" of {model!r} for {len(texts)} texts; {refused.hint}"
                    ) from None
                time.sleep(wait_s)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _send_once(self, body: dict[str, Any]) -> Any:
        import httpx2

        from warehouse.network.http import BodyRefused

        try:
            with self._client.stream("POST", self._url, json=body) as answer:
                content = self._read_answer(answer)
        except httpx2.TimeoutException:
            raise self._is_late() from None
        except BodyRefused as error:
            raise _FailedRequest(str(error), "ask another endpoint") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            hint = "start the endpoint, or correct base_url"
            raise _FailedRequest(f"{type(error).__name__} ({error})", hint, True) from None
        if answer.status_code != 200:
            status, message = answer.status_code, content[:400].decode(errors="replace")
            kind, passing = classify_status(status, message)
            hint = _LOST if status in (404, 405) else _HINTS[kind, passing]
            problem = f"status {status}" if kind == "auth" else f"status {status} ({message})"
            wait = parse_retry_after(answer.headers.get("retry-after", "")) or 0.0
            raise _FailedRequest(problem, hint, passing, wait)
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            problem = f"status 200 with no JSON that can be read ({content[:80]!r})"
            hint = "check that base_url ends where /embeddings begins"
            raise _FailedRequest(problem, hint, True) from None

    def _read_answer(self, answer: Any) -> bytes:
        """The body; the client's own limit begins anew with every byte, this one does not."""
        began, body = time.monotonic(), bytearray()
        for part in answer.iter_bytes():
            body += part
            if time.monotonic() - began > self._timeout_s:
                raise self._is_late()
        return bytes(body)

    def _is_late(self) -> _FailedRequest:
        hint = "raise timeout_s, or ask a faster endpoint"
        return _FailedRequest(f"no whole answer within {self._timeout_s:g} s", hint, True)

    def _scrub_text(self, text: str) -> str:
        """One line of what was said, without the key that some endpoints repeat."""
        line = " ".join(text.split())
        return (line.replace(self._key, "***") if self._key else line)[:300]


OPENAI = "https://api.openai.com/v1"
OPENAI_KEY, OTHER_KEY = "OPENAI_API_KEY", "EMBEDDER_API_KEY"
_BATCH = 64
_SIDE_BY_SIDE = 4
_CUT = 8_000  # characters: OpenAI's models take 8,191 tokens, and a text is seldom more tokens
_BLANK = "-"  # stands for a text without content, which OpenAI refuses


class EndpointEncoder:
    """Unit vectors by `model` at `base_url`; a text is cut after 8,000 characters. dim: asked for
    when not given. Raises BadEmbedder, EmbeddingFailed."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        dim: int | None = None,
        timeout_s: float = 30.0,
        backoff_s: float = BACKOFF_S,
        prompts: Prompts | None = None,
    ) -> None:
        self.model, self._prompts = model, prompts or Prompts()
        self.base_url = _check_url(base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI)
        is_openai = self.base_url in (OPENAI, _get_openai_url())
        variable = OPENAI_KEY if is_openai else OTHER_KEY
        key = (api_key or os.environ.get(variable, "")).strip()
        if not key and self.base_url == OPENAI:
            raise BadEmbedder(f"openai:{model}: no key; set {variable}")
        if not re.fullmatch("[!-~]*", key):  # said here, because the client's own error shows it
            raise BadEmbedder(f"openai:{model}: the key in {variable} is no line of ASCII")
        self._wire = EmbeddingsClient(self.base_url, key, timeout_s=timeout_s, backoff_s=backoff_s)
        self.dim = dim or len(self._read_vectors(["dimension"])[0])
        host = urlsplit(self.base_url).netloc
        elsewhere = "" if host == urlsplit(OPENAI).netloc else f"@{host}"
        self.id = f"openai:{model}/{self.dim}{elsewhere}{self._prompts.mark()}"

    def saved(self) -> EncoderFiles:
        """How to reach it, without the key."""
        prompts = {"prompts": self._prompts.as_dict()} if self._prompts.given else {}
        facts = {"kind": "openai", "model": self.model, "base_url": self.base_url, **prompts}
        return EncoderFiles(facts)

    def embed(self, texts: Sequence[str], *, on_done: Progress | None = None) -> np.ndarray:
        """Unit vectors [len(texts), dim] of tools' texts; one that is given twice is asked for
        once."""
        before = self._prompts.document or ""
        return self._embed_texts([f"{before}{text}" for text in texts], on_done)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors [len(texts), dim] of questions."""
        before = self._prompts.query or ""
        return self._embed_texts([f"{before}{text}" for text in texts], None)

    def _embed_texts(self, texts: Sequence[str], on_done: Progress | None) -> np.ndarray:
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        due = list(places)
        batches = [due[start : start + _BATCH] for start in range(0, len(due), _BATCH)]
        out = np.empty((len(due), self.dim), np.float32)
        done = 0
        pool = ThreadPoolExecutor(_SIDE_BY_SIDE)
        try:
            for vectors in pool.map(self._embed_batch, batches):
                out[done : done + len(vectors)] = vectors
                done += len(vectors)
                if on_done:
                    on_done(done, len(due))
        finally:  # after a failure nothing more is asked for
            pool.shutdown(cancel_futures=True)
        return out[[places[text] for text in texts]]

    def _embed_batch(self, texts: list[str]) -> np.ndarray:
        vectors = self._read_vectors(texts)
        if vectors.shape[1] != self.dim:
            raise EmbeddingFailed(
                f"{self.base_url}: {self.model!r} gave vectors of {vectors.shape[1]} numbers,"
                f" expected {self.dim} as before: another model answers under this name; make"
                " the index again"
            )
        return normalise_rows(vectors, f"{self.base_url}: {self.model!r}")

    def _read_vectors(self, texts: list[str]) -> np.ndarray:
        """What is answered for the texts, in their order. Raises EmbeddingFailed."""
        sent = [drop_surrogates(text)[:_CUT] for text in texts]
        answer = self._wire.ask(self.model, [text if text.strip() else _BLANK for text in sent])
        try:
            items = list(answer["data"])
            by_place = {item.get("index", at): item["embedding"] for at, item in enumerate(items)}
            rows = np.array([by_place[at] for at in range(len(texts))], np.float32)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            problem = f"no list of vectors ({type(error).__name__}: {error})"
            raise self._describe_unusable(problem) from None
        if rows.ndim != 2 or rows.shape[1] < 1 or len(items) != len(texts):
            raise self._describe_unusable(f"{len(items)} vectors, of shape {rows.shape}")
        return rows

    def _describe_unusable(self, problem: str) -> EmbeddingFailed:
        return EmbeddingFailed(
            f"{self.base_url}/embeddings: {' '.join(problem.split())[:200]}, expected one list of"
            f" numbers for each text; check that {self.model!r} embeds texts"
        )


def reopen_endpoint(card: dict[str, Any]) -> EndpointEncoder:
    """The endpoint of a saved encoder, if the user's settings name it. Raises BadEmbedder."""
    base_url = _check_url(card["base_url"])
    if base_url != _get_openai_url() and not is_named(base_url):
        raise BadEmbedder(
            f"{card['id']!r:.120}: its encoder.json asks for {base_url!r:.120}, which none of your"
            " settings names; no query and no key was sent. If that address is yours, set"
            " TOOLMILL_EMBEDDER__MODEL to openai:MODEL@ADDRESS (its key: EMBEDDER_API_KEY)"
        )
    prompts = read_prompts(card)
    return EndpointEncoder(card["model"], base_url=base_url, dim=card["dim"], prompts=prompts)


def _get_openai_url() -> str:
    return (os.environ.get("OPENAI_BASE_URL") or OPENAI).rstrip("/")


def _check_url(base_url: str) -> str:
    """The address without its last slash. Raises BadEmbedder for one that carries a secret."""
    try:
        url = urlsplit(base_url)
        usable = url.scheme in ("http", "https") and bool(url.hostname)
        secret = url.username or url.password or url.query or url.fragment
    except ValueError:
        usable = secret = False
    if not usable:
        raise BadEmbedder(f"base_url {base_url[:80]!r}: expected http(s)://host/v1")
    if secret:
        raise BadEmbedder(
            f"base_url of {url.hostname}: has credentials or a query, which would be stored with"
            " the index; give the key in the environment"
        )
    return base_url.rstrip("/")
