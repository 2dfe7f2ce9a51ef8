//! `weir flows`, `weir conversations`, `weir alerts`, `weir top-talkers`: what gateways remember,
//! from their stores, in the types of the API.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::PartialSchema;
use weir_serve::columns;
use weir_serve::dto::{Alert, Conversation, Flow, Talker};
use weir_serve::gateways::Places;
use weir_serve::query;
use weir_serve::summary::Volume;
use weir_store::sqlite::{
    AlertFilter, AlertRow, GroupBy, LabelFilter, Range, RecordFilter, Volumes,
};

use super::parquet;
use crate::utc;

const HELP: &str = "\
Reads the stores of gateways that have a table [store], running or not. A flow or conversation is
written when it ends, and every `active_timeout_s` while it goes on; each record counts since the
one before.

Examples:
  weir flows --last 10m --port 4791
  weir conversations --qp 17 --format csv > qp17.csv
  weir flows --last 7d --limit 10000 --format parquet > week.parquet
  weir conversations --address 10.0.0.0/24 --from 2026-01-31T08:00:00Z --until 2026-01-31T09:00:00Z
  weir alerts --last 1h --severity 2 --action blocked
  weir top-talkers --last 24h --kind rdma

Exit codes:
  0  done; there may be nothing
  1  no store could be read
  2  the command line is wrong";

/// Which time of which store, and in what form.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct RecordArgs {
    /// Where gateways keep their stores, or a store; several allowed
    #[arg(long, default_value = "/var/lib/weir/store", value_name = "PATH")]
    pub store: Vec<PathBuf>,
    /// Only this gateway
    #[arg(long, value_name = "NAME")]
    pub gateway: Option<String>,
    /// The last so long (90s, 10m, 6h, 7d)
    #[arg(long, default_value = "1h", value_name = "TIME", value_parser = seconds)]
    pub last: u64,
    /// From this time on (2026-01-31T08:00:00Z, or seconds since 1970)
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub from: Option<u64>,
    /// Before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub until: Option<u64>,
    /// Rows, at most
    #[arg(long, default_value_t = 100, value_name = "COUNT")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// How to print
    #[arg(long, default_value = "table", value_name = "FORM")]
    pub format: Form,
    /// Print as JSON: the same as --format json
    #[arg(long)]
    pub json: bool,
}

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people.
    Table,
    /// A list of objects, as the API gives them.
    Json,
    /// A line of names, then a line a row (RFC 4180).
    Csv,
    /// A Parquet file, compressed by zstd, for pandas, DuckDB and the like.
    Parquet,
}

/// Arguments of `weir flows`.
#[derive(Debug, Args)]
pub struct FlowArgs {
    #[command(flatten)]
    records: RecordArgs,
    /// Only this pair of ports
    #[arg(long, value_name = "NAME")]
    pair: Option<String>,
    /// All records of one flow or conversation as one row, their counts added up
    #[arg(long)]
    group: bool,
    /// An end's address or prefix
    #[arg(long, value_name = "ADDRESS", value_parser = query::addresses)]
    address: Option<([u8; 16], [u8; 16])>,
    /// An end's port
    #[arg(long, value_name = "NUMBER")]
    port: Option<u16>,
    /// IP protocol number (6: TCP, 17: UDP)
    #[arg(long, value_name = "NUMBER")]
    protocol: Option<u8>,
    /// An end called so by a label: NAME, or KIND=NAME (host, tenant, job, rail)
    #[arg(long, value_name = "NAME")]
    label: Option<LabelFilter>,
    /// Only what this exporter told `weir collect`, an address
    #[arg(long, value_name = "ADDRESS")]
    exporter: Option<String>,
}

/// Arguments of `weir conversations`.
#[derive(Debug, Args)]
pub struct ConversationArgs {
    #[command(flatten)]
    records: RecordArgs,
    /// Only this pair of ports
    #[arg(long, value_name = "NAME")]
    pair: Option<String>,
    /// All records of one flow or conversation as one row, their counts added up
    #[arg(long)]
    group: bool,
    /// An end's address or prefix, GID or `lid 0x1f`
    #[arg(long, value_name = "ADDRESS", value_parser = query::addresses)]
    address: Option<([u8; 16], [u8; 16])>,
    /// An end's queue pair
    #[arg(long, value_name = "NUMBER")]
    qp: Option<u32>,
    /// An end called so by a label: NAME, or KIND=NAME (host, tenant, job, rail)
    #[arg(long, value_name = "NAME")]
    label: Option<LabelFilter>,
    /// Only what this exporter told `weir collect`, an address
    #[arg(long, value_name = "ADDRESS")]
    exporter: Option<String>,
}

