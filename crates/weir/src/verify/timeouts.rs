//! How long flows may be silent, as a test's settings say (`flow-timeouts`).

use weir_detect::FlowTimeouts;

use super::case::Case;

/// Suricata's own settings, and what its program has where no settings say so.
const OF_SETTINGS: FlowTimeouts =
    FlowTimeouts { tcp: [60, 600, 60], udp: [30, 300], icmp: [30, 300], other: [30, 300] };
const UNSAID: FlowTimeouts =
    FlowTimeouts { tcp: [30, 300, 10], udp: [30, 300], icmp: [30, 300], other: [30, 300] };

pub(super) fn of(case: &Case) -> FlowTimeouts {
    let unsaid = if case.has_settings { UNSAID } else { OF_SETTINGS };
    let said = |protocol: &str, state: &str, unsaid: u64| {
        let said = case.setting(&format!("flow-timeouts.{protocol}.{state}"));
        said.and_then(|it| it.parse().ok()).unwrap_or(unsaid)
    };
    let pair = |protocol, [new, established]: [u64; 2]| {
        [said(protocol, "new", new), said(protocol, "established", established)]
    };
    let [new, established, closed] = unsaid.tcp;
    let [new, established] = pair("tcp", [new, established]);
    FlowTimeouts {
        tcp: [new, established, said("tcp", "closed", closed)],
        udp: pair("udp", unsaid.udp),
        icmp: pair("icmp", unsaid.icmp),
        other: pair("default", unsaid.other),
    }
}
