//! What is counted over captures, by the names of EVE's `stats`.

use std::collections::BTreeMap;

use weir_detect::record::{EndReason, FlowRecord};
use weir_wire::parse::Transport;
use weir_wire::tcp::flags::{ACK, RST, SYN, URG};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// What is told of whatever was read.
const ALWAYS: [&str; 35] = [
    "defrag.ipv4.fragments",
    "defrag.ipv4.reassembled",
    "defrag.ipv6.fragments",
    "defrag.ipv6.reassembled",
    "detect.alert",
    "detect.alert_queue_overflow",
    "detect.alerts_suppressed",
    "flow.end.state.closed",
    "flow.end.state.established",
    "flow.end.state.local_bypassed",
    "flow.end.state.new",
    "flow.end.tcp_state.close_wait",
    "flow.end.tcp_state.closed",
    "flow.end.tcp_state.established",
    "flow.end.tcp_state.fin_wait1",
    "flow.end.tcp_state.none",
    "flow.end.tcp_state.syn_recv",
    "flow.end.tcp_state.syn_sent",
    "flow.icmpv4",
    "flow.icmpv6",
    "flow.tcp",
    "flow.tcp_reuse",
    "flow.total",
    "flow.udp",
    "flow_bypassed.local_bytes",
    "flow_bypassed.local_pkts",
    "tcp.midstream_pickups",
    "tcp.overlap",
    "tcp.overlap_diff_data",
    "tcp.reassembly_gap",
    "tcp.rst",
    "tcp.sessions",
    "tcp.syn",
    "tcp.synack",
    "tcp.urg",
];
/// What may be done with a connection whose beginning was not seen.
const POLICIES: [&str; 5] = ["pass_flow", "bypass", "drop_flow", "reject", "reject_both"];
/// What is told of packets that are dropped.
const DROPS: [&str; 11] = [
    "accepted",
    "blocked",
    "drop_reason.decode_error",
    "drop_reason.defrag_error",
    "drop_reason.exception_policy_flow_drop",
    "drop_reason.flow_drop",
    "drop_reason.rules",
    "drop_reason.stream_error",
    "drop_reason.stream_midstream",
    "drop_reason.threshold_detection_filter",
    "rejected",
];

/// Counts by their dotted names.
#[derive(Debug, Default)]
pub(super) struct Counts(BTreeMap<String, u64>);

impl Counts {
    /// Those so far, with those that are told though they are none.
    pub(super) fn into_map(mut self, is_inline: bool, midstream: bool) -> BTreeMap<String, u64> {
        for name in ALWAYS {
            self.0.entry(name.to_owned()).or_default();
        }
        let of_policies = POLICIES.iter().map(|it| format!("exception_policy.tcp.midstream.{it}"));
        let of_drops = DROPS.iter().map(|it| format!("ips.{it}"));
        // Who follows such connections lets them pass at most, and who only watches drops none.
        let of_policies = of_policies.filter(|it| match midstream {
            true => it.ends_with(".pass_flow"),
            false => is_inline || !it.ends_with(".drop_flow"),
        });
        for name in of_policies.chain(of_drops.filter(|_| is_inline)) {
            self.0.entry(name).or_default();
        }
        self.0
    }

    /// Counts one more.
    pub(super) fn add(&mut self, name: &str) {
        match self.0.get_mut(name) {
            Some(count) => *count += 1,
            None => _ = self.0.insert(name.to_owned(), 1),
        }
    }

    /// Counts so many more.
    pub(super) fn add_many(&mut self, name: &str, more: u64) {
        *self.0.entry(name.to_owned()).or_default() += more;
    }

    /// Segments that begin and break connections.
    pub(super) fn packet(&mut self, transport: Transport) {
        let Transport::Tcp { flags, .. } = transport else { return };
        if flags & URG != 0 {
            self.add("tcp.urg");
        }
        if flags & RST != 0 {
            self.add("tcp.rst");
        }
        match flags & (SYN | ACK) {
            SYN => self.add("tcp.syn"),
            it if it == SYN | ACK => self.add("tcp.synack"),
            _ => {}
        }
    }

