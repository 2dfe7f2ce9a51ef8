"""Cases of `decoys.py`: what IP and Ethernet have no receiver take, and tunnels that it has not."""

import struct
import time

from decoys import ADDRESSES, CLIENT_MAC, DECOY, SERVER_MAC, case, fragments, ipv4, ipv6, piece

V6 = {"version": 6}


def decoy(name, how=None, link=None, **ip):
    """A packet with such oddities, then the word in its place."""

    @case(name, **(how or {}))
    def _(flow, word):
        flow.send(0, DECOY, ip=ip, link=link)
        flow.say(word)


decoy("header checksum", spoil=1)
decoy("length beyond the frame", total=200)
decoy("length within the header", total=-40)
decoy("option without length", options=bytes([0x44, 0]))
decoy("option too long", options=bytes([7, 40, 4, 0]))
decoy("loose source route", options=bytes([1, 131, 7, 4, 10, 77, 0, 1]))
decoy("strict source route", options=bytes([1, 137, 7, 4, 10, 77, 0, 9]))
decoy("other hardware address", link={"to": bytes.fromhex("020000000099")})
decoy("broadcast", link={"to": b"\xff" * 6})
decoy("multicast", link={"to": bytes.fromhex("01005e000001")})
decoy("another vlan", link={"tags": bytes.fromhex("81000005")})
decoy("vlan in vlan", link={"tags": bytes.fromhex("88a8000581000006")})
decoy("unknown option of the destination", V6, before=bytes([6, 0, 0x5E, 4, 0, 0, 0, 0]), first=60)
decoy("unknown option of hops", V6, before=bytes([6, 0, 0x5E, 4, 0, 0, 0, 0]), first=0)
decoy("routing header", V6, first=43,
      before=bytes([6, 2, 0, 1, 0, 0, 0, 0]) + ADDRESSES[6][1])
decoy("authentication header over ipv6", V6, first=51,
      before=bytes([6, 1, 0, 0]) + b"\0\0\0\1\0\0\0\1")


def only(name, how=None, link=None, **ip):
    """The word, all of it in packets with such oddities, which the receiver takes."""

    @case(name, **(how or {}))
    def _(flow, word):
        flow.say(word, ip=ip, link=link)


PADDED = bytes([60, 0, 1, 4, 0, 0, 0, 0])
LAST_PADDED = bytes([6, 0, 1, 4, 0, 0, 0, 0])
only("all behind an option that does nothing", V6, before=LAST_PADDED, first=60)
only("all behind eight headers", V6, before=PADDED * 7 + LAST_PADDED, first=60)
only("all behind an option of hops", V6, before=LAST_PADDED, first=0)
only("all behind a routing header that is used up", V6, first=43,
     before=bytes([6, 2, 2, 0, 0, 0, 0, 0]) + ADDRESSES[6][1])
only("all in fragments that are whole", V6, before=bytes([6, 0, 0, 0, 0, 0, 0, 9]), first=44)
only("all in vlan zero of vlan zero", link={"tags": bytes.fromhex("8100000081000000")})
only("all in vlan zero of service vlan zero", link={"tags": bytes.fromhex("88a8000081000000")})
decoy("ethertype of ipv6", link={"kind": b"\x86\xdd"})
decoy("ethertype of ipv4", V6, link={"kind": b"\x08\0"})


decoy("mobility header", V6, before=bytes([6, 0, 0, 0, 0, 0, 0, 0]), first=135)
decoy("host identity header", V6, before=bytes([6, 0, 0, 0, 0, 0, 0, 0]), first=139)


@case("ethernet length in place of a type")
def _(flow, word):
    packet = flow.packet(0, DECOY)
    flow.wire.raw(SERVER_MAC + CLIENT_MAC + struct.pack("!H", len(packet)) + packet)
    flow.say(word)


@case("in three vlans zero")
def _(flow, word):
    flow.send(0, word, link={"tags": bytes.fromhex("81000000") * 3})


@case("behind sixteen headers", **V6)
def _(flow, word):
    flow.send(0, word, ip={"before": PADDED * 15 + LAST_PADDED, "first": 60})


@case("behind fifteen headers", **V6)
def _(flow, word):
    flow.send(0, word, ip={"before": PADDED * 14 + LAST_PADDED, "first": 60})


