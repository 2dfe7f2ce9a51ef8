//! The demo's report as text: one column a kind of traffic, one row a question.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use super::{
    AccessReport, DemoReport, DetectionReport, KindReport, RdmaReport, Throughput, VpnReport,
};
use crate::gateways::{NAMES, run_folder};
use crate::serve::store_folder;
use crate::topology::{Lab, Side, WIRE_END_A, standing};

const LABEL_WIDTH: usize = 34;
const COLUMN_WIDTH: usize = 13;
const LINE_WIDTH: usize = 44;

/// A kind's name for people.
pub(super) fn title(kind: &str) -> &str {
    match kind {
        "ping" => "ping",
        "tcp" => "TCP",
        "roce-v2" => "RoCE v2",
        "roce-v1" => "RoCE v1",
        "tcp-prebuilt" => "prebuilt TCP",
        other => other,
    }
}

pub(super) fn text(report: &DemoReport) -> String {
    let mut out = String::new();
    if !report.kinds.is_empty() {
        out += &kinds(&report.kinds);
        out += &details(&report.kinds);
    }
    if let (Some(plain), Some(sealed)) = (&report.plain, &report.sealed) {
        out += &throughput(plain, sealed);
    }
    if let Some(access) = &report.access {
        out += &lines_of_access(access);
    }
    if let Some(detection) = &report.detection {
        out += &rules(detection);
    }
    if let Some(vpn) = &report.vpn {
        out += &client(vpn);
    }
    if let Some(rdma) = &report.rdma {
        out += &guests(rdma);
    }
    if report.failures.is_empty() {
        out +=
            "\nAll of it is as it must be: the wire carried ESP only, and all arrived that may.\n";
    } else {
        out += "\nNOT as it must be:\n";
        for failure in &report.failures {
            out += &format!("  - {failure}\n");
        }
    }
    out
}

fn kinds(kinds: &[KindReport]) -> String {
    type Cell = fn(&KindReport) -> String;
    let rows: [(&str, Option<Cell>); 18] = [
        ("", Some(|it| title(&it.kind).to_owned())),
        ("past the host's kernel", Some(|it| yes_no(it.bypasses_kernel))),
        ("frames sent by host A", Some(|it| number(it.sent_by_host_a))),
        ("The hosts' own tools", None),
        ("  host A's tcpdump saw", Some(|it| number(it.host_a_tcpdump_saw))),
        ("  host B's tcpdump saw", Some(|it| number(it.host_b_tcpdump_saw))),
        ("  host B's firewall stopped", Some(firewall)),
        ("Weir (gateway A) saw", None),
        ("  packets sealed / opened", Some(sealed_opened)),
        ("  RDMA packets", Some(|it| rdma(it, it.weir.rdma_packets))),
        ("  queue pairs", Some(|it| rdma(it, it.weir.queue_pairs))),
        ("  ICRC right / wrong", Some(icrc)),
        ("The wire carried (tcpdump)", None),
        ("  ESP frames", Some(|it| number(it.wire.esp))),
        ("  this traffic in clear", Some(|it| number(it.wire.this_kind_in_clear))),
        ("  ARP/ND of the gateways", Some(|it| number(it.wire.neighbour))),
        ("  anything else in clear", Some(|it| number(it.wire.others_in_clear))),
        ("arrived exactly as sent", Some(arrived)),
    ];
    let mut out = String::from("\n");
    for (label, cell) in rows {
        out += &format!("{label:LABEL_WIDTH$}");
        for kind in cell.iter().flat_map(|cell| kinds.iter().map(cell)) {
            out += &format!("{kind:>COLUMN_WIDTH$}");
        }
        out = out.trim_end().to_owned() + "\n";
    }
    out
}

/// What does not fit a table: opcodes, drops.
fn details(kinds: &[KindReport]) -> String {
    let mut out = String::new();
    for kind in kinds {
        if !kind.weir.opcodes.is_empty() {
            let name = title(&kind.kind);
            out += &wrapped(&format!("{name}, by opcode, as Weir saw it: "), &kind.weir.opcodes);
        }
        if !kind.weir.dropped.is_empty() {
            let name = title(&kind.kind);
            out += &wrapped(&format!("{name}, dropped by Weir: "), &kind.weir.dropped);
        }
    }
    out += "\nPings are echo requests over IPv4 and IPv6; TCP compares 16 MiB byte by byte, and\n\
            its frames between host and gateway are super-packets of up to 64 KiB. Firewall:\n\
            packets stopped of packets tried, by an nftables drop rule in host B.\n";
    out
}

