//! What is shown: rows of text, from statuses and stores.

use weir_serve::dto::{Alert, Conversation, PortAccount, Talker, Tunnel};
use weir_serve::gateways::Places;
use weir_serve::live::Point;
use weir_serve::query;
use weir_serve::status::Status;
use weir_store::sqlite::{AlertFilter, Labels, Order, Range, RecordFilter};

use super::{Choice, View};
use crate::cli::terminal::shown;

/// Rows that a store is asked for.
const ROWS_MAX: u32 = 200;

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Data {
    pub(super) points: Vec<Point>,
    pub(super) statuses: Vec<Status>,
    pub(super) problems: Vec<String>,
    talkers: Vec<Talker>,
    conversations: Vec<Conversation>,
    alerts: Vec<Alert>,
}

/// A table: names, which columns are numbers, rows with the gateway that each is of.
pub(super) struct Table {
    pub(super) names: &'static [&'static str],
    pub(super) rows: Vec<Vec<String>>,
}

impl Data {
    /// Asks the stores for what `view` shows of the last hour.
    pub(super) fn ask(&mut self, view: View, places: &Places) {
        let Ok(range) = query::range(None, None, None) else { return };
        self.problems = match view {
            View::Talkers => self.ask_talkers(range, places),
            View::QueuePairs => self.ask_conversations(range, places),
            View::Alerts => self.ask_alerts(range, places),
            View::Tunnels | View::Drops => Vec::new(),
        };
    }

    fn ask_talkers(&mut self, range: Range, places: &Places) -> Vec<String> {
        let (mut rows, problems) = query::each(places, None, |name, reader| {
            let labels = reader.labels()?;
            let rows = reader.talkers(range, None, None, ROWS_MAX)?;
            Ok(rows.into_iter().map(|row| Talker::of(name, row, &labels)).collect())
        });
        rows.sort_by_key(|it| std::cmp::Reverse(it.sent_bytes.saturating_add(it.received_bytes)));
        self.talkers = rows;
        problems
    }

    fn ask_conversations(&mut self, range: Range, places: &Places) -> Vec<String> {
        let order = Order::Bytes;
        let filter = RecordFilter { is_grouped: true, order, ..RecordFilter::default() };
        let (mut rows, problems) = query::each(places, None, |name, reader| {
            let labels = reader.labels()?;
            let rows = reader.conversations(range, &filter, ROWS_MAX)?;
            Ok(rows.into_iter().map(|row| Conversation::of(name, row, &labels)).collect())
        });
        rows.sort_by_key(|it| std::cmp::Reverse(it.rank(order)));
        self.conversations = rows;
        problems
    }

    fn ask_alerts(&mut self, range: Range, places: &Places) -> Vec<String> {
        let (mut rows, problems) = query::each(places, None, |name, reader| {
            let labels = reader.labels()?;
            let filter = AlertFilter { suppressed: Some(false), ..AlertFilter::default() };
            let rows = reader.alerts(range, &filter, ROWS_MAX)?;
            Ok(rows.into_iter().map(|row| Alert::of(name, row, &labels)).collect())
        });
        rows.sort_by(|one: &Alert, other| other.time.cmp(&one.time));
        self.alerts = rows;
        problems
    }

