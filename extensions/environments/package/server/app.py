"""The server's application: `uvicorn toolmill_env.server.app:app`, or `python -m` this module."""

import argparse
import os

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from toolmill_env.server.environment import EpisodeState, ToolEnvironment, ToolObservation

app = create_app(
    ToolEnvironment,
    CallToolAction,
    CallToolObservation,
    env_name="toolmill_env",
    max_concurrent_envs=int(os.environ.get("TOOLENV_SESSIONS", "16")),
    state_cls=EpisodeState,
    reset_observation_cls=ToolObservation,
)


def main() -> None:
    """Serves on --host and --port."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    uvicorn.run(app, host=options.host, port=options.port)


if __name__ == "__main__":
    main()
