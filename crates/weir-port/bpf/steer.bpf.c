// SPDX-License-Identifier: (Apache-2.0 OR BSD-2-Clause OR GPL-2.0)
//
// Which worker of a pair gets a frame: the program of a port's fanout group
// (PACKET_FANOUT_EBPF), or the XDP program that redirects to one AF_XDP socket of the frame's
// queue.
//
//   host port --> flow's hash ----------------------------+-> worker 0, 1, ... n-1
//   wire port --> ESP: the worker in `spis`, or the SPI's lowest bits; in UDP where it is opened
//             +-> else: flow's hash, as at the host port --+
//   group traffic by its IP address, the gateway's own, handshakes, no address --> worker 0
//
// The hash is the same for both directions of a flow, and at every gateway, so that a conversation
// meets in one worker at either end. RoCE is hashed by addresses alone: the directions of a queue
// pair share neither ports nor queue pair numbers. So are VXLAN and GENEVE, whose source ports
// differ by direction, and fragments, which have none. A group's MAC address says nothing: hosts
// take packets for their own IP address whatever it is. How many workers share a peer's flows
// stands in `peers`, by what the peer protects.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// As weir_port::steering has it.
#define WORKERS_MAX 16
#define PREFIXES_MAX 65536
#define SPIS_MAX 16384
// As weir_port::afxdp has it.
#define QUEUES_MAX 64

#define ETHERTYPE_ROCE_V1 0x8915
#define IPV4_FRAGMENT 0x3fff
#define IPV6_FRAGMENT 0xfff9
#define IPPROTO_MOBILITY 135
#define IPPROTO_HIP 139
#define IPPROTO_SHIM6 140
// IPv6 extension headers that are walked over: as many as the longest Ethernet frame holds.
#define IPV6_HEADERS_MAX 1128
#define PORT_ESP 4500
#define PORT_ROCE_V2 4791
// As weir_port::steering has it.
#define TUNNEL_PORTS_MAX 8

// Set before loading.
const volatile __u32 workers = 1;
const volatile __u32 keying_port = 0;
// Whether there may be anything in `spis`.
const volatile __u32 has_front_ends = 0;
// UDP ports at which datagrams carry packets; zeros: none.
const volatile __u16 tunnel_ports[TUNNEL_PORTS_MAX] = {};
// IPv4 mapped, network order; zeros: none.
const volatile __u32 own[2][4] = {};

struct prefix {
	__u32 bits;
	__u32 address[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PREFIXES_MAX);
	__type(key, struct prefix);
	__type(value, __u32);
} peers SEC(".maps");

// Associations whose SPI says nothing about their worker: those of front ends.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, SPIS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} spis SEC(".maps");

// Whether ESP in UDP is opened whomever it is for: there are peers, and the gateway has no address.
// Elsewhere what is said in clear from that port would choose its worker, not its flow's.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} openings SEC(".maps");

// AF_XDP sockets by queue and worker: the kernel gives a frame only to a socket of the queue that
// it came by. A worker without a socket there gets nothing.
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, QUEUES_MAX * WORKERS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} host_sockets SEC(".maps"), wire_sockets SEC(".maps");

// A frame as a socket filter or an XDP program has it. Everything that takes one is inlined, so
// that each program calls only what its kind may.
struct frame {
	void *ctx;
	int is_xdp;
	// Where the network header begins; of a socket filter the kernel knows it.
	__u32 network;
};

struct packet {
	// IPv4 mapped, network order.
	__u32 source[4];
	__u32 destination[4];
	// Of what follows the IP header, from the network header on; 0: nothing that can be read.
	__u32 transport;
	__u8 protocol;
};

static __always_inline long load(const struct frame *frame, __u32 at, void *to, __u32 len)
{
	if (frame->is_xdp)
		return bpf_xdp_load_bytes(frame->ctx, frame->network + at, to, len);
	return bpf_skb_load_bytes_relative(frame->ctx, at, to, len, BPF_HDR_START_NET);
}

static __always_inline int read_ipv4(const struct frame *frame, __u32 at, struct packet *packet)
{
	__u8 header[20];

	if (load(frame, at, header, sizeof(header)))
		return -1;
	packet->source[2] = packet->destination[2] = bpf_htonl(0xffff);
	__builtin_memcpy(&packet->source[3], header + 12, 4);
	__builtin_memcpy(&packet->destination[3], header + 16, 4);
	packet->protocol = header[9];
	if (!((header[6] << 8 | header[7]) & IPV4_FRAGMENT))
		packet->transport = at + (header[0] & 15) * 4;
	return 0;
}

// GRH has its addresses where IPv6 has them.
static __always_inline int read_addresses(const struct frame *frame, __u32 at,
					  struct packet *packet)
{
	return load(frame, at + 8, packet->source, 16) ||
	       load(frame, at + 24, packet->destination, 16);
}

