"""Calls: a tool of a server that the index knows, run in the sandbox or asked elsewhere."""

from assets.contracts.repair.problems import find_problems
from assets.servers.calls.caller import Caller
from assets.servers.calls.result import CALL_KINDS, CallLimits, CallResult

__all__ = ["CALL_KINDS", "CallLimits", "CallResult", "Caller", "find_problems"]
