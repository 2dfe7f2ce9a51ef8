//! Rules about conversations, judged by what Suricata 8.0.7 says of them inline.
//!
//! `testdata/language` has conversations, rules about each, and the alerts of Suricata, a line
//! each; a folder of the same name has files that the rules name, and in `kept` sets that they
//! change. Where Suricata is installed it is asked again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::applications::{frames, suricata_root, write_capture};

/// Bytes of a datagram, beyond which it comes in two fragments.
const PIECE_LEN: usize = 200;
const IP: usize = 14;
const BEHIND_IP: usize = 34;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/language")
}

/// The alerts among the events: rule, direction, what became of the packet, what was captured, the
/// entropy of buffers.
fn alerts(eve: &str) -> Vec<String> {
    let events = eve.lines().map(|it| serde_json::from_str::<Value>(it).expect("EVE"));
    let alerts = events.filter(|it| it["event_type"] == "alert").map(|event| {
        let (alert, metadata) = (&event["alert"], &event["metadata"]);
        let of_metadata = ["flowbits", "flowints", "flowvars", "pktvars"];
        let mut told = json!({
            "sid": alert["signature_id"],
            "action": alert["action"],
            "context": alert["context"],
            "target": alert["target"],
            "source": alert["source"],
            "from": event["src_port"],
            "verdict": event["verdict"],
            "metadata": of_metadata.map(|it| metadata[it].clone()),
        });
        if let Some(entropy) = metadata.get("entropy") {
            told["entropy"] = entropy.clone();
        }
        told
    });
    let mut lines: Vec<String> = alerts.map(|it| it.to_string()).collect();
    lines.sort();
    lines
}

/// Datagrams that are long become two fragments each.
fn in_pieces(frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let cut = |frame: Vec<u8>| {
        if frame[IP + 9] != 17 || frame.len() <= PIECE_LEN {
            return vec![frame];
        }
        let (head, rest) = frame.split_at(BEHIND_IP);
        let piece = |bytes: &[u8], fragment: u16| {
            let mut piece = [head, bytes].concat();
            let length = (piece.len() - IP) as u16;
            piece[IP + 2..IP + 4].copy_from_slice(&length.to_be_bytes());
            piece[IP + 6..IP + 8].copy_from_slice(&fragment.to_be_bytes());
            piece
        };
        let at = rest.len() / 16 * 8;
        vec![piece(&rest[..at], 0x2000), piece(&rest[at..], (at / 8) as u16)]
    };
    frames.into_iter().flat_map(cut).collect()
}

/// Copies the rules, and the files that they name, to a new folder; sets that they change to
/// `kept` in it.
fn lay_out(rules: &Path, folder: &Path) {
    fs::create_dir_all(folder.join("kept")).unwrap();
    fs::copy(rules, folder.join("test.rules")).unwrap();
    for (from, to) in [("", ""), ("kept", "kept")] {
        let Ok(files) = fs::read_dir(rules.with_extension("").join(from)) else { continue };
        for path in files.map(|it| it.unwrap().path()).filter(|it| it.is_file()) {
            fs::copy(&path, folder.join(to).join(path.file_name().unwrap())).unwrap();
        }
    }
}

/// What was said there: alerts, and then the values of sets that are kept.
fn said(folder: &Path) -> Option<Vec<String>> {
    let mut said = alerts(&fs::read_to_string(folder.join("eve.json")).ok()?);
    let mut kept = Vec::new();
    for file in fs::read_dir(folder.join("kept")).unwrap().map(|it| it.unwrap()) {
        let name = file.file_name().into_string().unwrap();
        let text = fs::read_to_string(file.path()).unwrap();
        kept.extend(text.lines().map(|it| format!("{name}: {it}")));
    }
    kept.sort();
    said.extend(kept);
    Some(said)
}

fn ours(capture: &Path, rules: &Path, scratch: &Path) -> Vec<String> {
    let folder = scratch.join(rules.file_stem().unwrap());
    lay_out(rules, &folder);
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.args(["read", "--no-checksums", "--rules"]).arg(folder.join("test.rules")).arg("--eve");
    weir.arg(folder.join("eve.json")).arg("--datasets").arg(folder.join("kept")).arg(capture);
    let countries = folder.join("countries.mmdb");
    if countries.exists() {
        weir.arg("--geoip").arg(countries);
    }
    let output = weir.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    said(&folder).unwrap()
}

/// What the Suricata that is installed says; none, loudly, where there is none.
fn theirs(capture: &Path, rules: &Path) -> Option<Vec<String>> {
    let root = suricata_root()?;
    let name = format!("language-{}", std::process::id());
    let inside = root.join(&name);
    lay_out(rules, &inside);
    fs::copy(capture, inside.join("in.pcap")).unwrap();
    fs::copy(folder().join("suricata.yaml"), inside.join("suricata.yaml")).unwrap();
    let line = format!(
        "cd /{name} && exec suricata -c suricata.yaml -S test.rules -l . -k none \
         --simulate-ips --runmode single --data-dir kept -r in.pcap"
    );
    let output = Command::new("chroot").arg(&root).args(["sh", "-c", &line]).output().unwrap();
    let theirs = said(&inside);
    fs::remove_dir_all(&inside).unwrap();
    let log = [output.stdout, output.stderr].concat();
    let log = String::from_utf8_lossy(&log);
    assert!(theirs.is_some() && !log.contains("error parsing signature"), "{log}");
    theirs
}

#[test]
fn words_of_the_language_mean_what_they_mean_to_suricata() {
    let scratch = tempfile::tempdir().unwrap();
    let mut names: Vec<PathBuf> =
        fs::read_dir(folder()).unwrap().map(|it| it.unwrap().path()).collect();
    names.retain(|it| it.extension().is_some_and(|it| it == "txt"));
    names.sort();
    assert!(names.len() >= 4, "{names:?}");
    let mut wrong = Vec::new();
    for path in names {
        let capture = scratch.path().join("in.pcap");
        write_capture(&capture, &in_pieces(frames(&fs::read_to_string(&path).unwrap())));
        let rules = path.with_extension("rules");
        let expected = fs::read_to_string(path.with_extension("eve")).unwrap_or_default();
        let expected: Vec<String> = expected.lines().map(str::to_owned).collect();
        let ours = ours(&capture, &rules, scratch.path());
        let mut differs = |who: &str, said: &[String]| {
            if said != expected {
                wrong.push(format!("{who}, {}:\n{}", path.display(), said.join("\n")));
            }
        };
        differs("weir", &ours);
        theirs(&capture, &rules).iter().for_each(|it| differs("Suricata", it));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
