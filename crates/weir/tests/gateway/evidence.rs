//! What a gateway remembers, judged by tshark and capinfos, and byte by byte.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;
use weir_lab::gateways::{configurations, configure, run_folder};
use weir_lab::traffic::bypass::send_frames;
use weir_port::CaptureReader;

use super::*;

pub(super) const FRAMES: u64 = 500;
pub(super) const RATE_PER_SECOND: u32 = 5000;

/// `weir evidence cut` of gateway A; what it says, and whether it succeeded.
pub(super) fn cut(lab: &Lab, file: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(WEIR);
    command.args(["evidence", "cut", "--json", "--run-dir"]).arg(run_folder(lab, Side::A));
    let output = command.arg("-w").arg(file).args(arguments).output().unwrap();
    let words = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(words).unwrap())
}

/// Frames that capinfos counts in `file`.
#[track_caller]
fn capinfos(file: &Path) -> usize {
    let said = process::run(Command::new("capinfos").args(["-Tmrc"]).arg(file), PATIENCE).unwrap();
    let count = said.stdout.trim().rsplit(',').next().unwrap();
    count.parse().unwrap_or_else(|_| panic!("{}", said.stdout))
}

/// A file system of so many MiB, in memory; gone when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: PathBuf, mib: u32) -> Self {
        std::fs::create_dir_all(&folder).unwrap();
        let disk = Self(folder);
        disk.do_mount(&format!("size={mib}m"));
        disk
    }

    fn grow(&self, mib: u32) {
        self.do_mount(&format!("remount,size={mib}m"));
    }

    fn do_mount(&self, options: &str) {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "weir-test"]).arg(&self.0);
        process::run(&mut command, PATIENCE).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// `weir evidence` with `arguments`; exit code and what it says.
pub(super) fn evidence(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(WEIR).arg("evidence").args(arguments).output().unwrap();
    let words = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(words).unwrap())
}

/// Lines of tshark's `fields` of `file`.
#[track_caller]
pub(super) fn tshark(file: &Path, filter: &str, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-Y", filter, "-T", "fields"]);
    for protocol in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    for field in fields {
        command.args(["-e", field]);
    }
    let said = process::run(&mut command, PATIENCE).unwrap();
    said.stdout.lines().map(str::to_owned).collect()
}

/// How many of `times` are nearer to `moment` than that.
fn within(times: &[String], moment: &str, seconds: f64) -> usize {
    let moment: f64 = moment.parse().unwrap();
    let is_near = |time: &&String| (time.parse::<f64>().unwrap() - moment).abs() < seconds;
    times.iter().filter(is_near).count()
}