/// Arguments of `weir top-talkers`.
#[derive(Debug, Args)]
pub struct TalkerArgs {
    #[command(flatten)]
    records: RecordArgs,
    /// Only this kind of traffic
    #[arg(long, value_parser = ["rdma", "tcp", "udp", "icmp", "other"], value_name = "KIND")]
    kind: Option<String>,
    /// An end called so by a label: NAME, or KIND=NAME (host, tenant, job, rail)
    #[arg(long, value_name = "NAME")]
    label: Option<LabelFilter>,
    /// Add up by something else than the address
    #[arg(long, value_enum, conflicts_with = "kind")]
    by: Option<By>,
}

/// What volume is added up by.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// Who with whom
    Ends,
    /// Protocol and the port that answers
    Service,
    /// Queue pairs, with retransmissions and the slowest answer
    QueuePair,
    /// What a label calls an end
    Label,
    /// Who told of it to `weir collect`
    Exporter,
}

/// Arguments of `weir alerts`.
#[derive(Debug, Args)]
pub struct AlertArgs {
    #[command(flatten)]
    records: RecordArgs,
    /// Only this pair of ports
    #[arg(long, value_name = "NAME")]
    pair: Option<String>,
    /// Only the rule of this number
    #[arg(long, value_name = "NUMBER")]
    sid: Option<u32>,
    /// At least as severe; 1 is the most
    #[arg(long, value_name = "NUMBER")]
    severity: Option<u8>,
    /// What became of the packet
    #[arg(long, value_parser = ["allowed", "blocked", "would_block"], value_name = "ACTION")]
    action: Option<String>,
    /// An end's address or prefix
    #[arg(long, value_name = "ADDRESS", value_parser = query::addresses)]
    address: Option<([u8; 16], [u8; 16])>,
    /// An end called so by a label: NAME, or KIND=NAME (host, tenant, job, rail)
    #[arg(long, value_name = "NAME")]
    label: Option<LabelFilter>,
}

/// Runs `weir alerts`.
///
/// # Errors
/// No store can be read.
pub fn run_alerts(args: &AlertArgs) -> Result<ExitCode> {
    let filter = AlertFilter {
        number: None,
        pair: args.pair.clone(),
        sid: args.sid,
        severity: args.severity,
        action: args.action.clone(),
        addresses: args.address,
        label: args.label.clone(),
    };
    let records = &args.records;
    let range = range(records)?;
    let (mut rows, problems) = query::each(&places(records)?, records.gateway(), |name, reader| {
        let labels = reader.labels()?;
        let rows = reader.alerts(range, &filter, records.limit)?;
        Ok(rows.into_iter().map(|row| Alert::of(name, row, &labels)).collect())
    });
    rows.sort_by(|a, b| b.time.cmp(&a.time));
    print(records, rows, &problems, |alert| {
        let end = |address: &str, port: u16| match port {
            0 => address.to_owned(),
            port => format!("{address} {port}"),
        };
        vec![
            ("number", alert.number.to_string()),
            ("time", alert.time.clone()),
            ("gateway", alert.gateway.clone()),
            ("severity", alert.severity.to_string()),
            ("action", alert.action.clone()),
            ("from", end(&alert.source, alert.source_port)),
            ("from is", alert.source_names.to_string()),
            ("to", end(&alert.destination, alert.destination_port)),
            ("to is", alert.destination_names.to_string()),
            ("protocol", alert.protocol.clone()),
            ("sid", alert.sid.to_string()),
            ("signature", alert.signature.clone()),
        ]
    })
}

/// The alert of this number in the store of `gateway`, which may be left out where there is one.
///
/// # Errors
/// There is no such store or alert, or several gateways have one of this number.
pub fn alert(store: &std::path::Path, gateway: Option<&str>, number: u64) -> Result<AlertRow> {
    let places = Places { run_folders: Vec::new(), stores: vec![store.to_owned()] };
    if places.stores().is_empty() {
        bail!("no store in {}: say --store, or --around and --flow", store.display());
    }
    let filter = AlertFilter { number: Some(number), ..AlertFilter::default() };
    let ever = query::range(Some(0), None, None).map_err(|said| anyhow!(said))?;
    let (mut rows, problems) =
        query::each(&places, gateway, |_, reader| reader.alerts(ever, &filter, 1));
    match (rows.pop(), rows.is_empty()) {
        (Some(row), true) => Ok(row),
        (Some(_), false) => bail!("several gateways have an alert {number}: say --gateway"),
        (None, _) if problems.is_empty() => {
            bail!("no alert has the number {number}: `weir alerts --last 24h` shows them")
        }
        (None, _) => bail!("{}", problems.join("; ")),
    }
}

