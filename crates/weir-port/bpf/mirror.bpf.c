// SPDX-License-Identifier: (Apache-2.0 OR BSD-2-Clause OR GPL-2.0)
//
// VXLAN around a mirror's copies, at tc egress of the analyser's port: super-packets whole, for the
// device or the kernel to cut. Frames without the mirror's mark are not touched.
//
//   | Ethernet, IPv4, UDP, VXLAN | the copy's addresses | its tags | its type | its packet |
//     `outer`                                                        '- where it was ------

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define OUTER_LEN 50
#define IP_OFFSET ETH_HLEN
#define IP_LEN 20
#define UDP_OFFSET (ETH_HLEN + IP_LEN)
#define TAGS 2
#define TAG_LEN 4
#define ADDRESSES_LEN (2 * ETH_ALEN)

// Set before loading.
const volatile __u32 mirror_mark = 0;
const volatile __u8 outer[OUTER_LEN] = {};
// Bytes of an outer frame, at most.
const volatile __u32 len_max = 0;

// The order of weir_port::mirror::Encapsulated; packets.
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
static __always_inline long make_room(struct __sk_buff *skb, __u32 tags_len)
{
	__u32 inner_len = ETH_HLEN + tags_len;
	__u64 flags = BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP |
		      BPF_F_ADJ_ROOM_ENCAP_L2_ETH | BPF_F_ADJ_ROOM_ENCAP_L2(inner_len);
	__u32 room = OUTER_LEN + tags_len;

	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return bpf_skb_change_head(skb, room, 0);
	// Segments become shorter by what is added; those of UDP cannot.
	long refused = bpf_skb_adjust_room(skb, room, BPF_ADJ_ROOM_MAC, flags);
	if (refused && skb->gso_size)
		refused = bpf_skb_adjust_room(skb, room, BPF_ADJ_ROOM_MAC,
					      flags | BPF_F_ADJ_ROOM_FIXED_GSO);
	return refused;
}

SEC("classifier")
int weir_mirror_out(struct __sk_buff *skb)
{
	__u8 head[OUTER_LEN + ETH_HLEN + TAGS * TAG_LEN];
	__u8 inner[ETH_HLEN];
	__u8 tags[TAGS * TAG_LEN];
	__u32 tags_len = 0;

	if (skb->mark != mirror_mark)
		return TC_ACT_UNSPEC;
	skb->mark = 0;
	__u64 packets = skb->gso_segs ? skb->gso_segs : 1;

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
			goto refused;
	}
	if (skb->vlan_present)
		goto refused;
	__u32 len = skb->len + OUTER_LEN + tags_len;
	if (!skb->gso_size && len > len_max) {
		if (bpf_skb_change_tail(skb, len_max - OUTER_LEN - tags_len, 0))
			goto refused;
		count(TRUNCATED, 1);
		len = len_max;
	}
	if (bpf_skb_load_bytes(skb, 0, inner, ETH_HLEN) || make_room(skb, tags_len))
		goto refused;

	for (int i = 0; i < OUTER_LEN; i++)
		head[i] = outer[i];
	__u16 ip_len = bpf_htons(len - IP_OFFSET), udp_len = bpf_htons(len - UDP_OFFSET);
	__builtin_memcpy(head + IP_OFFSET + 2, &ip_len, 2);
	__builtin_memcpy(head + UDP_OFFSET + 4, &udp_len, 2);
	__u32 sum = 0;
	for (int i = 0; i < IP_LEN; i += 2)
		sum += head[IP_OFFSET + i] << 8 | head[IP_OFFSET + i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	__u16 checksum = bpf_htons(~sum);
	__builtin_memcpy(head + IP_OFFSET + 10, &checksum, 2);
	__builtin_memcpy(head + OUTER_LEN, inner, ADDRESSES_LEN);
	if (bpf_skb_store_bytes(skb, 0, head, OUTER_LEN + ADDRESSES_LEN, BPF_F_RECOMPUTE_CSUM))
		goto refused;
	__u32 at = OUTER_LEN + ADDRESSES_LEN;
#pragma unroll
	for (__u32 tag = 0; tag < TAGS; tag++) {
		if (tag * TAG_LEN >= tags_len)
			break;
		if (bpf_skb_store_bytes(skb, at, tags + tag * TAG_LEN, TAG_LEN, BPF_F_RECOMPUTE_CSUM))
			goto refused;
		at += TAG_LEN;
	}
	if (bpf_skb_store_bytes(skb, at, inner + ADDRESSES_LEN, 2, BPF_F_RECOMPUTE_CSUM))
		goto refused;
	return TC_ACT_UNSPEC;
refused:
	count(REFUSED, packets);
	return TC_ACT_SHOT;
}
