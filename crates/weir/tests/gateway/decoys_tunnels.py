"""Cases of `decoys.py`: a word in a datagram, within tunnels; what arrives is seen in the frames."""

import struct

from decoys import ADDRESSES, CLIENT_MAC, SERVER_MAC, case, checksum, ipv4, ipv6

BOUND = 16
GRE = struct.Struct("!HH")


def over(version):
    """Puts a payload of such a protocol into a packet of that version."""
    build = ipv4 if version == 4 else ipv6
    return lambda payload, protocol: build(payload, protocol, ADDRESSES[version])


def own(packet):
    """The number of the protocol that a packet is of."""
    return {4: 4, 6: 41}[packet[0] >> 4]


def kind(packet):
    return {4: 0x0800, 6: 0x86DD}[packet[0] >> 4]


def ip(version):
    return lambda packet: over(version)(packet, own(packet))


def gre(version, flags=0, more=b""):
    return lambda packet: over(version)(GRE.pack(flags, kind(packet)) + more + packet, 47)


def bridged(packet):
    """An Ethernet frame in GRE."""
    frame = SERVER_MAC + CLIENT_MAC + struct.pack("!H", kind(packet)) + packet
    return over(4)(GRE.pack(0, 0x6558) + frame, 47)


def pptp(packet):
    """PPP in GRE of version 1, with a key and a number."""
    return over(4)(GRE.pack(0x3001, 0x880B) + struct.pack("!HHI", len(packet) + 4, 7, 1)
                   + b"\xff\x03\x00\x21" + packet, 47)


def in_pieces(packet):
    """The packet as two fragments, of which the second is sent last."""
    protocol, payload = packet[9], packet[20:]
    # Of each word another: what is left over of one is none of the other's.
    id = checksum(payload)
    return [ipv4(payload[:24], protocol, ADDRESSES[4], id=id, fragment=0x2000),
            ipv4(payload[24:], protocol, ADDRESSES[4], id=id, fragment=3)]


def carried(name, *ways, version=4):
    """The datagram, within one way after the other, the first innermost."""

    @case(name, is_seen=True)
    def _(flow, word):
        text = b"<" + name.encode() + b" " + word + b">"
        packet = struct.pack("!HHHH", flow.port, 9, 8 + len(text), 0) + text
        packet = over(version)(packet, 17) if version == 4 else udp_v6(packet)
        for way in ways:
            packet = way(packet)
        for sent in packet if isinstance(packet, list) else [packet]:
            flow.wire.send(sent)


def udp_v6(datagram):
    # Over IPv6 there must be a checksum; nobody here looks at it.
    return over(6)(datagram[:6] + b"\x12\x34" + datagram[8:], 17)


carried("udp")
carried("ip in ip", ip(4))
carried("ip in ipv6", ip(6))
carried("ipv6 in ip", ip(4), version=6)
carried("ipv6 in ipv6", ip(6), version=6)
carried("gre", gre(4))
carried("gre over ipv6", gre(6))
carried("gre of ipv6", gre(4), version=6)
carried("gre with a checksum", gre(4, 0x8000, bytes(4)))
carried("gre with key and number", gre(4, 0x3000, bytes(8)))
carried("gre with a frame", bridged)
carried("gre with bits that mean nothing", gre(4, 0x0F78))
carried("pptp", pptp)
carried("gre in gre in ip", gre(4), gre(4), ip(4))
carried("all kinds", ip(4), gre(4), ip(6), gre(6), bridged, ip(4), gre(4, 0x2000, bytes(4)), pptp)
carried("ip in ip in pieces", ip(4), in_pieces)
carried("at the bound of ip", *[ip(4)] * BOUND)
carried("at the bound of gre", *[gre(4)] * BOUND)
carried("at the bound of several", *[gre(4), ip(6), ip(4), gre(6)] * (BOUND // 4))
carried("beyond the bound of ip", *[ip(4)] * (BOUND + 1))
carried("beyond the bound of gre", *[gre(4)] * (BOUND + 1))
carried("far beyond the bound", *[gre(4), ip(6), ip(4), gre(6)] * 12)
