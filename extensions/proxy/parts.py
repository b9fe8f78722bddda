"""What a proxy may have besides its upstream, each part by itself."""

from dataclasses import dataclass

from extensions.proxy.auto_tools import ToolChooser
from extensions.proxy.examples.book import ExampleBook
from extensions.proxy.local.upstream import LocalUpstream
from extensions.proxy.revise.revising import Reviser
from extensions.proxy.search.searching import ToolSearch


@dataclass(frozen=True)
class ProxyParts:
    """chooser: picks tools where `tools` is "auto". local: a model that runs here; without an
    upstream it answers everything, beside one it writes the first call of a conversation. reviser:
    rewrites calls that the ladder leaves. examples: put into the prompts that go to the upstream
    (the local model has its own). search: answers the searches for tools that a model makes."""

    chooser: ToolChooser | None = None
    local: LocalUpstream | None = None
    reviser: Reviser | None = None
    examples: ExampleBook | None = None
    search: ToolSearch | None = None
