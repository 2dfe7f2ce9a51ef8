//! `weir capture` as its user meets it: the real binary on a veth pair between two network
//! namespaces, judged by tshark, capinfos and zstd. Needs root; says so and passes where there is
//! none.

#![expect(clippy::disallowed_methods, reason = "tests measure and wait from outside")]

mod cable;
mod meter;

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use self::cable::*;

const WEIR: &str = env!("CARGO_BIN_EXE_weir");
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn every_frame_is_written_as_it_was_sent() {
    let Some(cable) = Cable::new() else { return };
    let frames = roce_frames();
    let (report, written) = cable.pass(&frames, &[]);
    assert_eq!(written, frames);
    assert_eq!(count(&report, "written"), frames.len() as u64, "{report}");
    assert_eq!(capinfos(&cable.path("out.pcapng")), frames.len() as u64);
    let describe = cable.sh(cable.receiver.id(), "capinfos out.pcapng");
    assert!(describe.contains("Name = rx0") && describe.contains("nanoseconds"), "{describe}");
    let mode = fs::metadata(cable.path("out.pcapng")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn rdma_terms_take_what_tshark_takes() {
    let Some(cable) = Cable::new() else { return };
    let frames = troubled_frames();
    write_frames(&cable.path("judged.pcap"), &frames);
    let qps = "infiniband.bth.destqp == 1 || infiniband.deth.srcqp == 1";
    let naks = "infiniband.aeth.syndrome.opcode == 3 || infiniband.aeth.syndrome.opcode == 1";
    let key = 0xfffe;
    let keys = format!("infiniband.bth.p_key == {key}");
    for (arguments, filter) in [
        (&["--qp", "1"][..], qps.to_owned()),
        (&["--opcode", "rc_acknowledge"], "infiniband.bth.opcode == 0x11".to_owned()),
        (
            &["--opcode", "0x11", "--opcode", "UD SEND Only"],
            "infiniband.bth.opcode == 0x11 || infiniband.bth.opcode == 0x64".to_owned(),
        ),
        (&["--pkey", &format!("{key:#x}")], keys.clone()),
        (&["--nak"], naks.to_owned()),
        (&["--cnp"], "infiniband.bth.opcode == 0x81".to_owned()),
        (&["--nak", "--cnp"], format!("{naks} || infiniband.bth.opcode == 0x81")),
        (&["--qp", "1", "--pkey", "0xffff"], format!("({qps}) && infiniband.bth.p_key == 0xffff")),
        (&["--opcode", "0x64", "ip6"], "infiniband.bth.opcode == 0x64 && ipv6".to_owned()),
    ] {
        let expected = tshark_takes(&cable.path("judged.pcap"), &filter);
        assert!(!expected.is_empty() && expected.len() < frames.len(), "{filter} shows nothing");
        let (report, written) = cable.pass(&frames, arguments);
        assert_eq!(written.len(), expected.len(), "{arguments:?}: {report}");
        assert_eq!(written, expected, "{arguments:?}");
    }
}

#[test]
fn wrong_icrcs_are_found_and_only_these() {
    let Some(cable) = Cable::new() else { return };
    let mut frames = roce_frames();
    let mut flipped = Vec::new();
    for frame in frames.iter_mut().filter(|frame| frame[36..38] == 4791u16.to_be_bytes()).step_by(9)
    {
        let at = frame.len() - 5;
        frame[at] ^= 4;
        flipped.push(frame.clone());
    }
    // The snap length must not hide the end of a packet from the check.
    let (report, written) = cable.pass(&frames, &["--bad-icrc", "--snap", "60"]);
    let cut: Vec<Vec<u8>> = flipped.iter().map(|it| it[..it.len().min(60)].to_vec()).collect();
    assert!(flipped.len() > 10);
    assert_eq!(written, cut, "{report}");
}

/// `frame` with a tag behind its addresses.
fn tagged(frame: &[u8], protocol: u16, control: u16) -> Vec<u8> {
    let tag = [protocol.to_be_bytes(), control.to_be_bytes()].concat();
    [&frame[..12], &tag, &frame[12..]].concat()
}

#[test]
fn vlan_tags_are_kept_and_filters_see_them() {
    let Some(cable) = Cable::new() else { return };
    let plain: Vec<Vec<u8>> = roce_frames().into_iter().step_by(3).collect();
    let mut frames = plain.clone();
    frames.extend(plain.iter().map(|it| tagged(it, 0x8100, 0x6005)));
    frames.extend(plain.iter().map(|it| tagged(it, 0x8100, 6)));
    frames.extend(plain.iter().map(|it| tagged(&tagged(it, 0x8100, 6), 0x88a8, 5)));
    write_frames(&cable.path("judged.pcap"), &frames);
    for (arguments, filter) in [
        (&[][..], "frame"),
        (&["vlan 5"], "vlan.id == 5 || ieee8021ad.id == 5"),
        (&["vlan 5 and udp dst port 4791"], "vlan.id == 5 && udp.dstport == 4791"),
        (&["--opcode", "0x11"], "infiniband.bth.opcode == 0x11"),
        (
            &["--opcode", "0x11", "vlan 6"],
            "infiniband.bth.opcode == 0x11 && vlan.id == 6 && !ieee8021ad",
        ),
    ] {
        let expected = tshark_takes(&cable.path("judged.pcap"), filter);
        assert!(!expected.is_empty(), "{filter} shows nothing");
        let (report, written) = cable.pass(&frames, arguments);
        assert_eq!(written.len(), expected.len(), "{arguments:?}: {report}");
        assert_eq!(written, expected, "{arguments:?}");
    }
}

#[test]
fn super_packets_are_stored_whole_and_cut_by_the_snap_length() {
    let Some(cable) = Cable::new() else { return };
    let listen = "import socket as s\nl=s.create_server(('10.78.0.2',7))\nprint(flush=True)\n\
                  c=l.accept()[0]\nwhile c.recv(1<<20): pass";
    let send = "import socket as s\ns.create_connection(('10.78.0.2',7)).sendall(bytes(4<<20))";
    for snap in [None, Some("100")] {
        let mut arguments = vec!["-w", "super.pcapng", "--force"];
        arguments.extend(snap.iter().flat_map(|snap| ["--snap", snap]));
        let capture = cable.capture(&arguments);
        let mut python = cable.inside(cable.receiver.id(), "python3");
        let mut server = python.args(["-c", listen]).stdout(Stdio::piped()).spawn().unwrap();
        server.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        cable.sh(cable.sender.id(), &format!("python3 -c \"{}\"", send.replace('\n', ";")));
        assert!(server.wait().unwrap().success());
        let report = capture.end("-INT");
        let path = cable.path("super.pcapng");
        assert_eq!(capinfos(&path), count(&report, "written"));
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(&path).args([
            "-Y",
            "ip.src == 10.78.0.1 && tcp",
            "-T",
            "fields",
            "-e",
            "frame.len",
            "-e",
            "frame.cap_len",
            "-e",
            "ip.hdr_len",
            "-e",
            "tcp.hdr_len",
            "-e",
            "tcp.seq",
        ]);
        let lens = String::from_utf8(tshark.output().unwrap().stdout).unwrap();
        let lens: Vec<Vec<u64>> = lens
            .lines()
            .map(|line| line.split('\t').map(|it| it.parse().unwrap()).collect())
            .collect();
        // The stream's bytes, each counted once: TCP may have sent some twice.
        let mut spans: Vec<_> =
            lens.iter().map(|it| (it[4], it[4] + it[0] - 14 - it[2] - it[3])).collect();
        spans.sort_unstable();
        let covered = spans.iter().fold((1, 0), |(end, sum), &(from, to)| {
            (end.max(to), sum + to.saturating_sub(end.max(from)))
        });
        assert_eq!(covered.1, 4 << 20, "{report}");
        assert!(lens.iter().any(|it| it[0] > 20_000), "no super-packet: {lens:?}");
        match snap {
            None => assert!(lens.iter().all(|it| it[0] == it[1])),
            Some(_) => assert!(lens.iter().all(|it| it[1] == it[0].min(100))),
        }
    }
}

#[test]
fn what_was_sent_is_what_was_received_and_what_was_lost() {
    let Some(cable) = Cable::new() else { return };
    let frames: Vec<Vec<u8>> = roce_frames().into_iter().cycle().take(5000).collect();
    write_frames(&cable.path("sent.pcap"), &frames);
    let capture = cable.capture(&["-w", "out.pcapng", "--ring-size", "1M"]);
    // A reader that does not come to read: the ring must overflow.
    capture.signal("-STOP");
    cable.send("sent.pcap", "--topspeed");
    capture.signal("-CONT");
    let report = capture.end("-TERM");
    let [received, kernel, device] =
        ["received", "lost_by_kernel", "lost_by_device"].map(|name| count(&report, name));
    assert_eq!(received + kernel + device, 5000, "{report}");
    assert!(kernel > 0, "{report}");
    let path = cable.path("out.pcapng");
    assert_eq!(capinfos(&path), received);
    assert_eq!(read_frames(&path)[..20], frames[..20]);
    let describe = cable.sh(cable.receiver.id(), "tshark -r out.pcapng -q -z io,stat,0; true");
    assert!(describe.contains(&received.to_string()), "{report} {describe}");
}

#[test]
fn a_full_disk_costs_counted_packets_and_leaves_a_valid_file() {
    let Some(cable) = Cable::new() else { return };
    let frames: Vec<Vec<u8>> = roce_frames().into_iter().cycle().take(8000).collect();
    write_frames(&cable.path("sent.pcap"), &frames);
    let disk = "mkdir disk && mount -t tmpfs -o size=3m tmpfs disk";
    cable.sh(cable.receiver.id(), disk);
    let mut capture = cable.capture(&["-w", "disk/out.pcapng"]);
    cable.send("sent.pcap", "--pps 20000");
    let deadline = Instant::now() + PATIENCE;
    while capture.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "goes on with a full disk");
        std::thread::sleep(Duration::from_millis(20));
    }
    let errors = capture.errors();
    let output = capture.wait();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("disk/out.pcapng: No space left") && errors.contains("--files"));
    let report = report_of(&output);
    assert!(count(&report, "lost_by_weir") > 0, "{report}");
    cable.sh(cable.receiver.id(), "cp disk/out.pcapng copy.pcapng");
    let copy = cable.path("copy.pcapng");
    assert_eq!(capinfos(&copy), count(&report, "written"), "{report}");
    let written = read_frames(&copy);
    assert!(written.len() > 1000);
    assert_eq!(written, frames[..written.len()]);
}

