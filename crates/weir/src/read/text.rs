//! A [`super::CaptureReport`] for people: one screen of summary, or one of the lists.

use std::fmt::Write;

use super::report::{CaptureReport, Conversation, Direction, Flow};
use crate::utc;

/// Flows and conversations shown in the summary.
const TOP: usize = 5;

/// The summary: files, totals, RDMA, and the largest flows and conversations.
pub fn summary(report: &CaptureReport, flows: &[Flow], conversations: &[Conversation]) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail, here and below.
    let _ = write_files(&mut out, report);
    let _ = write_rdma(&mut out, report);
    if !flows.is_empty() {
        out.push_str("\nlargest flows\n");
        out.push_str(&flow_list(&flows[..flows.len().min(TOP)]));
    }
    if !conversations.is_empty() {
        out.push_str("\nlargest queue-pair conversations\n");
        out.push_str(&conversation_list(&conversations[..conversations.len().min(TOP)]));
    }
    out
}

fn write_files(out: &mut String, report: &CaptureReport) -> std::fmt::Result {
    for file in &report.files {
        write!(out, "{}: {} packets", file.name, grouped(file.packets))?;
        for (count, what) in [(file.skipped, "of unknown link type"), (file.cut_records, "cut off")]
        {
            if count > 0 {
                write!(out, ", {} {what}", grouped(count))?;
            }
        }
        writeln!(out)?;
    }
    if let (Some(first), Some(last)) = (report.first_ns, report.last_ns) {
        let seconds = last.saturating_sub(first) as f64 / 1e9;
        writeln!(out, "{} and {seconds:.3} s from there", utc::shown(first))?;
    }
    writeln!(
        out,
        "\n{:>14} packets   {:>14} bytes   {} flows   {} truncated   {} malformed",
        grouped(report.packets),
        grouped(report.bytes),
        grouped(report.flows),
        grouped(report.truncated),
        grouped(report.malformed),
    )?;
    if report.not_listed > 0 {
        writeln!(out, "{} flows did not fit the tables: not listed", grouped(report.not_listed))?;
    }
    Ok(())
}

fn write_rdma(out: &mut String, report: &CaptureReport) -> std::fmt::Result {
    let rdma = &report.rdma;
    if rdma.packets == 0 {
        return writeln!(out, "no RDMA");
    }
    writeln!(
        out,
        "{:>14} RDMA      {:>14} bytes   {} queue pairs   {} conversations",
        grouped(rdma.packets),
        grouped(rdma.bytes),
        grouped(rdma.queue_pairs),
        grouped(rdma.conversations),
    )?;
    let line = |out: &mut String, name: &str, parts: &[(u64, &str)]| {
        let shown = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<_> =
            shown.map(|(count, what)| format!("{} {what}", grouped(*count))).collect();
        let text = if parts.is_empty() { "none".to_string() } else { parts.join(", ") };
        writeln!(out, "{name:>14} {text}")
    };
    line(
        out,
        "carried by",
        &[
            (rdma.roce_v2, "RoCE v2"),
            (rdma.roce_v1, "RoCE v1"),
            (rdma.infiniband, "native InfiniBand"),
        ],
    )?;
    line(
        out,
        "ICRC",
        &[(rdma.icrc_ok, "right"), (rdma.icrc_bad, "WRONG"), (rdma.icrc_unchecked, "unchecked")],
    )?;
    line(
        out,
        "loss",
        &[
            (rdma.retransmissions, "retransmissions"),
            (rdma.response_resends, "responses resent"),
            (rdma.psn_missing, "numbers missing"),
            (rdma.psn_late, "late"),
            (rdma.psn_jumps, "jumps"),
        ],
    )?;
    line(
        out,
        "charged to",
        &[
            (rdma.lost_before, "lost before here"),
            (rdma.lost_after, "lost behind here"),
            (rdma.overtaken_before, "overtaken before here"),
        ],
    )?;
    let mut refusals: Vec<_> = rdma.naks.iter().map(|(cause, count)| (*count, *cause)).collect();
    refusals.push((rdma.rnr_naks, "receiver not ready"));
    line(out, "refusals", &refusals)?;
    line(out, "congestion", &[(rdma.cnp, "CNP"), (rdma.congestion_experienced, "packets marked")])?;
    let mut opcodes: Vec<_> = rdma.opcodes.iter().collect();
    opcodes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    writeln!(out)?;
    for (name, count) in opcodes {
        writeln!(out, "{:>14} {name}", grouped(*count))?;
    }
    Ok(())
}

