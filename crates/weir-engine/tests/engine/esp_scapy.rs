//! A stranger as judge: scapy's IPsec layer opens what we seal, and we open what it seals, in
//! tunnel and transport mode, over IPv4 and IPv6, with both keys, with and without extended
//! sequence numbers and UDP.

#![allow(clippy::disallowed_methods, reason = "only the engine itself does without these")]

use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use super::buffers::Packet;
use serde_json::{Value, json};
use weir_engine::esp::next_header;
use weir_engine::esp::open::OpeningSa;
use weir_engine::esp::outer::{self, OuterFields, OuterHeader, UdpEncapsulation};
use weir_engine::esp::sa::{SaParameters, Sequence, Spi};
use weir_engine::esp::seal::{SealingSa, SealingState};
use weir_engine::esp::transport::{open_transport, seal_transport};
use weir_wire::checksum::Sum;
use weir_wire::frame::Link;

const SPI: u32 = 0xc0de_1234;

#[test]
fn scapy_opens_ours_and_we_open_scapys() {
    let cases = Case::all();
    let Some(answers) = scapy(&cases) else { return };
    assert_eq!(answers.len(), cases.len());
    for (case, answer) in cases.iter().zip(answers) {
        let text = |name: &str| answer[name].as_str().unwrap().to_owned();
        assert_eq!(text("opened"), hex(&case.plain), "scapy opens ours: {case:?}");
        assert_eq!(text("touched"), "refused: IPSecIntegrityError", "{case:?}");
        assert_eq!(case.open(&unhex(&text("sealed"))), case.plain, "we open scapy's: {case:?}");
    }
}

#[derive(Clone, Debug)]
struct Case {
    parameters: SaParameters,
    material: Vec<u8>,
    /// Addresses of the outer header; `None` is transport mode.
    outer: Option<[IpAddr; 2]>,
    udp: Option<UdpEncapsulation>,
    sequence: Sequence,
    plain: Vec<u8>,
}

impl Case {
    fn all() -> Vec<Case> {
        let outers: [Option<[IpAddr; 2]>; 3] = [
            None,
            Some(["10.9.0.1", "10.9.0.2"].map(|a| a.parse().unwrap())),
            Some(["fd00::1", "fd00::2"].map(|a| a.parse().unwrap())),
        ];
        let mut cases = Vec::new();
        for key_len in [16, 32] {
            for (extended, sequence) in [(false, 77), (true, 78), (true, (5 << 32) + 79)] {
                for outer in outers {
                    for udp in [None, Some(UdpEncapsulation::STANDARD)] {
                        for plain in plain_packets() {
                            let is_ipv4 = outer.map_or(plain[0] >> 4 == 4, |[a, _]| a.is_ipv4());
                            if udp.is_some() && !is_ipv4 {
                                continue; // scapy knows NAT traversal over IPv4 only
                            }
                            cases.push(Case::new(key_len, extended, sequence, outer, udp, plain));
                        }
                    }
                }
            }
        }
        cases
    }

    fn new(
        key_len: usize,
        extended_sequence: bool,
        sequence: u64,
        outer: Option<[IpAddr; 2]>,
        udp: Option<UdpEncapsulation>,
        plain: Vec<u8>,
    ) -> Self {
        let material: Vec<u8> = (0..key_len as u8 + 4).map(|byte| byte * 3 + 1).collect();
        let parameters = SaParameters::new(Spi::new(SPI).unwrap(), &material).unwrap();
        let parameters = SaParameters { extended_sequence, ..parameters };
        Self { parameters, material, outer, udp, sequence: Sequence(sequence), plain }
    }

    /// Our packet, from the outer IP header.
    fn seal(&self) -> Vec<u8> {
        let fingerprint = self.parameters.fingerprint();
        let kept = SealingState { fingerprint, reserved_until: self.sequence.0 };
        let mut sealing = SealingSa::new(&self.parameters, Some(&kept)).unwrap();
        sealing.extend_reservation(&sealing.reservation_needed().unwrap());
        let mut packet = Packet::new(&self.plain);
        if let Some([source, destination]) = self.outer {
            let header = OuterHeader::new(None, source, destination, 64, self.udp).unwrap();
            packet.seal(&mut sealing, self.inner_protocol()).unwrap();
            let fields = OuterFields { traffic_class: 0xb8, ..OuterFields::default() };
            packet.change(|frame| header.prepend(frame, fields)).unwrap();
        } else {
            packet.change(|f| seal_transport(&mut sealing, f, 0, self.udp, 0)).unwrap();
        }
        packet.bytes().to_vec()
    }

