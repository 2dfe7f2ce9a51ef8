//! `weir flows`, `weir conversations`, `weir alerts`, `weir top-talkers`: what gateways remember,
//! from their stores, in the types of the API.

mod alerts;
mod print;

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use weir_serve::dto::{Conversation, Flow, Talker};
use weir_serve::gateways::Places;
use weir_serve::query;
use weir_serve::summary::Volume;
use weir_store::clock;
use weir_store::sqlite::{
    GroupBy, LabelFilter, Order, QueryError, Range, Reader, RecordFilter, VolumeRow, Volumes,
};

pub use self::alerts::{AlertArgs, alert, run_alerts};
use self::print::print;
use super::WrongUse;
use crate::utc;

/// Where stores are: the gateways', and that of `weir collect`.
pub(super) const STORES_DEFAULT: [&str; 2] = ["/var/lib/weir/store", "/var/lib/weir-collect"];

/// How long a question to a store may take.
const QUESTION_TIME_MAX: Duration = Duration::from_secs(120);

const HELP: &str = "\
Reads the stores of gateways that have a table [store], running or not. A flow or conversation is
written when it ends, and every `active_timeout_s` while it goes on; each record counts since the
one before.

Examples:
  weir flows --last 10m --port 4791
  weir conversations --qp 17 --format csv > qp17.csv
  weir flows --last 7d --limit 10000 --format parquet > week.parquet
  weir conversations --address 10.0.0.0/24 --from 2026-01-31T08:00:00Z --until 2026-01-31T09:00:00Z
  weir flows --last 24h --group --order bytes --limit 20
  weir flows --last 24h --group-by ends --address 10.0.0.0/24
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
    #[arg(long, default_values = STORES_DEFAULT, value_name = "PATH")]
    pub store: Vec<PathBuf>,
    /// Only this gateway
    #[arg(long, value_name = "NAME")]
    pub gateway: Option<String>,
    /// The last so long (90s, 10m, 6h, 7d)
    #[arg(long, default_value = "1h", value_name = "TIME", value_parser = seconds)]
    #[arg(conflicts_with = "from")]
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
    /// All records of one flow as one row, their counts added up
    #[arg(long)]
    group: bool,
    /// Add up all records by this, exactly, the greatest first
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with_all = ["group", "order"])]
    group_by: Option<FlowsBy>,
    /// What comes first
    #[arg(long, default_value = "last", value_name = "WHAT")]
    #[arg(value_parser = PossibleValuesParser::new(["last", "bytes", "packets"]).try_map(order))]
    order: Order,
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
    /// All records of one conversation as one row, their counts added up
    #[arg(long)]
    group: bool,
    /// Add up all records by this, exactly, the greatest first
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with_all = ["group", "order"])]
    group_by: Option<ConversationsBy>,
    /// What comes first
    #[arg(long, default_value = "last", value_name = "WHAT")]
    #[arg(value_parser = PossibleValuesParser::new(Order::NAMED.map(|it| it.0)).try_map(order))]
    order: Order,
    /// An end's address or prefix, GID or `lid 0x1f`
    #[arg(long, value_name = "ADDRESS", value_parser = query::addresses)]
    address: Option<([u8; 16], [u8; 16])>,
    /// An end's queue pair (17, 0x11)
    #[arg(long, value_name = "NUMBER", value_parser = super::terms::number)]
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

/// What flows are added up by.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FlowsBy {
    /// Who began
    Source,
    /// With whom
    Destination,
    /// Who with whom
    Ends,
    /// Protocol and the port that answers
    Service,
    /// What a label calls an end
    Label,
    /// Who told of it to `weir collect`
    Exporter,
}

/// What conversations are added up by.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ConversationsBy {
    /// Who began
    Source,
    /// With whom
    Destination,
    /// Who with whom
    Ends,
    /// Transport service and encapsulation
    Service,
    /// Queue pairs, with retransmissions and the slowest answer
    QueuePair,
    /// What a label calls an end
    Label,
    /// Who told of it to `weir collect`
    Exporter,
}

impl From<FlowsBy> for GroupBy {
    fn from(by: FlowsBy) -> Self {
        match by {
            FlowsBy::Source => Self::Source,
            FlowsBy::Destination => Self::Destination,
            FlowsBy::Ends => Self::Ends,
            FlowsBy::Service => Self::Service,
            FlowsBy::Label => Self::Label,
            FlowsBy::Exporter => Self::Exporter,
        }
    }
}

