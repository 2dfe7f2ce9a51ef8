//! The fast path's structures lie in memory as the kernel program's C header says: judged by clang.

use std::fmt::Write;
use std::mem::offset_of;
use std::process::{Command, Stdio};

use weir_wire::fastpath::{
    self, Control, Count, Event, Head, Key, Slot, Volume, event, kind, opcode_flag,
};

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../weir-port/bpf/fastpath.h");

macro_rules! layout {
    ($text:ident, $name:literal, $kind:ty, [$($field:ident),+ $(,)?]) => {
        writeln!($text, "_Static_assert(sizeof(struct {}) == {}, \"size\");", $name,
            size_of::<$kind>()).unwrap();
        $(writeln!($text, "_Static_assert(__builtin_offsetof(struct {}, {}) == {}, \"place\");",
            $name, stringify!($field), offset_of!($kind, $field)).unwrap();)+
    };
}

fn control_assertions(text: &mut String) {
    layout!(text, "weir_count", Count, [frames, apart]);
    layout!(
        text,
        "weir_control",
        Control,
        [lease_ns, departed, epoch, wants_heads, events_lost, heads_lost, apart, admitted]
    );
}

fn slot_assertions(text: &mut String) {
    layout!(
        text,
        "weir_slot",
        Slot,
        [
            epoch,
            path_mtu,
            source_port,
            is_fast,
            last_admitted,
            last_ns,
            frames,
            packets,
            bytes,
            ecn_marked,
            marked,
            foreign_packets,
            foreign_bytes,
            payload_bytes,
            messages,
            classes,
            naks,
            rnr_naks,
            cnp,
            remote_keys,
            remote_key_count,
            tcp_flags,
            request_next,
            response_next,
            queue_key,
            partition_key,
            traffic_class,
            zero,
        ]
    );
}

fn assertions() -> String {
    let mut text = format!("#include \"{HEADER}\"\n");
    layout!(
        text,
        "weir_key",
        Key,
        [
            source,
            destination,
            vlans,
            destination_qp,
            source_qp,
            source_port,
            destination_port,
            protocol,
            kind,
            side,
            zero,
        ]
    );
    layout!(text, "weir_volume", Volume, [packets, bytes]);
    slot_assertions(&mut text);
    control_assertions(&mut text);
    layout!(
        text,
        "weir_event",
        Event,
        [now_ns, slot, kinds, expected, wire_len, segments, captured_len, bytes,]
    );
    layout!(
        text,
        "weir_head",
        Head,
        [now_ns, wire_len, captured_len, vlan_protocol, vlan_tci, side, bytes]
    );
    for (name, value) in VALUES {
        writeln!(text, "_Static_assert({name} == {value}, \"value\");").unwrap();
    }
    text
}

const VALUES: [(&str, u64); 25] = [
    ("WEIR_CLASSES", fastpath::CLASSES as u64),
    ("WEIR_WORKERS_MAX", fastpath::WORKERS_MAX as u64),
    ("WEIR_NAK_CAUSES", fastpath::NAK_CAUSES as u64),
    ("WEIR_REMOTE_KEYS", fastpath::REMOTE_KEYS as u64),
    ("WEIR_EVENT_BYTES", fastpath::EVENT_BYTES as u64),
    ("WEIR_HEAD_BYTES", fastpath::HEAD_BYTES as u64),
    ("WEIR_STARTED", fastpath::STARTED as u64),
    ("WEIR_LEASE_NS", fastpath::LEASE_NS),
    ("WEIR_PORTS", kind::PORTS as u64),
    ("WEIR_ROCE_V1", kind::ROCE_V1 as u64),
    ("WEIR_ROCE_V2", kind::ROCE_V2 as u64),
    ("WEIR_EVENT_NAK", event::NAK as u64),
    ("WEIR_EVENT_CONGESTION", event::CONGESTION as u64),
    ("WEIR_EVENT_REQUEST_PSN", event::REQUEST_PSN as u64),
    ("WEIR_EVENT_RESPONSE_PSN", event::RESPONSE_PSN as u64),
    ("WEIR_EVENT_SOURCE_PORT", event::SOURCE_PORT as u64),
    ("WEIR_EVENT_PATH_MTU", event::PATH_MTU as u64),
    ("WEIR_OPCODE_REQUEST", opcode_flag::REQUEST as u64),
    ("WEIR_OPCODE_RESPONSE", opcode_flag::RESPONSE as u64),
    ("WEIR_OPCODE_ENDS_MESSAGE", opcode_flag::ENDS_MESSAGE as u64),
    ("WEIR_OPCODE_SYNDROME", opcode_flag::SYNDROME as u64),
    ("WEIR_OPCODE_FULL", opcode_flag::FULL as u64),
    ("WEIR_OPCODE_DATAGRAM", opcode_flag::DATAGRAM as u64),
    ("WEIR_OPCODE_READ", opcode_flag::READ as u64),
    ("WEIR_OPCODE_SLOW", opcode_flag::SLOW as u64),
];

fn clang_accepts(text: &str) -> Option<(bool, String)> {
    let headers = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-I", &headers, "-fsyntax-only", "-x", "c", "-"]);
    let spawned = clang.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = spawned else {
        eprintln!("SKIPPED: clang is not installed");
        return None;
    };
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Some((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[test]
fn every_field_lies_where_the_kernel_program_looks_for_it() {
    let text = assertions();
    let Some((accepted, said)) = clang_accepts(&text) else { return };
    assert!(accepted, "{said}");
    let wrong = format!("{text}_Static_assert(sizeof(struct weir_key) == 1, \"size\");");
    let (accepted, _) = clang_accepts(&wrong).unwrap();
    assert!(!accepted, "clang would have said so");
}
