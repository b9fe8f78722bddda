"""The port of each replica on loopback, unless another is set."""

from collections.abc import Mapping

PORTS: Mapping[str, int] = {
    "registry": 8931,
    "mcpso": 8932,
    "files": 8933,
    "smithery": 8934,
    "glama": 8935,
    "pulsemcp": 8936,
    "mcphub": 8937,
    "deepnlp": 8938,
    "pipedream": 8939,
    "docker": 8940,
}
