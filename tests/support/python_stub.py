"""An executable like Python's for who starts processes by name: `python_stub.py PLACE -m …`.

The process is the server's (`python_process.py`); this one lends it its files and name, and ends
with its exit status.
"""

import json
import os
import signal
import socket
import sys


def main(place: str, *arguments: str) -> int:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.connect(place)
    how = {"arguments": arguments, "env": dict(os.environ), "cwd": os.getcwd(), "session": False}
    socket.send_fds(server, [json.dumps(how).encode()], [0, 1, 2])
    pid = int(server.recv(20))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    os.close(0)
    os.close(1)
    return os.waitstatus_to_exitcode(int(server.recv(20)))


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]) % 256)
