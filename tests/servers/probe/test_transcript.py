"""What a session is given of the answers that came over the wire."""

from typing import Any

import pytest

from assets.servers.probe.failure_kinds import ProbeFailure
from assets.servers.probe.transcript import MessageFilter, ProbeEvidence, classify_evidence


@pytest.mark.parametrize("method", ["initialize", "tools/list"])
@pytest.mark.parametrize(("result", "kind"), [("x", "str"), ([1], "list"), (None, "NoneType")])
def test_a_result_of_the_wrong_type_is_named_and_no_noise(
    method: str, result: object, kind: str
) -> None:
    listener = MessageFilter()
    listener.note_request({"id": 2, "method": method})
    listener.take({"jsonrpc": "2.0", "id": 2, "result": result})
    ended = ProbeEvidence(listener.transcript, ProbeFailure("timeout_list", "30 s"), answered=True)
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
    listener = MessageFilter()
    listener.note_request({"id": 2, "method": method})
    listener.take({"jsonrpc": "2.0", "id": 2, **answer})
    assert listener.transcript.broken is None


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        ({"error": {"code": "ENOENT", "message": "no file"}}, -32603, "no file"),
        ({"error": {"code": -32000}}, -32000, "an error without a message"),
        ({"error": {"code": 7.0, "message": {"why": "é"}}}, 7, '{"why": "é"}'),
        ({"error": {"code": True, "message": "x"}}, -32603, "x"),
        ({"error": "boom"}, -32603, "boom"),
        ({"error": ["boom"], "result": {}}, -32603, '["boom"]'),
    ],
)
def test_an_error_of_odd_form_is_an_answer_all_the_same(
    answer: dict, code: int, message: str
) -> None:
    listener = MessageFilter()
    listener.note_request({"id": 2, "method": "tools/call"})
    taken = listener.take({"jsonrpc": "2.0", "id": 2, **answer})
    assert taken == {"jsonrpc": "2.0", "id": 2, "error": {"code": code, "message": message}}
    assert listener.transcript.errors[-1] == (code, message)


@pytest.mark.parametrize("result", [None, [1], "x"])
def test_a_result_that_is_no_object_ends_its_call_and_is_no_error_of_the_server(result) -> None:
    listener = MessageFilter()
    listener.note_request({"id": 2, "method": "tools/call"})
    taken = listener.take({"jsonrpc": "2.0", "id": 2, "result": result})
    kind = type(result).__name__
    assert taken is not None
    assert taken["error"]["message"] == f"the result is {kind}, expected an object"
    assert not listener.transcript.errors


@pytest.mark.parametrize("error", [None, False, {}, ""])
def test_an_error_of_nothing_beside_a_result_is_none(error: Any) -> None:
    listener = MessageFilter()
    listener.note_request({"id": 2, "method": "tools/call"})
    answer = {"jsonrpc": "2.0", "id": 2, "result": {"content": []}, "error": error}
    assert listener.take(answer) == {"jsonrpc": "2.0", "id": 2, "result": {"content": []}}
