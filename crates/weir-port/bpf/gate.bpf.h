// SPDX-License-Identifier: (Apache-2.0 OR BSD-2-Clause OR GPL-2.0)
//
// The gate: drops what is blocked, and floods that the gateway has told, before they are received.
//
//   port --> packet socket: filter --+-> blocked, or of a flood: counted, not received
//                                    +-> else: received, judged by the gateway
//        --> tc ingress: the guard drops it in either case
//   port --> XDP program, with AF_XDP --+-> likewise: dropped
//                                       +-> else: the port's own program, which redirects it
//
// What may be the gateway's own tunnel (ESP, UDP ports of it) is left to the gateway. Everything
// that passes here is judged by it as if there were no gate.

#ifndef WEIR_GATE_BPF_H
#define WEIR_GATE_BPF_H

#define GATE_BLOCKS_MAX 65536
#define GATE_FLOODS_MAX 1024
// Places of what was answered, and as many of SYNs that were refused.
#define GATE_SEEN (1 << 18)
// A conversation of UDP or ICMP was answered as late as that (seconds).
#define GATE_ANSWERED_S 60
// A SYN may be sent again within so many seconds.
#define GATE_SENT_AGAIN_S 16
#define NS_PER_SECOND 1000000000ULL
#define GATE_FRAGMENT_OFFSET 0x1fff

// The order of weir_detect::FloodKind.
enum gate_kind {
	GATE_SYN,
	GATE_UDP,
	GATE_ICMP,
	GATE_DNS,
	GATE_RDMA_READ,
	GATE_RDMA_WRITE,
	GATE_CM,
	GATE_MAD,
	GATE_CNP,
	GATE_NO_KIND,
};

// Behind the number of bits that count: an address, IPv4 ones mapped.
struct gate_prefix {
	__u32 bits;
	__u8 address[16];
};

struct gate_block {
	// CLOCK_MONOTONIC; zero: for ever.
	__u64 until_ns;
	__u64 frames;
	__u64 bytes;
};

// Behind the number of bits that count: what comes from or goes to a network, which may be a host;
// or what comes from a host and goes to a network. IPv4 addresses are mapped.
struct gate_flood_key {
	__u32 bits;
	__u8 kind;
	__u8 by_destination;
	__u8 zero[2];
	__u8 network[16];
	__u8 other[16];
};

struct gate_flood {
	// Packets a second that pass for all that, to a destination.
	__u64 trickle;
	// Thousandths of packets.
	__u64 tokens;
	__u64 last_ns;
	__u64 frames;
	__u64 bytes;
};

struct gate_control {
	__u32 has_blocks;
	__u32 has_allowed;
	__u32 has_floods;
	// Whether to remember who was answered.
	__u32 learns;
	__u64 seed;
	// UDP ports of tunnels; zero: none.
	__u16 tunnel_ports[4];
};

struct gate_count {
	__u64 frames;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GATE_BLOCKS_MAX);
	__type(key, struct gate_prefix);
	__type(value, struct gate_block);
} gate_blocked SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GATE_BLOCKS_MAX);
	__type(key, struct gate_prefix);
	__type(value, __u32);
} gate_allowed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GATE_FLOODS_MAX);
	__type(key, struct gate_flood_key);
	__type(value, struct gate_flood);
} gate_floods SEC(".maps");

// By a hash of what was seen: the rest of the hash, and the second.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * GATE_SEEN);
	__type(key, __u32);
	__type(value, __u64);
} gate_seen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gate_control);
} gate_control SEC(".maps");

// Host port, wire port; blocked, of floods.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, struct gate_count);
} gate_counts SEC(".maps");

// The port's own XDP program: of the host port, of the wire port.
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} gate_next SEC(".maps");

// A frame as a socket filter or an XDP program has it. Everything that takes one is inlined, so
// that each program calls only what its kind may.
struct gate_frame {
	void *ctx;
	int is_xdp;
	__u32 interface;
	// With a tag that the kernel has taken off.
	__u32 len;
};

struct gate_packet {
	__u64 source[2];
	__u64 destination[2];
	__u32 ports;
	__u32 sequence;
	__u32 wire_len;
	__u8 protocol;
	__u8 kinds[2];
	// Of ICMP: somebody may have asked for it.
	__u8 is_echo_reply;
};

