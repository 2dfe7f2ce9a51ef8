//! Two hosts on one cable, a capture at one of them, and what others say of its files.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_port::capture::PacketNote;
use weir_port::{CaptureFormat, CaptureReader, CaptureWriter};
use weir_wire::frame::{Link, Meta, Time};

use super::{PATIENCE, WEIR};

/// Two hosts on one cable: `tx0` (10.78.0.1) and `rx0` (10.78.0.2), where the capture runs.
pub(super) struct Cable {
    pub(super) sender: Child,
    pub(super) receiver: Child,
    pub(super) folder: tempfile::TempDir,
}

impl Drop for Cable {
    fn drop(&mut self) {
        for host in [&mut self.sender, &mut self.receiver] {
            let _ = host.kill();
            let _ = host.wait();
        }
    }
}

impl Cable {
    /// `None`, and a word about it, where it cannot be made.
    pub(super) fn new() -> Option<Self> {
        let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        let tools = ["ip", "tshark", "capinfos", "tcpreplay", "ethtool", "zstd", "python3"];
        let missing: Vec<&str> = tools
            .into_iter()
            .filter(|tool| Command::new(tool).arg("-h").output().is_err())
            .collect();
        if !root || !missing.is_empty() {
            eprintln!("SKIPPED: needs root (is: {root}) and {missing:?}");
            return None;
        }
        let host = || {
            let mut command = Command::new("unshare");
            command.args(["-n", "-m", "sh", "-c", "echo; exec sleep 300"]);
            let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
            // The line says that it is inside.
            child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
            child
        };
        let folder = tempfile::tempdir().unwrap();
        let cable = Self { sender: host(), receiver: host(), folder };
        let (tx, rx) = (cable.sender.id(), cable.receiver.id());
        let quiet = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 \
                     net.ipv6.conf.default.disable_ipv6=1";
        cable.sh(rx, quiet);
        let make = format!("ip link add tx0 mtu 9000 type veth peer rx0 mtu 9000 netns {rx}");
        cable.sh(tx, &format!("{quiet} && {make}"));
        cable.sh(tx, "ip addr add 10.78.0.1/24 dev tx0 && ip link set tx0 up");
        cable.sh(rx, "ip link set rx0 address 02:00:00:00:00:02");
        cable.sh(rx, "ip addr add 10.78.0.2/24 dev rx0 && ip link set rx0 up");
        cable.sh(tx, "ip neigh replace 10.78.0.2 lladdr 02:00:00:00:00:02 dev tx0");
        Some(cable)
    }

    /// `program` in the namespaces of process `host`, in this cable's folder (as it is mounted
    /// there).
    pub(super) fn inside(&self, host: u32, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{host}/ns/net"));
        command.arg(format!("--mount=/proc/{host}/ns/mnt"));
        command.args(["--", "sh", "-c", "cd \"$0\" && exec \"$@\""]);
        command.arg(self.folder.path()).arg(program);
        command
    }

