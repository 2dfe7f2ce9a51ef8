// SPDX-License-Identifier: (Apache-2.0 OR BSD-2-Clause OR GPL-2.0)
//
// Hands frames to AF_XDP sockets before the kernel's stack sees them: all of them, or those that
// the loader selected. A selected frame that no socket takes is dropped, never passed on.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define SELECTORS 4

// Set before loading. Numbers in host byte order; zero is an unused place.
const volatile __u32 take_all = 1;
const volatile __u16 ethertypes[SELECTORS] = {};
const volatile __u16 udp_ports[SELECTORS] = {};
const volatile __u16 tcp_ports[SELECTORS] = {};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

static __always_inline int selected(const volatile __u16 *list, __u16 number)
{
	for (int i = 0; i < SELECTORS; i++)
		if (list[i] && list[i] == number)
			return 1;
	return 0;
}

// Whether the frame's Ethernet type or TCP/UDP destination port is selected.
static __always_inline int wanted(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	__be16 *ports;
	__u8 protocol;

	if ((void *)(ethernet + 1) > end)
		return 0;
	if (selected(ethertypes, bpf_ntohs(ethernet->h_proto)))
		return 1;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(ethernet + 1);
		if ((void *)(ip + 1) > end || ip->frag_off & bpf_htons(0x1fff))
			return 0;
		protocol = ip->protocol;
		ports = (void *)ip + ip->ihl * 4;
	} else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(ethernet + 1);
		if ((void *)(ip + 1) > end)
			return 0;
		protocol = ip->nexthdr;
		ports = (void *)(ip + 1);
	} else {
		return 0;
	}
	if ((void *)(ports + 2) > end)
		return 0;
	if (protocol == IPPROTO_UDP)
		return selected(udp_ports, bpf_ntohs(ports[1]));
	if (protocol == IPPROTO_TCP)
		return selected(tcp_ports, bpf_ntohs(ports[1]));
	return 0;
}

// Frames of several buffers (MTU 9000) need the frags section.
SEC("xdp.frags")
int weir_redirect(struct xdp_md *ctx)
{
	if (!take_all && !wanted(ctx))
		return XDP_PASS;
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);
}
