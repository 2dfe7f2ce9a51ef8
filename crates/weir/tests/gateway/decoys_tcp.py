"""Cases of `decoys.py`: what TCP itself has no receiver take."""

import struct

from decoys import ACK, DECOY, FIN, NARROW, PSH, RST, SLEEPS, SYN, URG, WIDE, case

# Kinds of TCP options, with what is in them.
MD5 = bytes([19, 18]) + bytes(16)
COOKIE = bytes([34, 10]) + bytes(8)


@case("whole")
def _(flow, word):
    flow.send(0, word)


@case("in pieces")
def _(flow, word):
    flow.say(word)


@case("backwards")
def _(flow, word):
    flow.send(5, word[5:])
    flow.send(0, word[:5])


def decoy(name, how=None, **decoy):
    """A segment with such oddities, then the word in its place."""

    @case(name, **(how or {}))
    def _(flow, word):
        flow.send(0, DECOY, **decoy)
        flow.say(word)


def only(name, how=None, **odd):
    """The word, all of it in segments with such oddities, which the receiver takes."""

    @case(name, **(how or {}))
    def _(flow, word):
        flow.say(word, **odd)


decoy("checksum", spoil=1)
decoy("checksum zero", spoil=0x5555)
decoy("acknowledges what was not sent", ack=1000)
decoy("acknowledges nothing", flags=PSH)
decoy("no flags", flags=0)
decoy("fin alone", flags=FIN)
decoy("syn", flags=SYN | ACK)
decoy("syn alone", flags=SYN)
decoy("header too short", head=-1)
decoy("header too long", head=9)
decoy("md5 signature", options=MD5)
decoy("acknowledges what is before all", ack=-5)
decoy("acknowledges what is far behind", ack=-70000)
only("all push and urgent without place", flags=ACK | PSH | 0xC0)


@case("all acknowledges what is far behind on the fast path", server=SLEEPS)
def _(flow, word):
    # While memory is at hand, Linux does not look at the acknowledgment of what it waits for.
    flow.send(0, b"....")
    flow.say(word, 4, ack=-70000)
    return b"...." + word


@case("numbers that begin again", connects=False)
def _(flow, word):
    flow.first = 0xFFFFFFF8
    flow.connect()
    flow.say(word)


@case("the same ports again")
def _(flow, word):
    flow.send(0, DECOY)
    flow.acknowledged(12)
    flow.send(12, b"", flags=RST)
    flow.first += 5
    flow.connect()
    flow.say(word)


def another(name, number):
    """A reset and a SYN that never arrive, as if the same ports began anew at another number."""

    @case(name)
    def _(flow, word):
        other = {"to": bytes.fromhex("020000000099")}
        flow.send(0, b"", flags=RST, link=other)
        flow.send(number, b"", flags=SYN, ack=0, link=other)
        flow.say(word)


another("reset and syn to another hardware address", 0x50000000)
another("reset and syn of a number ahead", 1000)
another("reset and syn of a number behind", -1000)


@case("the same ports after both fins")
def _(flow, word):
    flow.send(0, DECOY, flags=ACK | PSH | FIN)
    flow.acknowledged(13)
    flow.theirs += 1
    flow.send(13, b"", flags=ACK)
    flow.first += 100_000
    flow.connect()
    flow.say(word)


@case("more behind a gap than is kept", server=WIDE)
def _(flow, word):
    flow.send(5, word[5:])
    for at in range(20, 20 + 2 * 520, 2):
        flow.send(at, b".")
    flow.send(0, word[:5])


@case("fin ahead")
def _(flow, word):
    flow.send(12, b"", flags=FIN | ACK)
    flow.say(word)


@case("beyond the window", server=NARROW)
def _(flow, word):
    edge = flow.window
    flow.send(edge, DECOY)
    flow.send(0, b"." * edge)
    flow.acknowledged(edge, room=len(word))
    flow.say(word, edge)
    return b"." * edge + word


@case("ends beyond the window", server=SLEEPS)
def _(flow, word):
    at = 0
    while flow.window > 600:
        flow.send(at, b"." * 500)
        at += 500
        flow.acknowledged(at)
    flow.send(at, b"-" * (flow.window + 100))
    flow.say(word, at)
    return b"." * at + word


@case("before the window")
def _(flow, word):
    flow.send(0, b"." * 100)
    flow.send(90, DECOY[:10])
    flow.send(0, b"-" * 100)
    flow.say(word, 100)
    return b"." * 100 + word


@case("old stamp", stamps=True)
def _(flow, word):
    flow.send(0, DECOY, stamp=900)
    flow.say(word)


@case("half a circle old stamp", stamps=True)
def _(flow, word):
    flow.send(0, DECOY, stamp=1000 + (1 << 31) + 5)
    flow.say(word)


@case("stamp older by one is taken", stamps=True)
def _(flow, word):
    flow.say(word, stamp=999)


@case("stamp not agreed on is none")
def _(flow, word):
    flow.send(0, b"." * 4, options=stamped(5000))
    flow.say(word, 4, options=stamped(100))
    return b"...." + word


def stamped(value):
    return struct.pack("!BBBBII", 1, 1, 8, 10, value, 0)


@case("of two stamps the last is old", stamps=True)
def _(flow, word):
    flow.send(0, DECOY, options=stamped(100))
    flow.say(word)


