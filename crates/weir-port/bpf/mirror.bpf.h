// Copies of a host's frames for an analyser, made where the guard meets them: a copy shares
// the frame's memory. While no heartbeat comes there are none.
//
// A mirror's filter is a program of its own (weir_port::mirror::filter), called before the guard:
//
//   guard -> filters[0..MIRRORS], those that are there: cb[0] |= 1 << slot -> filters[cb[1]]: guard
//
// A copy that is to be encapsulated carries its mirror's mark to tc egress of the analyser's port
// (mirror.bpf.c); all others carry none, so that a guard that they come to on their way drops them.

#define MIRRORS 4
// There is no such device, or it is down.
#define EINVAL 22
#define ENETDOWN 100

enum {
	FROM_HOST = 1,
	TO_HOST = 2,
	FILTERED = 4,
};

struct mirror {
	__u32 port; // Interface index.
	__u32 directions; // 0: no mirror.
	__u32 mark; // 0: the copy goes as it is, with none.
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mirror[MIRRORS]);
} mirrors SEC(".maps");

// The order of weir_port::mirror::CloneCounters; packets.
enum {
	MIRROR_TAKEN,
	MIRROR_QUEUE_FULL,
	MIRROR_PORT_DOWN,
	MIRROR_KINDS = 4,
};

// The guard's own programs stand behind the filters. Without the gateway the kernel empties it.
enum {
	MAIN_IN = MIRRORS,
	MAIN_OUT,
	FILTERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, FILTERS);
	__type(key, __u32);
	__type(value, __u32);
} filters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MIRRORS * MIRROR_KINDS);
	__type(key, __u32);
	__type(value, __u64);
} mirror_counters SEC(".maps");

// Asks the filters, if there are any; then it does not return.
static __always_inline void ask_filters(struct __sk_buff *skb, __u32 main)
{
	skb->cb[0] = 0;
	skb->cb[1] = main;
#pragma unroll
	for (__u32 slot = 0; slot < MIRRORS; slot++)
		bpf_tail_call(skb, &filters, slot);
}

static __always_inline void copy_to_analysers(struct __sk_buff *skb, __u32 direction)
{
	__u32 zero = 0, mark = skb->mark;
	struct mirror *all = bpf_map_lookup_elem(&mirrors, &zero);

	if (!all)
		return;
#pragma unroll
	for (__u32 slot = 0; slot < MIRRORS; slot++) {
		if (!(all[slot].directions & direction) || !gateway_alive())
			continue;
		if (all[slot].directions & FILTERED && !(skb->cb[0] & 1 << slot))
			continue;
		// What is encapsulated is cut into the sender's segments.
		__u64 packets = all[slot].mark && skb->gso_segs ? skb->gso_segs : 1;
		skb->mark = all[slot].mark;
		long refused = bpf_clone_redirect(skb, all[slot].port, 0);
		__u32 kind = !refused ? MIRROR_TAKEN :
			     refused == -EINVAL || refused == -ENETDOWN ? MIRROR_PORT_DOWN :
									  MIRROR_QUEUE_FULL;
		__u32 key = slot * MIRROR_KINDS + kind;
		__u64 *value = bpf_map_lookup_elem(&mirror_counters, &key);
		if (value)
			*value += packets;
		skb->mark = mark;
	}
}
