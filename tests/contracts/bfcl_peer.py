"""BFCL's own checker behind JSON Lines: the other side of the differential test.

Run by the Python of an environment that holds `bfcl-eval` (`scripts/bfcl_env.sh FOLDER` makes one
without its many dependencies), never by ours. The checker's module imports the table of all models,
and with it the clients of every vendor, to learn one thing: whether a model's names have "_" for
".". A table that says no takes its place before the import; nothing else is replaced. For the two
relevance categories the runner's rule is applied to decoded calls by its own function.

A line in is {"item", "category", "language", "function", "truth"}, which registers an item, or
{"of": item, "calls": [{name: arguments}]}, which is answered in order by {"valid", "error"},
{"crash": the exception's name} or {"hang": true}. The last line tells the processor's
seconds in the checker, and the calls it came back from.
"""

import contextlib
import io
import json
import signal
import sys
import time
import types
from collections import defaultdict
from typing import Any

_LIMIT_S = 2
_SPENT: list[float] = []  # seconds of each call that the checker came back from


class _Model:
    underscore_to_dot = False


def _checker() -> tuple[Any, Any]:
    table = types.ModuleType("bfcl_eval.constants.model_config")
    table.MODEL_CONFIG_MAPPING = defaultdict(_Model)  # type: ignore[attr-defined]
    sys.modules[table.__name__] = table
    from bfcl_eval.constants.enums import Language  # type: ignore[import-not-found]
    from bfcl_eval.eval_checker.ast_eval.ast_checker import (  # type: ignore[import-not-found]
        ast_checker,
    )

    return ast_checker, Language


class _Hangs(BaseException):
    """No Exception, which the checker would swallow."""


def _ring(*_: Any) -> None:
    raise _Hangs


def _decodable(calls: Any) -> bool:
    """What the runner lets through to the checker: a list of one-name objects of arguments."""
    return isinstance(calls, list) and all(
        isinstance(call, dict) and len(call) == 1 and isinstance(next(iter(call.values())), dict)
        for call in calls
    )


def _answer(check: Any, language: Any, item: dict[str, Any], calls: Any) -> dict[str, Any]:
    category = item["category"]
    if "relevance" in category:
        called = _decodable(calls) and bool(calls)
        return {"valid": called is not ("irrelevance" in category), "error": None}
    if not _decodable(calls):
        return {"valid": False, "error": "decoder_wrong_output_format"}
    signal.setitimer(signal.ITIMER_REAL, _LIMIT_S)
    spoken = language(item["language"])
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            begun = time.process_time()
            told = check(item["function"], calls, item["truth"], spoken, category, "m")
            _SPENT.append(time.process_time() - begun)
    except _Hangs:
        return {"hang": True}
    except Exception as error:
        return {"crash": type(error).__name__}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return {"valid": told["valid"], "error": None if told["valid"] else told["error_type"]}


def main() -> None:
    check, language = _checker()
    signal.signal(signal.SIGALRM, _ring)
    items: dict[str, Any] = {}
    for line in sys.stdin:
        row = json.loads(line)
        if "item" in row:
            items[row["item"]] = row
            continue
        answer = _answer(check, language, items[row["of"]], row["calls"])
        sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.write(json.dumps({"seconds": sum(_SPENT), "n": len(_SPENT)}) + "\n")


if __name__ == "__main__":
    main()
