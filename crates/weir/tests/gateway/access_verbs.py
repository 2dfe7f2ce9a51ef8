"""Asks everything of a responder by verbs, over every kind of queue pair, and says what became of it.

    access_verbs.py serve SERVER ADDRESS...
    access_verbs.py ask SERVER CLIENT ADDRESS...

Both ends make the same queue pairs: one for each kind, each operation and each of the responder's
addresses, in that order, and exchange their numbers by TCP at SERVER. The responder first sends a
word over each reliable one. Then the requester does the operation, all at once, and prints a line of
JSON for each: how it completed, after how long, and whether it arrived. When the file `/tmp/again`
is there, it asks once more over all queue pairs that still stand, and prints that.
"""

import json
import os
import socket
import sys
import time

from pyverbs import enums as e
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

OPERATIONS = {
    "rc": ["send", "send_imm", "write", "write_imm", "read", "atomic"],
    "uc": ["send", "send_imm", "write", "write_imm"],
    "ud": ["send", "send_imm"],
}
TYPES = {"rc": e.IBV_QPT_RC, "uc": e.IBV_QPT_UC, "ud": e.IBV_QPT_UD}
OPCODES = {
    "send": e.IBV_WR_SEND,
    "send_imm": e.IBV_WR_SEND_WITH_IMM,
    "write": e.IBV_WR_RDMA_WRITE,
    "write_imm": e.IBV_WR_RDMA_WRITE_WITH_IMM,
    "read": e.IBV_WR_RDMA_READ,
    "atomic": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
}
ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
PORT = 7000
QUEUE_KEY = 0x11111111
ROOM = 8192  # Bytes of memory for each queue pair.
LENGTH = {"rc": 3000, "uc": 3000, "ud": 600, "atomic": 8}  # Three packets, or one.
GRH = 40


class Cell:
    def __init__(self, number, kind, operation, address):
        self.number, self.kind, self.operation, self.address = number, kind, operation, address

    @property
    def length(self):
        return LENGTH.get(self.operation, LENGTH[self.kind])


