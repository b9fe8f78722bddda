"""What a session is given of the answers that came over the wire."""

import pytest

from assets.servers.probe.classify import Evidence, classify_evidence
from assets.servers.probe.failure_kinds import Failure
from assets.servers.probe.transcript import Listener


@pytest.mark.parametrize("method", ["initialize", "tools/list"])
@pytest.mark.parametrize(("result", "kind"), [("x", "str"), ([1], "list"), (None, "NoneType")])
def test_a_result_of_the_wrong_type_is_named_and_no_noise(
    method: str, result: object, kind: str
) -> None:
    listener = Listener()
    listener.note_request({"id": 2, "method": method})
    listener.take({"jsonrpc": "2.0", "id": 2, "result": result})
    ended = Evidence(listener.transcript, Failure("timeout_list", "30 s"), answered=True)
    found = classify_evidence(ended)
    assert found is not None
    assert found.kind == "protocol_error"
    assert found.detail == f"the result of `{method}` is {kind}, expected an object"


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("tools/list", {"result": {"tools": []}}),
        ("tools/list", {"error": {"code": -32601, "message": "no"}}),
        ("prompts/list", {"result": "x"}),
    ],
)
def test_other_answers_end_no_conversation(method: str, answer: dict) -> None:
    listener = Listener()
    listener.note_request({"id": 2, "method": method})
    listener.take({"jsonrpc": "2.0", "id": 2, **answer})
    assert listener.transcript.broken is None