/// Runs `weir flows`.
///
/// # Errors
/// No store can be read.
pub fn run_flows(args: &FlowArgs) -> Result<ExitCode> {
    let filter = RecordFilter {
        pair: args.pair.clone(),
        is_grouped: args.group,
        addresses: args.address,
        label: args.label.clone(),
        exporter: args.exporter.clone(),
        port: args.port,
        protocol: args.protocol,
        ..RecordFilter::default()
    };
    let records = &args.records;
    let range = range(records)?;
    let (mut rows, problems) = query::each(&places(records)?, records.gateway(), |name, reader| {
        let labels = reader.labels()?;
        let rows = reader.flows(range, &filter, records.limit)?;
        Ok(rows.into_iter().map(|row| Flow::of(name, row, &labels)).collect())
    });
    rows.sort_by(|a, b| b.last.cmp(&a.last));
    print(records, rows, &problems, |flow| {
        let end_of = |address: &str, port| Flow::end(address, port, &flow.protocol);
        vec![
            ("last", flow.last.clone()),
            ("gateway", flow.gateway.clone()),
            ("told by", flow.exporter.clone().unwrap_or_default()),
            ("protocol", flow.protocol.clone()),
            (
                "from",
                with_peer(end_of(&flow.source, flow.source_port), flow.source_peer.as_deref()),
            ),
            ("from is", flow.source_names.to_string()),
            (
                "to",
                with_peer(
                    end_of(&flow.destination, flow.destination_port),
                    flow.destination_peer.as_deref(),
                ),
            ),
            ("to is", flow.destination_names.to_string()),
            ("packets", flow.packets.to_string()),
            ("bytes", flow.bytes.to_string()),
            ("reply packets", flow.reply_packets.to_string()),
            ("reply bytes", flow.reply_bytes.to_string()),
        ]
    })
}

/// An end, and the VPN client that it is.
fn with_peer(end: String, peer: Option<&str>) -> String {
    match peer {
        Some(peer) => format!("{end} ({peer})"),
        None => end,
    }
}

/// Runs `weir conversations`.
///
/// # Errors
/// No store can be read.
pub fn run_conversations(args: &ConversationArgs) -> Result<ExitCode> {
    let filter = RecordFilter {
        pair: args.pair.clone(),
        is_grouped: args.group,
        addresses: args.address,
        label: args.label.clone(),
        exporter: args.exporter.clone(),
        queue_pair: args.qp,
        ..RecordFilter::default()
    };
    let records = &args.records;
    let range = range(records)?;
    let (mut rows, problems) = query::each(&places(records)?, records.gateway(), |name, reader| {
        let labels = reader.labels()?;
        let rows = reader.conversations(range, &filter, records.limit)?;
        Ok(rows.into_iter().map(|row| Conversation::of(name, row, &labels)).collect())
    });
    rows.sort_by(|a, b| b.last.cmp(&a.last));
    print(records, rows, &problems, |it| {
        let source_qp = it.source_qp.map_or("?".to_owned(), |qp| qp.to_string());
        vec![
            ("last", it.last.clone()),
            ("gateway", it.gateway.clone()),
            ("told by", it.exporter.clone().unwrap_or_default()),
            ("kind", format!("{} {}", it.service, it.encapsulation)),
            ("from", with_peer(it.source.clone(), it.source_peer.as_deref())),
            ("QP", source_qp),
            ("from is", it.source_names.to_string()),
            ("to", with_peer(it.destination.clone(), it.destination_peer.as_deref())),
            ("QP", it.destination_qp.to_string()),
            ("to is", it.destination_names.to_string()),
            ("bytes", it.bytes.to_string()),
            ("reply bytes", it.reply_bytes.to_string()),
            ("again", it.retransmissions.to_string()),
            ("NAK", it.naks.to_string()),
            ("RNR", it.rnr_naks.to_string()),
            ("CNP", it.cnp.to_string()),
        ]
    })
}

