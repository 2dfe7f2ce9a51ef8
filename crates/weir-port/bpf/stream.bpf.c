// SPDX-License-Identifier: (Apache-2.0 OR BSD-2-Clause OR GPL-2.0)
//
// Sends one RoCE frame again and again at a steady rate, its packet sequence number advancing and
// its ICRC right. Run by the kernel's own test facility on frames that are then really sent.

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Frames between two looks at the clock, which costs as much as the rest. The kernel sends in bulks
// of so many anyway (DEV_MAP_BULK_SIZE).
#define BURST 16
// Looks at the clock before a burst goes out late after all.
#define LOOKS_MAX 4096

struct progress {
	__u64 due_ns;
	__u64 psn;
};

// Set before loading.
const volatile __u64 gap_ns = 0;
const volatile __u32 psn_offset = 0;
const volatile __u32 icrc_offset = 0;
const volatile __u32 icrc_of_psn_0 = 0;
// What each byte of the number adds to the ICRC: CRCs are linear.
const volatile __u32 icrc_changes[3 * 256] = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct progress);
} progress SEC(".maps");

static __always_inline void wait_until(__u64 due)
{
	for (int i = 0; i < LOOKS_MAX; i++)
		if (bpf_ktime_get_ns() >= due)
			break;
}

SEC("xdp")
int stream(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 zero = 0;
	struct progress *at = bpf_map_lookup_elem(&progress, &zero);
	__u8 *psn = data + (psn_offset & 0xff);
	__u32 *icrc = data + (icrc_offset & 0xfff);
	__u8 high, middle, low;

	if (!at || (void *)(psn + 3) > end || (void *)(icrc + 1) > end)
		return XDP_DROP;
	high = at->psn >> 16;
	middle = at->psn >> 8;
	low = at->psn;
	psn[0] = high;
	psn[1] = middle;
	psn[2] = low;
	*icrc = icrc_of_psn_0 ^ icrc_changes[high] ^ icrc_changes[256 + middle] ^
		icrc_changes[512 + low];
	if (at->psn++ % BURST == 0) {
		wait_until(at->due_ns);
		at->due_ns += gap_ns * BURST;
	}
	return XDP_TX;
}
