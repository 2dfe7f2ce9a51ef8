//! How fast a store takes records, and how fast it answers what the dashboard asks.
//!
//! `cargo run --release -p weir-store --example store_speed -- [RECORDS] [FOLDER]`: records of
//! 10,000 host pairs, spread over the last day, then each question 20 times. A line of JSON each.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_engine::flow::{FlowCounters, FlowKey, Reason};
use weir_engine::meter::FlowRecord;
use weir_engine::verdict::Side;
use weir_store::sink::{Interfaces, Item};
use weir_store::sqlite::{QueryError, Range, Reader, RecordFilter, Retention, Store, StoreOptions};
use weir_wire::frame::Time;
use weir_wire::parse::{Network, Parsed, Transport};

const DAY_S: u64 = 86_400;
const ROUNDS: usize = 20;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments.next().and_then(|it| it.parse().ok()).unwrap_or(1_000_000);
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join(format!("store-speed-{}.sqlite", std::process::id()));
    let retention = Retention {
        size_bytes_max: 64 << 30,
        records_s: 2 * DAY_S,
        minutes_s: 2 * DAY_S,
        hours_s: 2 * DAY_S,
    };
    let options = StoreOptions { path: path.clone(), group: None, retention };
    let store = Store::start(options, vec!["port0".to_owned()]).expect("a thread");
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let sender = store.sender(0);
    let start = Instant::now();
    for number in 0..count {
        let since_ns = number * (DAY_S * 1_000_000_000 / count);
        sender.send(record(number, (now_s - DAY_S) * 1_000_000_000 + since_ns));
        if number % 1000 == 0 {
            while number - store.counters().written > 7000 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }
    let last = store.stop();
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!((last.written, last.overflowed, last.lost), (count, 0, 0));
    println!("{{\"figure\":\"store_records_per_s\",\"value\":{:.0}}}", count as f64 / seconds);
    let range = |seconds| Range { from_s: now_s - seconds, until_s: now_s + 60 };
    let grouped = RecordFilter { is_grouped: true, ..RecordFilter::default() };
    let all = RecordFilter::default();
    let ask = |name: &str, question: &dyn Fn(&Reader) -> Result<usize, QueryError>| {
        let mut times: Vec<f64> = (0..ROUNDS).map(|_| timed(&path, question)).collect();
        times.sort_by(f64::total_cmp);
        let p95 = times[ROUNDS * 95 / 100 - 1];
        println!(
            "{{\"figure\":\"store_query_ms_p95\",\"question\":\"{name}\",\"value\":{p95:.1}}}"
        );
    };
    ask("flows, last hour", &|it| Ok(it.flows(range(3600), &all, 200)?.len()));
    ask("flows grouped, last hour", &|it| Ok(it.flows(range(3600), &grouped, 200)?.len()));
    ask("talkers, last hour", &|it| Ok(it.talkers(range(3600), None, 10)?.len()));
    ask("talkers, last day", &|it| Ok(it.talkers(range(DAY_S), None, 10)?.len()));
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", path.display()));
    }
}

fn timed(path: &std::path::Path, question: &dyn Fn(&Reader) -> Result<usize, QueryError>) -> f64 {
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
