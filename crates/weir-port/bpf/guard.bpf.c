// SPDX-License-Identifier: (Apache-2.0 OR BSD-2-Clause OR GPL-2.0)
//
// The guard: nothing crosses the two ports but what the gateway process itself carries.
//
// Attached by netlink at tc ingress and egress of both ports, so that it outlives the process.
// The gateway's packet sockets take frames before tc ingress and send past tc egress; what comes
// by here is what the kernel's own stack would take or send, and it is dropped and counted. In
// open mode, while no heartbeat comes, ingress hands frames to the other port instead. A frame of
// a flow on the fast path (fastpath.bpf.h) comes with the word of the gateway's own socket filter
// and goes to the other port. What the host says and hears is copied to analysers (mirror.bpf.h).
// ESP that the kernel or a NIC makes and opens for the gateway (esp.bpf.h) is let out and in at the
// wire port, association by association.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define HEARTBEAT_NS_MAX 1000000000ULL
#define IPV6_NEXT_HEADER_OFFSET (ETH_HLEN + 6)
#define HOP_BY_HOP 0
#define ICMPV6 58

// Set before loading.
const volatile __u32 host_index = 0;
const volatile __u32 wire_index = 0;
const volatile __u32 open_on_failure = 0;
const volatile __u32 own_mark = 0;

#include "esp.bpf.h"
#include "fastpath.bpf.h"

// The order of weir_port::guard::GuardCounters.
enum {
	INGRESS_DROPPED,
	INGRESS_PASSED_OPEN,
	EGRESS_OWN,
	EGRESS_ARP,
	EGRESS_IPV6_NEIGHBOUR,
	EGRESS_OTHER,
	INGRESS_FAST,
	INGRESS_ESP,
	EGRESS_ESP,
	KINDS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	// Host port, wire port, all xfrm interfaces together.
	__uint(max_entries, 3 * KINDS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

// When the gateway was last alive: CLOCK_MONOTONIC, nanoseconds.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} heartbeat SEC(".maps");

static __always_inline void count(__u32 interface, __u32 kind)
{
	__u32 port = interface == host_index ? 0 : interface == wire_index ? 1 : 2;
	__u32 key = kind + port * KINDS;
	__u64 *value = bpf_map_lookup_elem(&counters, &key);
	if (value)
		*value += 1;
}

static __always_inline int gateway_alive(void)
{
	__u32 key = 0;
	__u64 *last = bpf_map_lookup_elem(&heartbeat, &key);
	return last && *last && bpf_ktime_get_ns() - *last < HEARTBEAT_NS_MAX;
}

#include "mirror.bpf.h"

static __always_inline int guard_in(struct __sk_buff *skb)
{
	__u32 other = skb->ifindex == host_index ? wire_index : host_index;
	__u32 opened;

	if (skb->ifindex == host_index)
		copy_to_analysers(skb, FROM_HOST);
	if (fast_token(skb)) {
		count(skb->ifindex, INGRESS_FAST);
		skb->mark = own_mark;
		return bpf_redirect(other, 0);
	}
	if (skb->ifindex == wire_index && esp_is_let_in(skb)) {
		count(skb->ifindex, INGRESS_ESP);
		return TC_ACT_OK;
	}
	opened = skb->ifindex == wire_index ? nic_has_opened(skb) : 0;
	if (opened) {
		count(skb->ifindex, INGRESS_ESP);
		return bpf_redirect(opened, BPF_F_INGRESS);
	}
	if (open_on_failure && !gateway_alive()) {
		count(skb->ifindex, INGRESS_PASSED_OPEN);
		skb->mark = own_mark;
		return bpf_redirect(other, 0);
	}
	count(skb->ifindex, INGRESS_DROPPED);
	return TC_ACT_SHOT;
}

static __always_inline int asked_guard_in(struct __sk_buff *skb)
{
	if (skb->ifindex == host_index)
		ask_filters(skb, MAIN_IN);
	return guard_in(skb);
}

SEC("classifier")
int weir_guard_in(struct __sk_buff *skb)
{
	return asked_guard_in(skb);
}

// The same in open mode: whoever looks at the port's rules sees by the name which mode it is.
SEC("classifier")
int weir_guard_in_open(struct __sk_buff *skb)
{
	return asked_guard_in(skb);
}

SEC("classifier")
int weir_guard_in_asked(struct __sk_buff *skb)
{
	return guard_in(skb);
}

static __always_inline int guard_out(struct __sk_buff *skb)
{
	if (skb->mark == own_mark) {
		if (skb->ifindex == host_index)
			copy_to_analysers(skb, TO_HOST);
		count(skb->ifindex, EGRESS_OWN);
		return TC_ACT_OK;
	}
	if (skb->ifindex == wire_index && (esp_is_let_out(skb) || nic_is_to_seal(skb))) {
		count(skb->ifindex, EGRESS_ESP);
		return TC_ACT_OK;
	}
	if (skb->protocol == bpf_htons(ETH_P_ARP)) {
		count(skb->ifindex, EGRESS_ARP);
		return TC_ACT_SHOT;
	}
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		__u8 next = 0xff;
		bpf_skb_load_bytes(skb, IPV6_NEXT_HEADER_OFFSET, &next, 1);
		if (next == ICMPV6 || next == HOP_BY_HOP) {
			count(skb->ifindex, EGRESS_IPV6_NEIGHBOUR);
			return TC_ACT_SHOT;
		}
	}
	count(skb->ifindex, EGRESS_OTHER);
	return TC_ACT_SHOT;
}

SEC("classifier")
int weir_guard_out(struct __sk_buff *skb)
{
	if (skb->ifindex == host_index && skb->mark == own_mark)
		ask_filters(skb, MAIN_OUT);
	return guard_out(skb);
}

SEC("classifier")
int weir_guard_out_asked(struct __sk_buff *skb)
{
	return guard_out(skb);
}

// What an xfrm interface hands up was taken by the gateway's packet socket before.
SEC("classifier")
int weir_guard_xfrm(struct __sk_buff *skb)
{
	count(skb->ifindex, INGRESS_DROPPED);
	return TC_ACT_SHOT;
}
