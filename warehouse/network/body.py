"""Bodies of answers, decoded within a bound: gzip makes a thousandfold of what was sent."""

import zlib
from collections.abc import AsyncIterator, Iterator

import httpx2

ENCODING = "gzip"  # the one that is asked for and decoded
_WINDOW = 31  # zlib's window bits for gzip


class BodyRefused(httpx2.DecodingError):
    """The body of an answer is not read: too large, or packed as nobody asked for."""


class BodyTooLarge(BodyRefused):
    """The body of an answer is more than the bytes that were allowed, decoded."""


class BodyReader:
    """Decodes one body part by part, never holding more than `most` bytes of it. An encoding that
    was not asked for is refused: of two in one header the library would decode the second without
    a bound."""

    def __init__(self, encoding: str, most: int) -> None:
        self._named = encoding.strip().lower() or "identity"
        self._inflate = zlib.decompressobj(_WINDOW) if self._named == ENCODING else None
        self._most, self._size, self._begun = most, 0, False

    def read(self, part: bytes) -> bytes:
        """What the part holds. Raises BodyTooLarge, and DecodingError for what cannot be read."""
        self._begun = self._begun or bool(part)
        if part and self._named not in ("identity", ENCODING):
            raise BodyRefused(f"content-encoding {self._named[:40]!r}, not {ENCODING}")
        data = self._decode(part, self._most + 1 - self._size) if self._inflate else part
        self._size += len(data)
        if self._size > self._most:
            raise BodyTooLarge(f"more than {self._most:,} bytes")
        return data

    def _decode(self, part: bytes, room: int) -> bytes:
        assert self._inflate is not None
        after = part if self._inflate.eof else b""
        try:
            data = b"" if after else self._inflate.decompress(part, room)
        except zlib.error as error:
            raise httpx2.DecodingError(str(error)) from error
        if after or self._inflate.unused_data:
            raise httpx2.DecodingError(f"more bytes after the end of its {ENCODING}")
        return data

    def finish(self) -> None:
        """Raises DecodingError where the body was cut."""
        if self._inflate is not None and self._begun and not self._inflate.eof:
            raise httpx2.DecodingError(f"cut after {self._size:,} bytes")


def bound_response(response: httpx2.Response, most: int) -> httpx2.Response:
    """The response of a transport with its body decoded within `most` bytes; reading raises
    BodyTooLarge."""
    reader = BodyReader(response.headers.get("content-encoding", ""), most)
    dropped = ("content-encoding", "content-length")
    headers = [pair for pair in response.headers.multi_items() if pair[0].lower() not in dropped]
    return httpx2.Response(
        response.status_code, headers=headers, stream=_BoundedStream(response.stream, reader),
        extensions=response.extensions,
    )  # fmt: skip


class _BoundedStream(httpx2.AsyncByteStream, httpx2.SyncByteStream):
    def __init__(self, inner: object, reader: BodyReader) -> None:
        self._inner, self._reader = inner, reader

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._inner, httpx2.SyncByteStream)
        for part in self._inner:
            yield self._reader.read(part)
        self._reader.finish()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._inner, httpx2.AsyncByteStream)
        async for part in self._inner:
            yield self._reader.read(part)
        self._reader.finish()

    def close(self) -> None:
        assert isinstance(self._inner, httpx2.SyncByteStream)
        self._inner.close()

    async def aclose(self) -> None:
        assert isinstance(self._inner, httpx2.AsyncByteStream)
        await self._inner.aclose()
