// SPDX-License-Identifier: (Apache-2.0 OR BSD-2-Clause OR GPL-2.0)
//
// The fast path: carries the flows that the gateway put into `flows`, and counts them.
//
//   port --> packet socket: weir_fast_filter --+-> flow carried: counted, token, not received
//                                              +-> else: received, decided by the gateway
//        --> tc ingress: weir_guard_in --+-> token: redirected to the other port
//                                        +-> no token: dropped, as ever
//
// The decision is made once a frame, by the filter on the gateway's own socket, and handed to tc
// on the same processor. Without the socket (the gateway is dead) no filter runs, there is no
// token and nothing is carried.

#ifndef WEIR_FASTPATH_BPF_H
#define WEIR_FASTPATH_BPF_H

#include "fastpath.h"

#define RECEIVE_WHOLE 0xffffffffu
#define RECEIVE_NOTHING 0

#define ETHERTYPE_VLAN 0x8100
#define ETHERTYPE_QINQ 0x88a8
#define ETHERTYPE_QINQ_OLD 0x9100
#define ETHERTYPE_ROCE_V1 0x8915
#define NEXT_HEADER_IBA 0x1b
#define PORT_ROCE_V2 4791
#define PORT_VXLAN 4789
#define PORT_GENEVE 6081
#define PORT_ESP 4500
#define BTH_LEN 12
#define ICRC_LEN 4
#define GRH_LEN 40
#define QP_SERVICES_MAX 1
#define QP_MULTICAST 0xffffff
#define PSN_MASK 0xffffff
#define PSN_HALF 0x800000
// As rdma/psn.rs: no loss explains a greater distance.
#define PSN_JUMP 65536
#define TCP_CONTROL 0x07 // FIN, SYN, RST
#define READ_EXACT_BYTES_MAX 256

// By opcode: what the engine compiled.
const volatile __u32 opcode_words[256] = {};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct weir_key);
	__type(value, __u32);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct weir_slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	// By worker.
	__uint(max_entries, WEIR_WORKERS_MAX);
	__type(key, __u32);
	__type(value, struct weir_control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

// Heads of carried frames.
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} heads SEC(".maps");

struct opcode_counts {
	__u64 packets[256];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	// By worker.
	__uint(max_entries, WEIR_WORKERS_MAX);
	__type(key, __u32);
	__type(value, struct opcode_counts);
} opcodes SEC(".maps");

// What the filter decided about the frame that tc gets next on this processor.
struct token {
	__u32 ifindex;
	__u32 len;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct token);
} tokens SEC(".maps");

// Whether the filter wants this frame carried. Takes the token.
static __always_inline int fast_token(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct token *token = bpf_map_lookup_elem(&tokens, &zero);
	if (!token || token->ifindex != skb->ifindex)
		return 0;
	token->ifindex = 0;
	return token->len == skb->len;
}

// One packet, as far as its headers go.
struct packet {
	struct weir_key key;
	__u32 wire_len;
	__u32 payload_offset;
	__u32 end;
	__u32 segments;
	__u16 source_port;
	__u8 traffic_class;
	__u8 tcp_flags;
	// RDMA only.
	__u32 word;
	__u32 bth_end;
	__u32 psn;
	__u32 payload_len;
	__u16 partition_key;
	__u8 opcode;
	__u8 fecn;
	__u32 queue_key;
	__u32 worker;
};

static __always_inline __u16 half(const __u8 *at)
{
	return (__u16)at[0] << 8 | at[1];
}

static __always_inline __u32 three(const __u8 *at)
{
	return (__u32)at[0] << 16 | (__u32)at[1] << 8 | at[2];
}

static __always_inline __u32 word(const __u8 *at)
{
	return (__u32)at[0] << 24 | three(at + 1);
}

static __always_inline void mapped(__u8 *to, const __u8 *v4)
{
	to[10] = 0xff;
	to[11] = 0xff;
	__builtin_memcpy(to + 12, v4, 4);
}

