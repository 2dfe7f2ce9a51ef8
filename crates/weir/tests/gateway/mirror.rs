//! Copies for an analyser, by the gateway and by the kernel, judged by tshark and byte by byte.

use std::path::{Path, PathBuf};
use std::slice::from_ref;

use rustix::process::Signal;
use weir_lab::gateways::{configurations, configure};
use weir_lab::netns::Namespace;
use weir_lab::topology::{HOST_DEVICE, HOST_MAC, WIRE_PORT};
use weir_lab::traffic::bypass::send_frames;

use super::evidence::{FRAMES, RATE_PER_SECOND, read_frames, send_stream, tshark};
use super::*;

/// An analyser on gateway A's port `mon0`.
pub(super) struct Analyser {
    namespace: Namespace,
}

impl Analyser {
    pub(super) fn new(lab: &Lab) -> Self {
        let name = format!("weir-analyser-{}", lab.id());
        let analyser = Self { namespace: Namespace::create(&name).unwrap() };
        analyser.plug(lab);
        analyser
    }

    fn plug(&self, lab: &Lab) {
        let name = self.namespace.name();
        let gateway = lab.gateway(Side::A);
        let link = format!("link add mon0 mtu 9000 type veth peer name an0 mtu 9000 netns {name}");
        gateway.ip(&link).unwrap();
        // Neither end says anything of its own.
        self.namespace.set(&[("net.ipv6.conf.an0.disable_ipv6", "1")]).unwrap();
        gateway.set(&[("net.ipv6.conf.mon0.disable_ipv6", "1")]).unwrap();
        self.namespace.ip("link set an0 up").unwrap();
        gateway.ip("link set mon0 up").unwrap();
    }

    /// Ports of `mtu`; the gateway's has no offloads: the kernel cuts, and sums up.
    fn has_plain_ports(&self, lab: &Lab, mtu: u32) {
        self.namespace.ip(&format!("link set an0 mtu {mtu}")).unwrap();
        let gateway = lab.gateway(Side::A);
        gateway.ip(&format!("link set mon0 mtu {mtu}")).unwrap();
        gateway.run("ethtool -K mon0 tx off tso off gso off tx-udp-segmentation off").unwrap();
    }

    /// What arrives while `work` is done.
    pub(super) fn hears(&self, lab: &Lab, work: impl FnOnce()) -> (PathBuf, Vec<Vec<u8>>) {
        let file = lab.folder().join("analyser.pcap");
        let capture = Capture::start(&self.namespace, "an0", &file, 65_535).unwrap();
        work();
        pause(1000);
        let captured = capture.stop().unwrap();
        assert_eq!(captured.dropped_by_kernel, 0, "tcpdump saw all of it");
        let frames = read_frames(&file);
        (file, frames)
    }
}

/// Bytes of a transfer: less than what a listener's buffer holds, since nobody waits for it.
const BYTES: usize = 1 << 20;
const TUNNEL: &str = "local = \"192.0.2.1\"\nremote = \"192.0.2.9\"\n\
                      remote_mac = \"02:00:00:00:00:09\"\nid = 7\n";