class End:
    def __init__(self, addresses, sources):
        self.cells = []
        for kind, operations in OPERATIONS.items():
            for operation in operations:
                for address in addresses:
                    self.cells.append(Cell(len(self.cells), kind, operation, address))
        self.context = Context(name="rxe0")
        self.pd = PD(self.context)
        self.cqs = [CQ(self.context, 512), CQ(self.context, 512)]
        self.memory = MR(self.pd, ROOM * len(self.cells), ACCESS)
        table = self.context.query_gid_table(32)
        self.gids = {entry.gid_str(): entry.gid_index for entry in table}
        for cell, source in zip(self.cells, sources(self.cells)):
            self.make(cell, source)

    def make(self, cell, source):
        cell.source = source
        capacity = QPCap(max_send_wr=8, max_recv_wr=8, max_send_sge=1, max_recv_sge=1)
        begin = QPInitAttr(
            qp_type=TYPES[cell.kind], scq=self.cqs[0], rcq=self.cqs[1], cap=capacity, sq_sig_all=1
        )
        attributes = QPAttr(port_num=1)
        if cell.kind == "ud":
            attributes.qkey = QUEUE_KEY
        else:
            attributes.qp_access_flags = ACCESS if cell.kind == "rc" else e.IBV_ACCESS_REMOTE_WRITE
        cell.qp = QP(self.pd, begin, attributes)
        # Each begins elsewhere, as those of strangers do; the first ones wrap.
        cell.psn = (0xFFFFFE + 1000 * cell.number) & 0xFFFFFF

    def says(self):
        return [[c.qp.qp_num, c.psn, self.memory.rkey, self.place(c)] for c in self.cells]

    def place(self, cell):
        return self.memory.buf + ROOM * cell.number

    def connect(self, cell, other, peer):
        cell.other = other
        qpn, psn, _, _ = other
        route = GlobalRoute(gid(peer), sgid_index=self.gids[str(gid(cell.source))], hop_limit=64)
        path = AHAttr(is_global=1, port_num=1, gr=route)
        if cell.kind == "ud":
            cell.ah = AH(self.pd, attr=path)
            return
        attributes = QPAttr(port_num=1)
        attributes.path_mtu = e.IBV_MTU_1024
        attributes.dest_qp_num, attributes.rq_psn, attributes.sq_psn = qpn, psn, cell.psn
        attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 4
        attributes.min_rnr_timer = 1
        # 0.13 s, and thrice more: a busy emulator is not lost in between.
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 15, 3, 7
        attributes.ah_attr = path
        cell.qp.to_rts(attributes)

    def expect(self, cell, count):
        place = self.place(cell) + ROOM // 2
        for _ in range(count):
            piece = SGE(place, ROOM // 2, self.memory.lkey)
            cell.qp.post_recv(RecvWR(wr_id=cell.number, num_sge=1, sg=[piece]))

    def send(self, cell, operation):
        length = LENGTH.get(operation, LENGTH[cell.kind])
        piece = SGE(self.place(cell), length, self.memory.lkey)
        request = SendWR(
            wr_id=cell.number, opcode=OPCODES[operation], num_sge=1, sg=[piece], imm_data=7
        )
        qpn, _, key, place = cell.other
        if operation in ("write", "write_imm", "read"):
            request.set_wr_rdma(key, place)
        elif operation == "atomic":
            request.set_wr_atomic(key, place, 1, 0)
        if cell.kind == "ud":
            request.set_wr_ud(cell.ah, qpn, QUEUE_KEY)
        cell.qp.post_send(request)

    def ended(self, which, wanted, seconds):
        """Completions by cell, with the time they took."""
        begun, found = time.monotonic(), {}
        while wanted - found.keys() and time.monotonic() < begun + seconds:
            count, completions = self.cqs[which].poll(16)
            for completion in completions[:count]:
                took = round((time.monotonic() - begun) * 1000)
                found.setdefault(completion.wr_id, (completion.status, took))
            if count == 0:
                time.sleep(0.002)
        return found

    def fill(self, byte):
        for cell in self.cells:
            self.memory.write(bytes([byte]) * ROOM, ROOM, ROOM * cell.number)

    def changed(self, cell, byte, length):
        return self.memory.read(length, ROOM * cell.number) != bytes([byte]) * length


def gid(address):

    parts = [int(part) for part in address.split(".")]
    return GID("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x" % tuple(parts))


class Words:
    def __init__(self, stream):
        self.file = stream.makefile("rw")

    def say(self, what):
        self.file.write(json.dumps(what) + "\n")
        self.file.flush()

    def hear(self):
        return json.loads(self.file.readline())


def connect(words, end, peers):
    words.say(end.says())
    for cell, other, peer in zip(end.cells, words.hear(), peers(end.cells)):
        end.connect(cell, other, peer)


def serve(server, addresses):
    end = End(addresses, lambda cells: [cell.address for cell in cells])
    listener = socket.create_server((server, PORT))
    stream, client = listener.accept()
    words = Words(stream)
    connect(words, end, lambda cells: [client[0]] * len(cells))
    reliable = [cell for cell in end.cells if cell.kind == "rc"]
    words.hear()
    for cell in end.cells:
        end.expect(cell, 4)
    for cell in reliable:
        end.send(cell, "send")
    wanted = {cell.number for cell in reliable}
    found = end.ended(0, wanted, 20)
    words.say(sorted(wanted - {cell for cell, (status, _) in found.items() if status == 0}))
    while words.hear() == "begin":
        end.fill(0x55)
        words.say("begun")
        words.hear()
        received = end.ended(1, {cell.number for cell in end.cells}, 1)
        arrived = {}
        for cell in end.cells:
            if cell.operation in ("send", "send_imm"):
                arrived[cell.number] = received.get(cell.number, (1, 0))[0] == 0
            else:
                arrived[cell.number] = end.changed(cell, 0x55, cell.length)
        words.say([arrived[cell.number] for cell in end.cells])


def ask(server, own, addresses):
    end = End(addresses, lambda cells: [own] * len(cells))
    for _ in range(600):
        try:
            words = Words(socket.create_connection((server, PORT)))
            break
        except OSError:
            time.sleep(0.1)
    connect(words, end, lambda cells: [cell.address for cell in cells])
    for cell in end.cells:
        end.expect(cell, 1)
    words.say("ready")
    unheard = words.hear()
    assert not unheard, f"the responder reaches nobody by queue pairs {unheard}"
    standing = round_of(end, words, end.cells)
    print("first", flush=True)
    while not os.path.exists("/tmp/again"):
        time.sleep(0.1)
    round_of(end, words, standing)
    words.say("end")


def round_of(end, words, cells):
    """Asks for each cell's operation, prints what became of it; those whose queue pair stands."""
    words.say("begin")
    words.hear()
    end.fill(0xAA)
    for cell in cells:
        end.send(cell, cell.operation)
    found = end.ended(0, {cell.number for cell in cells}, 20)
    words.say("asked")
    arrived = words.hear()
    for cell in cells:
        status, took = found.get(cell.number, (None, None))
        there = arrived[cell.number]
        if cell.operation == "read":
            there = end.changed(cell, 0xAA, cell.length)
        print(
            json.dumps(
                {
                    "type": cell.kind,
                    "operation": cell.operation,
                    "address": cell.address,
                    "status": status,
                    "ms": took,
                    "arrived": there,
                }
            ),
            flush=True,
        )
    return [cell for cell in cells if found.get(cell.number, (1, 0))[0] == 0]


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], sys.argv[3:])
    else:
        ask(sys.argv[2], sys.argv[3], sys.argv[4:])