@case("authentication header")
def _(flow, word):
    head = bytes([6, 1, 0, 0]) + b"\0\0\0\1\0\0\0\1"
    flow.wire.send(ipv4(head + flow.segment(0, DECOY), 51, flow.ends))
    flow.say(word)


@case("bytes behind the length")
def _(flow, word):
    flow.wire.send(flow.packet(0, word[:5]) + DECOY * 5)
    flow.send(5, word[5:])


@case("options that are taken")
def _(flow, word):
    flow.say(word, ip={"options": bytes([148, 4, 0, 0])})


@case("one piece in vlan zero")
def _(flow, word):
    flow.send(0, word[:5], link={"tags": bytes.fromhex("81000000")})
    flow.send(5, word[5:])


@case("all in vlan zero")
def _(flow, word):
    flow.say(word, link={"tags": bytes.fromhex("8100e000")})


@case("snap")
def _(flow, word):
    packet = flow.packet(0, DECOY)
    head = struct.pack("!H", len(packet) + 8) + bytes.fromhex("aaaa030000000800")
    flow.wire.raw(SERVER_MAC + CLIENT_MAC + head + packet)
    flow.say(word)


# Tunnels that the server does not end.


def carried(name, wrap, version=4):
    """The decoy is within a packet to the server; its own word is not."""

    @case(name, version=version)
    def _(flow, word):
        inner = flow.packet(0, DECOY)
        flow.wire.send(wrap(inner, flow))
        flow.say(word)


def ethernet(inner):
    kind = b"\x08\x00" if inner[0] >> 4 == 4 else b"\x86\xdd"
    return SERVER_MAC + CLIENT_MAC + kind + inner


def vxlan(frame, flow):
    payload = bytes.fromhex("0800000000000500") + frame
    head = struct.pack("!HHHH", flow.port, 4789, 8 + len(payload), 0)
    return ipv4(head + payload, 17, ADDRESSES[4])


carried("decoy in ip in ip", lambda inner, flow: ipv4(inner, 4, flow.ends))
carried("decoy in gre", lambda inner, flow: ipv4(b"\0\0\x08\0" + inner, 47, flow.ends))
carried("decoy in vxlan", lambda inner, flow: vxlan(ethernet(inner), flow))
carried("decoy in ipv6 in ip", lambda inner, flow: ipv4(inner, 41, ADDRESSES[4]), 6)


def framed(name, kind, head):
    @case(name)
    def _(flow, word):
        packet = flow.packet(0, DECOY)
        flow.wire.raw(SERVER_MAC + CLIENT_MAC + kind + head(packet) + packet)
        flow.say(word)


framed("mpls", b"\x88\x47", lambda _: bytes.fromhex("00010140"))
framed("pppoe", b"\x88\x64",
       lambda packet: bytes.fromhex("11000001") + struct.pack("!HH", len(packet) + 2, 0x21))


# Fragments. The word lies in the second, and in a harmless one with the same checksum.

TAIL = b"." * 12


def twisted(word):
    """Other bytes with the same checksum."""
    return word[2:4] + word[:2] + word[4:]


def pieces(flow, word, id):
    segment = flow.segment(0, b"pad:" + word + TAIL)
    return fragments(segment, [24, 40], flow, id=id)


@case("in fragments")
def _(flow, word):
    flow.send_all(pieces(flow, word, 1))
    return b"pad:" + word + TAIL


@case("in fragments backwards")
def _(flow, word):
    flow.send_all(reversed(pieces(flow, word, 2)))
    return b"pad:" + word + TAIL


@case("the first of two fragments in one place")
def _(flow, word):
    head, body, tail = pieces(flow, word, 3)
    flow.send_all([head, body, pieces(flow, twisted(word), 3)[1], tail])
    return b"pad:" + word + TAIL


@case("fragment with header checksum")
def _(flow, word):
    head, body, tail = pieces(flow, word, 4)
    harmless = flow.segment(0, b"pad:" + twisted(word) + TAIL)
    flow.send_all([head, piece(harmless[24:40], 24, True, flow, id=4, spoil=1), body, tail])
    return b"pad:" + word + TAIL


