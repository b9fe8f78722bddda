"""Plain objects out of settings: stores, policies, writers, trainers. Without Dagster, and each
import where it is needed: a command that only reads the ledger starts in half a second."""

import shutil
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from assets.marketplaces.installed import list_installed
from assets.marketplaces.listing import PRIVATE
from orchestration.settings.load import allow_models
from orchestration.settings.model import Settings
from orchestration.settings.sections import derive_policy, get_section
from warehouse.extensions import SETTINGS, load_extensions
from warehouse.home import require_home
from warehouse.ledger.database import find_url
from warehouse.network.egress import is_loopback
from warehouse.store import Warehouse

if TYPE_CHECKING:
    from assets.marketplaces.policy import CrawlPolicy
    from assets.outcomes.plan import ExecutionSetup
    from assets.outcomes.proof import WorldTasks
    from assets.servers.deploy.policy import MarketplaceLauncher
    from assets.synthesis.writing.writer import PairWriter
    from assets.vectors.encoders.embedder import Embedder
    from training.policies import TrainerPolicy
    from training.settings import RetrainPolicy
    from warehouse.llm.client import Role

_COOL_DOWN_H = 20.0
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")


def open_warehouse(settings: Settings, run_id: str = "-") -> Warehouse:
    """The stores of the configured home; no file is touched until one is used."""
    return Warehouse(
        home=settings.home_path(),
        state=settings.state_path(),
        run_id=run_id,
        budget_usd=settings.budget_usd,
        ledger_url=find_url(),
    )


def open_made_warehouse(settings: Settings) -> Warehouse:
    """`open_warehouse` for those who only look. Raises HomeUnavailable where there is none yet."""
    require_home(settings.home_path())
    return open_warehouse(settings)


def list_enabled(settings: Settings) -> list[str]:
    """The marketplaces that are crawled, in the order of their priority."""
    enabled = [name for name in list_installed() if _is_wanted(settings, name)]
    return sorted(enabled, key=lambda name: settings.marketplaces.of(name).priority)


def _is_wanted(settings: Settings, name: str) -> bool:
    market = settings.marketplaces.of(name)
    if not market.enabled:
        return False
    if name == PRIVATE or settings.source == "live":  # without a file it has no rows
        return True
    from demo.world.catalogue import list_sites

    return name in list_sites(settings.demo.scale)


def find_base_url(settings: Settings, marketplace: str) -> str:
    """Where a marketplace is read: its live site, or its replica on loopback."""
    port = settings.demo.ports().get(marketplace)
    if settings.source == "live" or port is None:
        return settings.marketplaces.of(marketplace).base_url
    return f"http://127.0.0.1:{port}"


def make_crawl_policies(settings: Settings) -> "dict[str, CrawlPolicy]":
    """How each marketplace is crawled."""
    return {name: make_crawl_policy(settings, name) for name in list_installed()}


def make_crawl_policy(settings: Settings, name: str) -> "CrawlPolicy":
    """How one marketplace is crawled.

    A replica on loopback is somebody's own: it needs no politeness, and takes the demo's keys.
    """
    from assets.marketplaces.policy import CrawlPolicy
    from assets.servers.sandbox.contained_browser import open_browser_sandbox

    market = settings.marketplaces.of(name)
    url = find_base_url(settings, name)
    demo = is_loopback(urlsplit(url).hostname or "")
    keys = market.keys()
    if demo:
        from demo.world.record import KEYS

        keys = {**KEYS.get(name, {}), **keys}
    chromium = settings.chromium or find_chromium()
    return derive_policy(
        CrawlPolicy,
        market,
        base_url=url,
        site_url=url if demo and market.site_url else market.site_url,
        user_agent=settings.user_agent,
        keys=keys,
        paths=tuple(path.expanduser() for path in market.paths),
        requests_per_second=0.0 if demo else market.requests_per_second,
        allow_loopback=demo,
        chromium=str(chromium) if chromium else None,
        contain=None if settings.sandbox.backend == "none" else open_browser_sandbox,
    )


def make_launcher(settings: Settings) -> "MarketplaceLauncher":
    """How servers are run, and how many at once."""
    from assets.servers.deploy.policy import MarketplaceLauncher
    from orchestration.settings.deploy_policy import make_deploy_policy
    from warehouse.fleet import open_fleet

    policy = make_deploy_policy(settings)
    return MarketplaceLauncher(policy, settings.sandbox.concurrency, open_fleet(settings.fleet))


def make_executor(settings: Settings) -> "ExecutionSetup":
    """How accepted calls are executed. A world file that cannot be used costs the others nothing:
    `toolmill worlds` tells of it. Raises WorldFileError for a folder that is not there."""
    from assets.outcomes.plan import ExecutionSetup
    from assets.outcomes.worlds.catalogue import list_worlds
    from orchestration.settings.deploy_policy import make_deploy_policy

    worlds = list_worlds(settings.world_paths())
    return ExecutionSetup(
        make_deploy_policy(settings),
        settings.executions,
        tuple(item.world for item in worlds if item.world and not item.problem),
        settings.sandbox.concurrency,
    )


