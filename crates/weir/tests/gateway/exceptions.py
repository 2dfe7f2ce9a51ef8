"""A server, and a client of which one connection says what is no SSH: what the server got of it.

The server answers all that it gets. With a second connection the client tells it that it has said
all in the first.
"""

import socket
import sys

BANNER = b"SSH-2.0-client\r\n"
# A packet of one byte, which is too short, and what a rule wants to see.
BROKEN = b"\0\0\0\x01........" + b"behind what is broken"


def serve(port):
    with socket.create_server(("", port)) as listening:
        print("ready", flush=True)
        first, _ = listening.accept()
        first.sendall(first.recv(len(BANNER)))
        listening.accept()[0].recv(1)
    first.setblocking(False)
    try:
        print("got", len(first.recv(65536)))
    except BlockingIOError:
        print("got", 0)


def send(port, address):
    with socket.create_connection((address, port)) as first:
        first.sendall(BANNER)
        first.recv(len(BANNER))
        first.sendall(BROKEN)
        with socket.create_connection((address, port)) as second:
            second.sendall(b".")
            second.recv(1)


role, port, *more = sys.argv[1:]
{"serve": serve, "send": send}[role](int(port), *more)