#[test]
fn copies_are_byte_for_byte_what_the_host_said_in_every_encapsulation() {
    let Some(Stand { _turn, lab }) = stand("copies_are_byte_for_byte") else { return };
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

/// Every byte of a transfer of `len`, by its place in the stream, in the segments of `file`, whose
/// checksums are right.
#[track_caller]
fn assert_whole_transfer(file: &Path, len: usize) {
    let mut next = 1u64;
    for line in tshark(file, "tcp.len > 0", &["tcp.seq", "tcp.len"]) {
        let (sequence, len) = line.split_once('\t').unwrap();
        let (sequence, len): (u64, u64) = (sequence.parse().unwrap(), len.parse().unwrap());
        assert!(sequence <= next, "a gap at {next}");
        next = next.max(sequence + len);
    }
    assert!(next > len as u64, "{next}");
    // Of the two zeros TCP takes either, tshark one (RFC 1624 s3).
    let bad = "(tcp.checksum.status == 0 && tcp.checksum != 0xffff) || udp.checksum.status == 0 || \
               ip.checksum.status == 0";
    let sums = ["frame.number", "tcp.checksum", "tcp.checksum_calculated", "udp.checksum.status"];
    assert_eq!(tshark(file, bad, &sums), Vec::<String>::new(), "checksums");
    assert_eq!(tshark(file, "_ws.malformed", &["frame.number"]), Vec::<String>::new());
}

#[test]
fn an_encapsulated_super_packet_arrives_as_whole_segments_and_a_short_copy_says_so() {
    let Some(Stand { _turn, lab }) = stand("an_encapsulated_super_packet") else { return };
    let analyser = Analyser::new(&lab);
    analyser.has_plain_ports(&lab, 9500);
    let texts = configurations(&lab, &sealed()).unwrap();
    // With a length, so that it is the gateway that copies.
    let mirror = |form: &str, snap: u32| {
        let mirror = "[[mirror]]\nname = \"ids\"\nport = \"mon0\"\ndirection = \"from_host\"\n\
                      filter = \"tcp\"\n";
        format!("{}\n{mirror}encapsulation = \"{form}\"\n{TUNNEL}snap = {snap}\n", texts[0])
    };
    let first = [mirror("vxlan", 65_535), texts[1].clone()];
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
    for (epoch, form) in [(1, "vxlan"), (2, "erspan2")] {
        if epoch > 1 {
            configure(&lab, Side::A, &mirror(form, 65_535)).unwrap();
            gateways.daemon(Side::A).signal(Signal::HUP).unwrap();
            wait_status(&gateways, Side::A, |it| it["pairs"][0]["policy_epoch"] == epoch);
        }
        let received = number(&gateways.status(Side::A).unwrap(), "/pairs/0/host/received");
        let (file, heard) = transfer();
        let status = gateways.status(Side::A).unwrap();
        assert_eq!(status["pairs"][0]["mirrors"][0]["by_kernel"], false);
        let received = number(&status, "/pairs/0/host/received") - received;
        assert!((heard.len() as u64) > received, "{form}: super-packets were cut: {received}");
        assert_eq!(count(&gateways, "truncated"), 0, "{form}");
        assert_eq!(count(&gateways, "dropped"), 0, "{form}");
        assert_eq!(count(&gateways, "mirrored"), heard.len() as u64, "{form}");
        assert_whole_transfer(&file, BYTES);
        let odd = "erspan.truncated == 1 || not tcp";
        assert_eq!(tshark(&file, odd, &["frame.number"]).len(), 0, "{form}");
    }

    configure(&lab, Side::A, &mirror("erspan2", 100)).unwrap();
    gateways.daemon(Side::A).signal(Signal::HUP).unwrap();
    wait_status(&gateways, Side::A, |it| it["pairs"][0]["policy_epoch"] == 3);
    let (file, heard) = transfer();
    let is_short = |it: &Vec<u8>| it.len() <= 14 + 20 + 8 + 8 + 100;
    assert!(heard.iter().all(is_short) && heard.len() > BYTES / 9000);
    let cut = tshark(&file, "erspan.truncated == 1", &["frame.number"]).len() as u64;
    assert!(cut > 0 && cut == count(&gateways, "truncated"));
}

/// RoCE, what no parser knows, and VLAN tags, one and two; none alike.
fn all_sorts(from: [u8; 6], to: [u8; 6]) -> Vec<Vec<u8>> {
    let mut stream = RoceStream::new(1024).unwrap();
    let mut frames = Vec::new();
    for number in 0..200u16 {
        let mut frame = stream.next_frame().to_vec();
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&from);
        // Customer and service tags (802.1Q, 802.1ad) of some; an experimental type of others.
        let tags: &[u8] = match number % 4 {
            1 => &[0x81, 0, 0x60, 5],
            2 => &[0x88, 0xa8, 0x20, 7, 0x81, 0, 0x60, 5],
            3 => {
                frame[12..14].copy_from_slice(&[0x88, 0xb5]);
                &[]
            }
            _ => &[],
        };
        frame.splice(12..12, tags.iter().copied());
        frames.push(frame);
    }
    frames
}

