"""Builds packets for the tests, or judges packets that the tests built.

build: writes named packets to FILE as pcap and prints their names, one a line.
link FILE NUMBER: writes packets of that link type (not Ethernet) to FILE.
opcodes: prints the BTH opcodes that scapy knows, number and name.
judge: reads packets in hex, one a line; prints for each whether scapy, having forgotten every
checksum and length, builds the same bytes again, and what layers and fields it sees.
"""

import logging
import sys

logging.getLogger("scapy").setLevel(logging.ERROR)
from scapy.contrib.erspan import ERSPAN_I, ERSPAN_II, ERSPAN_III, ERSPAN_PlatformSpecific
from scapy.contrib.geneve import GENEVE, GeneveOptions
from scapy.contrib.roce import AETH, BTH, GRH, cnp
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_Router_Alert, fragment
from scapy.layers.inet6 import (
    ICMPv6EchoRequest, ICMPv6ND_NS, ICMPv6NDOptSrcLLAddr, IPv6, IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, IPv6ExtHdrRouting, fragment6)
from scapy.layers.ipsec import AH, ESP
from scapy.layers.l2 import ARP, GRE, LLC, STP, Dot1AD, Dot1Q, Dot3, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw
from scapy.utils import wrpcap

ETHER = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
V4 = IP(src="10.1.0.1", dst="10.1.0.2", ttl=61, tos=0xb9, id=0x1234)
V6 = IPv6(src="fd00::1", dst="fd00::2", hlim=60, tc=0x2a, fl=0x12345)
DATA = Raw(bytes(range(48)))


def roce(opcode, extension=0, network=V4, pad=0, **fields):
    """RoCE v2 with `extension` bytes of extended headers and 12 bytes of payload.

    Requests to read, atomics and their answers have no payload."""
    payload = b"" if opcode & 0x1f in (0x0c, 0x11, 0x12, 0x13, 0x14) else b"p" * 12
    payload = Raw(bytes(0x11 * (i % 15 + 1) & 0xff for i in range(extension)) + payload)
    transport = UDP(sport=0xc123, dport=4791, chksum=0)
    return network / transport / BTH(
        opcode=opcode, dqpn=0x123456, psn=0xfedcba, padcount=pad, **fields) / payload