/// A line per flow.
pub fn flow_list(flows: &[Flow]) -> String {
    let rows = flows.iter().map(|flow| {
        [
            endpoint(&flow.address_a, flow.port_a),
            endpoint(&flow.address_b, flow.port_b),
            protocol(flow.protocol),
            grouped(flow.packets_ab + flow.packets_ba),
            grouped(flow.bytes_ab + flow.bytes_ba),
        ]
    });
    table(["from", "to", "protocol", "packets", "bytes"], rows)
}

/// A line per conversation.
pub fn conversation_list(conversations: &[Conversation]) -> String {
    let rows = conversations.iter().map(|conversation| {
        let sum = |part: fn(&Direction) -> u64| conversation.directions.iter().map(part).sum();
        let first = &conversation.directions[0];
        [
            format!("{} {}", first.source, queue_pair(first.source_qp)),
            format!("{} {}", first.destination, queue_pair(Some(first.destination_qp))),
            conversation.service.to_string(),
            grouped(conversation.packets()),
            grouped(conversation.bytes()),
            grouped(sum(|direction| direction.messages)),
            grouped(sum(|direction| direction.retransmissions.into())),
            grouped(sum(|direction| {
                u64::from(direction.rnr_naks)
                    + direction.naks.values().map(|count| u64::from(*count)).sum::<u64>()
            })),
            median(conversation),
        ]
    });
    let heads = ["from", "to", "kind", "packets", "bytes", "messages", "resent", "NAKs", "answer"];
    table(heads, rows)
}

/// Columns as wide as their widest field; names to the left, numbers to the right.
fn table<const COLUMNS: usize>(
    heads: [&str; COLUMNS],
    rows: impl Iterator<Item = [String; COLUMNS]>,
) -> String {
    let rows: Vec<_> = std::iter::once(heads.map(str::to_string)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut out = String::new();
    for row in &rows {
        for (column, field) in row.iter().enumerate() {
            let width = widths[column];
            let _ = match column {
                0..=2 => write!(out, "  {field:width$}"),
                _ => write!(out, "  {field:>width$}"),
            };
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

fn endpoint(address: &str, port: u16) -> String {
    match (port, address.contains(':')) {
        (0, _) => address.to_string(),
        (_, true) => format!("[{address}]:{port}"),
        (_, false) => format!("{address}:{port}"),
    }
}

fn queue_pair(number: Option<u32>) -> String {
    number.map_or_else(|| "QP ?".to_string(), |number| format!("QP {number:#x}"))
}

fn median(conversation: &Conversation) -> String {
    let times = conversation.directions.iter().filter_map(|one| one.response_time_median_ns);
    times.max().map_or_else(|| "-".to_string(), |ns| format!("<{} us", ns.div_ceil(1000)))
}

fn protocol(number: u8) -> String {
    match number {
        1 => "icmp".to_string(),
        6 => "tcp".to_string(),
        17 => "udp".to_string(),
        50 => "esp".to_string(),
        58 => "icmpv6".to_string(),
        other => other.to_string(),
    }
}

/// A number with its digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
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
    fn digits_stand_in_groups_of_three() {
        assert_eq!([grouped(0), grouped(999), grouped(1000)], ["0", "999", "1,000"]);
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }
}
