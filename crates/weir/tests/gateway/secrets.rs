//! Keys in Wireshark's form: with them tshark reads what the wire carried, and nothing else tells
//! them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use weir_lab::gateways::{KeySource, run_folder};
use weir_lab::topology::Side;

use super::*;

#[test]
fn tshark_decrypts_the_wire_with_the_keys_of_a_configuration() {
    judged_by_tshark("configured keys", &sealed());
}

#[test]
fn tshark_decrypts_the_wire_with_keys_that_were_agreed() {
    let keys = KeySource::handshakes();
    judged_by_tshark("agreed keys", &Setup { keys, ..sealed() });
}

fn judged_by_tshark(test: &str, setup: &Setup) {
    let Some(Stand { _turn, lab }) = stand(test) else { return };
    let wire = listen(&lab, 2000);
    let gateways = sealing_gateways(&lab, setup);
    let target = lab.host_v4(Side::B).to_string();
    assert_eq!(ping_all(lab.host(Side::A), &target, 20, 200).unwrap().answered, 20);

    let home = lab.folder().join("home");
    let table = home.join("wireshark/esp_sa");
    fs::create_dir_all(home.join("wireshark")).unwrap();
    let export = |arguments: &[&str]| {
        let mut command = Command::new(WEIR);
        command.args(["sa", "export", "--run-dir"]).arg(run_folder(&lab, Side::A));
        let output = command.args(arguments).output().unwrap();
        let words = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), words)
    };
    let write = table.to_str().unwrap();
    let (code, said, words) = export(&["--esp-sa", "-w", write]);
    assert!(code == Some(0) && said.is_empty() && words.contains("SECRET KEYS"), "{words}");
    assert_eq!(fs::metadata(&table).unwrap().permissions().mode() & 0o777, 0o600);

    // Only when asked in so many words; in no status and no log. Over an earlier export, over
    // nobody else's file.
    let (code, _, words) = export(&[]);
    assert!(code == Some(2) && words.contains("--esp-sa"), "{words}");
    let (code, _, words) = export(&["--esp-sa", "-w", write]);
    assert!(code == Some(0), "{words}");
    assert_eq!(fs::metadata(&table).unwrap().permissions().mode() & 0o777, 0o600);
    let other = home.join("other");
    fs::write(&other, "mine\n").unwrap();
    let (code, _, words) = export(&["--esp-sa", "-w", other.to_str().unwrap()]);
    assert!(code == Some(1) && words.contains("left alone"), "{words}");
    assert_eq!(fs::read_to_string(&other).unwrap(), "mine\n");
    let nowhere = home.join("no/esp_sa");
    let (code, _, words) = export(&["--esp-sa", "-w", nowhere.to_str().unwrap()]);
    assert!(code == Some(1) && words.contains("there is no folder"), "{words}");
    let (code, _, words) = export(&["--esp-sa", "--peer", "stranger"]);
    assert!(code == Some(1) && words.contains("no association"), "{words}");
    let text = fs::read_to_string(&table).unwrap();
    let status = gateways.status(Side::A).unwrap().to_string();
    let log = gateways.log(Side::A);
    assert!(log.contains("keys of associations were told"), "{log}");
    for line in text.lines() {
        let key = line.split("\"0x").nth(2).unwrap().split('"').next().unwrap();
        assert!(key.len() >= 40, "{} characters", key.len());
        assert!(!status.contains(key) && !log.contains(key), "a key is told elsewhere");
    }

    let wire = wire.stop().unwrap();
    let requests = |home: &Path| {
        let mut command = Command::new("tshark");
        command.env("XDG_CONFIG_HOME", home).arg("-r").arg(wire.file());
        command.args(["-o", "esp.enable_encryption_decode:TRUE", "-Y", "icmp.type == 8"]);
        command.args(["-T", "fields", "-e", "icmp.seq"]);
        process::run(&mut command, PATIENCE).unwrap().stdout.lines().count()
    };
    assert!(requests(&home) >= 20, "tshark finds the pings inside");
    assert_eq!(requests(&lab.folder().join("nowhere")), 0, "and without the keys it does not");
}
