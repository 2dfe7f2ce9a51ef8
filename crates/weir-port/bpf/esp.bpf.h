// SPDX-License-Identifier: (Apache-2.0 OR BSD-2-Clause OR GPL-2.0)
//
// ESP of the kernel's own at the wire port (docs/adr/0024): which packets are of an association
// that the gateway has programmed. It reads the packet itself and believes the mark only as far as
// the packet agrees. Empty tables let nothing pass.

#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ESP_ASSOCIATIONS_MAX 512
// More fragments, or an offset.
#define IP_IS_FRAGMENT 0x3fff

// An association, by what the wire shows of its packets. Addresses and SPI in network order; IPv4
// addresses as ::ffff:0:0/96.
struct weir_esp {
	__u32 source[4];
	__u32 destination[4];
	__u32 spi;
};

// One that seals.
struct weir_esp_out {
	// Of its packets.
	__u32 mark;
	// The upper bits that all its IVs have; the first packet brings them, and stays here.
	__u32 iv_prefix;
	__u32 state;
	__u32 _pad;
	__u64 packets;
};

enum weir_esp_state {
	ESP_LEARN,
	ESP_LEARNT,
	ESP_PASS,
	// Whatever the IV: the key was installed once.
	ESP_PASS_ANY,
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ESP_ASSOCIATIONS_MAX);
	__type(key, struct weir_esp);
	__type(value, struct weir_esp_out);
} esp_out SEC(".maps");

// Those that open.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ESP_ASSOCIATIONS_MAX);
	__type(key, struct weir_esp);
	__type(value, __u64);
} esp_in SEC(".maps");

// Whole ESP over IPv4 or IPv6, without options, extension headers or a VLAN tag; returns where it
// begins, or 0.
static __always_inline __u32 esp_read(struct __sk_buff *skb, struct weir_esp *esp)
{
	__u32 begin;

	if (skb->vlan_present)
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
			return 0;
		if (ip.version != 4 || ip.ihl != 5 || ip.protocol != IPPROTO_ESP)
			return 0;
		if (ip.frag_off & bpf_htons(IP_IS_FRAGMENT))
			return 0;
		esp->source[2] = esp->destination[2] = bpf_htonl(0xffff);
		esp->source[3] = ip.saddr;
		esp->destination[3] = ip.daddr;
		begin = ETH_HLEN + sizeof(ip);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
			return 0;
		if (ip.version != 6 || ip.nexthdr != IPPROTO_ESP)
			return 0;
		__builtin_memcpy(esp->source, &ip.saddr, sizeof(esp->source));
		__builtin_memcpy(esp->destination, &ip.daddr, sizeof(esp->destination));
		begin = ETH_HLEN + sizeof(ip);
	} else {
		return 0;
	}
	return bpf_skb_load_bytes(skb, begin, &esp->spi, sizeof(esp->spi)) ? 0 : begin;
}

static __always_inline int esp_is_let_in(struct __sk_buff *skb)
{
	struct weir_esp esp = {};
	__u64 *packets;

	if (!esp_read(skb, &esp))
		return 0;
	packets = bpf_map_lookup_elem(&esp_in, &esp);
	if (!packets)
		return 0;
	__sync_fetch_and_add(packets, 1);
	return 1;
}

static __always_inline int esp_is_let_out(struct __sk_buff *skb)
{
	struct weir_esp esp = {};
	struct weir_esp_out *out;
	__u32 begin;
	__u16 prefix;

	// A super-packet would be many packets with as many numbers.
	if (!skb->mark || skb->gso_size)
		return 0;
	begin = esp_read(skb, &esp);
	if (!begin)
		return 0;
	out = bpf_map_lookup_elem(&esp_out, &esp);
	if (!out || out->mark != skb->mark)
		return 0;
	// Behind SPI and number.
	if (bpf_skb_load_bytes(skb, begin + 8, &prefix, sizeof(prefix)))
		return 0;
	if (out->state == ESP_LEARN) {
		out->iv_prefix = prefix;
		out->state = ESP_LEARNT;
	}
	if (out->state != ESP_PASS_ANY && (out->state != ESP_PASS || out->iv_prefix != prefix))
		return 0;
	__sync_fetch_and_add(&out->packets, 1);
	return 1;
}

// What a NIC wraps and unwraps by itself (docs/adr/0035). At tc egress it is still the inner
// packet: it has the mark that the gateway gave it, and goes where the NIC was told to match. At tc
// ingress it is the inner packet again: the driver tied the association to it, which nothing on the
// wire can.
//
// Set before loading; kernels without xfrm lack the helper that is called.
const volatile __u32 has_nic_esp = 0;

#define NIC_NETWORKS_MAX 4096

struct weir_nic_out {
	__u32 prefix_len;
	// In network order: the trie compares from the first bit on.
	__u32 mark;
	__u32 destination[4];
};

// The value says nothing: one network may lie in another.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, NIC_NETWORKS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct weir_nic_out);
	__type(value, __u32);
} nic_out SEC(".maps");

// Packets by mark.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ESP_ASSOCIATIONS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} nic_left SEC(".maps");

// By request number and SPI, as the kernel has them.
struct weir_nic_in {
	__u32 request;
	__u32 spi;
};

struct weir_nic_way {
	__u64 packets;
	// The peer's xfrm interface.
	__u32 interface;
	__u32 _pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ESP_ASSOCIATIONS_MAX);
	__type(key, struct weir_nic_in);
	__type(value, struct weir_nic_way);
} nic_in SEC(".maps");

static __always_inline int nic_is_to_seal(struct __sk_buff *skb)
{
	struct weir_nic_out to = { .prefix_len = 8 * (sizeof(to) - sizeof(to.prefix_len)) };
	__u32 mark = skb->mark;
	__u64 *packets;

	if (!has_nic_esp || !mark || skb->gso_size || skb->vlan_present)
		return 0;
	to.mark = bpf_htonl(mark);
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		__u32 at = ETH_HLEN + __builtin_offsetof(struct iphdr, daddr);

		to.destination[2] = bpf_htonl(0xffff);
		if (bpf_skb_load_bytes(skb, at, &to.destination[3], 4))
			return 0;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		__u32 at = ETH_HLEN + __builtin_offsetof(struct ipv6hdr, daddr);

		if (bpf_skb_load_bytes(skb, at, to.destination, sizeof(to.destination)))
			return 0;
	} else {
		return 0;
	}
	// What is not counted does not leave.
	packets = bpf_map_lookup_elem(&nic_left, &mark);
	if (!packets || !bpf_map_lookup_elem(&nic_out, &to))
		return 0;
	__sync_fetch_and_add(packets, 1);
	return 1;
}

// The xfrm interface that a packet is for which a NIC opened; 0: it is no such.
static __always_inline __u32 nic_has_opened(struct __sk_buff *skb)
{
	struct bpf_xfrm_state state = {};
	struct weir_nic_way *way;
	struct weir_nic_in by;

	if (!has_nic_esp || bpf_skb_get_xfrm_state(skb, 0, &state, sizeof(state), 0))
		return 0;
	by.request = state.reqid;
	by.spi = state.spi;
	way = bpf_map_lookup_elem(&nic_in, &by);
	if (!way)
		return 0;
	__sync_fetch_and_add(&way->packets, 1);
	return way->interface;
}