    /// A flow that ended.
    pub(super) fn flow(&mut self, record: &FlowRecord) {
        self.add("flow.total");
        if record.reason == EndReason::Reused {
            self.add("flow.tcp_reuse");
        }
        let carrier = carrier(record.protocol);
        if !carrier.is_empty() {
            self.add(&format!("flow.{carrier}"));
        }
        let state = record.state().replace("bypassed", "local_bypassed");
        self.add(&format!("flow.end.state.{state}"));
        if record.protocol == TCP && record.is_followed {
            self.add(&format!("flow.end.tcp_state.{}", record.tcp_state()));
            self.add("tcp.sessions");
            if record.is_midstream {
                self.add("tcp.midstream_pickups");
            }
        }
        self.transactions(record.beside.original, record.protocol, record.transactions_before);
        match record.application {
            // Suricata counts its transactions alone.
            Some("doh2") => self.add_many("app_layer.tx.doh2", record.transactions),
            None if record.protocol == UDP || record.has_failed => {
                self.add(&format!("app_layer.flow.failed_{carrier}"));
            }
            name => self.transactions(name, record.protocol, record.transactions),
        }
    }

    /// A flow in which that was spoken, in so many transactions. A session of TLS or SSH has one,
    /// which is not counted.
    fn transactions(&mut self, application: Option<&str>, protocol: u8, transactions: u64) {
        let Some(name) = application else { return };
        let spoken = spoken(name, protocol);
        self.add(&format!("app_layer.flow.{spoken}"));
        if transactions > 0 && !matches!(name, "tls" | "ssh") {
            self.add_many(&format!("app_layer.tx.{spoken}"), transactions);
        }
    }
}

/// An application's name; with its carrier where it has several.
pub(super) fn spoken(application: &str, protocol: u8) -> String {
    match application {
        "dns" | "krb5" | "nfs" | "dcerpc" | "enip" | "sip" | "ldap" => {
            format!("{application}_{}", carrier(protocol))
        }
        _ => application.to_owned(),
    }
}

fn carrier(protocol: u8) -> &'static str {
    match protocol {
        1 => "icmpv4",
        TCP => "tcp",
        UDP => "udp",
        58 => "icmpv6",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use weir_detect::record::SpokenBeside;

    use super::*;

    #[test]
    fn flows_are_counted_by_what_carries_and_what_they_speak() {
        let mut counts = Counts::default();
        let dns = FlowRecord {
            protocol: UDP,
            application: Some("dns"),
            transactions: 1,
            ..FlowRecord::default()
        };
        let (tcp_flags, tcp_passed) = ([SYN, RST], [SYN, RST]);
        let tcp = FlowRecord {
            protocol: TCP,
            tcp_flags,
            tcp_passed,
            is_followed: true,
            ..FlowRecord::default()
        };
        [&dns, &tcp].into_iter().for_each(|it| counts.flow(it));
        let counts = counts.into_map(false, false);
        let expected = [
            "app_layer.flow.dns_udp",
            "app_layer.tx.dns_udp",
            "flow.end.state.closed",
            "flow.end.state.new",
            "flow.end.tcp_state.closed",
            "flow.tcp",
            "flow.udp",
            "tcp.sessions",
        ];
        assert!(expected.iter().all(|it| counts.get(*it) == Some(&1)), "{counts:?}");
        assert_eq!(counts["flow.total"], 2);
    }

    #[test]
    fn flows_that_go_on_in_tls_are_counted_by_what_they_spoke_before_too() {
        let mut counts = Counts::default();
        let upgraded = FlowRecord {
            protocol: TCP,
            beside: SpokenBeside { original: Some("smtp"), ..SpokenBeside::default() },
            transactions_before: 2,
            application: Some("tls"),
            transactions: 1,
            ..FlowRecord::default()
        };
        let unknown = FlowRecord { protocol: TCP, has_failed: true, ..FlowRecord::default() };
        [&upgraded, &unknown].into_iter().for_each(|it| counts.flow(it));
        let counts = counts.into_map(false, false);
        let expected = [
            ("app_layer.flow.smtp", 1),
            ("app_layer.tx.smtp", 2),
            ("app_layer.flow.tls", 1),
            ("app_layer.flow.failed_tcp", 1),
        ];
        assert!(expected.iter().all(|it| counts.get(it.0) == Some(&it.1)), "{counts:?}");
        assert!(!counts.contains_key("app_layer.tx.tls"), "a session is no transaction");
    }
}
