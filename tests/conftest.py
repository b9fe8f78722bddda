"""Fixtures shared by all tests: a data folder of their own and no settings from the shell."""

import gc
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.testing
from alembic.config import Config
from alembic.script import ScriptDirectory
from dagster._core.storage.event_log import InMemoryEventLogStorage, in_memory
from dagster._core.storage.event_log.schema import AssetKeyTable, SqlEventLogStorageMetadata
from httpx2._config import DEFAULT_TIMEOUT_CONFIG
from httpx2._transports import default as transports
from hypothesis import HealthCheck, settings
from sqlalchemy import Connection, Engine

from tests.support.encoders import build_graphs_once, open_models_once
from tests.support.examples import FEW
from warehouse.storage.files import hold_lock
from warehouse.store import Warehouse

# The same examples every time, and none that fails for being slow on a busy machine; `make
# test-all` draws new ones, and more of them.
UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fixed", derandomize=True, max_examples=FEW, **UNTIMED)
settings.register_profile("random", **UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# Imports and 10,000 collected tests are kept anyway: looking through them for garbage again and
# again is 9 of the 25 core-seconds that collecting takes each worker.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


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
def tables_known_beforehand() -> Iterator[None]:
    """An ephemeral Dagster instance asks its database in memory with every event for a journal and
    its columns, and compiles each statement anew: 130 of 460 ms a run of six empty assets."""

    @contextmanager
    def connect(self: InMemoryEventLogStorage) -> Iterator[Connection]:
        with self._db_lock, self._engine.connect() as connection, connection.begin():
            yield connection

    def has_table(_: object, name: str) -> bool:
        return name in SqlEventLogStorageMetadata.tables

    def has_column(_: object, __: Connection, name: str) -> bool:
        return name in AssetKeyTable.columns

    def create_engine(*args: object, **options: object) -> Engine:
        engine = make(*args, **options)  # type: ignore[arg-type]
        first = known.setdefault("first", engine)
        engine.dialect, engine._compiled_cache = first.dialect, first._compiled_cache
        return engine

    make, known = in_memory.create_engine, dict[str, Engine]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_memory, "create_engine", create_engine)
        patch.setattr(InMemoryEventLogStorage, "_connect", connect)
        patch.setattr(InMemoryEventLogStorage, "has_table", has_table)
        patch.setattr(InMemoryEventLogStorage, "_has_asset_key_col_on_connection", has_column)
        yield


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this test run see; what is in it goes with the run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def encoders_made_once(shared_folder: Path) -> Iterator[None]:
    with build_graphs_once(shared_folder), open_models_once():
        yield


@pytest.fixture(scope="session")
def small_caller(shared_folder: Path) -> Path:
    """A causal model of two narrow layers that writes calls, made once in a test run."""
    from tests.support.small_caller import save_small_caller

    folder = shared_folder / "small_caller"
    with hold_lock(shared_folder / "small_caller.lock"):
        if not (folder / "tokenizer.json").exists():
            save_small_caller(folder)
    return folder


@pytest.fixture(scope="session", autouse=True)
def authorities_read_once() -> Iterator[None]:
    """Each HTTP client of a test reads all certificate authorities: 24 ms, for plain loopback."""
    make, known = transports.create_ssl_context, dict[object, ssl.SSLContext]()

    def make_once(verify: object = True, cert: object = None, trust_env: bool = True) -> object:
        if verify is not True or cert is not None:
            return make(verify, cert, trust_env)  # type: ignore[arg-type]
        key = (trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        return known[key] if key in known else known.setdefault(key, make(trust_env=trust_env))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transports, "create_ssl_context", make_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def commands_built_once() -> Iterator[None]:
    """Each command that a test invokes builds all 190 of them first: 17 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(typer.testing._get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_default_timeout() -> Iterator[None]:
    """A client that says nothing gives up after 5 s, which a starved worker passes."""
    with pytest.MonkeyPatch.context() as patch:
        for part in ("connect", "read", "write", "pool"):
            patch.setattr(DEFAULT_TIMEOUT_CONFIG, part, 60.0)
        yield


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(home=tmp_path / "home", state=tmp_path / "state")


@pytest.fixture(scope="session")
def honest_root(shared_folder: Path) -> Path:
    """Folder of `home` and `state` after a first run over honest servers; tests copy it.

    Made once for all workers.
    """
    root = shared_folder / "honest"
    with hold_lock(shared_folder / "honest.lock"):
        if not root.exists():
            _make_honest_root(shared_folder / "honest.part").rename(root)
    return root


@pytest.fixture
def pipeline(warehouse: Warehouse) -> Iterator[Any]:
    """The real assets over one marketplace, empty at first."""
    from tests.contracts.pipeline import Pipeline

    yield Pipeline(warehouse)
    warehouse.ledger.close()


def _make_honest_root(root: Path) -> Path:
    from tests.contracts.pipeline import Pipeline, honest_servers

    made = Pipeline(Warehouse(home=root / "home", state=root / "state"))
    made.deploy(honest_servers())
    made.run_nightly()
    made.warehouse.ledger.close()
    return root


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Pytest collects garbage five times at its end: 2 s over what the imports and tests left."""
    gc.freeze()
