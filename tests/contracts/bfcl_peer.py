"""BFCL's own checker behind JSON Lines: the other side of the differential test.

Run by the Python of an environment that holds `bfcl-eval` (`scripts/bfcl_env.sh FOLDER` makes one
without its many dependencies), never by ours. Two modules are replaced before the import, neither
of which the checks use: the table of all models, which imports the clients of every vendor, to
learn whether a model's names have "_" for "." (ours says no), and `filelock`, which guards its
result files. What BFCL's runner does before and beside the checker is done by its own functions:
is it a list of calls at all, and is it an empty one. Only the last line of its relevance check (a
call is right, or wrong) is said again here, for it sits in a function that needs a model's handler.

A line in is {"item", "category", "language", "function", "truth"}, which registers an item, or
{"of": item, "calls": [{name: arguments}]}, which is answered in order by {"valid", "error"},
{"crash": the exception's name} or {"hang": true}. The last line tells the processor's
seconds in the checker, and the calls it came back from.
"""

import contextlib
import io
import json
import os
import signal
import sys
import tempfile
import time
import types
from collections import defaultdict
from typing import Any

_LIMIT_S = 2
_SPENT: list[float] = []  # seconds of each call that the checker came back from


class _Model:
    underscore_to_dot = False


def _checker(folder: str) -> Any:
    """(the checker, its languages, is it a list of calls, is it an empty one)."""
    os.environ["BFCL_PROJECT_ROOT"] = folder  # where its settings make folders when imported
    table = types.ModuleType("bfcl_eval.constants.model_config")
    table.MODEL_CONFIG_MAPPING = defaultdict(_Model)  # type: ignore[attr-defined]
    lock = types.ModuleType("filelock")
    lock.FileLock = object  # type: ignore[attr-defined]
    sys.modules.update({table.__name__: table, "filelock": lock})
    from bfcl_eval import utils  # type: ignore[import-not-found]
    from bfcl_eval.constants.enums import Language  # type: ignore[import-not-found]
    from bfcl_eval.eval_checker.ast_eval.ast_checker import (  # type: ignore[import-not-found]
        ast_checker,
    )

    return ast_checker, Language, utils.is_function_calling_format_output, utils.is_empty_output


class _Hangs(BaseException):
    """No Exception, which the checker would swallow."""


def _ring(*_: Any) -> None:
    raise _Hangs


def _answer(bfcl: Any, item: dict[str, Any], calls: Any) -> dict[str, Any]:
    check, language, is_calls, is_empty = bfcl
    category = item["category"]
    if "relevance" in category:
        return {"valid": is_empty(calls) is ("irrelevance" in category), "error": None}
    if not is_calls(calls):
        return {"valid": False, "error": "decoder_wrong_output_format"}
    signal.setitimer(signal.ITIMER_REAL, _LIMIT_S)
    spoken = language(item["language"])
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            begun = time.process_time()
            verdict = check(item["function"], calls, item["truth"], spoken, category, "m")
            _SPENT.append(time.process_time() - begun)
    except _Hangs:
        return {"hang": True}
    except Exception as error:
        return {"crash": type(error).__name__}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return {"valid": verdict["valid"], "error": None if verdict["valid"] else verdict["error_type"]}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        bfcl = _checker(folder)
    signal.signal(signal.SIGALRM, _ring)
    items: dict[str, Any] = {}
    for line in sys.stdin:
        row = json.loads(line)
        if "item" in row:
            items[row["item"]] = row
            continue
        answer = _answer(bfcl, items[row["of"]], row["calls"])
        sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.write(json.dumps({"seconds": sum(_SPENT), "n": len(_SPENT)}) + "\n")


if __name__ == "__main__":
    main()
