//! What identifies a flow: the 5-tuple, the same for both directions, and the VLANs around it.

use weir_wire::parse::{LinkFields, Network, Parsed, Transport};

use super::HashSeed;

/// Which way a packet travels within a flow or conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowDirection {
    /// From end A to end B.
    AToB,
    /// From end B to end A.
    BToA,
}

impl FlowDirection {
    /// 0 or 1, to index the two directions' counters.
    #[inline]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The other one.
    #[inline]
    pub fn reversed(self) -> Self {
        match self {
            FlowDirection::AToB => FlowDirection::BToA,
            FlowDirection::BToA => FlowDirection::AToB,
        }
    }
}

/// A 5-tuple in canonical order (the lesser address and port is end A), with its VLAN identifiers.
///
/// Ports are zero for protocols without ports, for ICMP, and for fragments behind the first: those
/// form a flow of their own. RoCE v2 sends to port 4791 in both directions, so the two directions
/// of a queue-pair conversation are two 5-tuples; [`crate::rdma`] joins them.
#[derive(Clone, Copy, Debug, Eq)]
pub struct FlowKey {
    words: [u64; 5],
}

impl PartialEq for FlowKey {
    /// Without a branch or a call.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let pairs = self.words.iter().zip(&other.words);
        pairs.fold(0, |different, (ours, theirs)| different | (ours ^ theirs)) == 0
    }
}

impl FlowKey {
    /// The key of a packet and its direction; `None` when it is not IP (or too damaged to tell).
    #[inline]
    pub fn of(parsed: &Parsed) -> Option<(Self, FlowDirection)> {
        if !matches!(parsed.network, Network::Ipv4 | Network::Ipv6) {
            return None;
        }
        let (source_port, destination_port) = match parsed.transport {
            Transport::Tcp { source, destination, .. } => (source, destination),
            Transport::Udp { source, destination } => (source, destination),
            _ => (0, 0),
        };
        let source = u128::from_be_bytes(parsed.source);
        let destination = u128::from_be_bytes(parsed.destination);
        let vlans = vlan_identifiers(&parsed.link);
        if (source, source_port) <= (destination, destination_port) {
            let ports = (source_port, destination_port);
            Some((
                Self::new(source, destination, ports, parsed.protocol, vlans),
                FlowDirection::AToB,
            ))
        } else {
            let ports = (destination_port, source_port);
            Some((
                Self::new(destination, source, ports, parsed.protocol, vlans),
                FlowDirection::BToA,
            ))
        }
    }

    #[inline]
    fn new(a: u128, b: u128, ports: (u16, u16), protocol: u8, vlans: u32) -> Self {
        let tail = u64::from(ports.0) << 48
            | u64::from(ports.1) << 32
            | u64::from(protocol) << 24
            | u64::from(vlans);
        Self { words: [(a >> 64) as u64, a as u64, (b >> 64) as u64, b as u64, tail] }
    }

    /// A few bits of it, cheap and without a secret: good for a guess only.
    #[inline]
    pub(crate) fn mix(&self) -> u16 {
        let [_, a, _, b, tail] = self.words;
        ((a.rotate_left(32) ^ b ^ tail).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16
    }

    /// Its hash under `seed`.
    #[inline]
    pub fn hash(&self, seed: &HashSeed) -> u64 {
        seed.hash(&self.words)
    }

    /// Address of end A (IPv4 mapped, as in [`Parsed::source`]).
    pub fn address_a(&self) -> [u8; 16] {
        address(self.words[0], self.words[1])
    }

    /// Address of end B.
    pub fn address_b(&self) -> [u8; 16] {
        address(self.words[2], self.words[3])
    }

    /// Port of end A.
    pub fn port_a(&self) -> u16 {
        (self.words[4] >> 48) as u16
    }

    /// Port of end B.
    pub fn port_b(&self) -> u16 {
        (self.words[4] >> 32) as u16
    }

    /// IP protocol number.
    pub fn protocol(&self) -> u8 {
        (self.words[4] >> 24) as u8
    }

    /// Outer and inner VLAN identifiers, zero where there is no tag.
    pub fn vlans(&self) -> [u16; 2] {
        [(self.words[4] >> 12 & 0xfff) as u16, (self.words[4] & 0xfff) as u16]
    }
}

/// Both VLAN identifiers in 24 bits: outer, inner; zero where there is no tag.
#[inline]
pub(crate) fn vlan_identifiers(link: &LinkFields) -> u32 {
    match link.vlan_count {
        0 => 0,
        1 => u32::from(link.vlan_tci[0] & 0xfff) << 12,
        _ => u32::from(link.vlan_tci[0] & 0xfff) << 12 | u32::from(link.vlan_tci[1] & 0xfff),
    }
}

/// Sixteen address bytes from two big-endian words.
pub(crate) fn address(high: u64, low: u64) -> [u8; 16] {
    (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(source: u8, source_port: u16, destination: u8, destination_port: u16) -> Parsed {
        let mapped = |last| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, last];
        Parsed {
            network: Network::Ipv4,
            source: mapped(source),
            destination: mapped(destination),
            protocol: 6,
            transport: Transport::Tcp {
                source: source_port,
                destination: destination_port,
                sequence: 0,
                acknowledgment: 0,
                flags: 0,
            },
            ..Parsed::default()
        }
    }

    #[test]
    fn both_directions_have_one_key() {
        let (there, out) = FlowKey::of(&tcp(1, 4000, 2, 80)).unwrap();
        let (back, home) = FlowKey::of(&tcp(2, 80, 1, 4000)).unwrap();
        assert_eq!(there, back);
        assert_eq!((out, home), (FlowDirection::AToB, FlowDirection::BToA));
        assert_eq!((there.port_a(), there.port_b(), there.protocol()), (4000, 80, 6));
        assert_eq!((there.address_a()[15], there.address_b()[15]), (1, 2));
    }

    #[test]
    fn each_part_of_the_tuple_counts() {
        let (base, _) = FlowKey::of(&tcp(1, 4000, 2, 80)).unwrap();
        let mut vlan = tcp(1, 4000, 2, 80);
        vlan.link.vlan_count = 1;
        vlan.link.vlan_tci[0] = 0x6007;
        let mut udp = tcp(1, 4000, 2, 80);
        udp.protocol = 17;
        for other in [tcp(3, 4000, 2, 80), tcp(1, 4001, 2, 80), tcp(1, 4000, 2, 81), vlan, udp] {
            assert_ne!(FlowKey::of(&other).unwrap().0, base);
        }
        assert_eq!(FlowKey::of(&vlan).unwrap().0.vlans(), [7, 0]);
    }

    #[test]
    fn the_priority_of_a_vlan_tag_is_no_part_of_the_key() {
        let mut low = tcp(1, 4000, 2, 80);
        low.link.vlan_count = 1;
        low.link.vlan_tci[0] = 0x0007;
        let mut high = low;
        high.link.vlan_tci[0] = 0xe007;
        assert_eq!(FlowKey::of(&low), FlowKey::of(&high));
    }

    #[test]
    fn what_is_not_ip_has_no_key() {
        assert_eq!(FlowKey::of(&Parsed::default()), None);
        assert_eq!(FlowKey::of(&Parsed { network: Network::Grh, ..Parsed::default() }), None);
    }
}