static __always_inline long gate_load(const struct gate_frame *frame, __u32 at, void *to, __u32 len)
{
	if (frame->is_xdp)
		return bpf_xdp_load_bytes(frame->ctx, at, to, len);
	return bpf_skb_load_bytes(frame->ctx, at, to, len);
}

static __always_inline __u64 gate_mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 32;
}

// Of one direction of a conversation; `sequence` tells SYNs apart.
static __always_inline __u64 gate_hash(__u64 seed, const __u64 *from, const __u64 *to,
				       __u32 ports, __u32 sequence)
{
	__u64 hash = gate_mix(seed, from[0]);

	hash = gate_mix(hash, from[1]);
	hash = gate_mix(hash, to[0]);
	hash = gate_mix(hash, to[1]);
	return gate_mix(hash, (__u64)ports << 32 | sequence);
}

// Whether this was seen within so many seconds, as it now is again where `notes` says so.
static __always_inline int gate_was_seen(__u64 hash, __u32 first, __u32 within_s, __u64 now,
					 int notes)
{
	__u32 place = first + (hash & (GATE_SEEN - 1));
	__u64 *seen = bpf_map_lookup_elem(&gate_seen, &place);
	__u32 second = now / NS_PER_SECOND, tag = hash >> 32;
	__u64 before;

	if (!seen)
		return 0;
	before = *seen;
	if (notes)
		*seen = (__u64)tag << 32 | second;
	return (__u32)(before >> 32) == tag && second - (__u32)before <= within_s;
}

static __always_inline void gate_roce_kinds(const struct gate_frame *frame, struct gate_packet *p,
					    __u32 offset)
{
	__u8 bth[12];
	__u8 mad[18];
	__u8 service, operation;

	if (gate_load(frame, offset, bth, sizeof(bth)))
		return;
	service = bth[0] >> 5;
	operation = bth[0] & 0x1f;
	if (bth[0] == 0x81) {
		p->kinds[0] = GATE_CNP;
	} else if (service == 3 && !bth[5] && !bth[6] && bth[7] <= 1) {
		p->kinds[0] = GATE_MAD;
		// Behind BTH and DETH: a request of communication management (class 7, 0x0010).
		if (!gate_load(frame, offset + 20, mad, sizeof(mad)) && mad[1] == 7 &&
		    half(mad + 16) == 0x10)
			p->kinds[1] = GATE_CM;
	} else if (service == 0 || service == 1 || service == 2 || service == 5) {
		if (operation == 0x0c || operation == 0x13 || operation == 0x14)
			p->kinds[0] = GATE_RDMA_READ;
		else if (operation == 6 || operation == 0x0a || operation == 0x0b)
			p->kinds[0] = GATE_RDMA_WRITE;
	}
}

static __always_inline int gate_is_tunnel(struct gate_control *control, __u16 source,
					  __u16 destination)
{
	if (source == PORT_ESP || destination == PORT_ESP)
		return 1;
	for (int i = 0; i < 4; i++)
		if (control->tunnel_ports[i] && (control->tunnel_ports[i] == destination ||
						 control->tunnel_ports[i] == source))
			return 1;
	return 0;
}

// What is behind the IP header; zero: the gate leaves it alone.
static __always_inline int gate_parse_transport(const struct gate_frame *frame,
						struct gate_packet *p, struct gate_control *control,
						__u32 offset)
{
	__u8 head[14];
	__u16 source, destination;

	if (p->protocol == 50 || p->protocol == 51)
		return 0;
	if (p->protocol == IPPROTO_ICMP || p->protocol == 58) {
		p->kinds[0] = GATE_ICMP;
		if (!gate_load(frame, offset, head, 1))
			p->is_echo_reply = head[0] == (p->protocol == 58 ? 129 : 0);
		return 1;
	}
	if (p->protocol != IPPROTO_TCP && p->protocol != IPPROTO_UDP)
		return 1;
	if (gate_load(frame, offset, head, 8))
		return 1;
	source = half(head);
	destination = half(head + 2);
	p->ports = (__u32)source << 16 | destination;
	if (p->protocol == IPPROTO_TCP) {
		if (gate_load(frame, offset, head, sizeof(head)))
			return 1;
		p->sequence = word(head + 4);
		if ((head[13] & 0x12) == 0x02)
			p->kinds[0] = GATE_SYN;
		return 1;
	}
	if (gate_is_tunnel(control, source, destination))
		return 0;
	if (destination == PORT_ROCE_V2)
		gate_roce_kinds(frame, p, offset + 8);
	else
		p->kinds[0] = source == 53 ? GATE_DNS : GATE_UDP;
	return 1;
}