    /// The table that `choice` is of.
    pub(super) fn table(&self, choice: &Choice) -> Table {
        let is_chosen = |name: &str| choice.gateway.as_deref().is_none_or(|it| it == name);
        let statuses = self.statuses.iter().filter(|it| is_chosen(&it.name));
        let (names, rows): (&[&str], Vec<Vec<String>>) = match choice.view {
            View::Talkers => {
                let rows = self.talkers.iter().filter(|it| is_chosen(&it.gateway));
                (&["address", "sent", "received", "peers", "gateway"], rows.map(talker).collect())
            }
            View::QueuePairs => {
                let rows = self.conversations.iter().filter(|it| is_chosen(&it.gateway));
                let names = &[
                    "from", "QP", "to", "QP", "sent", "answered", "slowest", "again", "NAK", "RNR",
                    "CNP", "gateway",
                ];
                (names, rows.map(conversation).collect())
            }
            View::Tunnels => {
                let rows = statuses.flat_map(|it| Tunnel::all(it, &Labels::default()));
                let names = &[
                    "peer",
                    "state",
                    "endpoint",
                    "keys' age",
                    "path MTU",
                    "sealed",
                    "opened",
                    "gateway",
                ];
                (names, rows.map(tunnel).collect())
            }
            View::Alerts => {
                let rows = self.alerts.iter().filter(|it| is_chosen(&it.gateway));
                let names = &["time", "sev", "packet", "signature", "from", "to", "gateway"];
                (names, rows.map(alert).collect())
            }
            View::Drops => {
                let ports = statuses.flat_map(|status| {
                    let of = |pair| PortAccount::all(&status.name, pair);
                    status.pairs.iter().flat_map(of).collect::<Vec<_>>()
                });
                let mut rows: Vec<_> = ports.flat_map(drops).collect();
                rows.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
                let rows = rows.into_iter().map(|(_, row)| row).collect();
                (&["frames", "reason", "at", "meaning"], rows)
            }
        };
        // What a packet or peer chose must not steer the terminal.
        let clean = |text: &String| shown(text);
        let rows = rows.iter().map(|row| row.iter().map(clean).collect()).collect();
        Table { names, rows }
    }
}

fn talker(row: &Talker) -> Vec<String> {
    let (sent, received) = (scaled(row.sent_bytes as f64), scaled(row.received_bytes as f64));
    vec![row.address.clone(), sent, received, row.peers.to_string(), row.gateway.clone()]
}

fn conversation(row: &Conversation) -> Vec<String> {
    vec![
        row.source.clone(),
        row.source_qp.map_or("?".to_owned(), |it| it.to_string()),
        row.destination.clone(),
        row.destination_qp.to_string(),
        scaled(row.bytes as f64),
        scaled(row.reply_bytes as f64),
        row.response_ns.map_or("-".to_owned(), |it| format!("{} us", it / 1000)),
        row.retransmissions.to_string(),
        row.naks.to_string(),
        row.rnr_naks.to_string(),
        row.cnp.to_string(),
        row.gateway.clone(),
    ]
}

fn tunnel(row: Tunnel) -> Vec<String> {
    vec![
        row.peer,
        row.state,
        row.endpoint.unwrap_or_else(|| "-".to_owned()),
        row.last_handshake_seconds.map_or("-".to_owned(), |it| format!("{it:.0} s")),
        row.path_mtu.map_or("-".to_owned(), |it| it.to_string()),
        scaled(row.sealed_bytes as f64),
        scaled(row.opened_bytes as f64),
        row.gateway,
    ]
}

fn alert(row: &Alert) -> Vec<String> {
    // The time of the day is enough for an hour.
    let time = row.time.get(11..19).unwrap_or(&row.time).to_owned();
    let end = |address: &str, port: u16| match port {
        0 => address.to_owned(),
        port => format!("{address} {port}"),
    };
    vec![
        time,
        row.severity.to_string(),
        row.action.clone(),
        row.signature.clone(),
        end(&row.source, row.source_port),
        end(&row.destination, row.destination_port),
        row.gateway.clone(),
    ]
}

fn drops(port: PortAccount) -> Vec<(u64, Vec<String>)> {
    let at = format!("{} {} {}", port.gateway, port.pair, port.side);
    let row = |(reason, count): (String, u64)| {
        let meaning = weir_store::meaning(&reason).unwrap_or_default().to_owned();
        (count, vec![count.to_string(), reason, at.clone(), meaning])
    };
    port.reasons.into_iter().filter(|(_, count)| *count > 0).map(row).collect()
}

/// 12.3 M, for people.
pub(super) fn scaled(value: f64) -> String {
    let (mut value, mut step) = (value, 0);
    let steps = ["", " k", " M", " G", " T", " P"];
    while value >= 999.5 && step < steps.len() - 1 {
        value /= 1000.0;
        step += 1;
    }
    let digits = if step == 0 || value >= 99.5 { 0 } else { 1 };
    format!("{value:.digits$}{}", steps[step])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let all = [0.0, 999.0, 1000.0, 12_340.0, 999_600.0, 4.2e12].map(scaled);
        assert_eq!(all, ["0", "999", "1.0 k", "12.3 k", "1.0 M", "4.2 T"]);
    }
}