// The base transport header at `offset`, of a packet that ends at `end` with its ICRC.
static __always_inline int parse_rdma(struct __sk_buff *skb, struct packet *p, __u32 offset,
				      __u32 end)
{
	__u8 bth[BTH_LEN];
	__u8 deth[8];
	__u32 around;

	if (offset + BTH_LEN > end || bpf_skb_load_bytes(skb, offset, bth, sizeof(bth)))
		return 0;
	p->opcode = bth[0];
	p->word = opcode_words[bth[0]];
	if (p->word & WEIR_OPCODE_SLOW || p->segments > 1)
		return 0;
	p->partition_key = half(bth + 2);
	p->fecn = bth[4] >> 7;
	p->psn = three(bth + 9);
	p->bth_end = offset + BTH_LEN;
	p->key.destination_qp = three(bth + 5);
	if (p->key.destination_qp <= QP_SERVICES_MAX || p->key.destination_qp == QP_MULTICAST)
		return 0;
	around = BTH_LEN + WEIR_OPCODE_EXTENSIONS_LEN(p->word) + (bth[1] >> 4 & 3) + ICRC_LEN;
	if (end - offset < around)
		return 0;
	p->payload_len = end - offset - around;
	if (p->word & WEIR_OPCODE_DATAGRAM) {
		if (bpf_skb_load_bytes(skb, p->bth_end, deth, sizeof(deth)))
			return 0;
		p->queue_key = word(deth);
		p->key.source_qp = three(deth + 5) | WEIR_HAS_SOURCE_QP;
	}
	return 1;
}

static __always_inline int parse_udp(struct __sk_buff *skb, struct packet *p, __u32 offset)
{
	__u8 udp[8];
	__u16 source, destination, length;

	if (offset + sizeof(udp) > p->end || bpf_skb_load_bytes(skb, offset, udp, sizeof(udp)))
		return 0;
	source = half(udp);
	destination = half(udp + 2);
	length = half(udp + 4);
	if (length < sizeof(udp) || offset + length > p->end)
		return 0;
	p->payload_offset = offset + sizeof(udp);
	p->source_port = source;
	if (destination == PORT_ROCE_V2) {
		p->key.kind = WEIR_ROCE_V2;
		return parse_rdma(skb, p, offset + sizeof(udp), offset + length);
	}
	// What travels inside these is for the gateway to see.
	if (destination == PORT_VXLAN || destination == PORT_GENEVE || destination == PORT_ESP ||
	    source == PORT_ESP)
		return 0;
	p->key.protocol = IPPROTO_UDP;
	p->key.source_port = source;
	p->key.destination_port = destination;
	return 1;
}

static __always_inline int parse_tcp(struct __sk_buff *skb, struct packet *p, __u32 offset)
{
	__u8 tcp[20];
	__u32 header_len;

	if (offset + sizeof(tcp) > p->end || bpf_skb_load_bytes(skb, offset, tcp, sizeof(tcp)))
		return 0;
	header_len = (tcp[12] >> 4) * 4;
	if (header_len < sizeof(tcp) || offset + header_len > p->end)
		return 0;
	p->payload_offset = offset + header_len;
	p->tcp_flags = tcp[13];
	p->key.protocol = IPPROTO_TCP;
	p->key.source_port = half(tcp);
	p->key.destination_port = half(tcp + 2);
	return 1;
}

static __always_inline int parse_ipv4(struct __sk_buff *skb, struct packet *p, __u32 offset,
				      __u32 *behind)
{
	__u8 ip[20];
	__u32 header_len, total_len;

	if (bpf_skb_load_bytes(skb, offset, ip, sizeof(ip)))
		return 0;
	header_len = (ip[0] & 15) * 4;
	total_len = half(ip + 2);
	if (ip[0] >> 4 != 4 || header_len < sizeof(ip) || total_len < header_len)
		return 0;
	if (half(ip + 6) & 0x3fff || offset + total_len > skb->len)
		return 0;
	p->end = offset + total_len;
	p->traffic_class = ip[1];
	mapped(p->key.source, ip + 12);
	mapped(p->key.destination, ip + 16);
	*behind = offset + header_len;
	return ip[9];
}