def make_world_tasks(settings: Settings) -> "WorldTasks":
    """The tasks of worlds that pairs are made of, in the worlds that accepted calls are executed
    in. Raises WorldFileError for a folder that is not there."""
    from assets.outcomes.proof import WorldTasks

    worlds = make_executor(settings).worlds
    return WorldTasks(worlds, settings.executions.seed, settings.home_path() / "cache")


def make_embedder(settings: Settings) -> "Embedder":
    """The embedder of the settings as the nightly assets take it: on the scale that their bounds
    were chosen on, so without the shipped adapter. A trained one enters only with a release. Raises
    BadEmbedder, EmbeddingFailed.
    """
    chosen = settings.embedder
    model = "minilm" if chosen.model == "general" else chosen.model
    return _open_embedder(model, chosen.query_prompt, chosen.document_prompt)


def make_index_embedder(settings: Settings) -> "Embedder":
    """The embedder of the settings as it is, for an index. Raises BadEmbedder, EmbeddingFailed."""
    from assets.vectors.scale import get_plain

    chosen = settings.embedder
    return get_plain(_open_embedder(chosen.model, chosen.query_prompt, chosen.document_prompt))


@cache
def _open_embedder(spec: str, query: str | None, document: str | None) -> "Embedder":
    from assets.vectors.encoders.choose import open_embedder
    from assets.vectors.encoders.embedder import Prompts
    from assets.vectors.encoders.hub import allow_embedder
    from assets.vectors.encoders.weights import BASE
    from assets.vectors.scale import ScaledEmbedder

    allow_embedder(spec)
    embedder = open_embedder(spec, prompts=Prompts(query, document))
    return embedder if embedder.id.startswith(BASE) else ScaledEmbedder(embedder)


def make_writer(settings: Settings) -> "PairWriter":
    """Who writes and judges pairs, and how."""
    from assets.synthesis.writing.writer import PairWriter

    return PairWriter(
        roles=tuple(_make_role(settings, name) for name in type(settings.roles).model_fields),
        policy=settings.synthesis,
        approved=settings.marketplaces.private.approved,
        open_retriever=partial(_open_general, settings.embedder.model),
    )


def _open_general(model: str) -> "Embedder | None":
    """The shipped retriever; None where another model was chosen, on whose scale nothing was
    measured."""
    return _open_embedder("general", None, None) if model == "general" else None


def make_trainer(settings: Settings) -> "TrainerPolicy":
    """What is trained, on which split, for how long, and how it is measured."""
    from assets.vectors.encoders.hub import SENTENCE
    from training.evaluation.caller_items import TestPlan
    from training.policies import TrainerPolicy
    from training.retriever.settings import NONE, RetrieverSettings
    from training.retriever.train import resolve_start
    from training.sets.split import SetPolicy

    allow_models(settings)
    chosen, embedder = settings.training, settings.embedder
    # A user who chose a model expects that one to get better; an endpoint's cannot be trained.
    trains_embedder = embedder.model.startswith(SENTENCE)
    retriever = derive_policy(
        RetrieverSettings,
        chosen.retriever,
        start=resolve_start("minilm") if embedder.model == "general" else NONE,
        device=chosen.device,
        seed=chosen.seed,
        query_prompt=embedder.query_prompt if trains_embedder else None,
        document_prompt=embedder.document_prompt if trains_embedder else None,
    )
    return TrainerPolicy(
        retriever=retriever,
        retriever_base=embedder.model if trains_embedder else "minilm",
        caller=chosen.caller.resolve(device=chosen.device, seed=chosen.seed),
        caller_base=chosen.caller.base,
        options={
            name.removeprefix("training."): get_section(settings, name)
            for name in load_extensions(SETTINGS)
            if name.startswith("training.")
        },
        device=chosen.device,
        seed=chosen.seed,
        split=derive_policy(SetPolicy, chosen.split),
        caller_test=TestPlan().limit_items(chosen.evaluation.items),
        drift=_choose_cool_down(settings),
        releases=chosen.releases,
        promotion=chosen.promotion,
        curriculum=chosen.curriculum,
        unverified=settings.serve.unverified,
        search_from=settings.serve.search_from,
    )


def _choose_cool_down(settings: Settings) -> "RetrainPolicy":
    """Where no cool-down is set: none in the demo, whose days are minutes apart; else less than a
    day, so that every nightly run may train and none that a marketplace's late run follows."""
    chosen = settings.training.drift
    if chosen.cool_down_h is not None:
        return chosen
    return replace(chosen, cool_down_h=0.0 if settings.source == "demo" else _COOL_DOWN_H)


def _make_role(settings: Settings, name: str) -> "Role":
    from warehouse.llm.client import Role

    role = getattr(settings.roles, name)
    return derive_policy(
        Role,
        role,
        name=name,
        base_url=role.base_url or settings.openai_base_url,
        api_key=role.api_key or settings.openai_api_key,
    )


def find_chromium() -> Path | None:
    binary = next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)
    return Path(binary) if binary else None
