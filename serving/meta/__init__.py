"""The meta-server: one MCP server through which a model finds, reads and calls tools of all others.

make_server(router, caller, policy, outcomes)            the server itself
run_stdio(router, caller, policy, outcomes)              until the client leaves
run_http(router, caller, policy, outcomes, HttpSettings) until it is told to end
"""

from serving.meta.access_control import build_token, make_token, read_tokens
from serving.meta.policy import HttpSettings, MetaPolicy, Token, TokenError
from serving.meta.server import make_server
from serving.meta.transports import run_http, run_stdio

__all__ = [
    "HttpSettings",
    "MetaPolicy",
    "Token",
    "TokenError",
    "build_token",
    "make_server",
    "make_token",
    "read_tokens",
    "run_http",
    "run_stdio",
]