/// What the kernel cannot encapsulate, the gateway can, and does from then on.
#[track_caller]
fn assert_gateway_takes_over(lab: &Lab, analyser: &Analyser, gateways: &Gateways) {
    let mut odd = all_sorts(HOST_MAC[0], HOST_MAC[1]).swap_remove(2);
    odd.splice(12..12, [0x81, 0, 0, 9]);
    let (_, heard) = analyser.hears(lab, || {
        interrupt::until("copies by the gateway", PATIENCE, || {
            send_frames(lab.host(Side::A), HOST_DEVICE, from_ref(&odd), 1000)?;
            Ok(gateways.status(Side::A)?["pairs"][0]["mirrors"][0]["by_kernel"] == false)
        })
        .unwrap();
        send_frames(lab.host(Side::A), HOST_DEVICE, from_ref(&odd), 1000).unwrap();
    });
    assert!(heard.iter().any(|it| it[50..] == odd), "{}", heard.len());
    assert!(gateways.log(Side::A).contains("could not encapsulate"));
}

#[test]
fn the_kernel_copies_all_that_a_host_says_and_hears_in_order() {
    let Some(Stand { _turn, lab }) = stand("the_kernel_copies_all") else { return };
    let analyser = Analyser::new(&lab);
    analyser.has_plain_ports(&lab, 9000);
    let texts = configurations(&lab, &sealed()).unwrap();
    let mirror = "\n[[mirror]]\nname = \"ids\"\nport = \"mon0\"\n";
    let vxlan = format!("encapsulation = \"vxlan\"\n{TUNNEL}");
    let erspan1 = format!("encapsulation = \"erspan1\"\n{TUNNEL}").replace("id = 7\n", "");
    let first = [format!("{}{mirror}", texts[0]), texts[1].clone()];
    let mut gateways = Gateways::start_configured(&lab, &sealed(), &first).unwrap();
    wait_until_it_flows(&lab);
    for (epoch, more, outer, as_decoded) in [
        (1, "", 0, ""),
        (2, &*erspan1, 14 + 20 + 4, "gre.proto == 0x88be && erspan"),
        (3, &*vxlan, 14 + 20 + 8 + 8, "vxlan.vni == 7"),
    ] {
        if epoch > 1 {
            configure(&lab, Side::A, &format!("{}{mirror}{more}", texts[0])).unwrap();
            gateways.daemon(Side::A).signal(Signal::HUP).unwrap();
            wait_status(&gateways, Side::A, |it| it["pairs"][0]["policy_epoch"] == epoch);
        }
        let mirror = |name: &str| {
            let status = gateways.status(Side::A).unwrap();
            status["pairs"][0]["mirrors"][0][name].clone()
        };
        assert_eq!(mirror("by_kernel"), true);
        for from in Side::BOTH {
            let (near, far) = (HOST_MAC[from.index()], HOST_MAC[from.other().index()]);
            let frames = all_sorts(near, far);
            let before = mirror("mirrored").as_u64().unwrap();
            let (file, heard) = analyser.hears(&lab, || {
                send_frames(lab.host(from), HOST_DEVICE, &frames, 2000).unwrap();
            });
            // The hosts' own kernels and the gateway ask for neighbours meanwhile.
            let mirrored = mirror("mirrored").as_u64().unwrap() - before;
            assert!(mirrored >= heard.len() as u64, "{mirrored} of {}", heard.len());
            let inner = heard.iter().map(|it| it[outer..].to_vec());
            let inner: Vec<Vec<u8>> = inner.filter(|it| frames.contains(it)).collect();
            assert!(inner == frames, "{from:?} {more}: {} of {}", inner.len(), frames.len());
            if outer > 0 {
                let decoded = tshark(&file, as_decoded, &["ip.dst"]);
                assert_eq!(decoded.len(), heard.len(), "{more}");
            }
        }
        let (file, heard) = analyser.hears(&lab, || {
            weir_lab::traffic::tcp::transfer(&lab, BYTES).unwrap();
        });
        assert!(heard.len() > BYTES / 9000, "{}", heard.len());
        assert!(heard.iter().all(|it| it.len() <= 9014), "what the port takes");
        assert_whole_transfer(&file, BYTES);
        let counted = ["dropped", "truncated"].map(mirror);
        assert_eq!(counted, [0.into(), 0.into()] as [Value; 2]);
    }
    let text = gateways.status_text(Side::A).unwrap();
    assert!(text.contains("mirror ids to mon0 by the kernel"), "{text}");

    assert_gateway_takes_over(&lab, &analyser, &gateways);
    drop(gateways);
    let mut command = lab.gateway(Side::A).command("tc");
    let left = command.args(["filter", "show", "dev", "mon0", "egress"]).output().unwrap();
    assert_eq!(String::from_utf8(left.stdout).unwrap(), "", "nothing stays on the port");
}