static __always_inline __u32 extension_len(__u8 protocol, __u8 len)
{
	__u32 eights = protocol == IPPROTO_FRAGMENT ? 1 : len + 1;

	return protocol == IPPROTO_AH ? (len + 2) * 4 : eights * 8;
}

static __always_inline int extends(__u8 protocol)
{
	const __u64 low = 1ull << IPPROTO_HOPOPTS | 1ull << IPPROTO_ROUTING |
			  1ull << IPPROTO_FRAGMENT | 1ull << IPPROTO_AH | 1ull << IPPROTO_DSTOPTS;
	const __u64 high = 1ull << (IPPROTO_MOBILITY - 128) | 1ull << (IPPROTO_HIP - 128) |
			   1ull << (IPPROTO_SHIM6 - 128);
	__u64 place = 1ull << (protocol & 63);

	return (place & (protocol < 64 ? low : protocol >= 128 && protocol < 192 ? high : 0)) != 0;
}

struct chain {
	void *ctx;
	__u32 network, at;
	// Where the transport header is; 0: not found.
	__u32 transport;
	__u8 protocol;
};

// Over one header, or to the end of the chain.
static __always_inline long walk_over(struct chain *chain, int is_xdp)
{
	struct frame frame = { .ctx = chain->ctx, .is_xdp = is_xdp, .network = chain->network };
	__u8 header[4];

	if (!extends(chain->protocol)) {
		chain->transport = chain->at;
		return 1;
	}
	if (load(&frame, chain->at, header, sizeof(header)))
		return 1;
	if (chain->protocol == IPPROTO_FRAGMENT && (header[2] << 8 | header[3]) & IPV6_FRAGMENT)
		return 1;
	chain->at += extension_len(chain->protocol, header[1]);
	chain->protocol = header[0];
	return 0;
}

// Turns of bpf_loop().
static long walk_over_filtered(__u32 turn, void *chain)
{
	return walk_over(chain, 0);
}

static long walk_over_bypassing(__u32 turn, void *chain)
{
	return walk_over(chain, 1);
}

// To what lies behind the extension headers: whoever adds some must not get another worker.
static __always_inline int read_ipv6(const struct frame *frame, __u32 at, struct packet *packet)
{
	struct chain chain = { .ctx = frame->ctx, .network = frame->network, .at = at + 40 };

	if (read_addresses(frame, at, packet) || load(frame, at + 6, &chain.protocol, 1))
		return -1;
	if (!extends(chain.protocol))
		chain.transport = chain.at;
	else if (frame->is_xdp)
		bpf_loop(IPV6_HEADERS_MAX, walk_over_bypassing, &chain, 0);
	else
		bpf_loop(IPV6_HEADERS_MAX, walk_over_filtered, &chain, 0);
	packet->protocol = chain.protocol;
	packet->transport = chain.transport;
	return 0;
}

static __always_inline int read(const struct frame *frame, __u16 ethertype, struct packet *packet)
{
	__u32 at = 0;
	__be16 inner;

	// The outer tag is off.
	if (ethertype == ETH_P_8021Q || ethertype == ETH_P_8021AD) {
		if (load(frame, 2, &inner, 2))
			return -1;
		ethertype = bpf_ntohs(inner);
		at = 4;
	}
	switch (ethertype) {
	case ETH_P_IP:
		return read_ipv4(frame, at, packet);
	case ETH_P_IPV6:
		return read_ipv6(frame, at, packet);
	case ETHERTYPE_ROCE_V1:
		return read_addresses(frame, at, packet);
	}
	return -1;
}

static __always_inline __u32 mix(__u32 hash, const __u32 address[4])
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		hash ^= bpf_ntohl(address[i]);
		hash *= 0x9e3779b1;
		hash ^= hash >> 15;
	}
	return hash;
}

static __always_inline int is_own(const __u32 address[4])
{
#pragma unroll
	for (int i = 0; i < 2; i++) {
		if (!own[i][0] && !own[i][1] && !own[i][2] && !own[i][3])
			continue;
		if (address[0] == own[i][0] && address[1] == own[i][1] &&
		    address[2] == own[i][2] && address[3] == own[i][3])
			return 1;
	}
	return 0;
}

static __always_inline int has_own(void)
{
	return own[0][0] || own[0][1] || own[0][2] || own[0][3];
}

static __always_inline int is_opened_in_udp(const __u32 destination[4])
{
	__u32 key = 0;
	__u32 *opens;

	if (has_own())
		return is_own(destination);
	opens = bpf_map_lookup_elem(&openings, &key);
	return opens && *opens;
}

static __always_inline __u32 workers_of(const __u32 address[4])
{
	struct prefix key = { .bits = 128 };
	__u32 *found;

	__builtin_memcpy(key.address, address, 16);
	found = bpf_map_lookup_elem(&peers, &key);
	return found && *found && *found < workers ? *found : workers;
}

