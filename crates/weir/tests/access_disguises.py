"""A WRITE over RoCE in every disguise that its receiver might see through, a packet each, into the
capture that the first argument names. Prints how many there are.
"""

import sys

from scapy.all import (
    UDP, Dot1AD, Dot1Q, Ether, IP, IPOption, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop, IPv6ExtHdrRouting, Jumbo, Raw, wrpcap,
)

MACS = {"src": "02:00:00:00:00:02", "dst": "02:00:00:00:00:01"}


def bth(opcode, rest=bytes(16) + b"x" * 32):
    return bytes([opcode, 0x40, 0xFF, 0xFF, 0, 0, 0, 0x12, 0, 0, 0, 1]) + rest + bytes(4)


def udp(payload, **fields):
    return UDP(sport=50000, dport=4791, chksum=0, **fields) / Raw(payload)


def v4(**fields):
    return IP(src="10.0.0.2", dst="10.0.0.1", **fields)


def v6(**fields):
    return IPv6(src="fd00::2", dst="fd00::1", **fields)


def roce_v1(length, next_header):
    header = bytes.fromhex("60000000") + length.to_bytes(2, "big") + bytes([next_header, 64])
    gids = b"\xfe" * 16 + b"\xfd" * 16
    return Ether(type=0x8915, **MACS) / Raw(header + gids + write)


write = bth(10)
plain = bytes(udp(write))
link = Ether(**MACS)
fragment = IPv6ExtHdrFragment
packets = [
    link / v4() / udp(write),
    link / v6() / udp(write),
    link / v4(options=[IPOption(b"\x94\x04\x00\x00")]) / udp(write),
    link / v4(proto=51) / Raw(b"\x11\x04" + bytes(22)) / udp(write),
    link / v6() / IPv6ExtHdrDestOpt() / udp(write),
    link / v6() / IPv6ExtHdrHopByHop() / udp(write),
    link / v6() / IPv6ExtHdrRouting(addresses=[]) / udp(write),
    link / v6(plen=0) / IPv6ExtHdrHopByHop(options=[Jumbo(jumboplen=100)]) / udp(write),
    link / v6() / fragment(offset=0, m=0) / udp(write),
    link / v6() / fragment(offset=0, m=1, nh=17) / Raw(plain[:48]),
    link / v6(nh=44) / fragment(m=1, nh=60) / Raw(bytes([17, 0, 1, 4, 0, 0, 0, 0])),
    link / v6(nh=44) / fragment(offset=0, m=1, nh=17),
    link / v4(flags="MF", proto=17) / Raw(plain[:48]),
    link / v4(flags="MF", proto=17) / Raw(plain[:8]),
    link / v4(flags="MF", proto=17),
    link / v4() / udp(write, len=0),
    link / v4() / udp(write, len=8),
    link / v4() / udp(write, len=2000),
    link / Dot1Q(vlan=5) / v4() / udp(write),
    link / Dot1AD(vlan=5) / Dot1Q(vlan=6) / v4() / udp(write),
    link / Dot1Q(vlan=5) / Dot1Q(vlan=6) / Dot1Q(vlan=7) / v4() / udp(write),
    Ether(type=0x9100, **MACS) / Raw(b"\x00\x05\x08\x00" + bytes(v4() / udp(write))),
    roce_v1(len(write), 27),
    roce_v1(0, 27),
    roce_v1(len(write), 17),
    link / v4() / udp(bytes([10, 0x70]) + write[2:]),
    link / v4() / udp(bytes([10, 0x4F]) + write[2:]),
]
options = v6()
for _ in range(9):
    options = options / IPv6ExtHdrDestOpt()
packets.append(link / options / udp(write))
# WRITE Only with immediate data, Middle, FLUSH, ATOMIC WRITE; UC, XRC, RD.
for opcode, headers in [(11, 20), (7, 0), (28, 20), (29, 24), (0x2A, 16), (0xAA, 20), (0x4A, 28)]:
    packets.append(link / v4() / udp(bth(opcode, bytes(headers) + b"x" * 32)))
wrpcap(sys.argv[1], packets)
print(len(packets))
