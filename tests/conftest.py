"""Fixtures shared by all tests: a data folder of their own and no settings from the shell."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from hypothesis import settings

from assets.vectors.encoders import minilm
from assets.vectors.encoders.weights import BASE
from tests.support.examples import FEW
from warehouse.store import Warehouse

# The same examples every time, and none that fails for being slow on a busy machine; `make
# test-all` draws new ones, and more of them.
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=FEW)
settings.register_profile("random", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True)
def no_settings_from_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TOOLMILL_", "OPENAI_")) or name == "DAGSTER_HOME":
            monkeypatch.delenv(name)


@pytest.fixture(scope="session", autouse=True)
def migrations_read_once() -> Iterator[None]:
    """Each ephemeral Dagster instance reads all of Dagster's migration scripts: 57 of its 81 ms."""
    read, known = ScriptDirectory.from_config, dict[str | None, ScriptDirectory]()

    def read_once(config: Config) -> ScriptDirectory:
        return known.setdefault(config.get_main_option("script_location"), read(config))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", read_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def graphs_built_once() -> Iterator[None]:
    """An ONNX file of MiniLM takes .8 s to build, and most tests of an index open one twice."""
    build, known = minilm._build_session, dict[object, tuple[str, bytes]]()

    def build_once(adapter: Path | None, *how: object) -> tuple[str, bytes]:
        files = sorted(adapter.glob("*")) if adapter else []
        if how[-1] != BASE or not all(file.is_file() for file in files):
            return build(adapter, *how)  # type: ignore[arg-type]
        key = (adapter and tuple((file.name, file.read_bytes()) for file in files), *how)
        if key not in known:
            known.clear()  # one file is 90 MB
            known[key] = build(adapter, *how)  # type: ignore[arg-type]
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minilm, "_build_session", build_once)
        yield


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(home=tmp_path / "home", state=tmp_path / "state")


@pytest.fixture(scope="session")
def honest_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of `home` and `state` after a first run over honest servers; tests copy it."""
    from tests.contracts.pipeline import Pipeline, honest_servers

    root = tmp_path_factory.mktemp("honest")
    made = Pipeline(Warehouse(home=root / "home", state=root / "state"))
    made.deploy(honest_servers())
    made.run_nightly()
    return root
