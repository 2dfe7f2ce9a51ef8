//! How long flows may be silent and fragments wait, as a test's settings say (`flow-timeouts`,
//! `defrag.timeout`).

use weir_detect::Timeouts;

use super::case::Case;

/// Seconds that Suricata's own settings say.
const OF_SETTINGS: [u64; 3] = [60, 600, 60];
/// What its program has where no settings say so.
const UNSAID: [u64; 3] = [30, 300, 10];
/// The same of protocols without connections, by both.
const OF_DATAGRAMS: [u64; 2] = [30, 300];
const OF_FRAGMENTS: u64 = 60;

pub(super) fn of(case: &Case) -> Timeouts {
    let unsaid = if case.has_settings { UNSAID } else { OF_SETTINGS };
    let said = |name: &str, unsaid: u64| {
        let said = case.setting(name).and_then(|it| it.parse().ok());
        said.unwrap_or(unsaid)
    };
    let of = |protocol: &str, state: &str, unsaid| {
        said(&format!("flow-timeouts.{protocol}.{state}"), unsaid)
    };
    let of_datagrams = |protocol: &str| {
        let [new, established] = OF_DATAGRAMS;
        [of(protocol, "new", new), of(protocol, "established", established)]
    };
    let [new, established, closed] = unsaid;
    Timeouts {
        tcp: [
            of("tcp", "new", new),
            of("tcp", "established", established),
            of("tcp", "closed", closed),
        ],
        udp: of_datagrams("udp"),
        icmp: of_datagrams("icmp"),
        other: of_datagrams("default"),
        fragments: Some(said("defrag.timeout", OF_FRAGMENTS)),
    }
}
