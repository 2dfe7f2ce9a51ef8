"""What really arrives: the servers of `decoys.py`, by their kernel's TCP.

    decoys_server.py

Says "ready". After a datagram at port 7999 it prints a line of JSON: what it read, by the client's
port, and the marks `<NAME WORD>` in frames that came.
"""

import json
import re
import selectors
import socket

# SO_RCVBUFFORCE: beyond what the host allows, too.
FORCE = 33
MARK = re.compile(rb"<([a-z0-9 -]+)>")
READS, NARROW, SLEEPS, WIDE, ENDS = 7000, 7001, 7002, 7003, 7999


def listen(port, room):
    listener = socket.create_server(("::", port), family=socket.AF_INET6, backlog=512,
                                    dualstack_ipv6=True)
    if room:
        listener.setsockopt(socket.SOL_SOCKET, FORCE, room)
    listener.setblocking(False)
    return listener


def read(connection, into):
    """All that is there."""
    try:
        while data := connection.recv(65536):
            into.extend(data)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def main():
    selector = selectors.DefaultSelector()
    for port, room in [(READS, 0), (NARROW, 4096), (SLEEPS, 4096), (WIDE, 1 << 22)]:
        selector.register(listen(port, room), selectors.EVENT_READ, port)
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.bind(("0.0.0.0", ENDS))
    selector.register(end, selectors.EVENT_READ, ENDS)
    frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    frames.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    frames.bind(("eth0", 0))
    frames.setblocking(False)
    selector.register(frames, selectors.EVENT_READ, None)
    print("ready", flush=True)
    got, marks, sleepers, is_ending = {}, set(), [], False
    while True:
        events = selector.select(0 if is_ending else None)
        if is_ending and not events:
            break
        for key, _ in events:
            if key.data is None:
                marks.update(it.decode() for it in MARK.findall(frames.recv(65536)))
            elif key.data == ENDS:
                end.recv(100)
                is_ending = True
            elif isinstance(key.data, int):
                connection, peer = key.fileobj.accept()
                connection.setblocking(False)
                # Of several connections from one port the last counts.
                got[peer[1]] = bytearray()
                if key.data == SLEEPS:
                    sleepers.append((connection, got[peer[1]]))
                else:
                    selector.register(connection, selectors.EVENT_READ, got[peer[1]])
            elif not read(key.fileobj, key.data):
                selector.unregister(key.fileobj)
                key.fileobj.close()
    for connection, into in sleepers:
        read(connection, into)
    told = {str(port): bytes(data).decode("latin-1") for port, data in got.items()}
    print(json.dumps({"got": told, "marks": sorted(marks)}))


main()
