"""BFCL's verdict on calls, reproduced: the same answer, or an error kind where its checker raises.

Where the checker raises an exception the verdict is `checker_crash`; where one of its patterns
would run on, `checker_hang`; where the called function has no doc, `no_function_doc` (it raises
there too). None of them is a match.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from assets.contracts.match.match import MatchResult
from extensions.bench.bfcl_values import LANGUAGES, CheckerHangs, check_value

Call = Mapping[str, Any]
_RAISES = (
    *(LookupError, TypeError, AttributeError, ValueError, ArithmeticError),
    *(NotImplementedError, RecursionError),
)


class _NoDoc(TypeError):
    """The expected function is not among the docs; the checker raises a TypeError there."""


def match_bfcl(
    functions: Sequence[Any],
    truth: Sequence[Any],
    calls: Sequence[Any],
    *,
    language: str = "python",
    category: str | None = None,
) -> MatchResult:
    """BFCL's verdict on calls `{"name", "arguments"}`.

    functions: its docs `{"name", "parameters"}`. truth: per expected call `{name: {parameter: [its
    allowed values]}}`. category: BFCL's, which says what is asked ("parallel" or "multiple" in it;
    "irrelevance" and "relevance" need no truth); without one the counts of truth and docs tell.
    """
    if language not in LANGUAGES:
        raise ValueError(f"language {language!r}; known: {', '.join(LANGUAGES)}")
    category = category or _choose_shape(functions, truth)
    made = _decode_calls(calls)
    if "relevance" in category:
        return _judge_relevance(made, "irrelevance" in category)
    if made is None:
        return MatchResult(
            False, "not_an_object", tool=False, checker_error="decoder_wrong_output_format"
        )
    try:
        if "parallel" in category:
            return _match_parallel_calls(functions, made, truth, language)
        if "multiple" in category:
            if len(made) != len(truth):
                return _judge_count("multiple_function_checker", made, truth)
            doc = _find_doc(functions, _take_first(truth[0]))
            return _match_one_call(doc, made[0], truth[0], language)
        if len(made) != 1:
            return _judge_count("simple_function_checker", made, truth)
        return _match_one_call(functions[0], made[0], truth[0], language)
    except CheckerHangs:
        return MatchResult(False, "checker_hang", tool=False)
    except _RAISES as error:
        kind = "no_function_doc" if isinstance(error, _NoDoc) else "checker_crash"
        return MatchResult(False, kind, tool=False, checker_error=_describe_raised(error))


def _describe_raised(error: Exception) -> str:
    """What the checker would have raised."""
    name = "TypeError" if isinstance(error, _NoDoc) else type(error).__name__
    return f"{name}: {error}"[:120]


def build_truth(expected: Call) -> dict[str, Any]:
    """A call as BFCL writes its truth: each value, and each of an object's, in its own list."""
    arguments = expected.get("arguments")
    given = arguments if isinstance(arguments, Mapping) else {}
    return {
        str(expected.get("name")): {name: [_list_allowed(item)] for name, item in given.items()}
    }


def _list_allowed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: [item] for key, item in value.items()}
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return [_list_allowed(item) for item in value]
    return value


def _choose_shape(functions: Sequence[Any], truth: Sequence[Any]) -> str:
    if len(truth) != 1:
        return "parallel"
    return "multiple" if len(functions) > 1 else "simple"


def _decode_calls(calls: Any) -> list[tuple[Any, dict[str, Any]]] | None:
    """(name, arguments) of each call; None where one has no such form."""
    if not isinstance(calls, list | tuple):
        return None
    results = []
    for call in calls:
        if not isinstance(call, dict):
            return None
        name, given = call.get("name"), call.get("arguments")
        given = {} if given is None else given
        if not isinstance(name, str) or not isinstance(given, dict):
            return None
        results.append((name, given))
    return results


def _judge_relevance(made: Any, irrelevance: bool) -> MatchResult:
    """Anything that is no list of calls counts as no call at all."""
    if bool(made) is not irrelevance:
        return MatchResult(True, None)
    if irrelevance:
        word = "irrelevance_error:decoder_success"
        return MatchResult(False, "unwanted_call", tool=False, checker_error=word)
    word = "relevance_error:decoder_failed"
    return MatchResult(False, "no_call", tool=False, checker_error=word)


def _judge_count(checker: str, made: Sequence[Any], truth: Sequence[Any]) -> MatchResult:
    few = "too_few_calls" if made else "no_call"
    kind = few if len(made) < max(len(truth), 1) else "too_many_calls"
    return MatchResult(False, kind, tool=False, checker_error=f"{checker}:wrong_count")


def _find_doc(functions: Any, name: str) -> Any:
    if not isinstance(functions, list):
        return functions
    result = next((doc for doc in functions if doc["name"] == name), None)
    if result is None:
        raise _NoDoc
    return result


def _take_first(values: Any) -> Any:
    for value in values:
        return value
    raise IndexError("an expected call that names no function")


def _match_parallel_calls(
    functions: Any, made: Sequence[Any], truth: Sequence[Any], language: str
) -> MatchResult:
    """Each expected call takes the first call still free that fulfils it."""
    checker = "parallel_function_checker_no_order"
    if len(made) != len(truth):
        return _judge_count(checker, made, truth)
    free = list(range(len(made)))
    for expected in truth:
        doc = _find_doc(functions, _take_first(expected))
        results: list[MatchResult] = []
        for place in free:
            results.append(_match_one_call(doc, made[place], expected, language))
            if results[-1].match:
                free.remove(place)
                break
        else:
            return _describe_unmatched(results, checker)
    return MatchResult(True, None)


def _describe_unmatched(results: Sequence[MatchResult], checker: str) -> MatchResult:
    """The error of the call that came nearest."""
    nearest = max(results, key=lambda result: (result.tool, result.value_counts()[0]))
    word = f"{checker}:cannot_find_match"
    return MatchResult(False, nearest.error_kind, nearest.per_parameter, nearest.tool, word)


def _match_one_call(
    doc: Any, made: tuple[str, dict[str, Any]], truth: Any, language: str
) -> MatchResult:
    allowed = _take_first(truth.values())
    known, required = doc["parameters"]["properties"], doc["parameters"]["required"]
    name, given = made
    if doc["name"] != name:
        return _build_result("wrong_tool", "wrong_func_name", {}, tool=False)
    verdicts = dict.fromkeys(given, "unchecked")
    for parameter in required:
        if parameter not in given:
            verdicts[str(parameter)] = "missing"
            return _build_result("missing_parameter", "missing_required", verdicts)
    for parameter, value in given.items():
        if parameter not in known or parameter not in allowed:
            verdicts[parameter] = "extra"
            return _build_result("extra_parameter", "unexpected_param", verdicts)
        word = check_value(known[parameter], value, allowed[parameter], language)
        if word:
            kind = "wrong_type" if word.startswith("type_error") else "wrong_value"
            return MatchResult(False, kind, {**verdicts, parameter: kind}, checker_error=word)
        verdicts[parameter] = "match"
    for parameter in allowed:
        if parameter not in given and "" not in allowed[parameter]:
            verdicts[parameter] = "missing"
            return _build_result("missing_parameter", "missing_optional", verdicts)
    return MatchResult(True, None, verdicts)


def _build_result(kind: str, word: str, verdicts: dict[str, str], tool: bool = True) -> MatchResult:
    return MatchResult(False, kind, verdicts, tool, f"simple_function_checker:{word}")
