"""What is remembered of answers that were made of several."""

from typing import Any

from extensions.proxy.tool_search import ContinuedAnswers


def resume(answers: ContinuedAnswers, shown: str) -> Any:
    return answers.resume_request({"previous_response_id": shown, "input": "go on"})


def test_a_continued_answer_is_put_into_the_words_of_the_upstream() -> None:
    answers = ContinuedAnswers()
    answers.note_answer("first", "last", [{"type": "tool_search_output"}])
    answers.note_answer("same", "same", [])
    answers.note_answer(None, "last", [{}])
    said = {"role": "user", "content": "go on"}
    assert resume(answers, "first") == {
        "previous_response_id": "last",
        "input": [{"type": "tool_search_output"}, said],
    }
    assert resume(answers, "same")["input"] == "go on"


def test_the_oldest_are_forgotten_by_count_and_by_bytes() -> None:
    answers = ContinuedAnswers(most=2)
    for name in ("a", "b", "a", "c"):
        answers.note_answer(name, "last", [])
    kept = [resume(answers, name)["previous_response_id"] for name in ("a", "b", "c")]
    assert kept == ["last", "b", "last"]
    answers = ContinuedAnswers(most_bytes=1_000)
    for at in range(20):
        answers.note_answer("again", "last", [{"text": "x" * 300}])
        answers.note_answer(str(at), "last", [{"text": "x" * 300}])
    kept = [resume(answers, name)["previous_response_id"] for name in ("17", "18", "19")]
    assert kept == ["17", "last", "last"]
    assert resume(answers, "again")["previous_response_id"] == "last"
    answers.note_answer("long", "last", [{"text": "x" * 2_000}])
    assert resume(answers, "long")["input"] == "go on"
    assert resume(answers, "again")["previous_response_id"] == "last"