static __always_inline __u32 worker_of_spi(__be32 spi)
{
	__u32 number = bpf_ntohl(spi);
	__u32 *found = has_front_ends ? bpf_map_lookup_elem(&spis, &number) : 0;

	return found ? *found : number % WORKERS_MAX % workers;
}

static __always_inline int hides_flows(__u16 port)
{
	if (port == PORT_ROCE_V2)
		return 1;
#pragma unroll
	for (int i = 0; i < TUNNEL_PORTS_MAX; i++)
		if (port && port == tunnel_ports[i])
			return 1;
	return 0;
}

// Multicast of IPv4, IPv6 and GIDs, and IPv4's broadcast.
static __always_inline int is_group(const __u32 address[4])
{
	__u32 last = bpf_ntohl(address[3]);

	if (address[0] || address[1] || address[2] != bpf_htonl(0xffff))
		return bpf_ntohl(address[0]) >> 24 == 0xff;
	return last >> 28 == 0xe || last == 0xffffffff;
}

static __always_inline __u32 steer(const struct frame *frame, __u16 ethertype, int from_wire)
{
	struct packet packet = {};
	__u16 ports[2] = {};
	__be32 spi;
	__u32 hash, at;

	if (read(frame, ethertype, &packet) || is_group(packet.destination))
		return 0;
	at = packet.transport;
	if (from_wire && at && packet.protocol == IPPROTO_ESP && !load(frame, at, &spi, 4))
		return worker_of_spi(spi);
	if (at && (packet.protocol == IPPROTO_TCP || packet.protocol == IPPROTO_UDP)) {
		__be16 read[2] = {};
		load(frame, at, read, 4);
		ports[0] = bpf_ntohs(read[0]);
		ports[1] = bpf_ntohs(read[1]);
	}
	if (packet.protocol == IPPROTO_UDP) {
		// In front of ESP stands no marker of zeros (RFC 3948 s2.2).
		if (from_wire && (ports[0] == PORT_ESP || ports[1] == PORT_ESP) &&
		    is_opened_in_udp(packet.destination) && !load(frame, at + 8, &spi, 4) && spi)
			return worker_of_spi(spi);
		if (from_wire && keying_port && ports[1] == keying_port)
			return 0;
		if (hides_flows(ports[0]) || hides_flows(ports[1]))
			ports[0] = ports[1] = 0;
	}
	if (from_wire && is_own(packet.destination))
		return 0;
	hash = mix(ports[0], packet.source) + mix(ports[1], packet.destination);
	hash ^= hash >> 16;
	hash *= 0x85ebca6b;
	hash ^= hash >> 13;
	hash *= 0xc2b2ae35;
	hash ^= hash >> 16;
	at = workers_of(from_wire ? packet.source : packet.destination);
	return (__u64)hash * at >> 32;
}

static __always_inline __u32 steer_filtered(struct __sk_buff *skb, int from_wire)
{
	const struct frame frame = { .ctx = skb };

	return steer(&frame, bpf_ntohs(skb->protocol), from_wire);
}

static __always_inline __u32 steer_bypassing(struct xdp_md *ctx, int from_wire)
{
	struct frame frame = { .ctx = ctx, .is_xdp = 1 };
	struct ethhdr ethernet;
	__be16 inner;

	if (load(&frame, 0, &ethernet, sizeof(ethernet)))
		return 0;
	frame.network = sizeof(ethernet);
	if (ethernet.h_proto == bpf_htons(ETH_P_8021Q) ||
	    ethernet.h_proto == bpf_htons(ETH_P_8021AD)) {
		if (load(&frame, 2, &inner, sizeof(inner)))
			return 0;
		ethernet.h_proto = inner;
		frame.network += 4;
	}
	return steer(&frame, bpf_ntohs(ethernet.h_proto), from_wire);
}

SEC("socket")
int weir_steer_host(struct __sk_buff *skb)
{
	return steer_filtered(skb, 0);
}

SEC("socket")
int weir_steer_wire(struct __sk_buff *skb)
{
	return steer_filtered(skb, 1);
}

static __always_inline __u32 place(const struct xdp_md *ctx, __u32 worker)
{
	return ctx->rx_queue_index * WORKERS_MAX + worker;
}

// Frames of several buffers (MTU 9000) need the frags section.
SEC("xdp.frags")
int weir_bypass_host(struct xdp_md *ctx)
{
	return bpf_redirect_map(&host_sockets, place(ctx, steer_bypassing(ctx, 0)), XDP_DROP);
}

SEC("xdp.frags")
int weir_bypass_wire(struct xdp_md *ctx)
{
	return bpf_redirect_map(&wire_sockets, place(ctx, steer_bypassing(ctx, 1)), XDP_DROP);
}