fn wrapped(head: &str, counts: &BTreeMap<String, u64>) -> String {
    let mut out = String::from("\n");
    let mut line = head.to_owned();
    let last = counts.len().saturating_sub(1);
    for (index, (name, count)) in counts.iter().enumerate() {
        let item = format!("{name} {}{}", number(*count), if index < last { ", " } else { "" });
        if line.len() + item.len() > 96 {
            out += &(line.trim_end().to_owned() + "\n");
            line = "  ".to_owned();
        }
        line += &item;
    }
    out + line.trim_end() + "\n"
}

fn throughput(plain: &Throughput, sealed: &Throughput) -> String {
    let row = |label: &str, run: &Throughput| {
        format!(
            "  {label:10}{:6.2} Gb/s   {:>6} retransmits   {}\n",
            run.gbps, run.retransmits, run.congestion_control
        )
    };
    let share = 100.0 * sealed.gbps / plain.gbps;
    format!(
        "\nThroughput of one TCP stream (iperf3), hosts and gateways sharing this machine:\n{}{}  \
         sealed is {share:.0} % of plain\n",
        row("plain", plain),
        row("sealed", sealed)
    )
}

fn lines_of_access(access: &AccessReport) -> String {
    let mut out = format!(
        "\nLines of access at gateway A, taken by a reload:\n\n{:LINE_WIDTH$}{:>COLUMN_WIDTH$}\
         {:>COLUMN_WIDTH$}{:>COLUMN_WIDTH$}\n",
        "  host B's frames", "arrived", "messages", "packets"
    );
    for one in &access.kinds {
        let line = format!("  {}, line {} ({})", one.kind, one.line, one.action);
        let arrived = format!("{}/{}", number(one.arrived), number(one.sent));
        out += &format!(
            "{line:LINE_WIDTH$}{arrived:>COLUMN_WIDTH$}{:>COLUMN_WIDTH$}{:>COLUMN_WIDTH$}\n",
            number(one.messages),
            number(one.packets)
        );
    }
    out + &format!("  dropped as access_denied: {}\n", number(access.dropped))
}

fn rules(detection: &DetectionReport) -> String {
    let mut out = format!(
        "\nRules at gateway A, taken by a reload; harmless twins beside attacks:\n\n\
         {:LINE_WIDTH$}{:>COLUMN_WIDTH$}{:>COLUMN_WIDTH$}{:>COLUMN_WIDTH$}\n",
        "  host B's frames", "arrived", "dropped", "alerts"
    );
    for one in &detection.kinds {
        let line = match one.sid {
            Some(sid) => format!("  {}, rule {sid}", one.kind),
            None => format!("  {}", one.kind),
        };
        let arrived = format!("{}/{}", number(one.arrived), number(one.sent));
        out += &format!(
            "{line:LINE_WIDTH$}{arrived:>COLUMN_WIDTH$}{:>COLUMN_WIDTH$}{:>COLUMN_WIDTH$}\n",
            number(one.dropped_by_rule),
            number(one.alerts)
        );
    }
    out + &format!("  dropped as rule: {}\n", number(detection.dropped))
}

fn client(vpn: &VpnReport) -> String {
    let VpnReport { client, address, pings, answered, gbps, .. } = vpn;
    format!(
        "\nA VPN client (wireguard-go with the file of `weir vpn add`), and the host behind the \
         gateway:\n\n  {client}, {address}: {answered}/{pings} pings answered, TCP {gbps:.2} Gb/s; \
         the gateway opened {} packets\n  and sealed {}; on the wire {} of the tunnel, {} in \
         clear\n",
        number(vpn.opened_packets),
        number(vpn.sealed_packets),
        number(vpn.wire_sealed),
        number(vpn.wire_in_clear)
    )
}

fn guests(rdma: &RdmaReport) -> String {
    let mut out = format!(
        "\nReal RDMA between two Soft-RoCE guests (Linux {}) through sealing gateways:\n\n\
         {:44}{:>8}{:>10}{:>10}{:>8}{:>7}{:>11}\n",
        rdma.kernel, "", "result", "MB/s", "ESP", "clear", "QPs", "ICRC ok"
    );
    for run in &rdma.runs {
        let speed = run.megabytes_per_second.map_or("-".to_owned(), |it| format!("{it:.1}"));
        out += &format!(
            "{:44}{:>8}{speed:>10}{:>10}{:>8}{:>7}{:>11}\n",
            run.command,
            if run.succeeded { "ok" } else { "FAILED" },
            number(run.esp_frames),
            number(run.in_clear),
            number(run.weir.queue_pairs),
            number(run.weir.icrc_ok),
        );
    }
    let mut opcodes = BTreeMap::new();
    for (name, count) in rdma.runs.iter().flat_map(|run| &run.weir.opcodes) {
        *opcodes.entry(name.clone()).or_default() += count;
    }
    out + &wrapped("Opcodes, as Weir saw them: ", &opcodes)
}

