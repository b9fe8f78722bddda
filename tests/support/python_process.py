"""Python processes that have imported what tests import: copies of one that did, before any test.

What is killed, or reads a command line, needs a process of its own, but not its 2 to 6
core-seconds of imports. Where pytest runs without `tests.support.workers`, it is an ordinary one.
"""

import atexit
import ctypes
import gc
import json
import os
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import threading
import traceback
import types
from pathlib import Path
from typing import Any

PLACE = "TESTS_PYTHON_SERVER"
_MOST_BYTES = 1 << 20
_END_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG


class PythonProcess(subprocess.Popen):
    """`Popen` of `[sys.executable, "-m" or "-c", …]`."""

    def _execute_child(
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any,
        cwd: Any, env: Any, *rest: Any,
    ) -> None:  # fmt: skip
        place = os.environ.get(PLACE)
        if place is None:
            before = (args, executable, preexec_fn, close_fds, pass_fds, cwd, env)
            super()._execute_child(*before, *rest)  # type: ignore[misc]
            return
        pipes, session = rest[3:9], rest[14]
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.connect(place)
        how = {
            "arguments": args[1:],
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd or Path.cwd()),
            "session": session,
        }
        files = [number if fd == -1 else fd for number, fd in enumerate(pipes[0:1] + pipes[3:6:2])]
        socket.send_fds(self._server, [json.dumps(how).encode()], files)
        self.pid = int(self._server.recv(20))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if not hasattr(self, "_server"):
            return super()._try_wait(wait_flags)  # type: ignore[misc]
        try:
            status = self._server.recv(20, socket.MSG_DONTWAIT if wait_flags else 0)
        except BlockingIOError:
            return 0, 0
        self._server.close()
        return self.pid, int(status)

    def _internal_poll(self, *given: Any, **more: Any) -> int | None:
        if not hasattr(self, "_server"):
            return super()._internal_poll(*given, **more)  # type: ignore[misc]
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def run_python(
    *arguments: str, timeout: float | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run` gives, its output as text."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with PythonProcess([sys.executable, *arguments], **pipes, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def find_python() -> str:
    """What stands for Python where a process is named, not started."""
    place = os.environ.get(PLACE)
    return f"{place}.sh" if place else sys.executable


def start_server(folder: Path) -> int:
    """Its pid; it ends with this process. To be called before this process has threads."""
    place = folder / "python"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(place))
    listener.listen(64)
    stub = Path(__file__).with_name("python_stub.py")
    words = shlex.join([sys.executable, "-S", "-E", str(stub), str(place)])
    path = place.with_suffix(".sh")
    path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    path.chmod(0o755)
    sys.stdout.flush()
    sys.stderr.flush()
    gc.freeze()  # looking through it for garbage, a process would copy all of it
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
        end_process(_run_program(_serve(listener)))
    listener.close()
    os.environ[PLACE] = str(place)
    return pid


def _serve(listener: socket.socket) -> list[str]:
    """Returns in each new process, with its arguments; never in the server."""
    while True:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # none stays as a zombie
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            request, files, _, _ = socket.recv_fds(connection, _MOST_BYTES, 3)
            pid = os.fork()
            if pid == 0:
                how = json.loads(request)
                if how["session"]:
                    os.setsid()
                for number, fd in enumerate(files):
                    os.dup2(fd, number)
                    os.close(fd)
                os.chdir(how["cwd"])
                os.environ.clear()
                os.environ.update(how["env"])
                os.environ.pop(PLACE, None)
                connection.send(str(os.getpid()).encode())
                connection.close()
                gc.enable()
                return how["arguments"]
            for fd in files:
                os.close(fd)
            connection.send(str(os.waitpid(pid, 0)[1]).encode())
            os._exit(0)
        connection.close()


def _run_program(arguments: list[str]) -> int:
    """What `python -m` and `python -c` do; the exit status."""
    kind, program, *rest = arguments
    sys.path.insert(0, "" if kind == "-c" else str(Path.cwd()))
    sys.argv = [kind, *rest]
    try:
        if kind == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(program, "<string>", "exec"), main.__dict__)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def end_process(status: int) -> None:
    """As Python does, but for taking apart what was imported, all of which it would copy first."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
