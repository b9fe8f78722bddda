"""Failures that answers tell without `isError`, by an HTTP status, as many services do."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.outcomes.outcome import classify_outcome
from assets.servers.calls.result import CallResult

URL = {"url": "https://shop.example/api/things/9"}
PROBLEM = {"type": "about:blank", "title": "Conflict", "status": 409, "detail": "edited meanwhile"}


def classify(text: str, arguments=URL):
    return classify_outcome(CallResult("ok", [{"type": "text", "text": text}]), arguments)


@pytest.mark.parametrize(
    ("text", "blame"),
    [
        # Spring Boot, NestJS, GitHub, RFC 9457, Django REST, API Gateway, JSON:API-like, Elastic
        ('{"timestamp":"2026-01-01","status":500,"error":"Internal Server Error","path":"/x"}',
         "upstream"),
        ('{"statusCode":503,"message":"Service Unavailable"}', "upstream"),
        ('{"message":"Not Found","documentation_url":"https://d.example","status":"404"}',
         "caller"),
        (json.dumps(PROBLEM), "caller"),
        ('{"status_code":429,"headers":{"retry-after":"3"},"text":""}', "upstream"),
        ('{"statusCode":502,"body":"{\\"message\\":\\"x\\"}","headers":{}}', "upstream"),
        ('{"request":{"url":"/x"},"response":{"status":401,"statusText":"Unauthorized"}}',
         "credentials"),
        ('{"status":404,"error":{"type":"index_not_found_exception"},"message":"no such index"}',
         "caller"),
        # curl -i, HTTPie, gateways' pages, MCP servers' own reports
        ("HTTP/1.1 500 Internal Server Error\r\nServer: x\r\n\r\nboom", "upstream"),
        ("HTTP/2 404 \ncontent-type: text/plain\n\nnothing here", "caller"),
        ("Status: 500 Internal Server Error\nHeaders: {}\n\nBody: x", "upstream"),
        ("**Status Code:** 503\n\n```\n```", "upstream"),
        ("URL: https://shop.example\nHTTP Status: 403 Forbidden\n", "credentials"),
        ("<html><head><title>502 Bad Gateway</title></head><body></body></html>", "upstream"),
        ("404 Not Found\nnginx", "caller"),
        ("Internal Server Error", "upstream"),
    ],
)  # fmt: skip
def test_a_failed_response_is_no_useful_answer(text, blame):
    found = classify(text)
    assert (found.kind, found.blame) == ("tool_error", blame)
    assert found.evidence.startswith("without isError: ")


@pytest.mark.parametrize(
    "text",
    [
        '{"status":200,"headers":{},"body":"500"}',
        '{"id":404,"name":"Not Found","genre":"band"}',
        '{"order":{"code":412,"status":"shipped"}}',
        '{"code":500,"currency":"CLP","amount":12}',
        '{"url":"https://x.example","status":500,"latency_ms":30}',  # what a monitor is asked for
        '[{"url":"https://x.example","status":500}]',
        '{"status":true,"message":"saved"}',
        "Status: 450 of 900 rows done",
        "status: 404 lines",
        "HTTP/1.1 200 OK\ncontent-length: 3\n\n500",
        "500 grams of flour, two eggs",
        "412 Rue du Port, Lyon",
        "An answer of 500 Internal Server Error means that the server failed.",
        "GET /a 200\nGET /b 500\nGET /c 404",
        "<html><head><title>The 404 bus</title></head><body>It runs hourly.</body></html>",
        "<html><head><title>What 500 Internal Server Error means</title></head></html>",
    ],
)
def test_a_number_that_is_no_status_is_no_failure(text):
    assert classify(text).kind == "useful"


def test_a_client_error_is_the_callers_only_where_the_call_says_what_is_asked_for():
    text = '{"status":404,"statusText":"Not Found","headers":{}}'
    assert classify(text).blame == "caller"
    assert classify(text, {"endpoint": "/api/things/9"}).blame == "caller"
    assert classify(text, {"city": "Lyon"}).blame == "upstream"


@given(st.text(max_size=200) | st.from_regex(r"(HTTP/1.1 |status: )?[45]\d\d .{0,40}"))
def test_no_text_stops_it(text):
    assert classify(text).kind in ("useful", "empty", "tool_error")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=9),
                    lambda one: st.dictionaries(st.sampled_from(["status", "code", "body", "x"]),
                                                one, max_size=4), max_leaves=12))  # fmt: skip
def test_no_json_stops_it(value):
    assert classify(json.dumps({"answer": value, "status": value})).kind in (
        *("useful", "empty", "tool_error"),
    )