    /// Runs a shell line in the namespaces of process `host`.
    #[track_caller]
    pub(super) fn sh(&self, host: u32, line: &str) -> String {
        let mut command = self.inside(host, "sh");
        let output = command.args(["-c", line]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a capture at `rx0` and returns when it takes packets.
    pub(super) fn capture(&self, arguments: &[&str]) -> Capture {
        let errors = self.path("capture.err");
        let mut command = self.inside(self.receiver.id(), WEIR);
        command.args(["capture", "-i", "rx0", "--json"]).args(arguments);
        command.stdout(Stdio::piped()).stderr(File::create(&errors).unwrap());
        let mut capture = Capture { child: command.spawn().unwrap(), errors };
        let deadline = Instant::now() + PATIENCE;
        while !capture.errors().contains("capturing") {
            assert!(capture.child.try_wait().unwrap().is_none(), "{}", capture.errors());
            assert!(Instant::now() < deadline, "not in time: {}", capture.errors());
            std::thread::sleep(Duration::from_millis(10));
        }
        capture
    }

    /// Sends the frames of capture file `name` from `tx0`, past the sender's own queueing.
    pub(super) fn send(&self, name: &str, rate: &str) {
        self.sh(self.sender.id(), &format!("tcpreplay -q -i tx0 {rate} {name}"));
    }

    /// Waits until `rx0` got so many frames.
    pub(super) fn wait_for_frames(&self, count: u64) {
        let begun = Instant::now();
        let received = || -> u64 {
            let said = self.sh(self.receiver.id(), "ip -j -s link show rx0");
            let links: Value = serde_json::from_str(&said).unwrap();
            links.pointer("/0/stats64/rx/packets").and_then(Value::as_u64).unwrap()
        };
        while received() < count {
            assert!(begun.elapsed() < PATIENCE, "no {count} frames");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Captures `frames`, sent at a gentle rate, with `arguments`; the report and what was written.
    pub(super) fn pass(&self, frames: &[Vec<u8>], arguments: &[&str]) -> (Value, Vec<Vec<u8>>) {
        write_frames(&self.path("sent.pcap"), frames);
        let mut all = vec!["-w", "out.pcapng", "--force"];
        all.extend(arguments);
        let capture = self.capture(&all);
        self.send("sent.pcap", "--pps 20000");
        let report = capture.end("-INT");
        (report, read_frames(&self.path("out.pcapng")))
    }
}

pub(super) struct Capture {
    pub(super) child: Child,
    pub(super) errors: PathBuf,
}

impl Capture {
    pub(super) fn errors(&self) -> String {
        fs::read_to_string(&self.errors).unwrap()
    }

    pub(super) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Ends it by a signal, after what was sent has had the time to arrive; its report.
    pub(super) fn end(self, signal: &str) -> Value {
        std::thread::sleep(Duration::from_millis(200));
        self.signal(signal);
        let output = self.wait();
        assert!(output.status.success());
        report_of(&output)
    }

    pub(super) fn wait(self) -> Output {
        self.child.wait_with_output().unwrap()
    }
}

/// A report whose counts add up.
#[track_caller]
pub(super) fn report_of(output: &Output) -> Value {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sum = count(&report, "written")
        + count(&report, "filtered_out")
        + count(&report, "after_end")
        + count(&report, "lost_by_weir");
    assert_eq!(count(&report, "received"), sum, "{report}");
    report
}

#[track_caller]
pub(super) fn count(report: &Value, name: &str) -> u64 {
    report["packets"][name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"))
}

pub(super) fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/roce")
}

/// All frames of our own RoCE captures.
pub(super) fn roce_frames() -> Vec<Vec<u8>> {
    let names = ["rc-fetch-add", "rc-write-rdmacm", "rping-ipv6-cm", "ud-send"];
    names.iter().flat_map(|name| read_frames(&testdata().join(format!("{name}.pcap")))).collect()
}

pub(super) fn read_frames(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = CaptureReader::open(path).unwrap();
    let mut frames = Vec::new();
    while reader
        .next_batch(&mut |batch| frames.extend(batch.iter().map(|it| it.bytes().to_vec())))
        .unwrap()
        > 0
    {}
    assert_eq!(reader.stats().truncated_records, 0, "{}", path.display());
    frames
}

pub(super) fn write_frames(path: &Path, frames: &[Vec<u8>]) {
    let mut writer =
        CaptureWriter::create(path, CaptureFormat::Pcap, &[("", Link::Ethernet)]).unwrap();
    for (number, frame) in frames.iter().enumerate() {
        let meta = Meta { time: Time(1_000_000_000 + number as u64 * 1000), ..Meta::default() };
        writer.write(0, &meta, &[frame], PacketNote::default()).unwrap();
    }
    writer.finish().unwrap();
}

/// What tshark's display filter takes of a capture file.
#[track_caller]
pub(super) fn tshark_takes(path: &Path, filter: &str) -> Vec<Vec<u8>> {
    let taken = path.with_extension("taken");
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(path).args(["-Y", filter, "-w"]).arg(&taken);
    let output = tshark.output().unwrap();
    assert!(output.status.success(), "{filter}: {}", String::from_utf8_lossy(&output.stderr));
    read_frames(&taken)
}

/// Packets in a file, as capinfos counts them.
#[track_caller]
pub(super) fn capinfos(path: &Path) -> u64 {
    let output =
        Command::new("capinfos").args(["-c", "-M", "-T", "-r"]).arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.lines().all(|it| it.contains("root")), "{errors}");
    text.split_whitespace().last().and_then(|it| it.parse().ok()).expect(&text)
}

/// The BTH of a RoCE v2 frame over IPv4 without tags or options.
pub(super) const BTH: usize = 14 + 20 + 8;

/// The frames, and among them NAKs, RNR NAKs, CNPs, another P_Key and wrong ICRCs.
pub(super) fn troubled_frames() -> Vec<Vec<u8>> {
    const ACKNOWLEDGE: u8 = 0x11;
    let mut frames = roce_frames();
    let ipv4 = |frame: &Vec<u8>| frame[12..14] == [8, 0] && frame[36..38] == 4791u16.to_be_bytes();
    let mut number = 0;
    for frame in frames.iter_mut().filter(|frame| ipv4(frame)) {
        number += 1;
        match number % 7 {
            0 if frame[BTH] == ACKNOWLEDGE => frame[BTH + 12] = 0x62,
            1 if frame[BTH] == ACKNOWLEDGE => frame[BTH + 12] = 0x2a,
            2 => frame[BTH + 3] ^= 1,
            3 => *frame.last_mut().unwrap() ^= 0x10,
            4 if frame.len() < 100 => frame[BTH] = 0x81,
            _ => {}
        }
    }
    frames
}
