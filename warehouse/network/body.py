"""Bodies of answers, decoded within a bound: gzip makes a thousandfold of what was sent."""

import zlib
from collections.abc import AsyncIterator, Iterator

import httpx2

ENCODINGS = "gzip, deflate"  # that are decoded here, as Accept-Encoding names them
_EITHER = 47  # zlib's window bits for gzip or zlib, whichever it is


class BodyTooLarge(httpx2.DecodingError):
    """The body of an answer is more than the bytes that were allowed, decoded."""


class BodyReader:
    """Decodes one body part by part, never holding more than `most` bytes of it."""

    def __init__(self, encoding: str, most: int) -> None:
        named = encoding.strip().lower()
        self._inflate = zlib.decompressobj(_EITHER) if named in ENCODINGS.split(", ") else None
        self._most, self._size = most, 0

    @property
    def decodes(self) -> bool:
        """Whether it knows the encoding; the body passes as it is where it does not."""
        return self._inflate is not None

    def read(self, part: bytes) -> bytes:
        """What the part holds. Raises BodyTooLarge, and DecodingError for what cannot be read."""
        room = self._most + 1 - self._size
        try:
            data = self._inflate.decompress(part, room) if self._inflate else part
        except zlib.error as error:
            raise httpx2.DecodingError(str(error)) from error
        self._size += len(data)
        if self._size > self._most:
            raise BodyTooLarge(f"more than {self._most:,} bytes")
        return data

    def finish(self) -> None:
        """Raises DecodingError where the body was cut."""
        if self._inflate is not None and not self._inflate.eof:
            raise httpx2.DecodingError(f"cut after {self._size:,} bytes")


def bound_response(response: httpx2.Response, most: int) -> httpx2.Response:
    """The response of a transport with its body decoded within `most` bytes; reading raises
    BodyTooLarge."""
    reader = BodyReader(response.headers.get("content-encoding", ""), most)
    dropped = ("content-encoding", "content-length") if reader.decodes else ()
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
