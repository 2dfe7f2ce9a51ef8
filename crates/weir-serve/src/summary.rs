//! The routes whose answers are sums, with their types: alerts by signature and over time, volume
//! by who or what.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use weir_store::sqlite::{
    GroupBy, Labels, Order, RecordFilter, SignatureRow, Summed, VolumeRow, Volumes as Of,
};

use crate::app::App;
use crate::dto::{ErrorBody, address_text, time_text};
use crate::names::Names;
use crate::query;
use crate::routes::{
    AlertQuery, Answer, ApiError, Asked, ask_groups, ask_stores, greatest, label, limit, order,
};

/// The alerts of one signature at one gateway.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Signature {
    pub gateway: String,
    pub sid: u32,
    pub signature: String,
    pub category: String,
    /// 1 is the most severe.
    pub severity: u8,
    pub alerts: u64,
    pub blocked: u64,
    /// Would have been blocked, were the rules not on trial.
    pub would_block: u64,
    /// Of all, those that are suppressed.
    pub suppressed: u64,
    pub first: String,
    pub last: String,
    /// Different source addresses.
    pub sources: u64,
    pub destinations: u64,
}

/// Alerts in a slice of time.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AlertSlice {
    /// Its start, seconds since 1970.
    pub time_s: u64,
    /// Alerts by severity: 1, 2, 3, and 4 for all that is less severe.
    pub by_severity: [u64; 4],
}

/// Alerts, added up.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AlertSummary {
    /// By signature, the most frequent first.
    pub signatures: Vec<Signature>,
    /// Seconds of a slice.
    pub resolution_s: u64,
    /// Over time; slices without alerts are left out.
    pub slices: Vec<AlertSlice>,
    /// Stores that did not answer, with why.
    pub problems: Vec<String>,
}

/// What a group of flows or conversations carried.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Volume {
    pub gateway: String,
    /// Absent: not grouped by it.
    pub source: Option<String>,
    pub destination: Option<String>,
    pub source_names: Names,
    pub destination_names: Names,
    /// Absent: not grouped by queue pairs, or only the other direction was seen.
    pub source_qp: Option<u32>,
    pub destination_qp: Option<u32>,
    /// `udp 4791`, `rc roce_v2`.
    pub service: Option<String>,
    /// Address of who told of it; what the gateway saw itself has none.
    pub exporter: Option<String>,
    /// `tenant=red`.
    pub label: Option<String>,
    pub records: u64,
    pub packets: u64,
    pub bytes: u64,
    pub reply_packets: u64,
    pub reply_bytes: u64,
    pub retransmissions: u64,
    pub naks: u64,
    /// The slowest answer.
    pub response_ns: Option<u64>,
}

/// What groups carried.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct VolumeList {
    /// The greatest first.
    pub rows: Vec<Volume>,
    /// Bytes, there and back, of those that were not among the 2048 greatest of their minute and
    /// are not named. None where each record was asked.
    pub rest_bytes: u64,
    /// Seconds that the span was rounded to: slices are taken whole, records by the second.
    pub resolution_s: u64,
    /// Stores that did not answer, with why.
    pub problems: Vec<String>,
}

/// Of what, and by what.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct VolumeQuery {
    /// Only this gateway
    gateway: Option<String>,
    /// From this second since 1970 on
    #[param(maximum = 253402300799_u64)]
    from: Option<u64>,
    /// Before this second since 1970; absent: until now
    #[param(maximum = 253402300799_u64)]
    until: Option<u64>,
    /// Without `from`: the last so many seconds (an hour)
    #[param(maximum = 253402300799_u64)]
    last: Option<u64>,
    /// Rows, at most (100)
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `flows` (where nothing is said) or `conversations`
    of: Option<String>,
    /// `ends` (where nothing is said), `source`, `destination`, `service`, `exporter`, `label`, or
    /// of conversations `queue_pair`
    by: Option<String>,
    /// What comes first: `bytes` (where nothing is said) or `packets`, there and back, of
    /// conversations also `retransmissions`, `naks` or `response`, the slowest
    order: Option<String>,
    /// From each record of the span, not from sums by the minute: no group is left out, however
    /// small, and the span is not rounded; takes longer
    exact: Option<bool>,
    /// An end called so by `[[label]]`: `NAME`, or `tenant=NAME` (host, tenant, job, rail)
    label: Option<String>,
}

/// Alerts by signature and over time
#[utoipa::path(get, path = "/api/v1/alerts/summary", params(AlertQuery),
    responses((status = 200, body = AlertSummary), (status = 400, body = ErrorBody)))]
pub(crate) async fn alerts(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<AlertQuery>,
) -> Answer<AlertSummary> {
    let range = asked.range()?;
    let limit = limit(asked.limit)?;
    let filter = asked.filter()?;
    let (answers, problems) = ask_stores(app, move |places| {
        query::each(places, asked.gateway.as_deref(), |name, reader| {
            let signatures = reader.signatures(range, &filter, limit)?;
            let own = signatures.into_iter().map(|row| Signature::of(name, row));
            let (resolution_s, slices) = reader.alert_slices(range, &filter)?;
            Ok(vec![(own.collect::<Vec<_>>(), resolution_s, slices)])
        })
    })
    .await?;
    let mut signatures = Vec::new();
    let mut by_time = BTreeMap::<u64, [u64; 4]>::new();
    let mut resolution = 0;
    for (own, resolution_s, slices) in answers {
        signatures.extend(own);
        resolution = resolution_s;
        for slice in slices {
            let level = usize::from(slice.severity.clamp(1, 4)) - 1;
            by_time.entry(slice.time_s).or_default()[level] += slice.alerts;
        }
    }
    let slices =
        by_time.into_iter().map(|(time_s, by_severity)| AlertSlice { time_s, by_severity });
    Ok(Json(AlertSummary {
        signatures: greatest(signatures, limit, |row| row.alerts),
        resolution_s: resolution,
        slices: slices.collect(),
        problems,
    }))
}

