"""What the options of the command `proxy` open: models, indexes, examples."""

from pathlib import Path
from typing import TYPE_CHECKING

from orchestration.cli.terminal import fail, print_line

if TYPE_CHECKING:
    from extensions.proxy.auto_tools import ToolChooser
    from extensions.proxy.examples.book import ExampleBook
    from extensions.proxy.local.upstream import LocalUpstream
    from extensions.proxy.revise.revising import Reviser
    from extensions.proxy.search.searching import ToolSearch
    from serving.router import ServedRouter

CHAMPION, LOCAL = "champion", "local:"


def open_local(model: str, waiting: int, book: "ExampleBook | None") -> "LocalUpstream":
    """The champion caller or the one that is named, loaded now."""
    from extensions.proxy.local.upstream import LocalUpstream
    from extensions.proxy.local_model.caller import LocalCaller
    from orchestration.cli.models.predictors import load_caller
    from orchestration.settings.load import load_settings
    from training.releases.in_service import find_model_in_service

    settings = load_settings()
    if model == CHAMPION:
        found = find_model_in_service(settings.home_path(), "caller")
        model = found.model
        if found.notice:
            print_line(found.notice, err=True)
    return LocalUpstream(LocalCaller(load_caller(settings, model)), waiting, book)


def open_examples(
    n: int, folder: Path | None, chooser: "ToolChooser | None"
) -> "ExampleBook | None":
    """Compared by the encoder of the index where there is one, else by words."""
    from extensions.proxy.examples.book import ExampleBook, read_examples

    if not n and folder is None:
        return None
    if not n or folder is None:
        fail("--examples N and --examples-from EXPORT go together", 2)
    return ExampleBook(read_examples(folder), n, chooser.embed_texts if chooser else None)


def open_reviser(name: str, at: str, upstream: str, key: str, timeout_s: float) -> "Reviser":
    """A model of the endpoint `at`, "" of the upstream, or with `local:` a sidecar that runs here,
    loaded now: `champion`, its name or its folder."""
    from extensions.proxy.revise.endpoint import UpstreamReviser
    from extensions.proxy.revise.revising import Reviser, guard_model
    from extensions.proxy.settings import ProxySettings

    if not name.startswith(LOCAL):
        base = ProxySettings(at or upstream).find_base()
        revise = UpstreamReviser(base, name, key, timeout_s, upstream=upstream)
        return Reviser(name, revise, timeout_s)
    from orchestration.cli.models.predictors import open_reviser as load_reviser
    from orchestration.settings.load import load_settings

    name = name.removeprefix(LOCAL)
    return Reviser(name, guard_model(load_reviser(load_settings(), name)), timeout_s)


def open_served(place: Path) -> "ServedRouter":
    """What a place serves; one without an index is told now, not to the first client."""
    from orchestration.settings.load import allow_models, load_settings
    from serving.export import open_checked
    from serving.router import ServedRouter

    allow_models(load_settings())
    served = ServedRouter(place, open_checked())
    served.current()
    return served


def make_chooser(served: "ServedRouter", candidates: int) -> "ToolChooser":
    """Picks the tools where a request leaves them to the router."""
    from extensions.proxy.auto_tools import ToolChooser

    return ToolChooser(served, candidates)


def make_search(served: "ServedRouter | None", candidates: int, rounds: int) -> "ToolSearch":
    """Answers the searches for tools that models make."""
    from extensions.proxy.search.searching import ToolSearch

    return ToolSearch(served, candidates, rounds)
