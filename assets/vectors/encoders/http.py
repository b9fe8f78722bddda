"""One request to an OpenAI-compatible `/embeddings`, tried again while that may help."""

import json
import time
from collections.abc import Sequence
from typing import Any

from assets.vectors.encoders.embedder import EmbeddingFailed
from warehouse.llm.roles import classify_status
from warehouse.network.retry_after import parse_retry_after

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


class _Refused(Exception):
    """A try that failed: why, whether another may pass, the seconds it is asked to wait."""

    def __init__(
        self, found: str, hint: str, passing: bool = False, retry_after_s: float = 0.0
    ) -> None:
        super().__init__(found)
        self.found, self.hint, self.passing = found, hint, passing
        self.retry_after_s = retry_after_s


class Wire:
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
            except _Refused as refused:
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

        from warehouse.network.body import BodyRefused

        try:
            with self._client.stream("POST", self._url, json=body) as answer:
                content = self._read_answer(answer)
        except httpx2.TimeoutException:
            raise self._is_late() from None
        except BodyRefused as error:
            raise _Refused(str(error), "ask another endpoint") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            hint = "start the endpoint, or correct base_url"
            raise _Refused(f"{type(error).__name__} ({error})", hint, True) from None
        if answer.status_code != 200:
            retry_after = answer.headers.get("retry-after", "")
            raise _build_refusal(
                answer.status_code, content[:400].decode(errors="replace"), retry_after
            )
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            found = f"status 200 with no JSON that can be read ({content[:80]!r})"
            hint = "check that base_url ends where /embeddings begins"
            raise _Refused(found, hint, True) from None

    def _read_answer(self, answer: Any) -> bytes:
        """The body; the client's own limit begins anew with every byte, this one does not."""
        began, body = time.monotonic(), bytearray()
        for part in answer.iter_bytes():
            body += part
            if time.monotonic() - began > self._timeout_s:
                raise self._is_late()
        return bytes(body)

    def _is_late(self) -> _Refused:
        hint = "raise timeout_s, or ask a faster endpoint"
        return _Refused(f"no whole answer within {self._timeout_s:g} s", hint, True)

    def _scrub_text(self, text: str) -> str:
        """One line of what was said, without the key that some endpoints repeat."""
        line = " ".join(text.split())
        return (line.replace(self._key, "***") if self._key else line)[:300]


def _build_refusal(status: int, message: str, retry_after: str) -> _Refused:
    kind, passing = classify_status(status, message)
    hint = _LOST if status in (404, 405) else _HINTS[kind, passing]
    found = f"status {status}" if kind == "auth" else f"status {status} ({message})"
    return _Refused(found, hint, passing, parse_retry_after(retry_after) or 0.0)