static __always_inline int gate_parse(const struct gate_frame *frame, struct gate_packet *p,
				      struct gate_control *control)
{
	__u8 ethernet[ETH_HLEN];
	__u8 ip[40];
	__u32 offset = ETH_HLEN;
	__u16 ethertype;

	if (gate_load(frame, 0, ethernet, sizeof(ethernet)))
		return 0;
	p->kinds[0] = GATE_NO_KIND;
	p->kinds[1] = GATE_NO_KIND;
	p->wire_len = frame->len;
	ethertype = half(ethernet + 12);
	for (int i = 0; i < 2; i++) {
		if (!is_vlan(ethertype))
			break;
		if (gate_load(frame, offset, ip, 4))
			return 0;
		ethertype = half(ip + 2);
		offset += 4;
	}
	if (ethertype == ETH_P_IP) {
		if (gate_load(frame, offset, ip, 20) || ip[0] >> 4 != 4)
			return 0;
		p->protocol = ip[9];
		mapped((__u8 *)p->source, ip + 12);
		mapped((__u8 *)p->destination, ip + 16);
		// The rest of a packet: no ports to see.
		if (half(ip + 6) & GATE_FRAGMENT_OFFSET)
			return p->protocol != 50;
		return gate_parse_transport(frame, p, control, offset + (ip[0] & 15) * 4);
	}
	if (ethertype != ETH_P_IPV6 || gate_load(frame, offset, ip, 40) || ip[0] >> 4 != 6)
		return 0;
	p->protocol = ip[6];
	__builtin_memcpy(p->source, ip + 8, 16);
	__builtin_memcpy(p->destination, ip + 24, 16);
	return gate_parse_transport(frame, p, control, offset + 40);
}

static __always_inline int gate_prefix_of(struct gate_prefix *prefix, struct gate_packet *p)
{
	prefix->bits = 128;
	__builtin_memcpy(prefix->address, p->source, 16);
	return 0;
}

static __always_inline int gate_is_blocked(struct gate_packet *p, __u64 now)
{
	struct gate_prefix prefix;
	struct gate_block *block;

	gate_prefix_of(&prefix, p);
	block = bpf_map_lookup_elem(&gate_blocked, &prefix);
	if (!block || (block->until_ns && now >= block->until_ns))
		return 0;
	__sync_fetch_and_add(&block->frames, 1);
	__sync_fetch_and_add(&block->bytes, p->wire_len);
	return 1;
}

// Whether the other end has sent to this one lately.
static __always_inline int gate_was_answered(struct gate_control *control, struct gate_packet *p,
					     __u64 now)
{
	__u32 ports = p->ports << 16 | p->ports >> 16;
	__u64 hash = gate_hash(control->seed, p->destination, p->source, ports, p->protocol);

	return gate_was_seen(hash, 0, GATE_ANSWERED_S, now, 0);
}

// Whether a flood towards a host lets this packet through: a trickle does, and who seems real.
static __always_inline int gate_lets_through(struct gate_control *control, struct gate_flood *flood,
					     struct gate_packet *p, __u32 kind, __u64 now)
{
	__u64 most = flood->trickle * 500, since = now - flood->last_ns;

	if (since > NS_PER_SECOND)
		since = NS_PER_SECOND;
	// Processors that race here give a few packets more or less.
	flood->last_ns = now;
	flood->tokens += since * flood->trickle / 1000000;
	if (flood->tokens > most)
		flood->tokens = most;
	if (flood->tokens >= 1000) {
		flood->tokens -= 1000;
		return 1;
	}
	if (kind == GATE_SYN) {
		__u64 hash = gate_hash(control->seed, p->source, p->destination, p->ports,
				       p->sequence);
		return gate_was_seen(hash, GATE_SEEN, GATE_SENT_AGAIN_S, now, 1);
	}
	return kind == GATE_ICMP && gate_was_answered(control, p, now);
}

