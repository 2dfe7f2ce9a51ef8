//! What leaves an engine: frames for the host and the wire, each looked at, and what handshakes
//! have done.

use super::*;

impl World {
    /// Puts on the wire, or delivers, what the first worker has said.
    pub(super) fn gather(&mut self, side: usize) {
        let sent = collect(self.sides[side].engine.output(), &[]);
        self.put(side, sent);
    }

    pub(super) fn put(&mut self, side: usize, sent: Vec<(Destination, Vec<u8>)>) {
        for (to, frame) in sent {
            match to {
                Destination::Host => self.sides[side].delivered.push(frame),
                Destination::Wire if frame[12..14] == [8, 6] => self.answer(side, &frame),
                Destination::Wire => {
                    let head = &frame[..frame.len().min(64)];
                    assert!(is_protected(&frame), "in clear on the wire: {head:02x?}");
                    self.watch(side, &frame);
                    if frame.len() - 14 <= self.wire_carries {
                        self.wire.push_back(OnWire { to: 1 - side, frame });
                    }
                }
                Destination::Punt | Destination::Kernel(_) => {}
            }
        }
    }

    /// Everybody on the link answers for its address, and at once.
    fn answer(&mut self, side: usize, question: &[u8]) {
        let asked = question[41];
        let mut answer = question[..42].to_vec();
        answer[..6].copy_from_slice(&question[6..12]);
        answer[6..12].copy_from_slice(&mac(asked).0);
        answer[20..22].copy_from_slice(&[0, 2]);
        answer[22..28].copy_from_slice(&mac(asked).0);
        answer[28..32].copy_from_slice(&question[38..42]);
        answer[32..38].copy_from_slice(&question[6..12]);
        answer[38..42].copy_from_slice(&question[28..32]);
        self.process(side, Side::Wire, &answer);
        while let Some(told) = self.sides[side].engine.take_sighting() {
            for other in &mut self.sides[side].others {
                other.hear(told, Time(self.elapsed_ns));
            }
        }
    }

    /// Whatever leaves sealed: no key seals twice with one nonce.
    fn watch(&mut self, side: usize, frame: &[u8]) {
        let parsed = parse(frame, Link::Ethernet, frame.len() as u32);
        let Transport::Esp { spi, .. } = parsed.transport else { return };
        let at = usize::from(parsed.payload_offset);
        let nonce: [u8; 8] = frame[at..at + 8].try_into().unwrap();
        let esp = &frame[at - 8..parsed.end as usize];
        let mut keys = self.keys[side][&spi].iter();
        let key = keys.find(|key| opens(key, esp)).expect("a key that was put in place");
        let key = key.fingerprint();
        assert!(self.nonces.insert((key, nonce)), "key {key} sealed twice with one nonce");
        self.sealed += 1;
    }

    pub(super) fn carry_out(&mut self, side: usize, effects: Vec<Effect>) {
        for effect in effects {
            let engine = &mut self.sides[side].engine;
            engine.begin();
            match effect {
                Effect::Send { path, datagram } => {
                    if !engine.send_datagram(&path, &datagram) {
                        engine.tick(Time(self.elapsed_ns));
                        self.gather(side);
                        let engine = &mut self.sides[side].engine;
                        engine.begin();
                        assert!(engine.send_datagram(&path, &datagram), "the neighbour answered");
                    }
                }
                Effect::Install(install) => self.install(side, *install),
                Effect::InUse { peer, open_spi, workers } => {
                    let gateway = &mut self.sides[side];
                    gateway.sharing = workers.into();
                    for (other, number) in gateway.others.iter_mut().zip(1_u32..) {
                        match number < workers.into() {
                            true => other.confirm_with(&peer, open_spi | number),
                            false => other.close(&peer),
                        }
                    }
                }
                Effect::Forget { peer, open_spi } => {
                    engine.forget(&peer, open_spi);
                    for (other, number) in self.sides[side].others.iter_mut().zip(1..) {
                        other.forget(&peer, open_spi | number);
                    }
                }
                Effect::Close { peer } => {
                    engine.close(&peer);
                    self.sides[side].others.iter_mut().for_each(|other| other.close(&peer));
                }
                Effect::Keepalive { peer } => engine.keepalive(&peer),
                Effect::Probe { peer, message } => engine.send_probe(&peer, message),
                Effect::PathMtu { peer, bytes } => engine.set_path_mtu(&peer, bytes),
            }
            self.gather(side);
        }
        let _ = self.sides[side].side;
    }

    /// Every worker's associations, worker 0's last.
    fn install(&mut self, side: usize, install: Install) {
        let Install { peer, role, path, seal, open, more, tags } = install;
        let of_each = more.into_iter().zip(1..).chain([([seal, open], 0)]);
        for ([seal, open], number) in of_each {
            let key = seal.fingerprint();
            assert!(self.installed.insert(key), "a key is put in place twice");
            self.keys[side].entry(seal.spi.value()).or_default().push(seal.clone());
            let sealing = SealingSa::new(&seal, None).unwrap();
            let opening = OpeningSa::new(&open, None).unwrap();
            let (path, tags) = (path.clone(), tags.clone().filter(|_| number == 0));
            let agreed = Agreed { peer, role, path, sealing, opening, tags };
            self.sides[side].worker(number).install(agreed);
        }
    }
}

pub(super) fn collect(output: &Output, frames: &[Frame<'_>]) -> Vec<(Destination, Vec<u8>)> {
    let whole = |packet: &weir_engine::output::Packet| {
        let parts = &output.parts[packet.parts.start as usize..packet.parts.end as usize];
        let bytes = parts.iter().flat_map(|part| output.resolve(part, frames).to_vec()).collect();
        (packet.destination, bytes)
    };
    output.packets.iter().map(whole).collect()
}

/// Whether a frame may leave by the wire: ESP, and handshakes.
fn is_protected(frame: &[u8]) -> bool {
    let parsed = parse(frame, Link::Ethernet, frame.len() as u32);
    match parsed.transport {
        Transport::Esp { .. } => true,
        // Answers go to the port that asked, which the wire may have damaged.
        Transport::Udp { source, .. } => source == PORT,
        _ => false,
    }
}

/// Whether the ESP packet was sealed with `key`.
fn opens(key: &SaParameters, esp: &[u8]) -> bool {
    let mut bytes = esp.to_vec();
    let meta = Meta { original_len: esp.len() as u32, ..Meta::default() };
    let mut frame = Frame::new(&mut bytes, 0, esp.len(), meta);
    OpeningSa::new(key, None).unwrap().open(&mut frame).is_ok()
}
