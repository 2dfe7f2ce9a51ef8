"""Seals and opens with scapy's IPsec layer: one JSON case a line in, one JSON answer a line out."""

import json
import sys

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import ESP, SecurityAssociation
from scapy.packet import raw


def association(case):
    high, tunnel = case["sequence"] >> 32, None
    if case["outer"]:
        version, source, destination = case["outer"]
        tunnel = (IP if version == 4 else IPv6)(src=source, dst=destination)
    return SecurityAssociation(
        ESP,
        spi=case["spi"],
        crypt_algo="AES-GCM",
        crypt_key=bytes.fromhex(case["keying_material"]),
        tunnel_header=tunnel,
        nat_t_header=UDP(sport=4500, dport=4500) if case["udp"] else None,
        esn_en=case["extended"],
        esn=high,
    )


def network(data):
    return (IP if data[0] >> 4 == 4 else IPv6)(data)


def opened(case, data):
    try:
        return raw(association(case).decrypt(network(data))).hex()
    except Exception as error:
        return "refused: " + type(error).__name__


for line in sys.stdin:
    case = json.loads(line)
    ours = bytes.fromhex(case["sealed"])
    touched = ours[:-1] + bytes([ours[-1] ^ 1])
    low = case["sequence"] & 0xFFFFFFFF
    iv = (case["sequence"] ^ 0x5555555555555555).to_bytes(8, "big")
    theirs = association(case).encrypt(network(bytes.fromhex(case["plain"])), seq_num=low, iv=iv)
    if case["udp"]:
        # scapy 2.5 fills in the UDP length before the ESP packet stands behind it.
        del theirs[UDP].len
    answer = {
        "opened": opened(case, ours),
        "touched": opened(case, touched),
        "sealed": raw(theirs).hex(),
    }
    print(json.dumps(answer), flush=True)