// The IPv6 header, or a GRH, which has the same form: the next header's number.
static __always_inline int parse_ipv6(struct __sk_buff *skb, struct packet *p, __u32 offset,
				      __u32 *behind)
{
	__u8 ip[GRH_LEN];
	__u32 payload_len;

	if (bpf_skb_load_bytes(skb, offset, ip, sizeof(ip)))
		return 0;
	payload_len = half(ip + 4);
	if (ip[0] >> 4 != 6 || offset + GRH_LEN + payload_len > skb->len)
		return 0;
	p->end = offset + GRH_LEN + payload_len;
	p->traffic_class = ip[0] << 4 | ip[1] >> 4;
	__builtin_memcpy(p->key.source, ip + 8, 16);
	__builtin_memcpy(p->key.destination, ip + 24, 16);
	*behind = offset + GRH_LEN;
	return ip[6];
}

static __always_inline int is_vlan(__u16 ethertype)
{
	return ethertype == ETHERTYPE_VLAN || ethertype == ETHERTYPE_QINQ ||
	       ethertype == ETHERTYPE_QINQ_OLD;
}

#include "gate.bpf.h"

// Whether the frame is of a kind that may be carried; what it is.
static __always_inline int parse(struct __sk_buff *skb, struct packet *p)
{
	__u8 ethernet[ETH_HLEN];
	__u8 tag[4];
	__u32 offset = ETH_HLEN, behind = 0, tags = 0;
	__u16 ethertype;
	int next;

	if (bpf_skb_load_bytes(skb, 0, ethernet, sizeof(ethernet)) || ethernet[0] & 1)
		return 0;
	p->wire_len = skb->len;
	p->segments = skb->gso_size ? 2 : 1;
	if (skb->vlan_present) {
		p->key.vlans = (skb->vlan_tci & 0xfff) << 12;
		p->wire_len += 4;
		tags = 1;
	}
	ethertype = half(ethernet + 12);
	for (int i = 0; i < 2; i++) {
		if (!is_vlan(ethertype) || tags == 2)
			break;
		if (bpf_skb_load_bytes(skb, offset, tag, sizeof(tag)))
			return 0;
		p->key.vlans |= (half(tag) & 0xfff) << (tags ? 0 : 12);
		ethertype = half(tag + 2);
		offset += 4;
		tags++;
	}
	p->key.side = skb->ifindex == wire_index;
	switch (ethertype) {
	case ETH_P_IP:
		next = parse_ipv4(skb, p, offset, &behind);
		break;
	case ETH_P_IPV6:
		next = parse_ipv6(skb, p, offset, &behind);
		break;
	case ETHERTYPE_ROCE_V1:
		if (parse_ipv6(skb, p, offset, &behind) != NEXT_HEADER_IBA)
			return 0;
		p->key.kind = WEIR_ROCE_V1;
		p->payload_offset = behind;
		return parse_rdma(skb, p, behind, p->end);
	default:
		return 0;
	}
	if (next == IPPROTO_TCP)
		return parse_tcp(skb, p, behind);
	if (next == IPPROTO_UDP)
		return parse_udp(skb, p, behind);
	return 0;
}

// Follows one stream of sequence numbers; says whether this one was not the next.
static __always_inline int follow(__u32 *state, __u32 psn, __u32 count, __u32 *expected)
{
	__u32 next = *state;
	__u32 ahead = (psn - next) & PSN_MASK;

	*expected = next;
	if (!(next & WEIR_STARTED) || ahead < PSN_HALF || PSN_MASK + 1 - ahead > PSN_JUMP)
		*state = ((psn + count) & PSN_MASK) | WEIR_STARTED;
	return !(next & WEIR_STARTED) || ahead != 0;
}