#[test]
fn evidence_shows_what_the_host_said_and_heard_with_every_packet_s_fate() {
    let Some(Stand { _turn, lab }) = stand("evidence_shows") else { return };
    let texts = configurations(&lab, &sealed()).unwrap();
    let texts = texts.map(|text| text + "\n[evidence]\nmemory_mib = 8\nsnap = 0\n");
    let mut gateways = Gateways::start_configured(&lab, &sealed(), &texts).unwrap();
    wait_until_it_flows(&lab);
    let target = lab.host_v4(Side::B).to_string();
    assert_eq!(ping_all(lab.host(Side::A), &target, 5, 200).unwrap().answered, 5);
    let mut stream = RoceStream::new(1024).unwrap();
    let sent = blast(&lab, &mut stream, FRAMES, RATE_PER_SECOND).unwrap().sent;
    let plain = RoceStream::new(256).unwrap().next_frame().to_vec();
    send_frames(lab.wire(), WIRE_END_A, std::slice::from_ref(&plain), 1000).unwrap();
    wait_status(&gateways, Side::A, |it| {
        it.pointer("/pairs/0/host/received").is_some_and(|it| it.as_u64() >= Some(sent))
            && it.pointer("/pairs/0/wire/dropped_by_reason/not_sealed").is_some()
    });

    let file = lab.folder().join("all.pcapng");
    let (done, words) = cut(&lab, &file, &[]);
    assert!(done, "{words}");
    let of = |filter: &str| tshark(&file, filter, &["frame.comment", "frame.packet_flags"]).len();
    let said = "icmp.type == 8 && frame.comment == \"sealed\"";
    let heard = "icmp.type == 0 && frame.comment == \"opened\"";
    assert!(of(&format!("{said} && frame.packet_flags_direction == 1")) >= 5, "{words}");
    assert!(of(&format!("{heard} && frame.packet_flags_direction == 2")) >= 5, "{words}");
    assert_eq!(of("esp"), 0, "it keeps what the host's side shows, in clear");
    assert_eq!(of("frame.comment == \"dropped: not_sealed\" && infiniband"), 1);

    // One queue pair; a flow; what was dropped; the last seconds.
    let frames = |arguments: &[&str]| {
        let file = lab.folder().join("part.pcapng");
        let (done, words) = cut(&lab, &file, &[&["--force"], arguments].concat());
        assert!(done, "{words}");
        read_frames(&file)
    };
    let expected: Vec<Vec<u8>> = {
        let mut stream = RoceStream::new(1024).unwrap();
        (0..sent).map(|_| stream.next_frame().to_vec()).collect()
    };
    let pair: Vec<Vec<u8>> = frames(&["--qp", "0x11"]);
    assert_eq!(pair[..expected.len()], expected);
    assert_eq!(&pair[expected.len()..], std::slice::from_ref(&plain));
    assert_eq!(frames(&["--dropped", "udp", "port", "4791"]), std::slice::from_ref(&plain));
    // A gateway's name, as `weir status` takes it.
    assert_eq!(frames(&["gw-a", "udp", "port", "4791", "--dropped"]), [plain]);
    let flow = format!("{}-{target}:4791", lab.host_v4(Side::A));
    assert_eq!(frames(&["--flow", &flow]).len(), pair.len());
    assert!(frames(&["--last", "3600", "icmp"]).len() >= 10);
    // A moment and what was around it: by the times of the packets themselves.
    let times = tshark(&file, "infiniband", &["frame.time_epoch"]);
    let moment = &times[times.len() / 2];
    let around = frames(&["--around", moment, "--window", "0.01", "--qp", "0x11"]).len();
    let wanted = within(&times, moment, 0.0095)..=within(&times, moment, 0.0105);
    assert!(wanted.contains(&around) && around < pair.len(), "{around} of {wanted:?}: {moment}");
    let (done, words) = cut(&lab, &file, &[]);
    assert!(!done && words.contains("--force"), "{words}");
    let (done, words) = cut(&lab, &lab.folder().join("none.pcapng"), &["no", "such", "words"]);
    assert!(!done && words.contains("pcap-filter"), "{words}");
    assert!(!lab.folder().join("none.pcapng").exists());

    // A reload keeps it, and nothing is left where the gateway put its cuts.
    gateways.daemon(Side::A).signal(Signal::HUP).unwrap();
    let status = wait_status(&gateways, Side::A, |it| it["pairs"][0]["policy_epoch"] == 2);
    assert!(number(&status, "/pairs/0/evidence/packets") > sent, "{status:#}");
    assert_eq!(frames(&["--qp", "0x11"]).len(), pair.len());
    let left = std::fs::read_dir(run_folder(&lab, Side::A)).unwrap().flatten();
    let left: Vec<_> = left.map(|it| it.file_name().into_string().unwrap()).collect();
    assert!(left.iter().all(|name| !name.contains("evidence")), "{left:?}");
    gateways.end(Side::A, Signal::TERM).unwrap();
}