/// Runs `weir top-talkers`.
///
/// # Errors
/// No store can be read.
pub fn run_talkers(args: &TalkerArgs) -> Result<ExitCode> {
    if let Some(by) = args.by {
        return run_volumes(args, by);
    }
    let records = &args.records;
    let range = range(records)?;
    let kind = args.kind.as_deref();
    let (mut rows, problems) = query::each(&places(records)?, records.gateway(), |name, reader| {
        let labels = reader.labels()?;
        let rows = reader.talkers(range, kind, args.label.as_ref(), records.limit)?;
        Ok(rows.into_iter().map(|row| Talker::of(name, row, &labels)).collect())
    });
    rows.sort_by_key(|row| std::cmp::Reverse(row.sent_bytes + row.received_bytes));
    print(records, rows, &problems, |talker| {
        vec![
            ("address", talker.address.clone()),
            ("is", talker.names.to_string()),
            ("gateway", talker.gateway.clone()),
            ("sent bytes", talker.sent_bytes.to_string()),
            ("sent packets", talker.sent_packets.to_string()),
            ("received bytes", talker.received_bytes.to_string()),
            ("received packets", talker.received_packets.to_string()),
            ("peers", talker.peers.to_string()),
        ]
    })
}

/// `weir top-talkers --by`.
fn run_volumes(args: &TalkerArgs, by: By) -> Result<ExitCode> {
    let (of, by) = match by {
        By::Ends => (Volumes::Flows, GroupBy::Ends),
        By::Service => (Volumes::Flows, GroupBy::Service),
        By::QueuePair => (Volumes::Conversations, GroupBy::QueuePair),
        By::Label => (Volumes::Flows, GroupBy::Label),
        By::Exporter => (Volumes::Flows, GroupBy::Exporter),
    };
    let records = &args.records;
    let range = range(records)?;
    let (mut rows, problems) = query::each(&places(records)?, records.gateway(), |name, reader| {
        let labels = reader.labels()?;
        let rows = reader.volumes(of, by, range, args.label.as_ref(), records.limit)?.rows;
        Ok(rows.into_iter().map(|row| Volume::of(name, row, &labels)).collect())
    });
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes.saturating_add(row.reply_bytes)));
    print(records, rows, &problems, |it| {
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        let number = |it: Option<u32>| it.map(|it| it.to_string()).unwrap_or_default();
        let what = it.service.as_ref().or(it.label.as_ref()).or(it.exporter.as_ref());
        vec![
            ("what", what.cloned().unwrap_or_default()),
            ("from", text(&it.source)),
            ("QP", number(it.source_qp)),
            ("to", text(&it.destination)),
            ("QP", number(it.destination_qp)),
            ("gateway", it.gateway.clone()),
            ("records", it.records.to_string()),
            ("bytes", it.bytes.to_string()),
            ("reply bytes", it.reply_bytes.to_string()),
            ("again", it.retransmissions.to_string()),
            ("NAK", it.naks.to_string()),
        ]
    })
}

impl RecordArgs {
    fn gateway(&self) -> Option<&str> {
        self.gateway.as_deref()
    }
}

fn range(args: &RecordArgs) -> Result<Range> {
    query::range(args.from, args.until, Some(args.last)).map_err(|said| anyhow!(said))
}

fn places(args: &RecordArgs) -> Result<Places> {
    let places = Places { run_folders: Vec::new(), stores: args.store.clone() };
    if places.stores().is_empty() {
        let looked: Vec<_> = args.store.iter().map(|it| it.display().to_string()).collect();
        bail!(
            "no store in {}: add a table [store] to the gateway's configuration, or say --store",
            looked.join(", ")
        );
    }
    Ok(places)
}

