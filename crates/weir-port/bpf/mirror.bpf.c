// SPDX-License-Identifier: (Apache-2.0 OR BSD-2-Clause OR GPL-2.0)
//
// Outer headers around a mirror's copies, at tc egress of the analyser's port: super-packets whole,
// for the device or the kernel to cut. Frames without the mirror's mark are not touched.
//
//   | Ethernet, IPv4, UDP, VXLAN | the copy's addresses | its tags | its type | its packet |
//   | Ethernet, IPv4, GRE        |                                   '- where it was ------
//     `outer`

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define VXLAN_LEN 50
#define GRE_LEN 38
#define IP_OFFSET ETH_HLEN
#define IP_LEN 20
#define UDP_OFFSET (ETH_HLEN + IP_LEN)
#define TAGS 2
#define TAG_LEN 4
#define ADDRESSES_LEN (2 * ETH_ALEN)

// Set before loading.
const volatile __u32 mirror_mark = 0;
const volatile __u8 outer[VXLAN_LEN] = {};
// Bytes of an outer frame, at most.
const volatile __u32 len_max = 0;
// ERSPAN type I, which is GRE and no more.
const volatile __u32 gre = 0;

// The order of weir_port::mirror::around::Around::counters; packets.
enum {
	TRUNCATED,
	REFUSED,
	KINDS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, KINDS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static __always_inline void count(__u32 kind, __u64 packets)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &kind);
	if (value)
		*value += packets;
}

// Room before the packet, which a device finds its way through where it is IP: it may have
// segments to cut and checksums to fill in. 5.13 or later.
static __always_inline long make_room(struct __sk_buff *skb, __u32 outer_len, __u32 tags_len)
{
	__u32 inner_len = ETH_HLEN + tags_len;
	__u64 flags = BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_ENCAP_L2_ETH |
		      BPF_F_ADJ_ROOM_ENCAP_L2(inner_len) |
		      (gre ? BPF_F_ADJ_ROOM_ENCAP_L4_GRE : BPF_F_ADJ_ROOM_ENCAP_L4_UDP);
	__u32 room = outer_len + tags_len;

	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return bpf_skb_change_head(skb, room, 0);
	// Segments become shorter by what is added; those of UDP cannot.
	long refused = bpf_skb_adjust_room(skb, room, BPF_ADJ_ROOM_MAC, flags);
	if (refused && skb->gso_size)
		refused = bpf_skb_adjust_room(skb, room, BPF_ADJ_ROOM_MAC,
					      flags | BPF_F_ADJ_ROOM_FIXED_GSO);
	return refused;
}

// Puts the first `outer_len` bytes of `outer` around a copy. 0, or what it cannot be.
static __always_inline int encapsulate(struct __sk_buff *skb, const __u32 outer_len)
{
	__u8 head[VXLAN_LEN + ETH_HLEN + TAGS * TAG_LEN];
	__u8 inner[ETH_HLEN];
	__u8 tags[TAGS * TAG_LEN];
	__u32 tags_len = 0;

	// Tags stand beside the frame, and would come before the outer header.
#pragma unroll
	for (__u32 tag = 0; tag < TAGS; tag++) {
		if (!skb->vlan_present)
			break;
		__u16 type = skb->vlan_proto, value = bpf_htons(skb->vlan_tci);
		__builtin_memcpy(tags + tag * TAG_LEN, &type, 2);
		__builtin_memcpy(tags + tag * TAG_LEN + 2, &value, 2);
		tags_len += TAG_LEN;
		if (bpf_skb_vlan_pop(skb))
			return -1;
	}
	if (skb->vlan_present)
		return -1;
	__u32 len = skb->len + outer_len + tags_len;
	if (!skb->gso_size && len > len_max) {
		if (bpf_skb_change_tail(skb, len_max - outer_len - tags_len, 0))
			return -1;
		count(TRUNCATED, 1);
		len = len_max;
	}
	if (bpf_skb_load_bytes(skb, 0, inner, ETH_HLEN) || make_room(skb, outer_len, tags_len))
		return -1;

	for (__u32 i = 0; i < outer_len; i++)
		head[i] = outer[i];
	__u16 ip_len = bpf_htons(len - IP_OFFSET), udp_len = bpf_htons(len - UDP_OFFSET);
	__builtin_memcpy(head + IP_OFFSET + 2, &ip_len, 2);
	if (!gre)
		__builtin_memcpy(head + UDP_OFFSET + 4, &udp_len, 2);
	__u32 sum = 0;
	for (int i = 0; i < IP_LEN; i += 2)
		sum += head[IP_OFFSET + i] << 8 | head[IP_OFFSET + i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	__u16 checksum = bpf_htons(~sum);
	__builtin_memcpy(head + IP_OFFSET + 10, &checksum, 2);
	__builtin_memcpy(head + outer_len, inner, ADDRESSES_LEN);
	if (bpf_skb_store_bytes(skb, 0, head, outer_len + ADDRESSES_LEN, BPF_F_RECOMPUTE_CSUM))
		return -1;
	__u32 at = outer_len + ADDRESSES_LEN;
#pragma unroll
	for (__u32 tag = 0; tag < TAGS; tag++) {
		if (tag * TAG_LEN >= tags_len)
			break;
		if (bpf_skb_store_bytes(skb, at, tags + tag * TAG_LEN, TAG_LEN, BPF_F_RECOMPUTE_CSUM))
			return -1;
		at += TAG_LEN;
	}
	return bpf_skb_store_bytes(skb, at, inner + ADDRESSES_LEN, 2, BPF_F_RECOMPUTE_CSUM);
}

SEC("classifier")
int weir_mirror_out(struct __sk_buff *skb)
{
	if (skb->mark != mirror_mark)
		return TC_ACT_UNSPEC;
	skb->mark = 0;
	__u64 packets = skb->gso_segs ? skb->gso_segs : 1;
	if (gre ? !encapsulate(skb, GRE_LEN) : !encapsulate(skb, VXLAN_LEN))
		return TC_ACT_UNSPEC;
	count(REFUSED, packets);
	return TC_ACT_SHOT;
}
