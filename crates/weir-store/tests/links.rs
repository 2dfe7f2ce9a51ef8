//! What the store writes, it writes into no file that a link leads to.

use std::fs;
use std::os::unix::fs::symlink;

use weir_store::sink::{AlertSink, EveFile};

#[test]
fn alerts_are_not_written_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let [link, other] = ["eve.json", "other"].map(|name| folder.path().join(name));
    fs::write(&other, "untouched").unwrap();
    symlink(&other, &link).unwrap();
    let file = EveFile { path: link, bytes_max: 1 << 20, has_records: false, fast: None };
    assert!(AlertSink::start(Some(file), None, &[]).is_err());
    assert_eq!(fs::read_to_string(&other).unwrap(), "untouched");
}