static __always_inline void note_remote_key(struct weir_slot *slot, __u32 key)
{
	__u32 known = slot->remote_key_count;

	for (__u32 i = 0; i < WEIR_REMOTE_KEYS; i++)
		if (i < known && slot->remote_keys[i] == key)
			return;
	for (__u32 i = 0; i < WEIR_REMOTE_KEYS; i++)
		if (i == known)
			slot->remote_keys[i] = key;
	if (known <= WEIR_REMOTE_KEYS)
		slot->remote_key_count = known + 1;
}

// The number of a request; an event where it was not the next one.
static __always_inline __u32 follow_request(struct __sk_buff *skb, struct weir_slot *slot,
					    struct packet *p, __u32 *expected)
{
	__u32 key_offset = WEIR_OPCODE_KEY_OFFSET(p->word), psns = 1, mtu = slot->path_mtu;
	__u8 key_and_length[8];
	int unexpected, is_exact = 1;

	if (key_offset) {
		if (bpf_skb_load_bytes(skb, p->bth_end + key_offset, key_and_length, 8))
			return 0;
		note_remote_key(slot, word(key_and_length));
		if (p->word & WEIR_OPCODE_READ) {
			__u32 len = word(key_and_length + 4);
			if (mtu)
				psns = len ? (len - 1) / mtu + 1 : 1;
			else
				is_exact = len <= READ_EXACT_BYTES_MAX;
			if (psns > PSN_HALF)
				psns = PSN_HALF;
		}
	}
	unexpected = follow(&slot->request_next, p->psn, psns, expected);
	// How many numbers the READ took, the gateway may know better; it says where they go on.
	if (!is_exact)
		slot->request_next = 0;
	return unexpected || !is_exact ? WEIR_EVENT_REQUEST_PSN : 0;
}

// Follows the numbers of a flow, before it is carried too: the first packet carried may be one
// that is sent again.
static __always_inline __u32 follow_numbers(struct __sk_buff *skb, struct weir_slot *slot,
					    struct packet *p, __u32 *expected)
{
	__u32 kinds = 0;

	if (p->key.kind == WEIR_PORTS)
		return 0;
	if (p->word & WEIR_OPCODE_REQUEST)
		kinds = follow_request(skb, slot, p, expected);
	if (p->word & WEIR_OPCODE_RESPONSE && follow(&slot->response_next, p->psn, 1, expected))
		kinds |= WEIR_EVENT_RESPONSE_PSN;
	return kinds;
}

static __always_inline __u32 count_syndrome(struct __sk_buff *skb, struct weir_slot *slot,
					    struct packet *p)
{
	__u8 syndrome = 0;
	__u32 cause;

	if (bpf_skb_load_bytes(skb, p->bth_end, &syndrome, 1))
		return 0;
	if (syndrome >> 5 == 1) {
		__sync_fetch_and_add(&slot->rnr_naks, 1);
		return WEIR_EVENT_NAK;
	}
	if (syndrome >> 5 != 3)
		return 0;
	cause = syndrome & 0x1f;
	if (cause >= WEIR_NAK_CAUSES)
		cause = WEIR_NAK_CAUSES - 1;
	__sync_fetch_and_add(&slot->naks[cause], 1);
	return WEIR_EVENT_NAK;
}

static __always_inline __u32 count_rdma(struct __sk_buff *skb, struct weir_slot *slot,
					struct packet *p, __u32 kinds)
{
	__u32 class = WEIR_OPCODE_CLASS(p->word), worker = p->worker;
	struct opcode_counts *counts = bpf_map_lookup_elem(&opcodes, &worker);

