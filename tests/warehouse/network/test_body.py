"""Bodies of answers: within their bound whatever they are packed as."""

import gzip

import httpx2
import pytest

from warehouse.network.http import BodyReader, BodyTooLarge, bound_response

PACKED = gzip.compress(b"noon")


def read(parts: list[bytes], encoding: str = "gzip", most: int = 1_000) -> bytes:
    reader = BodyReader(encoding, most)
    body = b"".join(map(reader.read, parts))
    reader.finish()
    return body


def test_a_body_is_decoded_in_any_parts() -> None:
    assert read([PACKED]) == read([PACKED[at : at + 1] for at in range(len(PACKED))]) == b"noon"
    assert read([b"no", b"on"], "") == read([b"noon"], " Identity ") == b"noon"


def test_an_empty_body_of_any_encoding_is_empty() -> None:
    assert read([]) == read([b""]) == read([b""], "br") == b""


@pytest.mark.parametrize("encoding", ["gzip, identity", "gzip,", "gzip, gzip", "deflate", "br"])
def test_an_encoding_that_was_not_asked_for_is_refused(encoding: str) -> None:
    with pytest.raises(httpx2.DecodingError, match="content-encoding"):
        read([PACKED], encoding)
    held = httpx2.Response(200, headers={"content-encoding": encoding}, content=b"")
    assert "content-encoding" not in bound_response(held, 10).headers, "nobody decodes it again"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([PACKED, b"x"], "after the end"),
        ([PACKED + b"x"], "after the end"),
        ([PACKED[:-4]], "cut"),
        ([b"noon"], "header"),
    ],
)
def test_a_broken_body_is_refused(parts: list[bytes], message: str) -> None:
    with pytest.raises(httpx2.DecodingError, match=message):
        read(parts)


def test_the_bound_counts_what_is_decoded() -> None:
    assert len(read([gzip.compress(bytes(1_000))])) == 1_000
    with pytest.raises(BodyTooLarge, match="more than 1,000 bytes"):
        read([gzip.compress(bytes(1_001))])