/// Prints what there is, and says what could not be read.
fn print<T: Serialize + PartialSchema>(
    args: &RecordArgs,
    mut rows: Vec<T>,
    problems: &[String],
    cells_of: impl Fn(&T) -> Vec<(&'static str, String)>,
) -> Result<ExitCode> {
    rows.truncate(args.limit as usize);
    let form = if args.json { Form::Json } else { args.format };
    match form {
        Form::Json => super::print_json(&rows)?,
        Form::Csv => std::io::stdout().write_all(csv(&rows)?.as_bytes())?,
        Form::Parquet if std::io::stdout().is_terminal() => {
            bail!("a Parquet file is nothing for a terminal: write it to a file, `> rows.parquet`");
        }
        Form::Parquet => {
            let mut flat_rows = Vec::with_capacity(rows.len());
            for row in &rows {
                let Value::Object(fields) = serde_json::to_value(row)? else { continue };
                flat_rows.push(flat(fields));
            }
            parquet::write(&columns::of::<T>(), &flat_rows, std::io::stdout())?;
        }
        Form::Table => {
            let mut cells: Vec<_> = rows.iter().map(cells_of).collect();
            leave_out_nameless(&mut cells);
            std::io::stdout().write_all(table(&cells).as_bytes())?;
        }
    }
    problems.iter().for_each(|problem| eprintln!("weir: {problem}"));
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Takes out columns of names in which no row has one.
fn leave_out_nameless(rows: &mut [Vec<(&str, String)>]) {
    let columns = rows.first().map_or(0, Vec::len);
    for column in (0..columns).rev() {
        let is_of_names = ["is", "by"].iter().any(|it| rows[0][column].0.ends_with(it));
        if is_of_names && rows.iter().all(|row| row[column].1.is_empty()) {
            rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
    }
}

/// Columns as wide as they must be; numbers to the right.
fn table(rows: &[Vec<(&str, String)>]) -> String {
    let Some(first) = rows.first() else { return "nothing\n".to_owned() };
    let is_number = |column: usize| {
        rows.iter().all(|row| row[column].1.bytes().all(|it| it.is_ascii_digit() || it == b'?'))
    };
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].1.chars().count());
        cells.chain([first[column].0.len()]).max().unwrap_or(0)
    };
    let shape: Vec<_> = (0..first.len()).map(|it| (width(it), is_number(it))).collect();
    let mut out = String::new();
    let names = first.iter().map(|(name, _)| *name).collect();
    let lines = rows.iter().map(|row| row.iter().map(|(_, cell)| cell.as_str()).collect());
    for line in std::iter::once::<Vec<&str>>(names).chain(lines) {
        let cells = line.iter().zip(&shape).map(|(cell, (width, is_number))| match is_number {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    out
}

/// All fields, with their names first.
fn csv<T: Serialize>(rows: &[T]) -> Result<String> {
    let mut out = String::new();
    for (index, row) in rows.iter().enumerate() {
        let Value::Object(fields) = serde_json::to_value(row)? else { continue };
        let fields = flat(fields);
        if index == 0 {
            csv_line(&mut out, fields.keys().map(|name| Value::String(name.clone())));
        }
        csv_line(&mut out, fields.into_values());
    }
    Ok(out)
}

/// Names as columns of their own: `source_names.host`.
fn flat(fields: Map<String, Value>) -> Map<String, Value> {
    let mut flat = Map::new();
    for (name, value) in fields {
        match value {
            Value::Object(inner) if name.ends_with("names") => {
                flat.extend(inner.into_iter().map(|(kind, it)| (format!("{name}.{kind}"), it)));
            }
            // What is no table stays one cell, quoted as text is.
            Value::Object(_) => drop(flat.insert(name, Value::String(value.to_string()))),
            value => drop(flat.insert(name, value)),
        }
    }
    flat
}

fn csv_line(out: &mut String, cells: impl Iterator<Item = Value>) {
    let cells = cells.map(|cell| match cell {
        Value::Null => String::new(),
        Value::String(text) if text.contains([',', '"', '\n', '\r']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Value::String(text) => text,
        other => other.to_string(),
    });
    out.push_str(&cells.collect::<Vec<_>>().join(","));
    out.push_str("\r\n");
}

/// `90s`, `10m`, `6h`, `7d`; a bare number is seconds.
pub(super) fn seconds(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b's') => (&text[..text.len() - 1], 1),
        Some(b'm') => (&text[..text.len() - 1], 60),
        Some(b'h') => (&text[..text.len() - 1], 3600),
        Some(b'd') => (&text[..text.len() - 1], 86_400),
        _ => (text, 1),
    };
    let seconds = digits.parse::<u64>().ok().and_then(|it| it.checked_mul(unit));
    seconds
        .filter(|it| (1..=query::TIME_S_MAX).contains(it))
        .ok_or_else(|| format!("`{text}` is no span of time: write 90s, 10m, 6h or 7d"))
}

fn time(text: &str) -> Result<u64, String> {
    let time = utc::read(text).map(|ns| ns / 1_000_000_000);
    time.ok_or_else(|| format!("`{text}` is no time: write 2026-01-31T08:00:00Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time_are_read_with_their_units() {
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("7d"), Ok(604_800));
        assert_eq!(seconds("5"), Ok(5));
        for wrong in ["", "d", "0", "-1s", "1w", "99999999999999999999d"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn csv_quotes_what_would_break_a_line() {
        let rows = [serde_json::json!({"a": "x,\"y\"\n", "b": 7, "c": null})];
        assert_eq!(csv(&rows).unwrap(), "a,b,c\r\n\"x,\"\"y\"\"\n\",7,\r\n");
    }

    #[test]
    fn a_table_is_as_wide_as_its_cells() {
        let rows = [vec![("name", "a".to_owned()), ("n", "12345".to_owned())]];
        assert_eq!(table(&rows), "name      n\na     12345\n");
        assert_eq!(table(&[]), "nothing\n");
    }
}