static __always_inline int gate_is_flood(struct gate_control *control, struct gate_packet *p,
					 __u32 kind, __u32 by_destination, __u64 now)
{
	struct gate_flood_key key = {};
	struct gate_flood *flood;

	if (kind >= GATE_NO_KIND)
		return 0;
	key.bits = (sizeof(key) - sizeof(key.bits)) * 8;
	key.kind = kind;
	key.by_destination = by_destination;
	__builtin_memcpy(key.network, by_destination ? p->destination : p->source, 16);
	__builtin_memcpy(key.other, by_destination ? p->source : p->destination, 16);
	flood = bpf_map_lookup_elem(&gate_floods, &key);
	if (!flood)
		return 0;
	// The gateway knows how much of it was asked for.
	if ((kind == GATE_UDP || kind == GATE_DNS || (kind == GATE_ICMP && p->is_echo_reply)) &&
	    gate_was_answered(control, p, now))
		return 0;
	if (by_destination && gate_lets_through(control, flood, p, kind, now))
		return 0;
	__sync_fetch_and_add(&flood->frames, 1);
	__sync_fetch_and_add(&flood->bytes, p->wire_len);
	return 1;
}

static __always_inline void gate_count_drop(const struct gate_frame *frame, struct gate_packet *p,
					    __u32 is_flood)
{
	__u32 place = (frame->interface == wire_index ? 2 : 0) + is_flood;
	struct gate_count *count = bpf_map_lookup_elem(&gate_counts, &place);

	if (count) {
		count->frames += 1;
		count->bytes += p->wire_len;
	}
}

// Whether the gateway need not receive a frame; it is counted.
static __always_inline int gate_stops(const struct gate_frame *frame)
{
	struct gate_control *control;
	struct gate_packet p = {};
	struct gate_prefix prefix;
	__u32 zero = 0;
	__u64 now;

	control = bpf_map_lookup_elem(&gate_control, &zero);
	if (!control || !(control->has_blocks | control->has_floods | control->learns))
		return 0;
	if (!gate_parse(frame, &p, control))
		return 0;
	now = bpf_ktime_get_ns();
	if (control->has_allowed) {
		gate_prefix_of(&prefix, &p);
		if (bpf_map_lookup_elem(&gate_allowed, &prefix))
			return 0;
	}
	if (control->has_blocks && gate_is_blocked(&p, now)) {
		gate_count_drop(frame, &p, 0);
		return 1;
	}
	if (control->has_floods && (gate_is_flood(control, &p, p.kinds[0], 0, now) ||
				    gate_is_flood(control, &p, p.kinds[0], 1, now) ||
				    gate_is_flood(control, &p, p.kinds[1], 0, now) ||
				    gate_is_flood(control, &p, p.kinds[1], 1, now))) {
		gate_count_drop(frame, &p, 1);
		return 1;
	}
	if (control->learns &&
	    (p.kinds[0] == GATE_UDP || p.kinds[0] == GATE_DNS || p.kinds[0] == GATE_ICMP))
		gate_was_seen(gate_hash(control->seed, p.source, p.destination, p.ports,
					p.protocol),
			      0, 0, now, 1);
	return 0;
}

static __always_inline int gate_stops_received(struct __sk_buff *skb)
{
	const struct gate_frame frame = {
		.ctx = skb,
		.interface = skb->ifindex,
		.len = skb->len + (skb->vlan_present ? 4 : 0),
	};

	return gate_stops(&frame);
}

// On the gateway's receiving sockets, where no fast path is.
SEC("socket")
int weir_gate_filter(struct __sk_buff *skb)
{
	return gate_stops_received(skb) ? RECEIVE_NOTHING : RECEIVE_WHOLE;
}

// On the ports, where AF_XDP sockets receive.
SEC("xdp.frags")
int weir_gate_bypass(struct xdp_md *ctx)
{
	const struct gate_frame frame = {
		.ctx = ctx,
		.is_xdp = 1,
		.interface = ctx->ingress_ifindex,
		.len = bpf_xdp_get_buff_len(ctx),
	};

	if (!gate_stops(&frame))
		bpf_tail_call(ctx, &gate_next, frame.interface == wire_index);
	return XDP_DROP;
}

#endif