#[test]
fn the_kernel_copies_what_a_filter_takes_its_tag_beside_it_or_not() {
    let Some(Stand { _turn, lab }) = stand("the_kernel_copies_what_a_filter") else { return };
    let analyser = Analyser::new(&lab);
    let texts = configurations(&lab, &sealed()).unwrap();
    // Two at once, to one port: the tags of one are not the other's.
    let filter = |name: &str, filter: &str| {
        format!("\n[[mirror]]\nname = \"{name}\"\nport = \"mon0\"\nfilter = \"{filter}\"\n")
    };
    let (inner, untagged) = (filter("inner", "vlan 7 and vlan 5"), filter("udp", "ip and udp"));
    let first = [format!("{}{inner}{untagged}", texts[0]), texts[1].clone()];
    let mut gateways = Gateways::start_configured(&lab, &sealed(), &first).unwrap();
    wait_until_it_flows(&lab);
    let copies = |gateways: &Gateways, from: Side| {
        let (near, far) = (HOST_MAC[from.index()], HOST_MAC[from.other().index()]);
        let frames = all_sorts(near, far);
        let (_, heard) = analyser.hears(&lab, || {
            send_frames(lab.host(from), HOST_DEVICE, &frames, 2000).unwrap();
        });
        let status = gateways.status(Side::A).unwrap();
        let is_by_kernel = |it: &Value| it["by_kernel"] == true && it["dropped"] == 0;
        let mirrors = status["pairs"][0]["mirrors"].as_array().unwrap();
        assert!(!mirrors.is_empty() && mirrors.iter().all(is_by_kernel), "{status:#}");
        let position = |it: &Vec<u8>| frames.iter().position(|frame| frame == it);
        heard.iter().filter_map(position).collect::<Vec<usize>>()
    };
    let of_kinds = |kinds: &[usize]| (0..200).filter(|it| kinds.contains(&(it % 4))).collect();
    for from in Side::BOTH {
        let expected: Vec<usize> = of_kinds(&[0, 2]);
        assert_eq!(copies(&gateways, from), expected, "{from:?}: plain ones, and two tags");
    }
    // One goes, the other stays what it was.
    configure(&lab, Side::A, &format!("{}{untagged}", texts[0])).unwrap();
    gateways.daemon(Side::A).signal(Signal::HUP).unwrap();
    wait_status(&gateways, Side::A, |it| it["pairs"][0]["policy_epoch"] == 2);
    let expected: Vec<usize> = of_kinds(&[0]);
    assert_eq!(copies(&gateways, Side::A), expected);
}

