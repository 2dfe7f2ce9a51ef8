//! What the store writes, it writes into no file that a link leads to.

use std::fs;
use std::os::unix::fs::symlink;

use weir_store::sink::eve_dns::DnsVersion;
use weir_store::sink::{AlertSink, EveFile, EvePlace};

#[test]
fn alerts_are_not_written_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let [link, other] = ["eve.json", "other"].map(|name| folder.path().join(name));
    fs::write(&other, "untouched").unwrap();
    symlink(&other, &link).unwrap();
    let (place, bytes_max) = (EvePlace::File, 1 << 20);
    let file = EveFile {
        path: link,
        place,
        bytes_max,
        has_records: false,
        fast: None,
        dns: DnsVersion::default(),
    };
    assert!(AlertSink::start(Some(file), None, &[]).is_err());
    assert_eq!(fs::read_to_string(&other).unwrap(), "untouched");
}