impl From<ConversationsBy> for GroupBy {
    fn from(by: ConversationsBy) -> Self {
        match by {
            ConversationsBy::Source => Self::Source,
            ConversationsBy::Destination => Self::Destination,
            ConversationsBy::Ends => Self::Ends,
            ConversationsBy::Service => Self::Service,
            ConversationsBy::QueuePair => Self::QueuePair,
            ConversationsBy::Label => Self::Label,
            ConversationsBy::Exporter => Self::Exporter,
        }
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
        order: args.order,
        addresses: args.address,
        label: args.label.clone(),
        exporter: args.exporter.clone(),
        port: args.port,
        protocol: args.protocol,
        ..RecordFilter::default()
    };
    let records = &args.records;
    if let Some(by) = args.group_by {
        return run_volumes(records, |range, reader| {
            reader.volumes_of_records(Volumes::Flows, by.into(), range, &filter, records.limit)
        });
    }
    let range = range(records)?;
    let (mut rows, problems) = each(records, |name, reader| {
        let labels = reader.labels()?;
        let rows = reader.flows(range, &filter, records.limit)?;
        Ok(rows.into_iter().map(|row| Flow::of(name, row, &labels)).collect())
    })?;
    rows.sort_by_key(|row| std::cmp::Reverse(row.rank(args.order)));
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
        order: args.order,
        addresses: args.address,
        label: args.label.clone(),
        exporter: args.exporter.clone(),
        queue_pair: args.qp,
        ..RecordFilter::default()
    };
    let records = &args.records;
    if let Some(by) = args.group_by {
        return run_volumes(records, |range, reader| {
            reader.volumes_of_records(
                Volumes::Conversations,
                by.into(),
                range,
                &filter,
                records.limit,
            )
        });
    }
    let range = range(records)?;
    let (mut rows, problems) = each(records, |name, reader| {
        let labels = reader.labels()?;
        let rows = reader.conversations(range, &filter, records.limit)?;
        Ok(rows.into_iter().map(|row| Conversation::of(name, row, &labels)).collect())
    })?;
    rows.sort_by_key(|row| std::cmp::Reverse(row.rank(args.order)));
    print(records, rows, &problems, |it| {
        let source_qp = it.source_qp.map_or("?".to_owned(), |qp| qp.to_string());
        let mut cells = vec![
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
        ];
        if args.order == Order::Response {
            let response = it.response_ns.map(|it| format!("{:.1}", it as f64 / 1e3));
            cells.push(("response us", response.unwrap_or_default()));
        }
        cells
    })
}

/// Runs `weir top-talkers`.
///
/// # Errors
/// No store can be read.
pub fn run_talkers(args: &TalkerArgs) -> Result<ExitCode> {
    let records = &args.records;
    if let Some(by) = args.by {
        return talkers_by(args, by);
    }
    let range = range(records)?;
    let kind = args.kind.as_deref();
    let (mut rows, problems) = query::each(&places(records)?, records.gateway(), |name, reader| {
        let labels = reader.labels()?;
        let rows = reader.talkers(range, kind, args.label.as_ref(), records.limit)?;
        Ok(rows.into_iter().map(|row| Talker::of(name, row, &labels)).collect())
    });
    rows.sort_by_key(|row| std::cmp::Reverse(row.sent_bytes.saturating_add(row.received_bytes)));
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
fn talkers_by(args: &TalkerArgs, by: By) -> Result<ExitCode> {
    let (of, by) = match by {
        By::Ends => (Volumes::Flows, GroupBy::Ends),
        By::Service => (Volumes::Flows, GroupBy::Service),
        By::QueuePair => (Volumes::Conversations, GroupBy::QueuePair),
        By::Label => (Volumes::Flows, GroupBy::Label),
        By::Exporter => (Volumes::Flows, GroupBy::Exporter),
    };
    let records = &args.records;
    run_volumes(records, |range, reader| {
        Ok(reader.volumes(of, by, range, args.label.as_ref(), (Order::Bytes, records.limit))?.rows)
    })
}

/// Prints the sums that each store has.
fn run_volumes(
    records: &RecordArgs,
    volumes: impl Fn(Range, &Reader) -> Result<Vec<VolumeRow>, QueryError>,
) -> Result<ExitCode> {
    let range = range(records)?;
    let (mut rows, problems) = each(records, |name, reader| {
        let labels = reader.labels()?;
        let rows = volumes(range, reader)?;
        Ok(rows.into_iter().map(|row| Volume::of(name, row, &labels)).collect())
    })?;
    rows.sort_by_key(|row| std::cmp::Reverse(row.rank(Order::Bytes)));
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

/// Asks each store; whoever waits at a terminal has more patience than a browser.
fn each<T>(
    records: &RecordArgs,
    ask: impl Fn(&str, &Reader) -> Result<Vec<T>, QueryError>,
) -> Result<(Vec<T>, Vec<String>)> {
    Ok(query::each_for(&places(records)?, records.gateway(), QUESTION_TIME_MAX, ask))
}

fn order(name: String) -> Result<Order, String> {
    name.parse()
}

impl RecordArgs {
    fn gateway(&self) -> Option<&str> {
        self.gateway.as_deref()
    }
}

fn range(args: &RecordArgs) -> Result<Range> {
    if args.from.is_some_and(|it| it >= args.until.unwrap_or_else(|| clock::seconds() + 1)) {
        let said = "--from is not before --until, or not before now where none is given";
        return Err(WrongUse(said.to_owned()).into());
    }
    query::range(args.from, args.until, Some(args.last)).map_err(|said| WrongUse(said).into())
}

fn places(args: &RecordArgs) -> Result<Places> {
    let places = Places { run_folders: Vec::new(), stores: args.store.clone() };
    if places.stores().is_empty() {
        check_rights(&args.store)?;
        let looked: Vec<_> = args.store.iter().map(|it| it.display().to_string()).collect();
        bail!(
            "no store in {}: add a table [store] to the gateway's configuration, or say --store",
            looked.join(", ")
        );
    }
    Ok(places)
}

/// Says it where stores may be there, and are not for who asks.
fn check_rights(stores: &[PathBuf]) -> Result<()> {
    let is_closed = |path: &&PathBuf| {
        let is_refused = |it: std::io::Error| it.kind() == std::io::ErrorKind::PermissionDenied;
        let file = || File::open(path).err().is_some_and(is_refused);
        std::fs::read_dir(path).err().is_some_and(is_refused) || file()
    };
    let Some(path) = stores.iter().find(is_closed) else { return Ok(()) };
    bail!(
        "{} may not be looked into: are you root, or of the group that `[store] group` names?",
        path.display()
    );
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
}
