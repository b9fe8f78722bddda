"""The proxy before a scripted upstream, and the SDK's client of it; a module may have its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from tests.extensions.proxy.upstream_script import Running, run_proxied
from tests.serving.meta_server import publish


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with run_proxied() as proxied:
        yield proxied


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{running.url}/v1", api_key="sk-upstream", max_retries=0) as opened:
        yield opened


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("index")
    publish(place)
    return place