/// What flows or conversations carried, added up by their ends or services
#[utoipa::path(get, path = "/api/v1/volumes", params(VolumeQuery),
    responses((status = 200, body = VolumeList), (status = 400, body = ErrorBody)))]
pub(crate) async fn volumes(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<VolumeQuery>,
) -> Answer<VolumeList> {
    let range = query::range(asked.from, asked.until, asked.last).map_err(ApiError::bad)?;
    let limit = limit(asked.limit)?;
    let label = label(asked.label.as_deref())?;
    let of = match asked.of.as_deref() {
        None | Some("flows") => Of::Flows,
        Some("conversations") => Of::Conversations,
        Some(other) => return Err(ApiError::bad(format!("of = {other}: flows, conversations"))),
    };
    let by = match asked.by.as_deref() {
        None | Some("ends") => GroupBy::Ends,
        Some("source") => GroupBy::Source,
        Some("destination") => GroupBy::Destination,
        Some("service") => GroupBy::Service,
        Some("exporter") => GroupBy::Exporter,
        Some("label") => GroupBy::Label,
        Some("queue_pair") if of == Of::Conversations => GroupBy::QueuePair,
        Some(other) => {
            let choice = "ends, source, destination, service, exporter, label, queue_pair \
                          (of conversations)";
            return Err(ApiError::bad(format!("by = {other}: write one of {choice}")));
        }
    };
    let is_exact = asked.exact.unwrap_or(false);
    let order = order(asked.order.as_deref(), Order::Bytes)?;
    let chosen = RecordFilter { label, order, ..RecordFilter::default() };
    let (answers, problems) = ask_groups(app, is_exact, move |places| {
        query::each(places, asked.gateway.as_deref(), |name, reader| {
            let labels = reader.labels()?;
            let Summed { rows, rest_bytes } = match is_exact {
                true => Summed {
                    rows: reader.volumes_of_records(of, by, range, &chosen, limit)?,
                    rest_bytes: 0,
                },
                false => reader.volumes(of, by, range, chosen.label.as_ref(), (order, limit))?,
            };
            let rows = rows.into_iter().map(|row| Volume::of(name, row, &labels));
            Ok(vec![(rows.collect::<Vec<_>>(), rest_bytes)])
        })
    })
    .await?;
    let rest_bytes = answers.iter().map(|(_, rest_bytes)| rest_bytes).sum();
    let rows = answers.into_iter().flat_map(|(rows, _)| rows).collect();
    let rows = greatest(rows, limit, |row: &Volume| row.rank(order));
    let resolution_s = if is_exact { 1 } else { 60 };
    Ok(Json(VolumeList { rows, rest_bytes, resolution_s, problems }))
}

impl Signature {
    /// From a row of `gateway`'s store.
    pub fn of(gateway: &str, row: SignatureRow) -> Self {
        Self {
            gateway: gateway.to_owned(),
            sid: row.sid,
            signature: row.signature,
            category: row.category,
            severity: row.severity,
            alerts: row.alerts,
            blocked: row.blocked,
            would_block: row.would_block,
            suppressed: row.suppressed,
            first: time_text(row.first_ns),
            last: time_text(row.last_ns),
            sources: row.sources,
            destinations: row.destinations,
        }
    }
}

impl Volume {
    /// By what rows of several stores are put in order, the greatest first.
    pub fn rank(&self, order: Order) -> (u64, u64) {
        let volume = self.bytes.saturating_add(self.reply_bytes);
        let value = match order {
            Order::Last | Order::Bytes => volume,
            Order::Packets => self.packets.saturating_add(self.reply_packets),
            Order::Retransmissions => self.retransmissions,
            Order::Naks => self.naks,
            Order::Response => self.response_ns.unwrap_or_default(),
        };
        (value, volume)
    }

    /// From a row of `gateway`'s store.
    pub fn of(gateway: &str, row: VolumeRow, labels: &Labels) -> Self {
        let names = |it: Option<[u8; 16]>| it.map(|it| Names::of(labels, it)).unwrap_or_default();
        let address = |it: Option<[u8; 16]>| it.map(|it| address_text(it, row.is_lid));
        Self {
            gateway: gateway.to_owned(),
            source: address(row.source),
            destination: address(row.destination),
            source_names: names(row.source),
            destination_names: names(row.destination),
            source_qp: row.source_qp,
            destination_qp: row.destination_qp,
            service: row.service,
            exporter: row.exporter,
            label: row.label,
            records: row.records,
            packets: row.packets,
            bytes: row.bytes,
            reply_packets: row.reply_packets,
            reply_bytes: row.reply_bytes,
            retransmissions: row.retransmissions,
            naks: row.naks,
            response_ns: row.response_ns,
        }
    }
}