def forgotten(name, id, kills):
    """The receiver forgets a datagram in pieces, and gets another of the same number."""

    @case(name)
    def _(flow, word):
        head, body, tail = pieces(flow, word, id)
        flow.send_all([head, pieces(flow, twisted(word), id)[1]])
        kills(flow, id)
        flow.send_all([head, body, tail])
        return b"pad:" + word + TAIL


forgotten("fragments that overlap", 5,
          lambda flow, id: flow.wire.send(piece(b"." * 16, 32, True, flow, id=id)))
forgotten("fragment without bytes", 6,
          lambda flow, id: flow.wire.send(piece(b"", 40, True, flow, id=id)))
forgotten("fragment of few bytes", 7,
          lambda flow, id: flow.wire.send(piece(b"....", 40, True, flow, id=id)))
# As the server's kernel is told by the test; 30 s else.
forgotten("fragments too late", 8, lambda flow, id: time.sleep(1.3))


@case("fragment of odd length")
def _(flow, word):
    # The receiver takes whole eights of it.
    head, body, tail = pieces(flow, word, 12)
    odd = body[20:28] + b"-------"
    flow.send_all([head, piece(odd, 24, True, flow, id=12)])
    flow.wire.send(piece(body[28:] + tail[20:], 32, False, flow, id=12))
    return b"pad:" + word + TAIL


@case("fragments that differ in ecn")
def _(flow, word):
    segment = flow.segment(0, DECOY + b"." * 12)
    flow.send_all(fragments(segment, [24], flow, id=9, tos=(0, 3)))
    flow.say(word)


@case("fragment to another hardware address")
def _(flow, word):
    head, body, tail = pieces(flow, word, 10)
    flow.wire.send(head)
    flow.wire.send(pieces(flow, twisted(word), 10)[1], to=bytes.fromhex("020000000099"))
    flow.send_all([body, tail])
    return b"pad:" + word + TAIL


@case("the last fragment to another hardware address")
def _(flow, word):
    # The receiver has pieces left over from the word before.
    id = 0x1300 | word[0]
    head, body, tail = pieces(flow, word, id)
    flow.send_all([head, tail])
    flow.wire.send(pieces(flow, twisted(word), id)[1], to=bytes.fromhex("020000000099"))
    flow.send_all([body, head, tail])
    return b"pad:" + word + TAIL


@case("fragment within a tunnel")
def _(flow, word):
    head, body, tail = pieces(flow, word, 11)
    flow.wire.send(head)
    flow.wire.send(ipv4(pieces(flow, twisted(word), 11)[1], 4, flow.ends))
    flow.send_all([body, tail])
    return b"pad:" + word + TAIL


def pieces_v6(flow, word, id):
    segment = flow.segment(0, b"pad:" + word + TAIL)
    return [piece_v6(segment[start:end], start, end < 48, flow, id)
            for start, end in ((0, 24), (24, 40), (40, 48))]


def piece_v6(data, start, more, flow, id):
    head = struct.pack("!BBHI", 6, 0, start | more, id)
    return ipv6(data, 6, flow.ends, before=head, first=44)


@case("in fragments over ipv6", **V6)
def _(flow, word):
    flow.send_all(pieces_v6(flow, word, 1))
    return b"pad:" + word + TAIL


@case("fragments over ipv6 that overlap", **V6)
def _(flow, word):
    head, body, tail = pieces_v6(flow, word, 2)
    flow.send_all([head, pieces_v6(flow, twisted(word), 2)[1]])
    flow.wire.send(piece_v6(b"." * 16, 32, True, flow, 2))
    flow.send_all([head, body, tail])
    return b"pad:" + word + TAIL


@case("fragment over ipv6 of odd length", **V6)
def _(flow, word):
    head, body, tail = pieces_v6(flow, word, 3)
    flow.send_all([head, piece_v6(twisted(word), 24, True, flow, 3), body, tail])
    return b"pad:" + word + TAIL


@case("fragments over ipv6 that name several protocols", **V6)
def _(flow, word):
    head, body, tail = pieces_v6(flow, word, 4)
    flow.send_all([head, body[:40] + b"\x11" + body[41:], tail])
    return b"pad:" + word + TAIL


@case("each piece in fragments")
def _(flow, word):
    for at, part, id in [(0, word[:5], 20), (5, word[5:], 21)]:
        flow.send_all(fragments(flow.segment(at, part), [16], flow, id=id))