    /// The inner packet of theirs.
    fn open(&self, sealed: &[u8]) -> Vec<u8> {
        // Their IV is no number of ours: the high half is found from the window.
        let mut opening = OpeningSa::new(&self.parameters, None).unwrap();
        let mut state = opening.empty_state();
        opening.snapshot(&mut state);
        state.replay.highest = self.sequence.0 - 1;
        let lowest = state.replay.highest.saturating_sub(1023) / 64;
        state.replay.accepted = vec![0; (state.replay.highest / 64 - lowest + 1) as usize];
        let mut opening = OpeningSa::new(&self.parameters, Some(&state)).unwrap();
        let mut packet = Packet::new(sealed);
        let opened = if self.outer.is_some() {
            let parsed = packet.parse(Link::Ip);
            assert!(packet.change(|frame| outer::strip_outer(frame, &parsed)));
            let opened = packet.open(&mut opening).unwrap();
            assert_eq!(opened.next_header, self.inner_protocol());
            opened
        } else {
            packet.change(|frame| open_transport(&mut opening, frame, 0)).unwrap()
        };
        assert_eq!(opened.sequence, self.sequence);
        packet.bytes().to_vec()
    }

    fn inner_protocol(&self) -> u8 {
        if self.plain[0] >> 4 == 4 { next_header::IPV4 } else { next_header::IPV6 }
    }

    fn json(&self) -> Value {
        let version = |a: IpAddr| if a.is_ipv4() { 4 } else { 6 };
        json!({
            "spi": SPI,
            "keying_material": hex(&self.material),
            "extended": self.parameters.extended_sequence,
            "sequence": self.sequence.0,
            "outer": self.outer.map(|[a, b]| json!([version(a), a.to_string(), b.to_string()])),
            "udp": self.udp.is_some(),
            "plain": hex(&self.plain),
            "sealed": hex(&self.seal()),
        })
    }
}

/// UDP datagrams of several lengths over IPv4 (with and without options) and IPv6.
fn plain_packets() -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for len in [0_usize, 1, 2, 3, 1400, 8900] {
        let payload: Vec<u8> = (0..len).map(|index| (index * 11) as u8).collect();
        let mut udp = vec![0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0];
        udp[4..6].copy_from_slice(&(8 + len as u16).to_be_bytes());
        udp.extend(payload);
        for options in [0_usize, 2] {
            let mut header = vec![0x45 + options as u8, 0xb8, 0, 0, 7, 7, 0x40, 0, 63, 17];
            header.extend([0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
            header.extend(vec![1; options * 4]);
            let total = (header.len() + udp.len()) as u16;
            header[2..4].copy_from_slice(&total.to_be_bytes());
            let sum = Sum::new().with(&header).checksum();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            packets.push([header, udp.clone()].concat());
        }
        let mut header = vec![0x6b, 0x80, 0, 0, 0, 0, 17, 63];
        header[4..6].copy_from_slice(&(udp.len() as u16).to_be_bytes());
        header.extend([[0x20; 16], [0x30; 16]].concat());
        packets.push([header, udp].concat());
    }
    packets
}

/// Scapy's answers, or `None` where it is not installed.
fn scapy(cases: &[Case]) -> Option<Vec<Value>> {
    let has_scapy = |python: &&&str| {
        let import = ["-c", "import scapy.layers.ipsec, cryptography"];
        let mut command = Command::new(python);
        let status = command.args(import).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let Some(python) = ["python3", "/usr/bin/python3"].iter().find(has_scapy) else {
        eprintln!(
            "SKIPPED: scapy is not installed (apt install python3-scapy python3-cryptography)"
        );
        return None;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scapy_esp.py");
    let mut child = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python starts");
    let mut stdin = child.stdin.take().unwrap();
    let lines: Vec<String> = cases.iter().map(|case| case.json().to_string()).collect();
    let writer = std::thread::spawn(move || {
        lines.iter().for_each(|line| writeln!(stdin, "{line}").expect("scapy reads every case"));
    });
    let output = child.wait_with_output().expect("python ends");
    writer.join().expect("every case was written");
    assert!(output.status.success(), "scapy failed");
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}
