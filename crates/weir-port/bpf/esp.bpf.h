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
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ESP_ASSOCIATIONS_MAX 256
// More fragments, or an offset.
#define IP_IS_FRAGMENT 0x3fff

// Addresses and SPI in network order.
struct weir_esp {
	__u32 source;
	__u32 destination;
	__u32 spi;
};

// One that seals: by the mark of its packets.
struct weir_esp_out {
	struct weir_esp packet;
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
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ESP_ASSOCIATIONS_MAX);
	__type(key, __u32);
	__type(value, struct weir_esp_out);
} esp_out SEC(".maps");

// Those that open.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ESP_ASSOCIATIONS_MAX);
	__type(key, struct weir_esp);
	__type(value, __u64);
} esp_in SEC(".maps");

// Whole ESP over IPv4, without options or a VLAN tag.
static __always_inline int esp_read(struct __sk_buff *skb, struct weir_esp *esp)
{
	struct iphdr ip;

	if (skb->protocol != bpf_htons(ETH_P_IP) || skb->vlan_present)
		return 0;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
		return 0;
	if (ip.version != 4 || ip.ihl != 5 || ip.protocol != IPPROTO_ESP)
		return 0;
	if (ip.frag_off & bpf_htons(IP_IS_FRAGMENT))
		return 0;
	esp->source = ip.saddr;
	esp->destination = ip.daddr;
	return bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(ip), &esp->spi, sizeof(esp->spi)) == 0;
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
	__u32 mark = skb->mark;
	struct weir_esp_out *out = bpf_map_lookup_elem(&esp_out, &mark);
	struct weir_esp esp = {};
	__u16 prefix;

	// A super-packet would be many packets with as many numbers.
	if (!out || skb->gso_size || !esp_read(skb, &esp))
		return 0;
	if (esp.source != out->packet.source || esp.destination != out->packet.destination ||
	    esp.spi != out->packet.spi)
		return 0;
	// SPI, number, IV.
	if (bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(struct iphdr) + 8, &prefix, sizeof(prefix)))
		return 0;
	if (out->state == ESP_LEARN) {
		out->iv_prefix = prefix;
		out->state = ESP_LEARNT;
	}
	if (out->state != ESP_PASS || out->iv_prefix != prefix)
		return 0;
	__sync_fetch_and_add(&out->packets, 1);
	return 1;
}
