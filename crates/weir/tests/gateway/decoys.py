"""A client that says a word in two pieces, with decoys that its receiver does not take.

    decoys.py PORT CASES

It speaks TCP by frames of its own, from an address that no kernel has, through a gateway to the
server of `decoys_server.py`. Each case is played twice, each time over a new connection: with a
harmless word, which shows what the server's kernel takes, and with the evil one. Prints a line of
JSON for each case: its name, both ports, and what the server must have got of the harmless word;
and at last the port of a datagram that is dropped behind all that.
PORT is before the first that it takes; CASES are modules with cases, in the folder of this one.
"""

import importlib
import ipaddress
import json
import socket
import struct
import sys
import time

CLIENT_MAC, SERVER_MAC = bytes.fromhex("02770000000b"), bytes.fromhex("02770000000a")
ADDRESSES = {
    4: (ipaddress.ip_address("10.77.0.77").packed, ipaddress.ip_address("10.77.0.1").packed),
    6: (ipaddress.ip_address("fd77::77").packed, ipaddress.ip_address("fd77::1").packed),
}
READS, NARROW, SLEEPS, WIDE, ENDS = 7000, 7001, 7002, 7003, 7999
FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32
WORDS = (b"kind-command", b"evil-command")
DECOY = b"-" * 12

CASES = {}


def case(name, **how):
    """Registers a case. `how` goes to its Flow; it connects first unless `connects` is false. What
    of a case arrives, tell marks in frames where `is_seen`, else the server's TCP."""

    def register(play):
        assert name not in CASES, name
        CASES[name] = (play, how)
        return play

    return register


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def ipv4(payload, protocol, ends, *, options=b"", tos=0, id=0, fragment=0, total=0, spoil=0):
    """A packet; `total` is added to its length, `spoil` to its checksum."""
    options += b"\0" * (-len(options) % 4)
    length = 20 + len(options)
    head = struct.pack("!BBHHHBBH", 0x40 | length // 4, tos, length + len(payload) + total, id,
                       fragment, 64, protocol, 0) + ends[0] + ends[1] + options
    value = (checksum(head) + spoil) & 0xFFFF
    return head[:10] + struct.pack("!H", value) + head[12:] + payload


def ipv6(payload, protocol, ends, *, before=b"", first=None):
    """A packet; `before` are extension headers, of which the first is `first`."""
    payload = before + payload
    head = struct.pack("!IHBB", 6 << 28, len(payload), protocol if first is None else first, 64)
    return head + ends[0] + ends[1] + payload


def fragments(segment, cuts, flow, *, id, tos=(0,)):
    """IPv4 fragments of a segment, cut at such bytes."""
    cuts = [0, *cuts, len(segment)]
    pieces = zip(cuts, cuts[1:])
    last = len(cuts) - 2
    return [piece(segment[start:end], start, at < last, flow, id=id, tos=tos[at % len(tos)])
            for at, (start, end) in enumerate(pieces)]


def piece(data, start, more, flow, *, id, tos=0, spoil=0):
    assert start % 8 == 0
    bits = start // 8 | (0x2000 if more else 0)
    return ipv4(data, 6, flow.ends, id=id, fragment=bits, tos=tos, spoil=spoil)


