"""Calls: a tool of a server that the index knows, run in the sandbox or asked elsewhere.

What belongs here: what others take from this package. What does not: how it is done.
"""

from assets.contracts.repair.problems import problems_of
from assets.servers.calls.caller import Caller
from assets.servers.calls.result import CALL_KINDS, CallLimits, CallResult

__all__ = ["CALL_KINDS", "CallLimits", "CallResult", "Caller", "problems_of"]