#[test]
fn files_rotate_by_size_lose_nothing_between_them_and_keep_the_last() {
    let Some(cable) = Cable::new() else { return };
    let frames: Vec<Vec<u8>> = roce_frames().into_iter().cycle().take(3000).collect();
    write_frames(&cable.path("sent.pcap"), &frames);
    for (zstd, keep) in [(false, None), (true, None), (false, Some(2))] {
        let name = if zstd { "r-%n.pcapng.zst" } else { "r-%n.pcapng" };
        // The size is that of the file: of what is left of the packets when they are compressed.
        let size = if zstd { "20K" } else { "500K" };
        let mut arguments = vec!["-w", name, "--rotate-size", size, "--force"];
        arguments.extend(zstd.then_some("--zstd"));
        arguments.extend(keep.iter().flat_map(|_| ["--files", "2"]));
        let capture = cable.capture(&arguments);
        cable.send("sent.pcap", "--pps 20000");
        let report = capture.end("-INT");
        let files: Vec<PathBuf> = report["files"]
            .as_array()
            .unwrap()
            .iter()
            .map(|file| cable.path(file.as_str().unwrap()))
            .collect();
        let mut written = Vec::new();
        for file in &files {
            let counted = capinfos(file);
            if zstd {
                let test = Command::new("zstd").args(["-q", "-d", "-f"]).arg(file).status();
                assert!(test.unwrap().success(), "{}", file.display());
            }
            let part = read_frames(&if zstd { file.with_extension("") } else { file.clone() });
            assert_eq!(counted, part.len() as u64);
            written.extend(part);
        }
        match keep {
            None => assert!(files.len() > 2 && written == frames, "{report}"),
            Some(keep) => {
                assert_eq!(files.len(), keep, "{report}");
                assert_eq!(written, frames[frames.len() - written.len()..]);
                assert!(files.iter().all(|file| file.exists()));
            }
        }
        for entry in fs::read_dir(cable.folder.path()).unwrap().flatten() {
            let is_ours = entry.file_name().to_string_lossy().starts_with("r-");
            if is_ours && keep.is_some() {
                assert!(files.contains(&entry.path()), "{:?} was to be removed", entry.path());
            }
            if is_ours {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }
}

#[test]
fn files_rotate_by_time() {
    let Some(cable) = Cable::new() else { return };
    let frames = roce_frames();
    write_frames(&cable.path("sent.pcap"), &frames);
    let capture = cable.capture(&["-w", "t.pcapng", "--rotate-seconds", "0.2"]);
    for _ in 0..2 {
        cable.send("sent.pcap", "--pps 20000");
        std::thread::sleep(Duration::from_millis(400));
    }
    let report = capture.end("-INT");
    let files = report["files"].as_array().unwrap();
    assert!(files.len() >= 2, "{report}");
    let sum: u64 = files.iter().map(|file| capinfos(&cable.path(file.as_str().unwrap()))).sum();
    assert_eq!(sum, 2 * frames.len() as u64);
}

#[test]
fn an_older_capture_is_replaced_only_by_force() {
    let Some(cable) = Cable::new() else { return };
    fs::write(cable.path("old.pcapng"), "evidence").unwrap();
    let mut again = cable.inside(cable.receiver.id(), WEIR);
    again.args(["capture", "-i", "rx0", "-w", "old.pcapng", "--seconds", "0.1"]);
    let output = again.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--force"));
    assert_eq!(fs::read(cable.path("old.pcapng")).unwrap(), b"evidence");
    let output = again.arg("--force").output().unwrap();
    assert!(output.status.success());
    assert_eq!(capinfos(&cable.path("old.pcapng")), 0);
}

#[test]
fn a_count_ends_the_capture_and_standard_output_carries_it() {
    let Some(cable) = Cable::new() else { return };
    let frames = roce_frames();
    write_frames(&cable.path("sent.pcap"), &frames);
    let capture = cable.capture(&["-w", "-", "--count", "7"]);
    cable.send("sent.pcap", "--pps 20000");
    let errors = capture.errors.clone();
    let output = capture.wait();
    assert!(output.status.success());
    fs::write(cable.path("piped.pcapng"), &output.stdout).unwrap();
    assert_eq!(capinfos(&cable.path("piped.pcapng")), 7);
    assert_eq!(read_frames(&cable.path("piped.pcapng")), frames[..7]);
    let errors = fs::read_to_string(errors).unwrap();
    let report: Value = serde_json::from_str(errors.lines().last().unwrap()).unwrap();
    assert_eq!(count(&report, "written"), 7);
}

#[test]
fn options_may_follow_the_expression() {
    let Some(cable) = Cable::new() else { return };
    let frames = roce_frames();
    write_frames(&cable.path("sent.pcap"), &frames);
    let capture = cable.capture(&["udp port 4791", "-c", "4", "-w", "out.pcapng"]);
    cable.send("sent.pcap", "--pps 20000");
    assert!(capture.wait().status.success());
    let taken = read_frames(&cable.path("out.pcapng"));
    assert_eq!(taken.len(), 4);
    assert!(taken.iter().all(|it| it[36..38] == 4791_u16.to_be_bytes()), "both hold");
}

#[test]
fn ctrl_c_under_traffic_leaves_a_valid_file() {
    let Some(cable) = Cable::new() else { return };
    write_frames(&cable.path("sent.pcap"), &roce_frames());
    let capture = cable.capture(&["-w", "out.pcapng"]);
    let mut replay = cable.inside(cable.sender.id(), "tcpreplay");
    replay.args(["-q", "-i", "tx0", "--loop", "0", "--pps", "50000"]).arg(cable.path("sent.pcap"));
    let mut replay = replay.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    cable.wait_for_frames(1000);
    let report = capture.end("-INT");
    replay.kill().unwrap();
    replay.wait().unwrap();
    assert!(count(&report, "written") > 0, "{report}");
    assert_eq!(capinfos(&cable.path("out.pcapng")), count(&report, "written"));
}

#[test]
fn an_interface_that_goes_away_ends_the_capture_with_what_was_there() {
    let Some(cable) = Cable::new() else { return };
    write_frames(&cable.path("sent.pcap"), &roce_frames());
    let capture = cable.capture(&["-w", "out.pcapng"]);
    cable.send("sent.pcap", "--pps 20000");
    cable.sh(cable.sender.id(), "ip link del tx0");
    let errors = capture.errors.clone();
    let output = capture.wait();
    assert_eq!(output.status.code(), Some(1));
    assert!(fs::read_to_string(errors).unwrap().contains("interface is gone"));
    assert_eq!(read_frames(&cable.path("out.pcapng")), roce_frames());
}

#[test]
fn a_capture_by_af_xdp_is_what_was_sent_cut_and_filtered_as_asked() {
    let Some(cable) = Cable::new() else { return };
    let frames = roce_frames();
    let (report, captured) = cable.pass(&frames, &["--driver", "xdp"]);
    assert_eq!(count(&report, "received"), frames.len() as u64, "{report}");
    assert_eq!(captured, frames);
    let filtered = ["--driver", "xdp", "--snap", "60", "udp port 4791"];
    let (_, cut) = cable.pass(&frames, &filtered);
    let expected = tshark_takes(&cable.path("sent.pcap"), "udp.port == 4791");
    assert!(!expected.is_empty());
    let cut_off = |frame: &Vec<u8>| frame[..frame.len().min(60)].to_vec();
    assert_eq!(cut, expected.iter().map(cut_off).collect::<Vec<_>>());
}

#[test]
fn a_file_that_cannot_be_rotated_ends_the_capture_with_what_was_there() {
    let Some(cable) = Cable::new() else { return };
    let frames: Vec<Vec<u8>> = roce_frames().into_iter().cycle().take(3000).collect();
    write_frames(&cable.path("sent.pcap"), &frames);
    fs::write(cable.path("r-00002.pcapng"), "evidence").unwrap();
    let capture = cable.capture(&["-w", "r-%n.pcapng", "--rotate-size", "500K"]);
    cable.send("sent.pcap", "--pps 20000");
    let errors = capture.errors.clone();
    let output = capture.wait();
    assert_eq!(output.status.code(), Some(1));
    assert!(fs::read_to_string(errors).unwrap().contains("r-00002.pcapng: there is such a file"));
    let report = report_of(&output);
    assert!(count(&report, "lost_by_weir") > 0, "{report}");
    let first = cable.path("r-00001.pcapng");
    assert_eq!(capinfos(&first), count(&report, "written"));
    assert_eq!(read_frames(&first), frames[..count(&report, "written") as usize]);
    assert_eq!(fs::read(cable.path("r-00002.pcapng")).unwrap(), b"evidence");
}
