//! A file that a stranger wrote into a store's place takes no more memory than `weir serve` has.

use std::path::Path;
use std::process::Command;

use super::stores::{now_s, start};
use weir_store::sqlite::{AlertFilter, QueryError, Range, Reader, RecordFilter, bound_memory};

/// Set for the child that reads: the file.
const CHILD: &str = "WEIR_HOSTILE_TEST_CHILD";

/// What its unit gives `weir serve`.
const MIB_MAX: u64 = 128;

fn alerts(count: u32, event_bytes: u32) -> String {
    format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) \
         INSERT INTO alert (time_ns, pair, sid, severity, action, signature, category, protocol, \
         source, source_port, destination, destination_port, event) SELECT {}000000000 + i, 'p', \
         1, 1, 'allowed', 's', 'c', 'TCP', zeroblob(16), 1, zeroblob(16), 1, \
         hex(zeroblob({event_bytes} / 2)) FROM n;",
        now_s() - 60
    )
}

/// Reads the file as `weir serve` does: each question has an answer, or a word why not.
fn read(path: &Path) {
    bound_memory(32 << 20).unwrap();
    let range = Range { from_s: 0, until_s: now_s() + 60 };
    let said = match Reader::open(path) {
        Ok(reader) => {
            let alerts = reader.alerts(range, &AlertFilter::default(), 1000);
            let flows = reader.flows(range, &RecordFilter::default(), 1000);
            [alerts.err(), flows.err()].into_iter().flatten().map(|it| it.to_string()).collect()
        }
        Err(error) => vec![QueryError::from(error).to_string()],
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kib < MIB_MAX << 10, "{peak_kib} KiB: {said:?}");
    println!("\nsaid {said:?}");
}

#[test]
fn a_hostile_file_is_refused_before_it_fills_the_memory() {
    if let Some(path) = std::env::var_os(CHILD) {
        return read(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    // 400 KiB of default each.
    let value = "x".repeat(400 << 10);
    let table = |number: u32| format!("CREATE TABLE t{number} (a TEXT DEFAULT '{value}');");
    let schema: String = (0..150).map(table).collect();
    for (name, sql, expected) in [
        ("schema", format!("BEGIN; {schema} COMMIT;"), "memory"),
        ("value", alerts(1, 64 << 20), "too big"),
        ("rows", alerts(1000, 60 << 10), "fewer rows"),
        ("none", alerts(1000, 4 << 10), "said []"),
    ] {
        let path = folder.path().join(format!("{name}.sqlite"));
        drop(start(&path));
        rusqlite::Connection::open(&path).unwrap().execute_batch(&sql).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        let test = "hostile::a_hostile_file_is_refused_before_it_fills_the_memory";
        let child = child.args(["--exact", test, "--nocapture"]).env(CHILD, &path);
        let output = child.output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains(expected), "{name}: {said}");
        std::fs::remove_file(&path).unwrap();
    }
}
