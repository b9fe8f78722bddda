"""Sites: one replica a module, each in its marketplace's shape."""

from collections.abc import Mapping

from demo.replicas.site import Site
from demo.sites.deepnlp import DeepNlp
from demo.sites.docker import Docker
from demo.sites.files import Files
from demo.sites.glama import Glama
from demo.sites.mcphub import McpHub
from demo.sites.mcpso import McpSo
from demo.sites.pipedream import Pipedream
from demo.sites.pulsemcp import PulseMcp
from demo.sites.registry import Registry
from demo.sites.smithery import Smithery

_SITES: tuple[type[Site], ...] = (
    *(Registry, McpSo, Smithery, Glama, PulseMcp),
    *(McpHub, DeepNlp, Pipedream, Docker, Files),
)
REPLICAS: Mapping[str, type[Site]] = {site.name: site for site in _SITES}
