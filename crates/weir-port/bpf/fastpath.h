// SPDX-License-Identifier: (Apache-2.0 OR BSD-2-Clause OR GPL-2.0)
//
// What the fast path's kernel program and the gateway share. weir-wire/src/fastpath.rs says the
// same in Rust, and a test has clang compare the two.

#ifndef WEIR_FASTPATH_H
#define WEIR_FASTPATH_H

#include <linux/types.h>

#define WEIR_CLASSES 7
#define WEIR_WORKERS_MAX 16
#define WEIR_NAK_CAUSES 6
#define WEIR_REMOTE_KEYS 4
#define WEIR_EVENT_BYTES 160
#define WEIR_HEAD_BYTES 384

// One direction of a flow. Numbers in host byte order.
struct weir_key {
	__u8 source[16];
	__u8 destination[16];
	__u32 vlans;
	__u32 destination_qp;
	__u32 source_qp;
	__u16 source_port;
	__u16 destination_port;
	__u8 protocol;
	__u8 kind;
	__u8 side;
	__u8 zero;
};

enum weir_kind {
	WEIR_PORTS = 0,
	WEIR_ROCE_V1 = 1,
	WEIR_ROCE_V2 = 2,
};

#define WEIR_HAS_SOURCE_QP (1u << 24)

struct weir_volume {
	__u64 packets;
	__u64 bytes;
};

// What was carried, and how it may be.
struct weir_slot {
	// Set by the gateway.
	__u32 epoch;
	__u32 path_mtu;
	__u32 source_port;
	// Set here, once: from then on the flow's frames are carried.
	__u32 is_fast;
	// Before that: the number of its latest frame among those its port let up to the gateway;
	// WEIR_NONE while none of its frames has met the slot.
	__u64 last_admitted;

	__u64 last_ns;
	__u64 frames;
	__u64 packets;
	__u64 bytes;
	__u64 ecn_marked;
	__u64 marked;
	__u64 foreign_packets;
	__u64 foreign_bytes;
	__u64 payload_bytes;
	__u64 messages;
	struct weir_volume classes[WEIR_CLASSES];
	__u32 naks[WEIR_NAK_CAUSES];
	__u32 rnr_naks;
	__u32 cnp;
	// The gateway takes these back to zero when it has read them.
	__u32 remote_keys[WEIR_REMOTE_KEYS];
	__u32 remote_key_count;
	__u32 tcp_flags;
	// The next sequence number of each stream; WEIR_STARTED once one was seen.
	__u32 request_next;
	__u32 response_next;
	__u32 queue_key;
	__u16 partition_key;
	__u8 traffic_class;
	__u8 zero;
};

#define WEIR_STARTED (1u << 31)
#define WEIR_NONE (~0ULL)

// On a cache line of its own: every frame on the slow path changes it.
struct weir_count {
	__u64 frames;
	__u64 apart[7];
};

struct weir_control {
	// Written by the gateway. Frames are carried until WEIR_LEASE_NS after this (CLOCK_MONOTONIC).
	__u64 lease_ns;
	// By side: of the frames admitted, this many have left, the first to the last of them.
	__u64 departed[2];
	// Slots of another epoch are void; zero: all are.
	__u32 epoch;
	// Not zero: the head of every carried frame is wanted.
	__u32 wants_heads;
	// Written here.
	__u64 events_lost;
	__u64 heads_lost;
	__u64 apart[2];
	// By side: frames let up to the gateway's socket.
	struct weir_count admitted[2];
};

#define WEIR_LEASE_NS 1000000000ULL

// A copy of a carried packet's headers that says more than counters can.
struct weir_event {
	__u64 now_ns;
	__u32 slot;
	__u32 kinds;
	// The sequence number that was due, with WEIR_STARTED.
	__u32 expected;
	__u32 wire_len;
	__u32 segments;
	__u32 captured_len;
	__u8 bytes[WEIR_EVENT_BYTES];
};

// The beginning of a carried frame, for the evidence.
struct weir_head {
	__u64 now_ns;
	__u32 wire_len;
	__u32 captured_len;
	// The VLAN tag that `bytes` lacks; no tag: protocol zero.
	__u16 vlan_protocol;
	__u16 vlan_tci;
	__u32 side;
	__u8 bytes[WEIR_HEAD_BYTES];
};

enum weir_event_kind {
	WEIR_EVENT_NAK = 1 << 0,
	WEIR_EVENT_CONGESTION = 1 << 1,
	WEIR_EVENT_REQUEST_PSN = 1 << 3,
	WEIR_EVENT_RESPONSE_PSN = 1 << 4,
	WEIR_EVENT_SOURCE_PORT = 1 << 5,
	WEIR_EVENT_PATH_MTU = 1 << 6,
};

// What an opcode means here, compiled by the engine: lengths and flags of one 32-bit word.
#define WEIR_OPCODE_EXTENSIONS_LEN(word) ((word) & 0xff)
#define WEIR_OPCODE_KEY_OFFSET(word) ((word) >> 8 & 0xff)
#define WEIR_OPCODE_CLASS(word) ((word) >> 16 & 0xf)
enum weir_opcode_flag {
	WEIR_OPCODE_REQUEST = 1 << 20,
	WEIR_OPCODE_RESPONSE = 1 << 21,
	WEIR_OPCODE_ENDS_MESSAGE = 1 << 22,
	WEIR_OPCODE_SYNDROME = 1 << 23,
	WEIR_OPCODE_FULL = 1 << 24,
	WEIR_OPCODE_DATAGRAM = 1 << 25,
	WEIR_OPCODE_READ = 1 << 26,
	// Left to the gateway, whatever flow it belongs to.
	WEIR_OPCODE_SLOW = 1 << 27,
};

#endif
