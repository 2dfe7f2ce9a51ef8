"""Cases of `decoys.py`: pieces of which each was judged, or none, and a word that they make."""

import struct

from decoys import DECOY, RST, case, fragments, ipv4, ipv6, piece
from decoys_ip import TAIL, piece_v6, pieces_v6

V6 = {"version": 6}
ELSEWHERE = bytes.fromhex("020000000099")


@case("pieces of two harmless datagrams")
def _(flow, word):
    """The receiver lacks a piece of the first, and gets it with the second."""
    id = 0x2100 | word[0]
    said = b"pads" + word + TAIL
    segment = flow.segment(0, said)
    # The word lies across the first cut.
    head, body, tail = fragments(segment, [32, 40], flow, id=id)
    flow.wire.send(head)
    flow.wire.send(piece(b"-" * 8, 32, True, flow, id=id), to=ELSEWHERE)
    flow.wire.send(tail)
    # Of the flow, with a wrong checksum.
    flow.wire.send(piece(segment[:24] + b"-" * 8, 0, True, flow, id=id), to=ELSEWHERE)
    flow.wire.send(body)
    flow.wire.send(tail, to=ELSEWHERE)
    return said


@case("first fragment over ipv6 that names another protocol", **V6)
def _(flow, word):
    head, body, tail = pieces_v6(flow, word, 0x2200 | word[0])
    flow.wire.send(head[:40] + bytes([59]) + head[41:], to=ELSEWHERE)
    flow.send_all([head, body, tail])
    return b"pad:" + word + TAIL


@case("first fragment over ipv6 with another header before it", **V6)
def _(flow, word):
    head, body, tail = pieces_v6(flow, word, 0x2300 | word[0])
    before = bytes([44, 0, 1, 4, 0, 0, 0, 0])
    data = head[48:]
    decoy = ipv6(data, 6, flow.ends, first=60,
                 before=before + bytes([60, 0, 0, 1]) + struct.pack("!I", 0x2300 | word[0]))
    flow.wire.send(decoy, to=ELSEWHERE)
    flow.send_all([head, body, tail])
    return b"pad:" + word + TAIL


@case("last fragment too long with its options")
def _(flow, word):
    known = b"." * 4000
    for at in range(0, 4000, 1000):
        flow.send(at, known[at:at + 1000])
    flow.acknowledged(4000)
    id = 0x2400 | word[0]
    body = known + b"." * (65495 - 4000 - 12 - 4) + word + b"...."
    segment = flow.segment(0, body)
    assert len(segment) == 65515
    cuts = list(range(1440, 65500, 1440))
    # The word lies across the last cut.
    cuts = [it for it in cuts if it < 65000] + [65504]
    *others, last = zip([0, *cuts], [*cuts, 65515])
    flow.wire.send(ipv4(segment[last[0]:], 6, flow.ends, id=id, fragment=last[0] // 8,
                        options=b"\1" * 40))
    for start, end in others:
        flow.wire.send(piece(segment[start:end], start, True, flow, id=id))
    flow.wire.send(piece(b"-" * 11, last[0], False, flow, id=id))
    return body


@case("ipv6 without a length", **V6)
def _(flow, word):
    packet = bytearray(flow.packet(0, word, ip={"before": bytes([6, 0, 1, 4, 0, 0, 0, 0]),
                                                "first": 0}))
    packet[4:6] = b"\0\0"
    flow.wire.send(bytes(packet))


@case("ipv6 without a length in two pieces", **V6)
def _(flow, word):
    for at, part in ((0, word[:5]), (5, word[5:])):
        packet = bytearray(flow.packet(at, part, ip={"before": bytes([6, 0, 1, 4, 0, 0, 0, 0]),
                                                     "first": 0}))
        packet[4:6] = b"\0\0"
        flow.wire.send(bytes(packet))


@case("in fragments over ipv6 behind thousands of headers", **V6)
def _(flow, word):
    id = 0x2600 | word[0]
    whole = bytes([60, 0, 1, 4, 0, 0, 0, 0]) * 2999 + bytes([6, 0, 1, 4, 0, 0, 0, 0])
    whole += flow.segment(0, word)
    for start in range(0, len(whole), 1400):
        data = whole[start:start + 1400]
        more = start + 1400 < len(whole)
        head = struct.pack("!BBHI", 60, 0, start | more, id)
        flow.wire.send(ipv6(data, 6, flow.ends, before=head, first=44))


@case("the same number again behind an own reset")
def _(flow, word):
    flow.send(0, b"", flags=RST)
    flow.connect()
    flow.say(word)


@case("the same number again behind data and an own reset")
def _(flow, word):
    flow.send(0, DECOY)
    flow.acknowledged(12)
    flow.send(12, b"", flags=RST)
    flow.connect()
    flow.say(word)


@case("another number behind an own reset")
def _(flow, word):
    flow.send(0, DECOY)
    flow.acknowledged(12)
    flow.send(12, b"", flags=RST)
    flow.first += 0x20000000
    flow.connect()
    flow.say(word)


@case("a number within what was said behind an own reset")
def _(flow, word):
    flow.send(0, DECOY * 20)
    flow.acknowledged(240)
    flow.send(240, b"", flags=RST)
    flow.first += 20
    flow.connect()
    flow.say(word)
