//! The lists of a [`super::CaptureReport`] as CSV (RFC 4180): a header line, then a line per flow,
//! or per direction of a conversation. No field needs quoting: names, addresses and numbers only.

use std::fmt::Write;

use super::report::{Conversation, Flow};

/// The flows.
pub fn flows(flows: &[Flow]) -> String {
    let mut out = String::from(
        "address_a,port_a,address_b,port_b,protocol,vlans,first_ns,last_ns,packets_ab,bytes_ab,\
         packets_ba,bytes_ba,tcp_flags_ab,tcp_flags_ba,congestion_experienced\r\n",
    );
    for flow in flows {
        let vlans: Vec<String> = flow.vlans.iter().map(u16::to_string).collect();
        let fields: [&dyn std::fmt::Display; 15] = [
            &flow.address_a,
            &flow.port_a,
            &flow.address_b,
            &flow.port_b,
            &flow.protocol,
            &vlans.join(" "),
            &flow.first_ns,
            &flow.last_ns,
            &flow.packets_ab,
            &flow.bytes_ab,
            &flow.packets_ba,
            &flow.bytes_ba,
            &flow.tcp_flags_ab,
            &flow.tcp_flags_ba,
            &flow.congestion_experienced,
        ];
        line(&mut out, &fields);
    }
    out
}

/// The conversations, a line per direction; `conversation` numbers them from 1.
pub fn conversations(conversations: &[Conversation]) -> String {
    let mut out = String::from(
        "conversation,service,encapsulation,joined,source,source_qp,destination,destination_qp,\
         source_port,first_ns,last_ns,packets,bytes,payload_bytes,messages,retransmissions,\
         response_resends,psn_gaps,psn_missing,psn_late,psn_jumps,naks,rnr_naks,cnp,\
         congestion_experienced,icrc_bad,response_time_median_ns,response_time_p99_ns,\
         lost_before,lost_after,overtaken_before\r\n",
    );
    for (number, conversation) in (1..).zip(conversations) {
        for direction in &conversation.directions {
            let number: u64 = number;
            let naks: u32 = direction.naks.values().sum();
            let fields: [&dyn std::fmt::Display; 31] = [
                &number,
                &conversation.service,
                &conversation.encapsulation,
                &conversation.joined,
                &direction.source,
                &optional(direction.source_qp),
                &direction.destination,
                &direction.destination_qp,
                &optional(direction.source_port),
                &conversation.first_ns,
                &conversation.last_ns,
                &direction.packets,
                &direction.bytes,
                &direction.payload_bytes,
                &direction.messages,
                &direction.retransmissions,
                &direction.response_resends,
                &direction.psn_gaps,
                &direction.psn_missing,
                &direction.psn_late,
                &direction.psn_jumps,
                &naks,
                &direction.rnr_naks,
                &direction.cnp,
                &direction.congestion_experienced,
                &direction.icrc_bad,
                &optional(direction.response_time_median_ns),
                &optional(direction.response_time_p99_ns),
                &direction.lost_before,
                &direction.lost_after,
                &direction.overtaken_before,
            ];
            line(&mut out, &fields);
        }
    }
    out
}

fn line(out: &mut String, fields: &[&dyn std::fmt::Display]) {
    for (at, field) in fields.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(out, "{comma}{field}");
    }
    out.push_str("\r\n");
}

fn optional(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}