#[test]
fn a_mirror_port_that_goes_costs_copies_and_nothing_else() {
    let erspan = format!("encapsulation = \"erspan1\"\n{TUNNEL}").replace("id = 7\n", "");
    for (more, by_kernel) in
        [("", true), ("filter = \"udp\"\n", true), (&*erspan, true), ("snap = 65535\n", false)]
    {
        let Some(Stand { _turn, lab }) = stand("a_mirror_port_that_goes") else { return };
        let analyser = Analyser::new(&lab);
        let texts = configurations(&lab, &sealed()).unwrap();
        let mirror = format!("\n[[mirror]]\nname = \"ids\"\nport = \"mon0\"\n{more}");
        let texts = [texts[0].clone() + &mirror, texts[1].clone()];
        let gateways = Gateways::start_configured(&lab, &sealed(), &texts).unwrap();
        wait_until_it_flows(&lab);
        let mirror = |name: &str| {
            let status = gateways.status(Side::A).unwrap();
            status["pairs"][0]["mirrors"][0][name].clone()
        };
        let count = |name: &str| mirror(name).as_u64().unwrap();
        let passes = || {
            let stream = RoceStream::new(1024).unwrap();
            let arrived = weir_lab::traffic::bypass::stream(&lab, &stream, FRAMES, RATE_PER_SECOND);
            assert!(arrived.unwrap().is_exact());
        };
        passes();
        assert!(count("mirrored") >= FRAMES && count("dropped") == 0);
        assert_eq!(mirror("by_kernel"), by_kernel);
        for go in ["link set mon0 down", "link del mon0"] {
            lab.gateway(Side::A).ip(go).unwrap();
            let dropped = count("dropped");
            passes();
            assert!(count("dropped") >= dropped + FRAMES, "{go}");
        }
        let status = gateways.status(Side::A).unwrap();
        let count_then = |name: &str| number(&status, &format!("/pairs/0/mirrors/0/{name}"));
        let dropped = count_then("dropped");
        assert_eq!(count_then("dropped_port_down"), dropped, "by their reason");
        assert_eq!(count_then("chosen"), count_then("mirrored") + dropped);
        let complaints = gateways.log(Side::A).matches("copies are dropped").count();
        assert_eq!(complaints, 1, "{}", gateways.log(Side::A));
        analyser.plug(&lab);
        let mirrored = count("mirrored");
        interrupt::until("copies again", PATIENCE, || {
            passes();
            Ok(count("mirrored") > mirrored)
        })
        .unwrap();
        assert_eq!(mirror("by_kernel"), by_kernel, "as before");
    }
}

#[test]
fn a_mirror_onto_the_sealed_wire_is_refused_unless_written_down() {
    let Some(Stand { _turn, lab }) = stand("a_mirror_onto_the_sealed_wire") else { return };
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

#[test]
fn a_mirror_that_the_kernel_makes_leaves_the_fast_path_open() {
    const CARRIED: u64 = 10_000;
    let Some(Stand { _turn, lab }) = stand("a_mirror_and_the_fast_path") else { return };
    let analyser = Analyser::new(&lab);
    let setup = Setup {
        pair_lines: "fastpath = \"tc\"\n".to_owned(),
        ..Setup::new(WEIR, Protection::Plain)
    };
    let [text, other] = configurations(&lab, &setup).unwrap();
    let texts = [text + "\n[[mirror]]\nname = \"ids\"\nport = \"mon0\"\n", other];
    let gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    wait_until_it_flows(&lab);
    let (_, heard) = analyser.hears(&lab, || {
        let mut stream = RoceStream::new(1024).unwrap();
        let sent = blast(&lab, &mut stream, CARRIED, RATE_PER_SECOND).unwrap().sent;
        let seen = |it: &Value| number(it, "/pairs/0/rdma/packets") == sent;
        let status = wait_status(&gateways, Side::A, seen);
        let fast = number(&status, "/pairs/0/host/fast");
        assert!(fast > sent / 2, "the kernel carried {fast} of {sent}: {status:#}");
    });
    let mut stream = RoceStream::new(1024).unwrap();
    let sent: Vec<Vec<u8>> = (0..CARRIED).map(|_| stream.next_frame().to_vec()).collect();
    let is_roce = |it: &Vec<u8>| it.len() == sent[0].len() && it[..12] == sent[0][..12];
    let heard: Vec<Vec<u8>> = heard.into_iter().filter(is_roce).collect();
    assert!(heard == sent, "each once, in order: {}", heard.len());

    // While the port is gone, the gateway counts what it cannot copy: all packets come by it.
    let is_shut = |wanted: bool| {
        interrupt::until("the fast path as it must be", PATIENCE, || {
            blast(&lab, &mut RoceStream::new(1024).unwrap(), 100, RATE_PER_SECOND)?;
            let status = gateways.status(Side::A)?;
            let state = status["pairs"][0]["fast_path"]["state"].as_str().unwrap_or_default();
            Ok(state.contains("whole packets") == wanted)
        })
    };
    lab.gateway(Side::A).ip("link del mon0").unwrap();
    is_shut(true).unwrap();
    analyser.plug(&lab);
    is_shut(false).unwrap();
}