#[test]
fn ctrl_c_ends_a_cut_whose_reader_does_not_read() {
    let Some(Stand { _turn, lab }) = stand("ctrl_c_ends_a_cut") else { return };
    let setup = Setup::new(WEIR, Protection::Plain);
    let texts = configurations(&lab, &setup).unwrap();
    let texts = texts.map(|text| text + "\n[evidence]\nmemory_mib = 16\nsnap = 0\n");
    let _gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    wait_until_it_flows(&lab);
    // More than a pipe takes.
    let mut stream = RoceStream::new(4096).unwrap();
    blast(&lab, &mut stream, 1000, RATE_PER_SECOND).unwrap();
    let mut command = Command::new(WEIR);
    command.args(["evidence", "cut", "-w", "-", "--run-dir"]).arg(run_folder(&lab, Side::A));
    let mut cutting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It has begun, and nobody reads the rest.
    cutting.stdout.as_mut().unwrap().read_exact(&mut [0; 24]).unwrap();
    assert!(cutting.try_wait().unwrap().is_none(), "it waits for its reader");
    rustix::process::kill_process(rustix::process::Pid::from_child(&cutting), Signal::INT).unwrap();
    interrupt::until("end of the cut", PATIENCE, || Ok(cutting.try_wait()?.is_some())).unwrap();
    let output = cutting.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && words.contains("interrupted"), "{words}");
    // The gateway has let go of it, and cuts again.
    let file = lab.folder().join("again.pcapng");
    let (done, words) = cut(&lab, &file, &["--qp", "0x11"]);
    assert!(done && read_frames(&file).len() == 1000, "{words}");
}

#[test]
fn evidence_holds_every_frame_that_the_kernel_carries_and_whole_packets_shut_the_fast_path() {
    let Some(Stand { _turn, lab }) = stand("evidence_holds_every_frame") else { return };
    const CARRIED: u64 = 20_000;
    let setup = Setup {
        pair_lines: "fastpath = \"tc\"\n".to_owned(),
        ..Setup::new(WEIR, Protection::Plain)
    };
    let texts = configurations(&lab, &setup).unwrap();
    let heads = texts.map(|text| text + "\n[evidence]\nmemory_mib = 16\n");
    let mut gateways = Gateways::start_configured(&lab, &setup, &heads).unwrap();
    wait_until_it_flows(&lab);
    let mut stream = RoceStream::new(1024).unwrap();
    let sent = blast(&lab, &mut stream, CARRIED, RATE_PER_SECOND).unwrap().sent;
    let status = wait_status(&gateways, Side::A, |it| number(it, "/pairs/0/rdma/packets") == sent);
    let fast = number(&status, "/pairs/0/host/fast");
    assert!(fast > sent / 2, "the kernel carried {fast} of {sent}: {status:#}");
    assert_eq!(number(&status, "/pairs/0/fast_path/heads_lost"), 0, "{status:#}");
    let file = lab.folder().join("carried.pcapng");
    let (done, words) = cut(&lab, &file, &["--qp", "0x11"]);
    assert!(done, "{words}");
    let mut stream = RoceStream::new(1024).unwrap();
    let expected = (0..sent).map(|_| stream.next_frame()[..384].to_vec());
    assert!(read_frames(&file).into_iter().eq(expected), "each once, in order: {words}");
    assert_eq!(tshark(&file, "frame.comment == \"forwarded\"", &["frame.len"]).len() as u64, sent);

    let whole = heads.map(|text| text + "snap = 0\n");
    reload(&lab, &mut gateways, &whole, "icrc = \"check\"", 2);
    let status = gateways.status(Side::A).unwrap();
    let state = status["pairs"][0]["fast_path"]["state"].as_str().unwrap();
    assert!(state.contains("whole packets"), "{state}");
}