	if (counts)
		counts->packets[p->opcode] += 1;
	if (class >= WEIR_CLASSES)
		class = WEIR_CLASSES - 1;
	__sync_fetch_and_add(&slot->classes[class].packets, 1);
	__sync_fetch_and_add(&slot->classes[class].bytes, p->wire_len);
	__sync_fetch_and_add(&slot->payload_bytes, p->payload_len);
	slot->partition_key = p->partition_key;
	if (p->fecn || (p->traffic_class & 3) == 3)
		__sync_fetch_and_add(&slot->marked, 1);
	if (p->key.kind == WEIR_ROCE_V2 && p->source_port != slot->source_port) {
		__sync_fetch_and_add(&slot->foreign_packets, 1);
		__sync_fetch_and_add(&slot->foreign_bytes, p->wire_len);
		kinds |= WEIR_EVENT_SOURCE_PORT;
	}
	if (p->word & WEIR_OPCODE_DATAGRAM)
		slot->queue_key = p->queue_key;
	if (p->opcode == 0x81) {
		__sync_fetch_and_add(&slot->cnp, 1);
		kinds |= WEIR_EVENT_CONGESTION;
	}
	if (p->word & WEIR_OPCODE_FULL && !slot->path_mtu && p->payload_len >= 256 &&
	    p->payload_len <= 4096 && !(p->payload_len & (p->payload_len - 1)))
		kinds |= WEIR_EVENT_PATH_MTU;
	if (p->word & WEIR_OPCODE_SYNDROME)
		kinds |= count_syndrome(skb, slot, p);
	if (p->word & WEIR_OPCODE_ENDS_MESSAGE && !(kinds & WEIR_EVENT_REQUEST_PSN))
		__sync_fetch_and_add(&slot->messages, 1);
	return kinds;
}

