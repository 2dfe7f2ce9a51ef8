//! What the store writes, it writes into no file that a link leads to, nor into one that cannot be
//! opened.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use weir_store::sink::eve_dns::DnsVersion;
use weir_store::sink::{AlertSink, EveFile, EvePlace, EveRecords};

fn eve(path: &Path) -> EveFile {
    EveFile {
        path: path.to_owned(),
        place: EvePlace::File,
        bytes_max: 1 << 20,
        records: EveRecords::None,
        fast: None,
        dns: DnsVersion::default(),
    }
}

#[test]
fn alerts_are_not_written_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let [link, other] = ["eve.json", "other"].map(|name| folder.path().join(name));
    fs::write(&other, "untouched").unwrap();
    symlink(&other, &link).unwrap();
    assert!(eve(&link).try_open().is_err());
    assert!(AlertSink::start(Some(eve(&link)), None, &[]).is_err());
    assert_eq!(fs::read_to_string(&other).unwrap(), "untouched");
}

#[test]
fn a_change_to_a_file_that_cannot_be_opened_is_refused_and_waits_for_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let sink = AlertSink::start(Some(eve(&path("eve.json"))), None, &[]).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), mode).unwrap();
    for wrong in ["none/eve.json", "pipe"] {
        assert!(sink.change(Some(eve(&path(wrong)))).is_err(), "{wrong}");
        let beside = EveFile { fast: Some(path(wrong)), ..eve(&path("eve.json")) };
        assert!(sink.change(Some(beside)).is_err(), "{wrong}");
    }
    sink.change(Some(eve(&path("other.json")))).unwrap();
    assert!(path("other.json").exists());
}
