"""A server and a client that tell each other words amid much else: what each got, as JSON."""

import json
import socket
import sys

SIZE = 40_000


def message(word):
    """A word near the beginning of what goes in one call, so of the first packet of it."""
    return (b"." * 100 + word).ljust(SIZE, b".")


def read(connection):
    got = b""
    while len(got) < SIZE:
        piece = connection.recv(SIZE)
        if not piece:
            break
        got += piece
    return {"word": got.strip(b".").decode(), "length": len(got)}


def wrong_checksums():
    """Segments that this host's kernel has discarded for their checksum."""
    with open("/proc/net/snmp") as counters:
        names, values = [line.split() for line in counters if line.startswith("Tcp:")]
    return int(values[names.index("InCsumErrors")])


def serve(port):
    with socket.create_server(("", port)) as listening:
        print("ready", flush=True)
        connection, _ = listening.accept()
    with connection:
        for _ in range(3):
            yield read(connection)
            connection.sendall(message(b"an old answer"))


def ask(port, address):
    with socket.create_connection((address, port)) as connection:
        for _ in range(3):
            connection.sendall(message(b"an evil word"))
            yield read(connection)


role, port, *more = sys.argv[1:]
told = list({"serve": serve, "ask": ask}[role](int(port), *more))
print(json.dumps({"told": told, "wrong_checksums": wrong_checksums()}))