static __always_inline void report(struct __sk_buff *skb, struct weir_control *state,
				   struct packet *p, __u32 number, __u64 now, __u32 kinds,
				   __u32 expected)
{
	struct weir_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	__u32 len = skb->len;

	if (!event) {
		__sync_fetch_and_add(&state->events_lost, 1);
		return;
	}
	if (len > WEIR_EVENT_BYTES)
		len = WEIR_EVENT_BYTES;
	event->now_ns = now;
	event->slot = number;
	event->kinds = kinds;
	event->expected = expected;
	event->wire_len = p->wire_len;
	event->segments = p->segments;
	event->captured_len = len;
	if (len < ETH_HLEN || bpf_skb_load_bytes(skb, 0, event->bytes, len)) {
		bpf_ringbuf_discard(event, 0);
		__sync_fetch_and_add(&state->events_lost, 1);
		return;
	}
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

// Keeps the frame's beginning, as somebody who looks at it later would have seen it arrive.
static __always_inline void keep_head(struct __sk_buff *skb, struct weir_control *state,
				      struct packet *p, __u64 now)
{
	struct weir_head *head = bpf_ringbuf_reserve(&heads, sizeof(*head), 0);
	__u32 len = skb->len;

	if (!head) {
		__sync_fetch_and_add(&state->heads_lost, 1);
		return;
	}
	if (len > WEIR_HEAD_BYTES)
		len = WEIR_HEAD_BYTES;
	head->now_ns = now;
	head->wire_len = p->wire_len;
	head->captured_len = len;
	head->vlan_protocol = skb->vlan_present ? bpf_ntohs(skb->vlan_proto) : 0;
	head->vlan_tci = skb->vlan_tci;
	head->side = p->key.side;
	if (len < ETH_HLEN || bpf_skb_load_bytes(skb, 0, head->bytes, len)) {
		bpf_ringbuf_discard(head, BPF_RB_NO_WAKEUP);
		__sync_fetch_and_add(&state->heads_lost, 1);
		return;
	}
	bpf_ringbuf_submit(head, BPF_RB_NO_WAKEUP);
}

static __always_inline __u32 count_packet(struct __sk_buff *skb, struct weir_slot *slot,
					  struct packet *p, __u32 kinds)
{
	__u32 gso = skb->gso_size;

	if (gso) {
		__u32 payload = p->end - p->payload_offset;
		p->segments = payload ? (payload - 1) / gso + 1 : 1;
	}
	slot->traffic_class = p->traffic_class;
	__sync_fetch_and_add(&slot->frames, 1);
	__sync_fetch_and_add(&slot->packets, p->segments);
	__sync_fetch_and_add(&slot->bytes, p->wire_len);
	if ((p->traffic_class & 3) == 3)
		__sync_fetch_and_add(&slot->ecn_marked, p->segments);
	if (p->key.kind != WEIR_PORTS)
		return count_rdma(skb, slot, p, kinds);
	if (p->key.protocol == IPPROTO_TCP && p->tcp_flags & ~slot->tcp_flags)
		__sync_fetch_and_or(&slot->tcp_flags, p->tcp_flags);
	return kinds;
}

// Lets the gateway's socket have a frame; its number among those of its port.
static __always_inline __u64 admit(struct weir_control *state, __u32 side)
{
	return __sync_fetch_and_add(&state->admitted[side].frames, 1) + 1;
}

// Whether the flow's frames may overtake none any more. A frame that is let up is numbered after
// all that came before it, so the one that finds the slot first (WEIR_NONE) is let up too: earlier
// ones may have looked when the flow was not in the table yet.
static __always_inline int may_change_over(struct weir_slot *slot, struct weir_control *state,
					   __u32 side)
{
	return slot->last_admitted <= *(volatile __u64 *)&state->departed[side];
}

// On a worker's receiving sockets: zero takes the frame from the gateway. A flow's frames come to
// the sockets of one worker, so that the flow is in a slot of that worker.
static __always_inline int fast_filter(struct __sk_buff *skb, __u32 worker)
{
	struct packet p = { .worker = worker };
	struct weir_control *state;
	struct weir_slot *slot;
	struct token *token;
	__u32 zero = 0, side = skb->ifindex == wire_index, number, kinds, expected = 0, *found;
	__u64 now;

	if (gate_stops_received(skb))
		return RECEIVE_NOTHING;
	state = bpf_map_lookup_elem(&control, &worker);
	if (!state)
		return RECEIVE_WHOLE;
	if (!state->epoch || !parse(skb, &p))
		goto slow;
	found = bpf_map_lookup_elem(&flows, &p.key);
	if (!found)
		goto slow;
	number = *found;
	slot = bpf_map_lookup_elem(&slots, &number);
	token = bpf_map_lookup_elem(&tokens, &zero);
	now = bpf_ktime_get_ns();
	if (!slot || !token || slot->epoch != state->epoch ||
	    (__s64)(now - state->lease_ns) > (__s64)WEIR_LEASE_NS)
		goto slow;
	// Perhaps another connection begins between its ends, which is the gateway's to decide: the
	// slot is void, so that nothing of the flow passes until the gateway has it carried anew.
	if (p.tcp_flags & TCP_CONTROL) {
		slot->epoch = 0;
		goto slow;
	}
	slot->last_ns = now;
	kinds = follow_numbers(skb, slot, &p, &expected);
	if (!slot->is_fast) {
		if (!may_change_over(slot, state, side)) {
			slot->last_admitted = admit(state, side);
			return RECEIVE_WHOLE;
		}
		slot->is_fast = 1;
	}
	kinds = count_packet(skb, slot, &p, kinds);
	if (kinds)
		report(skb, state, &p, number, now, kinds, expected);
	if (state->wants_heads)
		keep_head(skb, state, &p, now);
	token->ifindex = skb->ifindex;
	token->len = skb->len;
	return RECEIVE_NOTHING;
slow:
	admit(state, side);
	return RECEIVE_WHOLE;
}

// One for each worker's sockets: nothing else tells a filter whose socket it is on.
#define FAST_FILTER(worker) \
	SEC("socket") int weir_fast_filter_##worker(struct __sk_buff *skb) \
	{ \
		return fast_filter(skb, worker); \
	}

FAST_FILTER(0)
FAST_FILTER(1)
FAST_FILTER(2)
FAST_FILTER(3)
FAST_FILTER(4)
FAST_FILTER(5)
FAST_FILTER(6)
FAST_FILTER(7)
FAST_FILTER(8)
FAST_FILTER(9)
FAST_FILTER(10)
FAST_FILTER(11)
FAST_FILTER(12)
FAST_FILTER(13)
FAST_FILTER(14)
FAST_FILTER(15)

#endif