@case("of two stamps the first is old", stamps=True)
def _(flow, word):
    flow.say(word, stamp=100, options=stamped(1000))


@case("stamp left out is taken", stamps=True)
def _(flow, word):
    flow.stamps = False
    flow.say(word)


@case("stamp of what is not next", stamps=True)
def _(flow, word):
    flow.send(40, b"." * 4, stamp=90000)
    flow.say(word, stamp=1000)


def reset(name, at=0, **how):
    @case(name)
    def _(flow, word):
        flow.send(at, b"", **{"flags": RST | ACK, **how})
        flow.say(word)


reset("reset before", -1000)
reset("reset beyond", 1 << 20)
reset("reset within", 100)
reset("reset with checksum", spoil=1)
reset("fin beyond", 1 << 20, flags=FIN | ACK)
reset("fin with checksum", flags=FIN | ACK, spoil=1)
reset("fin that acknowledges nothing", flags=FIN)
reset("fin that acknowledges what was not sent", flags=FIN | ACK, ack=1000)
reset("syn in place", flags=SYN)
reset("syn before", -1, flags=SYN)
reset("syn beyond", 1 << 20, flags=SYN)
reset("answer from the client", flags=SYN | ACK)


def restarted(name, reset, syn, **how):
    """A reset, or its like, and a SYN, neither of which is heeded."""

    @case(name)
    def _(flow, word):
        flow.send(reset, b"", **{"flags": RST | ACK, **how})
        flow.send(syn, b"", flags=SYN)
        flow.say(word)


restarted("reset beyond and a syn", 1 << 20, 5000)
restarted("fin beyond and a syn", 1 << 20, 5000, flags=FIN | ACK)
restarted("reset and a syn before", -5000, -50_000)
restarted("reset in the servers name and a syn", 0, 5000, backwards=True)


@case("reset with data beyond")
def _(flow, word):
    flow.send(1 << 20, DECOY, flags=RST | ACK)
    flow.say(word)


@case("urgent byte")
def _(flow, word):
    # The receiver takes the byte before the place out of the stream.
    flow.send(0, word[:4])
    flow.send(4, b"!" + word[4:8], flags=ACK | PSH | URG, urgent=1)
    flow.send(9, word[8:])


# Beginnings.


def early(name, **syn):
    @case(name, connects=False)
    def _(flow, word):
        flow.connect(DECOY, **syn)
        flow.say(word)


early("data with a syn")
early("data with a syn and a cookie", options=COOKIE)


@case("older by one with the third segment", connects=False, stamps=True)
def _(flow, word):
    flow.connect(is_silent=True)
    flow.send(0, DECOY, stamp=999)
    flow.say(word)


@case("echo of nothing with the third segment", connects=False, stamps=True)
def _(flow, word):
    flow.connect(is_silent=True)
    flow.send(0, DECOY, echo=77)
    flow.say(word)


@case("several syns", connects=False)
def _(flow, word):
    flow.send(100_000, b"", flags=SYN, spoil=1)
    flow.send(-100_000, DECOY, flags=ACK)
    flow.connect()
    flow.say(word)


@case("word with the third segment", connects=False)
def _(flow, word):
    flow.connect(is_silent=True)
    flow.send(0, DECOY, flags=ACK | PSH, ack=7)
    flow.send(0, DECOY, flags=PSH)
    flow.say(word)


# What the client says in the server's name: its kernel does not get it, or does not heed it.


def forged(name, at=0, payload=b"", between=False, **how):
    @case(name)
    def _(flow, word):
        if between:
            flow.send(0, word[:5])
        flow.send(at, payload, backwards=True, **how)
        if between:
            flow.send(5, word[5:])
        else:
            flow.say(word)


forged("reset in the servers name", flags=RST | ACK)
forged("reset in the servers name between", flags=RST | ACK, between=True)
forged("fin in the servers name", flags=FIN | ACK)
forged("fin in the servers name between", flags=FIN | ACK, between=True)
forged("answer in the servers name", -1, flags=SYN | ACK, window=0)
forged("other answer in the servers name", 5000, flags=SYN | ACK, window=0)
forged("acknowledgment in the servers name", flags=ACK, ack=12)
forged("data in the servers name", flags=ACK | PSH, payload=b"HTTP/1.1 200 OK\r\n\r\n")


@case("answer in the servers name at the beginning", connects=False)
def _(flow, word):
    flow.connect(is_silent=True)
    flow.send(-1, b"", backwards=True, flags=SYN | ACK, window=0)
    flow.send(0, b"", flags=ACK)
    flow.say(word)


@case("stamps in the servers name at the beginning", connects=False, stamps=True)
def _(flow, word):
    # With stamps that the server did not answer with.
    flow.connect(is_silent=True)
    flow.send(-1, b"", backwards=True, flags=SYN | ACK, window=65535)
    flow.send(0, b"", flags=ACK)
    flow.say(word)


@case("data in the servers name that the decoy acknowledges")
def _(flow, word):
    flow.send(0, b"." * 50, backwards=True)
    flow.send(0, DECOY, ack=50)
    flow.say(word)


@case("acknowledgment in the servers name and stamps", stamps=True)
def _(flow, word):
    flow.send(0, b"", backwards=True, flags=ACK, ack=20)
    flow.send(20, b"....", stamp=90000)
    flow.say(word)