class Wire:
    def __init__(self, port):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind(("eth0", 0))
        self.port = port

    def send(self, packet, *, to=SERVER_MAC, tags=b"", kind=None):
        """A frame with a packet; `tags` stand before its EtherType, or `kind` in its place."""
        kind = kind or {4: b"\x08\x00", 6: b"\x86\xdd"}[packet[0] >> 4]
        self.raw(to + CLIENT_MAC + tags + kind + packet)

    def raw(self, frame):
        self.socket.send(frame.ljust(60, b"\0"))

    def hear(self, flow, wanted, patience):
        """The next segment of a flow's server that is wanted, or none."""
        until = time.monotonic() + patience
        while (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                frame = self.socket.recv(65536)
            except TimeoutError:
                return None
            segment = self.segment_of(frame, flow)
            if segment and wanted(segment):
                return segment
        return None

    def segment_of(self, frame, flow):
        at = 34 if flow.version == 4 else 54
        if frame[:6] != CLIENT_MAC or len(frame) < at + 20:
            return None
        head = struct.unpack_from("!HHIIBBH", frame, at)
        source, target, sequence, number, _, bits, window = head
        if (source, target) != (flow.server, flow.port):
            return None
        flow.window = window
        return sequence, number, bits, window


class Flow:
    """A connection. Places in its stream count from 0, the first byte behind the SYN."""

    def __init__(self, wire, *, version=4, server=READS, stamps=False):
        wire.port += 1
        self.wire, self.version, self.server, self.stamps = wire, version, server, stamps
        self.ends, self.port = ADDRESSES[version], wire.port
        self.first, self.theirs, self.window = 0x10000000 + wire.port * 7919, 0, 0

    def connect(self, early=b"", *, is_silent=False, **syn):
        """`early` is said with the SYN; who is silent leaves out the third segment."""
        for _ in range(5):
            self.send(-1, early, flags=SYN, **syn)
            answer = self.wire.hear(self, lambda it: it[2] & 18 == 18, 1)
            if answer:
                self.theirs = answer[0] + 1 & 0xFFFFFFFF
                return is_silent or self.send(0, b"", flags=ACK)
        raise SystemExit("no answer")

    def segment(self, at, payload, *, flags=ACK | PSH, ack=0, stamp=1000, echo=0, options=b"",
                spoil=0, urgent=0, head=0, window=8000, backwards=False):
        """A TCP segment; `ack` is added to its acknowledgment, `spoil` to its checksum, `head` to
        the words of its header."""
        if self.stamps:
            options = struct.pack("!BBBBII", 1, 1, 8, 10, stamp, echo) + options
        options += b"\0" * (-len(options) % 4)
        numbers = (self.first + 1 + at, self.theirs + ack if flags & ACK else 0)
        ports, ends = (self.port, self.server), self.ends
        if backwards:
            numbers = (self.theirs + at, self.first + 1 + ack if flags & ACK else 0)
            ports, ends = ports[::-1], ends[::-1]
        words = 5 + len(options) // 4 + head
        packed = struct.pack("!HHIIBBHHH", *ports, numbers[0] & 0xFFFFFFFF, numbers[1] & 0xFFFFFFFF,
                             (words & 15) << 4, flags, window, 0, urgent) + options + payload
        pseudo = ends[0] + ends[1] + struct.pack("!IHH", len(packed), 0, 6)
        value = (checksum(pseudo + packed) + spoil) & 0xFFFF
        return packed[:16] + struct.pack("!H", value) + packed[18:]

    def packet(self, at, payload, *, ip=None, **tcp):
        build = ipv4 if self.version == 4 else ipv6
        ends = self.ends[::-1] if tcp.get("backwards") else self.ends
        return build(self.segment(at, payload, **tcp), 6, ends, **(ip or {}))

    def send(self, at, payload, *, link=None, **how):
        self.wire.send(self.packet(at, payload, **how), **(link or {}))

    def say(self, word, at=0, **how):
        """The word, in two pieces of which neither is one."""
        self.send(at, word[:5], **how)
        self.send(at + 5, word[5:], **how)

    def send_all(self, packets, **link):
        for packet in packets:
            self.wire.send(packet, **link)

    def acknowledged(self, end, room=0):
        """Waits until the server has all before `end`, and room for as much more."""
        wanted = self.first + 1 + end & 0xFFFFFFFF
        for _ in range(500):
            if self.wire.hear(self, lambda it: it[1] == wanted and it[3] >= room, 0.01):
                return
            # It is told again where the server is.
            self.send(end - 1, b".")
        raise SystemExit(f"not acknowledged: {end}")


def play(wire, name):
    act, how = CASES[name]
    connects = how.get("connects", True)
    is_seen = how.get("is_seen", False)
    how = {key: value for key, value in how.items() if key not in ("connects", "is_seen")}
    told = {"name": name, "ports": [], "is_seen": is_seen}
    for word in WORDS:
        flow = Flow(wire, **how)
        if connects and not is_seen:
            flow.connect()
        expected = act(flow, word)
        told["ports"].append(flow.port)
        if word == WORDS[0]:
            told["expected"] = (word if expected is None else expected).decode()
    print(json.dumps(told))


def main():
    # The modules with cases import this one by its name.
    here = importlib.import_module("decoys")
    for module in sys.argv[2:]:
        importlib.import_module(module)
    wire = here.Wire(int(sys.argv[1]))
    for name in here.CASES:
        here.play(wire, name)
    # What came before is told of when this is, and has arrived when the last has.
    for port, text in [(wire.port + 1, WORDS[1]), (wire.port + 2, b"end")]:
        datagram = struct.pack("!HHHH", port, ENDS, 8 + len(text), 0) + text
        wire.send(ipv4(datagram, 17, ADDRESSES[4]))
    print(json.dumps({"told_last": wire.port + 1}))


if __name__ == "__main__":
    main()