/// What gateway A of a lab was given besides.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// Lines of access.
    pub access: bool,
    /// Rules.
    pub rules: bool,
    /// The shipped ones.
    pub shipped_rules: bool,
}

/// What a newcomer can type while the lab stands.
pub fn how_to_look_around(lab: &Lab, program: &Path, given: Given) -> String {
    let run_folder = run_folder(lab, Side::A);
    let (run_folder, program) = (run_folder.display(), program.display());
    let store = store_folder(lab, Side::A);
    let remembered = match store.exists() {
        true => format!(
            "\x20 {program} top --run-dir {run_folder} --store {store}\n\
             \x20 {program} conversations --last 10m --group --store {store}\n\
             \x20 {program} alerts --last 1h --store {store}\n",
            store = store.display()
        ),
        false => String::new(),
    };
    let [a, b] = [lab.host(Side::A).name(), lab.gateway(Side::A).name()];
    let (wire, target) = (lab.wire().name(), lab.host_v4(Side::B));
    // Of several, the lab has to be named.
    let id = lab.id();
    let named = if standing().is_empty() { String::new() } else { format!(" --lab {id}") };
    let eve = super::eve_file(lab.folder());
    let at_work = at_work(given, [&program, &run_folder, &named], &eve);
    format!(
        "the lab stands; look around:\n\
         \x20 ip netns exec {a} ping {target}\n\
         \x20 ip netns exec {wire} tcpdump -n -i {WIRE_END_A}\n\
         \x20 ip netns exec {b} ip -s link\n\
         \x20 {program} status {} --run-dir {run_folder}\n\
         \x20 {program} drops {} --run-dir {run_folder}\n\
         {remembered}\
         \x20 {program} lab send --kind roce-v2 --count 1000{named}\n\
         {at_work}\
         and remove it:\n\
         \x20 {program} lab down {id}",
        NAMES[0], NAMES[0]
    )
}

/// What shows what was given at work.
fn at_work(given: Given, [program, run_folder, lab]: [&dyn Display; 3], eve: &Path) -> String {
    let send = format!("\x20 {program} lab send --kind");
    let mut text = String::new();
    if given.access {
        text += &format!("{send} rdma-write{lab}; {program} access hits --run-dir {run_folder}\n");
    }
    if given.rules {
        text += &format!("{send} attack-rdma{lab}; tail -n 1 {}\n", eve.display());
    }
    if given.shipped_rules {
        text += &format!("{send} attack-key-guessing{lab}; tail -n 1 {}\n", eve.display());
    }
    text
}

fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

fn firewall(kind: &KindReport) -> String {
    let stopped = number(kind.firewall_stopped);
    kind.firewall_tried.map_or(stopped.clone(), |tried| format!("{stopped} of {}", number(tried)))
}

fn sealed_opened(kind: &KindReport) -> String {
    format!("{}/{}", number(kind.weir.sealed_packets), number(kind.weir.opened_packets))
}

fn icrc(kind: &KindReport) -> String {
    match kind.weir.rdma_packets {
        0 => "-".to_owned(),
        _ => format!("{}/{}", number(kind.weir.icrc_ok), number(kind.weir.icrc_bad)),
    }
}

fn rdma(kind: &KindReport, count: u64) -> String {
    if kind.weir.rdma_packets == 0 { "-".to_owned() } else { number(count) }
}

fn arrived(kind: &KindReport) -> String {
    if kind.unit == "bytes" {
        let mib = |bytes: u64| bytes >> 20;
        return format!("{}/{} MiB", mib(kind.intact), mib(kind.sent));
    }
    format!("{}/{}", number(kind.intact), number(kind.sent))
}

/// With thousands apart.
fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_lab_was_given_is_shown_at_work() {
        let shown = |access, rules| {
            let given = Given { access, rules, shipped_rules: false };
            at_work(given, [&"weir", &"/run", &" --lab 7"], Path::new("/lab/eve.json"))
        };
        assert_eq!(shown(false, false), "");
        assert!(shown(true, false).contains("access hits") && !shown(true, false).contains("eve"));
        let rules = "  weir lab send --kind attack-rdma --lab 7; tail -n 1 /lab/eve.json\n";
        assert_eq!(shown(false, true), rules);
    }
}