#[test]
fn evidence_on_disk_outlives_the_gateway_and_a_full_disk() {
    let Some(Stand { _turn, lab }) = stand("evidence_on_disk") else { return };
    let disk = SmallDisk::mount(lab.folder().join("disk"), 4);
    let folder = disk.0.join("evidence");
    let texts = configurations(&lab, &sealed()).unwrap();
    let with = |size: u32| {
        let disk = folder.display();
        let table = format!("\n[evidence]\nmemory_mib = 8\ndisk = \"{disk}\"\ndisk_mib = {size}\n");
        [texts[0].clone() + &table, texts[1].clone()]
    };
    let mut gateways = Gateways::start_configured(&lab, &sealed(), &with(12)).unwrap();
    wait_until_it_flows(&lab);
    let status = wait_status(&gateways, Side::A, |it| {
        it.pointer("/pairs/0/evidence/disk/failure").is_some_and(Value::is_string)
    });
    assert!(status.to_string().contains("no room"), "{status:#}");
    assert_eq!(gateways.log(Side::A).matches("evidence is not kept on disk").count(), 1);
    // Room is made, and it goes on by itself.
    disk.grow(64);
    let lost = interrupt::until("evidence on disk", PATIENCE, || {
        send_stream(&lab, &gateways);
        let status = gateways.status(Side::A)?;
        Ok(status["pairs"][0]["evidence"]["disk"]["failure"].is_null())
    });
    lost.unwrap();
    assert!(gateways.log(Side::A).contains("evidence is kept on disk again"));

    // What was seen before the gateway was killed is there after it started again.
    let file = lab.folder().join("cut.pcapng");
    let sent = send_stream(&lab, &gateways).len();
    let path = folder.to_str().unwrap();
    let count = |arguments: &[&str]| {
        let write = ["cut", "--force", "-w", file.to_str().unwrap()];
        let (code, words) = evidence(&[&write, arguments].concat());
        assert_eq!(code, Some(0), "{words}");
        capinfos(&file)
    };
    interrupt::until("the last second on disk", PATIENCE, || {
        Ok(count(&["--folder", path, "--qp", "0x11"]) >= sent)
    })
    .unwrap();
    gateways.end(Side::A, Signal::KILL).unwrap();
    let before = count(&["--folder", path, "--qp", "0x11"]);
    let (code, words) = evidence(&["list", "--folder", path]);
    assert!(code == Some(0) && words.contains("packets in"), "{words}");
    gateways.start_again(&lab, &sealed(), Side::A).unwrap();
    wait_until_it_flows(&lab);
    let sent = send_stream(&lab, &gateways).len();
    let run_dir = run_folder(&lab, Side::A);
    let running = ["--run-dir", run_dir.to_str().unwrap(), "--qp", "0x11"];
    assert_eq!(count(&running), before + sent, "memory and disk, each packet once");
    let comments = tshark(&file, "infiniband", &["frame.comment"]);
    assert!(comments.iter().all(|it| it == "sealed"), "{comments:?}");

    // Another size by a reload: what there was stays.
    configure(&lab, Side::A, &with(20)[0]).unwrap();
    gateways.daemon(Side::A).signal(Signal::HUP).unwrap();
    wait_status(&gateways, Side::A, |it| {
        it["pairs"][0]["evidence"]["disk"]["capacity_bytes"].as_u64() > Some(12 << 20)
    });
    assert_eq!(count(&running), before + sent);
    gateways.end(Side::A, Signal::TERM).unwrap();
    assert_eq!(count(&["--folder", path, "--qp", "0x11"]), before + sent);
    let (code, words) = evidence(&["list", "--run-dir", run_dir.to_str().unwrap()]);
    assert!(code == Some(1) && words.contains("no gateway runs here"), "{words}");
}

pub(super) fn read_frames(file: &Path) -> Vec<Vec<u8>> {
    let mut reader = CaptureReader::open(file).unwrap();
    let mut frames = Vec::new();
    while reader
        .next_batch(&mut |batch| frames.extend(batch.iter().map(|it| it.bytes().to_vec())))
        .unwrap()
        > 0
    {}
    frames
}

/// A stream from host A; what it sent.
pub(super) fn send_stream(lab: &Lab, gateways: &Gateways) -> Vec<Vec<u8>> {
    let before = number(&gateways.status(Side::A).unwrap(), "/pairs/0/host/received");
    let sent = blast(lab, &mut RoceStream::new(1024).unwrap(), FRAMES, RATE_PER_SECOND).unwrap();
    wait_status(gateways, Side::A, |it| number(it, "/pairs/0/host/received") >= before + sent.sent);
    let mut stream = RoceStream::new(1024).unwrap();
    (0..sent.sent).map(|_| stream.next_frame().to_vec()).collect()
}