def packets():
    tcp = TCP(sport=1000, dport=2000, seq=0xdeadbeef, ack=0x01020304, flags="PA", window=5)
    udp = UDP(sport=1000, dport=2000)
    inner = Ether(dst="02:00:00:00:01:02", src="02:00:00:00:01:01") / IP(
        src="192.168.0.1", dst="192.168.0.2", ttl=9) / tcp / DATA
    yield "tcp", ETHER / V4 / tcp / DATA
    yield "tcp options", ETHER / V4 / TCP(
        sport=1, dport=2, flags="S", options=[("NOP", None), ("WScale", 7), ("MSS", 8960)])
    yield "ipv4 options", ETHER / IP(
        src="10.1.0.1", dst="10.1.0.2", options=[IPOption_Router_Alert()]) / udp / DATA
    yield "vlan", ETHER / Dot1Q(vlan=7, prio=5) / V4 / tcp / DATA
    yield "qinq", ETHER / Dot1AD(vlan=100, prio=3) / Dot1Q(vlan=7, prio=5) / V4 / tcp / DATA
    yield "vlan roce", ETHER / Dot1Q(vlan=9, prio=3) / roce(0x0a, 16)
    yield "udp", ETHER / V4 / udp / DATA
    yield "udp6", ETHER / V6 / udp / DATA
    yield "icmp", ETHER / V4 / ICMP(type=8, code=0, id=7, seq=9) / DATA
    yield "icmp6", ETHER / V6 / ICMPv6EchoRequest(id=7, seq=9, data=b"x" * 20)
    yield "neighbour", ETHER / V6 / ICMPv6ND_NS(tgt="fd00::9") / ICMPv6NDOptSrcLLAddr(
        lladdr="02:00:00:00:00:01")
    yield "arp", ETHER / ARP(psrc="10.1.0.1", pdst="10.1.0.2", hwsrc="02:00:00:00:00:01")
    yield "stp", Dot3(dst="01:80:c2:00:00:00", src="02:00:00:00:00:01") / LLC() / STP()
    outer = ETHER / V4
    yield "vxlan", outer / UDP(sport=5555, dport=4789) / VXLAN(vni=0x123456, flags=8) / inner
    options = [GeneveOptions(classid=1, type=2, data=b"abcd")]
    yield "geneve", outer / UDP(sport=5555, dport=6081) / GENEVE(
        vni=0xabcdef, options=options) / inner
    yield "geneve ip", outer / UDP(sport=5555, dport=6081) / GENEVE(vni=1, proto=0x0800) / V4 / udp
    yield "gre", outer / GRE(
        chksum_present=1, key_present=1, seqnum_present=1, key=0xcafe, seqence_number=1
    ) / IP(src="1.1.1.1", dst="2.2.2.2") / udp / DATA
    yield "gre ethernet", outer / GRE(proto=0x6558, key_present=1, key=0x99) / inner
    yield "gre6", ETHER / V6 / GRE(proto=0x86dd) / IPv6(src="fd01::1", dst="fd01::2") / udp / DATA
    yield "erspan 1", outer / GRE(proto=0x88be) / ERSPAN_I() / inner
    yield "erspan 2", outer / GRE(proto=0x88be, seqnum_present=1) / ERSPAN_II(
        ver=1, session_id=77, vlan=5) / inner
    yield "erspan 3", outer / GRE(proto=0x22eb, seqnum_present=1) / ERSPAN_III(
        session_id=78, o=1) / ERSPAN_PlatformSpecific() / inner
    extensions = IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / IPv6ExtHdrRouting(
        addresses=["fd00::7"])
    yield "ipv6 extensions", ETHER / V6 / extensions / tcp / DATA
    yield "ah", ETHER / V4 / AH(spi=5, seq=6, icv=b"i" * 12, nh=6, payloadlen=4) / tcp / DATA
    whole = V4 / udp / Raw(b"f" * 900)
    for index, piece in enumerate(fragment(whole, 400)):
        yield f"fragment {index}", ETHER / piece
    whole = V6 / IPv6ExtHdrFragment(id=0xabcd0123) / udp / Raw(b"f" * 900)
    for index, piece in enumerate(fragment6(whole, 500)):
        yield f"fragment6 {index}", ETHER / piece
    yield "fragment roce", ETHER / fragment(
        IP(bytes(roce(0x0a, 16))) / Raw(b""), 48)[0]
    esp = ESP(spi=0xc0ffee01, seq=0x1001, data=b"e" * 40)
    yield "esp", ETHER / V4 / esp
    yield "esp6", ETHER / V6 / esp
    yield "esp in udp", ETHER / V4 / UDP(sport=4500, dport=4500) / esp
    yield "ike", ETHER / V4 / UDP(sport=4500, dport=4500) / Raw(bytes(4) + b"i" * 28)
    yield "keepalive", ETHER / V4 / UDP(sport=4500, dport=4500) / Raw(b"\xff")
    # Extended headers by opcode, in bytes.
    lengths = {
        0x00: 0, 0x03: 4, 0x06: 16, 0x07: 0, 0x09: 4, 0x0a: 16, 0x0b: 20, 0x0c: 16, 0x0d: 4,
        0x0e: 0, 0x0f: 4, 0x10: 4, 0x12: 12, 0x13: 28, 0x14: 28, 0x16: 4, 0x17: 4,
        0x20: 0, 0x25: 4, 0x26: 16, 0x2b: 20, 0x44: 12, 0x45: 16, 0x4a: 28, 0x4c: 28, 0x4d: 8,
        0x4e: 4, 0x52: 16, 0x53: 40, 0x64: 8, 0x65: 12,
        0xa0: 4, 0xa1: 4, 0xa5: 8, 0xaa: 20, 0xac: 20, 0xad: 4, 0xb1: 4, 0xb3: 32, 0xb7: 8,
    }
    for opcode, extension in lengths.items():
        yield f"roce {opcode:#04x} {extension}", ETHER / roce(
            opcode, extension, ackreq=opcode & 1, solicited=1,
            pad=opcode % 4 if opcode & 0x1f < 0x0c else 0)
    yield "roce ack 4", ETHER / V4 / UDP(sport=0xc123, dport=4791, chksum=0) / BTH(
        opcode=0x11, dqpn=2, psn=3) / AETH(syndrome=0x60, msn=0x010203)
    yield "roce ipv4 options", ETHER / roce(
        0x0a, 16, IP(src="10.1.0.1", dst="10.1.0.2", options=[IPOption_Router_Alert()]))
    yield "cnp", ETHER / V4 / UDP(sport=0xc123, dport=4791, chksum=0) / cnp(0x42)
    yield "sport 4791 is not roce", ETHER / V4 / UDP(sport=4791, dport=53000) / DATA


def link_packets(number):
    """A TCP packet of each IP version and a RoCE v2 packet, behind a header of the link type."""
    address = b"\x02\x00\x00\x00\x00\x01\x00\x00"
    for network in (V4, V6):
        for packet in (network / TCP(sport=7, dport=8, flags="S"), roce(0x0a, 16, network)):
            kind = b"\x08\x00" if network is V4 else b"\x86\xdd"
            header = {
                101: b"",
                113: b"\x00\x00\x00\x01\x00\x06" + address + kind,
                276: kind + bytes(2) + b"\x00\x00\x00\x03\x00\x01\x00\x06" + address,
            }[number]
            yield Raw(header) / packet


def forget(packet):
    """Removes what scapy computes by itself."""
    layer = packet
    while layer is not None and layer.name not in ("NoPayload", "Raw"):
        for name in ("chksum", "cksum", "len", "plen", "ihl", "dataofs", "icrc", "hwlen", "plen"):
            if name in layer.fields and not (name == "chksum" and isinstance(layer, UDP) and
                                             layer.chksum == 0):
                del layer.fields[name]
        layer = layer.payload or None
    return packet


def judge():
    for line in sys.stdin:
        original = bytes.fromhex(line.strip())
        packet = Ether(original)
        fields = packet.command()
        rebuilt = bytes(forget(packet))
        print("same" if rebuilt == original else f"differs {rebuilt.hex()}", fields)


if __name__ == "__main__":
    if sys.argv[1] == "build":
        built = list(packets())
        # Padded as a sender's hardware would.
        frames = [(name, bytes(packet)) for name, packet in built]
        frames = [(name, frame + bytes(max(0, 60 - len(frame)))) for name, frame in frames]
        wrpcap(sys.argv[2], [frame for _, frame in frames], linktype=1)
        for name, _ in frames:
            print(name)
    elif sys.argv[1] == "link":
        number = int(sys.argv[3])
        wrpcap(sys.argv[2], [bytes(packet) for packet in link_packets(number)], linktype=number)
    elif sys.argv[1] == "opcodes":
        for number, name in sorted(BTH().get_field("opcode").i2s.items()):
            print(number, name)
    else:
        judge()
