"""The catalogue, one untrusted server at a time: each is contained and has its kind."""

import json

import psutil
import pytest

from assets.contracts.canonical import index_contracts
from assets.servers.probe.failure_kinds import KINDS
from tests.hostile.eaters import EATERS
from tests.hostile.lists import LISTS
from tests.hostile.wire import WIRE
from tests.support.untrusted_server import probe_source, require_sandbox, tool_names

CASES = {**WIRE, **LISTS, **EATERS}


@pytest.fixture(autouse=True)
def sandbox():
    require_sandbox()


@pytest.mark.parametrize("name", CASES)
def test_it_is_contained_and_classified(name, tmp_path):
    case = CASES[name]
    # Clocks for those alone that they are to end: 20,000 notifications took over 1.5 s once.
    start_s = 4.0 if case.kind == "timeout_start" else 60.0
    list_s = case.list_s if case.kind else 60.0
    result = probe_source(tmp_path, case.source, list_s, start_s, **case.limits)
    assert result.error_kind == case.kind, result.hint
    if case.kind:
        assert (result.status, result.tools) == ("failed", [])
        assert case.kind in KINDS
        assert result.hint
    else:
        assert (result.status, tool_names(result)) == ("ok", list(case.tools))
        index_contracts(result.tools)  # whatever it listed, it does no harm here
    json.dumps(result.tools, allow_nan=False)
    assert len(result.stderr_tail) <= 2000
    assert not any(ord(char) < 32 and char not in "\n\t" for char in result.stderr_tail)
    assert no_process_is_left()


def no_process_is_left() -> bool:
    """No untrusted server is among our children any more, and no zombie."""
    ours = psutil.Process()
    for process in ours.children(recursive=True):
        try:
            if process.status() == psutil.STATUS_ZOMBIE or "untrusted.py" in process.cmdline():
                return False
        except psutil.NoSuchProcess:
            continue
    return True
