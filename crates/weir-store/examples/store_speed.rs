//! How fast a store takes records, and how fast it answers what the dashboard asks.
//!
//! `cargo run --release -p weir-store --example store_speed -- [--quick] [--keep FILE]`: records of
//! 10,000 host pairs, spread over the last day, as many as ten million or two minutes of filling
//! allow; then each question of the dashboard 20 times. A line of JSON each. `--keep` leaves the
//! store there, for others to ask.

#![expect(clippy::disallowed_methods, reason = "an example measures from outside")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_engine::flow::{FlowCounters, FlowKey, Reason};
use weir_engine::meter::FlowRecord;
use weir_engine::verdict::Side;
use weir_store::sink::{Interfaces, Item};
use weir_store::sqlite::{
    GroupBy, Order, QueryError, Range, Reader, RecordFilter, Retention, Store, StoreOptions,
    Volumes,
};
use weir_wire::frame::Time;
use weir_wire::parse::{Network, Parsed, Transport};

const DAY_S: u64 = 86_400;
const ROUNDS: usize = 20;
const RECORDS: u64 = 10_000_000;
const QUICK_RECORDS: u64 = 100_000;
const FILL_MAX: Duration = Duration::from_secs(110);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let kept = arguments.iter().position(|it| it == "--keep").and_then(|at| arguments.get(at + 1));
    let is_quick = arguments.iter().any(|it| it == "--quick");
    let scratch = format!("store-speed-{}.sqlite", std::process::id());
    let path = kept.map_or_else(|| std::env::temp_dir().join(scratch), PathBuf::from);
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let wanted = if is_quick { QUICK_RECORDS } else { RECORDS };
    let (count, seconds) = fill(&path, now_s - DAY_S, wanted);
    let note = "flows of 10,000 host pairs over a day";
    let said = format!("{count} {note}, synchronous = FULL, roll-ups included");
    print("store_records_per_s", count as f64 / seconds, "/s", &said);
    ask_all(&path, now_s, &format!("of {count} {note}; 95th percentile of {ROUNDS}"));
    for end in ["", "-wal", "-shm"].iter().filter(|_| kept.is_none()) {
        let _ = std::fs::remove_file(format!("{}{end}", path.display()));
    }
}

/// Fills a new store for as long as it may take: how many records, in how many seconds.
fn fill(path: &Path, start_s: u64, wanted: u64) -> (u64, f64) {
    let retention = Retention {
        size_bytes_max: 64 << 30,
        records_s: 2 * DAY_S,
        minutes_s: 2 * DAY_S,
        hours_s: 2 * DAY_S,
    };
    let options = StoreOptions { path: path.to_owned(), group: None, retention };
    let store = Store::start(options, vec!["port0".to_owned()]).expect("a thread");
    let sender = store.sender(0);
    let start = Instant::now();
    let mut count = 0;
    // The last hour is there in any case: it is what is asked for.
    let last_hour = wanted / 24 * 23;
    let mut next = 0;
    while next < wanted {
        if next < last_hour && start.elapsed() >= FILL_MAX {
            next = last_hour;
        }
        for number in next..next + 1000 {
            let since_ns = number * (DAY_S * 1_000_000_000 / wanted);
            sender.send(record(number, start_s * 1_000_000_000 + since_ns));
        }
        (next, count) = (next + 1000, count + 1000);
        while count - store.counters().written > 7000 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    let last = store.stop();
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!((last.written, last.overflowed, last.lost), (count, 0, 0));
    (count, seconds)
}

/// Each question of the dashboard, by a reader of its own as the server asks it.
fn ask_all(path: &Path, end_s: u64, note: &str) {
    let range = |seconds| Range { from_s: end_s - seconds, until_s: end_s };
    let grouped = RecordFilter { is_grouped: true, ..RecordFilter::default() };
    let greatest = RecordFilter { order: Order::Bytes, ..grouped.clone() };
    let all = RecordFilter::default();
    let hour = range(3600);
    type Question<'a> = &'a dyn Fn(&Reader) -> Result<usize, QueryError>;
    let volumes = |by| {
        move |it: &Reader| {
            Ok(it.volumes(Volumes::Flows, by, hour, None, (Order::Bytes, 100))?.rows.len())
        }
    };
    let exactly = |it: &Reader| {
        let (of, by) = (Volumes::Flows, GroupBy::Ends);
        Ok(it.volumes_of_records(of, by, hour, &RecordFilter::default(), 100)?.len())
    };
    let questions: [(&str, Question<'_>); 9] = [
        ("flows", &|it| Ok(it.flows(hour, &all, 200)?.len())),
        ("flows_grouped", &|it| Ok(it.flows(hour, &grouped, 200)?.len())),
        ("flows_greatest", &|it| Ok(it.flows(hour, &greatest, 200)?.len())),
        ("volumes_exact", &exactly),
        ("talkers", &|it| Ok(it.talkers(hour, None, None, 10)?.len())),
        ("talkers_day", &|it| Ok(it.talkers(range(DAY_S), None, None, 10)?.len())),
        ("volumes_ends", &volumes(GroupBy::Ends)),
        ("volumes_source", &volumes(GroupBy::Source)),
        ("volumes_service", &volumes(GroupBy::Service)),
    ];
    for (name, question) in questions {
        let mut times: Vec<f64> = (0..ROUNDS).map(|_| timed(path, question)).collect();
        times.sort_by(f64::total_cmp);
        let p95 = times[ROUNDS * 95 / 100 - 1];
        print(&format!("store_query_ms_p95_{name}"), p95, "ms", note);
    }
}

fn print(name: &str, value: f64, unit: &str, note: &str) {
    println!(
        "{{\"name\":\"{name}\",\"value\":{value:.1},\"unit\":\"{unit}\",\"peer\":\"\",\
         \"peer_value\":null,\"ratio\":null,\"command\":\"make bench ONLY=store\",\
         \"note\":\"{note}\"}}"
    );
}

fn timed(path: &Path, question: &dyn Fn(&Reader) -> Result<usize, QueryError>) -> f64 {
    let start = Instant::now();
    let reader = Reader::open(path).expect("the store is there");
    question(&reader).expect("it answers");
    start.elapsed().as_secs_f64() * 1e3
}

fn record(number: u64, last_ns: u64) -> Item {
    let address = |last: u64| {
        let mut bytes = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 0];
        bytes[14..].copy_from_slice(&(last as u16).to_be_bytes());
        bytes
    };
    let parsed = Parsed {
        network: Network::Ipv4,
        source: address(number % 100),
        destination: address(1000 + number / 100 % 100),
        protocol: 17,
        transport: Transport::Udp { source: 40_000 + (number % 20_000) as u16, destination: 4791 },
        ..Parsed::default()
    };
    let (key, initiator) = FlowKey::of(&parsed).expect("it is IP");
    let counters = [FlowCounters { packets: 9, bytes: 9000, ..FlowCounters::default() }; 2];
    let last = Time(last_ns);
    let (started, side, reason) = (last, Some(Side::Host), Reason::Active);
    let record = FlowRecord { key, started, last, initiator, side, counters, reason };
    Item::Flow(record, Interfaces::default())
}
