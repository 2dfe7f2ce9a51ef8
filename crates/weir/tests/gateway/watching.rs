//! What a gateway remembers and copies: evidence rings and mirrors, judged by tshark, capinfos and
//! tcpdump, and byte by byte.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;
use weir_lab::gateways::{configurations, configure, run_folder};
use weir_lab::netns::Namespace;
use weir_lab::topology::WIRE_PORT;
use weir_lab::traffic::bypass::send_frames;
use weir_port::CaptureReader;

use super::*;

const FRAMES: u64 = 500;
const RATE_PER_SECOND: u32 = 5000;

/// `weir evidence cut` of gateway A; what it says, and whether it succeeded.
fn cut(lab: &Lab, file: &Path, arguments: &[&str]) -> (bool, String) {
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
fn evidence(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(WEIR).arg("evidence").args(arguments).output().unwrap();
    let words = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(words).unwrap())
}

/// Lines of tshark's `fields` of `file`.
#[track_caller]
fn tshark(file: &Path, filter: &str, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-Y", filter, "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let said = process::run(&mut command, PATIENCE).unwrap();
    said.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn evidence_shows_what_the_host_said_and_heard_with_every_packet_s_fate() {
    let Some(Stand { lab, _turn }) = stand("evidence_shows") else { return };
    let texts = configurations(&lab, &sealed()).unwrap();
    let texts = texts.map(|text| text + "\n[evidence]\nmemory_mib = 8\nsnap = 0\n");
    let mut gateways = Gateways::start_configured(&lab, &sealed(), &texts).unwrap();
    wait_until_it_flows(&lab);
    let target = lab.host_v4(Side::B).to_string();
    assert_eq!(ping(lab.host(Side::A), &target, 5, 200).unwrap().answered, 5);
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
    assert_eq!(frames(&["--dropped", "udp", "port", "4791"]), [plain]);
    let flow = format!("{}-{target}:4791", lab.host_v4(Side::A));
    assert_eq!(frames(&["--flow", &flow]).len(), pair.len());
    assert!(frames(&["--last", "3600", "icmp"]).len() >= 10);
    // A moment and what was around it: by the times of the packets themselves.
    let stream = tshark(&file, "infiniband", &["frame.time_epoch"]);
    let times: Vec<f64> = stream.iter().map(|it| it.parse().unwrap()).collect();
    let moment = &stream[stream.len() / 2];
    let near = |time: &&f64| (**time - moment.parse::<f64>().unwrap()).abs() < 0.0105;
    let around = frames(&["--around", moment, "--window", "0.01", "--qp", "0x11"]).len();
    let expected = times.iter().filter(near).count();
    assert!(around.abs_diff(expected) <= expected / 5 && around < pair.len(), "{around}: {moment}");
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
    let Some(Stand { lab, _turn }) = stand("ctrl_c_ends_a_cut") else { return };
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
    pause(500);
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
    let Some(Stand { lab, _turn }) = stand("evidence_holds_every_frame") else { return };
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
    let Some(Stand { lab, _turn }) = stand("evidence_on_disk") else { return };
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

/// An analyser on gateway A's port `mon0`.
struct Analyser {
    namespace: Namespace,
}

impl Analyser {
    fn new(lab: &Lab) -> Self {
        let name = format!("weir-analyser-{}", std::process::id());
        let analyser = Self { namespace: Namespace::create(&name).unwrap() };
        analyser.plug(lab);
        analyser
    }

    fn plug(&self, lab: &Lab) {
        let name = self.namespace.name();
        let gateway = lab.gateway(Side::A);
        gateway.ip(&format!("link add mon0 type veth peer name an0 netns {name}")).unwrap();
        // Neither end says anything of its own.
        self.namespace.set(&[("net.ipv6.conf.an0.disable_ipv6", "1")]).unwrap();
        gateway.set(&[("net.ipv6.conf.mon0.disable_ipv6", "1")]).unwrap();
        self.namespace.ip("link set an0 up").unwrap();
        gateway.ip("link set mon0 up").unwrap();
    }

    /// What arrives while `work` is done.
    fn hears(&self, lab: &Lab, work: impl FnOnce()) -> (PathBuf, Vec<Vec<u8>>) {
        let file = lab.folder().join("analyser.pcap");
        let capture = Capture::start(&self.namespace, "an0", &file, 65_535).unwrap();
        work();
        pause(300);
        capture.stop().unwrap();
        let frames = read_frames(&file);
        (file, frames)
    }
}

fn read_frames(file: &Path) -> Vec<Vec<u8>> {
    let mut reader = CaptureReader::open(file).unwrap();
    let mut frames = Vec::new();
    while reader
        .next_batch(&mut |batch| frames.extend(batch.iter().map(|it| it.bytes().to_vec())))
        .unwrap()
        > 0
    {}
    frames
}

const TUNNEL: &str = "local = \"192.0.2.1\"\nremote = \"192.0.2.9\"\n\
                      remote_mac = \"02:00:00:00:00:09\"\nid = 7\n";

/// A stream from host A; what it sent.
fn send_stream(lab: &Lab, gateways: &Gateways) -> Vec<Vec<u8>> {
    let before = number(&gateways.status(Side::A).unwrap(), "/pairs/0/host/received");
    let sent = blast(lab, &mut RoceStream::new(1024).unwrap(), FRAMES, RATE_PER_SECOND).unwrap();
    wait_status(gateways, Side::A, |it| number(it, "/pairs/0/host/received") >= before + sent.sent);
    let mut stream = RoceStream::new(1024).unwrap();
    (0..sent.sent).map(|_| stream.next_frame().to_vec()).collect()
}

#[test]
fn copies_are_byte_for_byte_what_the_host_said_in_every_encapsulation() {
    let Some(Stand { lab, _turn }) = stand("copies_are_byte_for_byte") else { return };
    let analyser = Analyser::new(&lab);
    let texts = configurations(&lab, &sealed()).unwrap();
    let mirror = "\n[[mirror]]\nname = \"ids\"\nport = \"mon0\"\nqueue_pairs = [17]\n";
    let with = |more: &str| format!("{}{mirror}{more}", texts[0]);
    let first = [with("filter = \"udp port 4791\"\n"), texts[1].clone()];
    let mut gateways = Gateways::start_configured(&lab, &sealed(), &first).unwrap();
    wait_until_it_flows(&lab);
    let wire = listen(&lab, 2000);
    for (epoch, form, outer, filter) in [
        (1, None, 0, "infiniband.bth.destqp == 0x11"),
        (2, Some("vxlan"), 14 + 20 + 8 + 8, "vxlan.vni == 7 && infiniband"),
        (3, Some("erspan2"), 14 + 20 + 8 + 8, "erspan.version == 1 && erspan.spanid == 7"),
        (4, Some("erspan3"), 14 + 20 + 8 + 12, "erspan.version == 2 && erspan.spanid == 7"),
    ] {
        if let Some(form) = form {
            // A mirror changes while the gateway runs.
            let text = with(&format!("encapsulation = \"{form}\"\n{TUNNEL}"));
            configure(&lab, Side::A, &text).unwrap();
            gateways.daemon(Side::A).signal(Signal::HUP).unwrap();
            wait_status(&gateways, Side::A, |it| it["pairs"][0]["policy_epoch"] == epoch);
        }
        let mut sent = Vec::new();
        let (file, heard) = analyser.hears(&lab, || sent = send_stream(&lab, &gateways));
        let status = gateways.status(Side::A).unwrap();
        let inner: Vec<Vec<u8>> = heard.iter().map(|it| it[outer..].to_vec()).collect();
        assert_eq!(inner.len(), sent.len(), "{form:?}: {status:#}");
        assert_eq!(inner, sent, "{form:?}");
        let decoded = tshark(&file, filter, &["infiniband.bth.psn", "ip.checksum.status"]);
        assert_eq!(decoded.len(), sent.len(), "{form:?} as tshark decodes it");
        assert_eq!(tshark(&file, "_ws.malformed", &["frame.number"]), Vec::<String>::new());
        let count = |name: &str| number(&status, &format!("/pairs/0/mirrors/0/{name}"));
        let expected = (sent.len() as u64, sent.len() as u64, 0, 0);
        let counted = (count("chosen"), count("mirrored"), count("truncated"), count("dropped"));
        assert_eq!(counted, expected, "{form:?}: {status:#}");
    }
    assert_sealed(&wire.stop().unwrap());
}

#[test]
fn an_encapsulated_super_packet_arrives_as_whole_segments_and_a_short_copy_says_so() {
    const BYTES: usize = 4 << 20;
    let Some(Stand { lab, _turn }) = stand("an_encapsulated_super_packet") else { return };
    let analyser = Analyser::new(&lab);
    analyser.namespace.ip("link set an0 mtu 9500").unwrap();
    lab.gateway(Side::A).ip("link set mon0 mtu 9500").unwrap();
    let texts = configurations(&lab, &sealed()).unwrap();
    let mirror = format!(
        "\n[[mirror]]\nname = \"ids\"\nport = \"mon0\"\ndirection = \"from_host\"\n\
         filter = \"tcp\"\nencapsulation = \"erspan2\"\n{TUNNEL}"
    );
    let with = |more: &str| format!("{}{mirror}{more}", texts[0]);
    let first = [with(""), texts[1].clone()];
    let mut gateways = Gateways::start_configured(&lab, &sealed(), &first).unwrap();
    wait_until_it_flows(&lab);
    let count = |gateways: &Gateways, name: &str| {
        let status = gateways.status(Side::A).unwrap();
        number(&status, &format!("/pairs/0/mirrors/0/{name}"))
    };
    let transfer = || {
        analyser.hears(&lab, || {
            weir_lab::traffic::tcp::transfer(&lab, BYTES).unwrap();
        })
    };
    let (file, heard) = transfer();
    let host_received = number(&gateways.status(Side::A).unwrap(), "/pairs/0/host/received");
    assert!((heard.len() as u64) > host_received, "super-packets were cut: {host_received}");
    assert_eq!(count(&gateways, "truncated"), 0);
    assert_eq!(count(&gateways, "mirrored"), heard.len() as u64);
    // Every byte that the host sent, by its place in the stream.
    let mut next = 1u64;
    for line in tshark(&file, "tcp.len > 0", &["tcp.seq", "tcp.len"]) {
        let (sequence, len) = line.split_once('\t').unwrap();
        let (sequence, len): (u64, u64) = (sequence.parse().unwrap(), len.parse().unwrap());
        assert!(sequence <= next, "a gap at {next}");
        next = next.max(sequence + len);
    }
    assert!(next > BYTES as u64, "{next}");
    assert_eq!(tshark(&file, "erspan.truncated == 1 || not tcp", &["frame.number"]).len(), 0);
    assert_eq!(tshark(&file, "_ws.malformed", &["frame.number"]).len(), 0);

    configure(&lab, Side::A, &with("snap = 100\n")).unwrap();
    gateways.daemon(Side::A).signal(Signal::HUP).unwrap();
    wait_status(&gateways, Side::A, |it| it["pairs"][0]["policy_epoch"] == 2);
    let (file, heard) = transfer();
    let is_short = |it: &Vec<u8>| it.len() <= 14 + 20 + 8 + 8 + 100;
    assert!(heard.iter().all(is_short) && heard.len() > BYTES / 9000);
    let cut = tshark(&file, "erspan.truncated == 1", &["frame.number"]).len() as u64;
    assert!(cut > 0 && cut == count(&gateways, "truncated"));
}

#[test]
fn a_mirror_port_that_goes_costs_copies_and_nothing_else() {
    let Some(Stand { lab, _turn }) = stand("a_mirror_port_that_goes") else { return };
    let analyser = Analyser::new(&lab);
    let texts = configurations(&lab, &sealed()).unwrap();
    let mirror = "\n[[mirror]]\nname = \"ids\"\nport = \"mon0\"\n";
    let texts = [format!("{}{mirror}", texts[0]), texts[1].clone()];
    let gateways = Gateways::start_configured(&lab, &sealed(), &texts).unwrap();
    wait_until_it_flows(&lab);
    let count = |name: &str| {
        let status = gateways.status(Side::A).unwrap();
        number(&status, &format!("/pairs/0/mirrors/0/{name}"))
    };
    let passes = || {
        let arrived = weir_lab::traffic::bypass::stream(
            &lab,
            &RoceStream::new(1024).unwrap(),
            FRAMES,
            RATE_PER_SECOND,
        );
        assert!(arrived.unwrap().is_exact());
    };
    passes();
    assert!(count("mirrored") >= FRAMES && count("dropped") == 0);
    for go in ["link set mon0 down", "link del mon0"] {
        lab.gateway(Side::A).ip(go).unwrap();
        let dropped = count("dropped");
        passes();
        assert!(count("dropped") >= dropped + FRAMES, "{go}");
    }
    assert_eq!(count("dropped_port_down"), count("dropped"), "by their reason");
    let complaints = gateways.log(Side::A).matches("copies are dropped").count();
    assert_eq!(complaints, 1, "{}", gateways.log(Side::A));
    analyser.plug(&lab);
    let mirrored = count("mirrored");
    interrupt::until("copies again", PATIENCE, || {
        passes();
        Ok(count("mirrored") > mirrored)
    })
    .unwrap();
}

#[test]
fn a_mirror_onto_the_sealed_wire_is_refused_unless_written_down() {
    let Some(Stand { lab, _turn }) = stand("a_mirror_onto_the_sealed_wire") else { return };
    let [text, _] = configurations(&lab, &sealed()).unwrap();
    let check = |more: &str| {
        let text = format!("{text}\n[[mirror]]\nname = \"ids\"\nport = \"{WIRE_PORT}\"\n{more}");
        let file = configure(&lab, Side::A, &text).unwrap();
        let output = Command::new(WEIR).arg("check").arg(file).output().unwrap();
        let words = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(words).unwrap())
    };
    let (code, words) = check("");
    assert!(code == Some(2) && words.contains("would leak plaintext"), "{words}");
    let (code, words) = check("leak_plaintext_on_wire = true\n");
    assert!(code == Some(0) && words.contains("LEAKS PLAINTEXT"), "{words}");
    let (code, words) = check("encapsulation = \"vxlan\"\nleak_plaintext_on_wire = true\n");
    assert!(code == Some(2) && words.contains("remote_mac"), "{words}");
}
