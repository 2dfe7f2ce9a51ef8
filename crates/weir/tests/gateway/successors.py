"""Connections between the same ports, one behind the other: successors.py server ADDRESS, and
successors.py client ADDRESS, which tells whether the word arrives in the second of each."""

import socket
import struct
import sys
import threading
import time

PORT = 7100
LEN = 3_000_000
WORD = b"/etc/shadow"
LINGER = struct.pack("ii", 1, 0)


def serve(address):
    listener = socket.create_server((address, PORT))
    print("ready", flush=True)
    while True:
        # Of one that is dropped nothing comes any more, not even its end.
        peer, _ = listener.accept()
        threading.Thread(target=hear, args=(peer,), daemon=True).start()


def hear(peer):
    said = b""
    try:
        while data := peer.recv(1 << 16):
            said = said[-20:] + data
            if said.endswith(WORD):
                peer.sendall(b"!")
            if said.endswith(b"bye"):
                break
    except OSError:
        pass
    peer.close()


def arrives(client, data):
    client.sendall(data)
    try:
        return client.recv(1) == b"!"
    except TimeoutError:
        return False


def connect(address, port):
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    client.settimeout(20)
    client.bind(("", port))
    client.connect((address, PORT))
    return client


def follow(address, ending, port):
    first = connect(address, port)
    before = arrives(first, b"x" * LEN + WORD)
    if ending == "fin":
        first.sendall(b"bye")
        first.recv(1)
    else:
        first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
    first.close()
    time.sleep(0.3)
    second = connect(address, port)
    second.settimeout(3)
    print(ending, before, arrives(second, WORD), flush=True)
    second.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
    second.close()


if sys.argv[1] == "server":
    serve(sys.argv[2])
else:
    follow(sys.argv[2], "rst", 7201)
    follow(sys.argv[2], "fin", 7202)
