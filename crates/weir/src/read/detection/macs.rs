//! The MAC addresses that a flow's packets had (`ethernet`).

use std::collections::HashMap;

use serde_json::{Value, json};
use weir_detect::alert::FlowView;
use weir_store::sink::eve as sink;
use weir_wire::parse::{MacAddress, Parsed};

use super::super::eve::Event;

/// Addresses of a side that are told, at most.
const MACS_MAX: usize = 10;

/// Addresses by flow: the client's and the server's, in the order in which they came.
#[derive(Default)]
pub(super) struct Macs(HashMap<u64, [Vec<MacAddress>; 2]>);

impl Macs {
    /// Notes the addresses of a flow's packet.
    pub(super) fn note(&mut self, view: &FlowView, parsed: &Parsed) {
        let ends = [parsed.link.source, parsed.link.destination];
        let known = self.0.entry(sink::flow_id(view)).or_default();
        for (side, mac) in ends.into_iter().enumerate() {
            let of = &mut known[if view.to_server { side } else { 1 - side }];
            if of.len() < MACS_MAX && !of.contains(&mac) {
                of.push(mac);
            }
        }
    }

    /// What is known of a flow that is over.
    pub(super) fn end(&mut self, flow: u64) -> Option<[Value; 2]> {
        let told = |macs: Vec<MacAddress>| macs.iter().map(MacAddress::to_string).collect();
        Some(self.0.remove(&flow)?.map(told))
    }
}

/// Says which addresses a flow's packets had, those of `side` first.
pub(super) fn put(event: &mut Event, macs: Option<&[Value; 2]>, side: usize) {
    let Some(macs) = macs else { return };
    let ether = json!({ "dest_macs": macs[1 - side], "src_macs": macs[side] });
    event.insert("ether".into(), ether);
}
