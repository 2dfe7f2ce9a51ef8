//! The classes of traffic that outer headers carry: those of the packet inside, or what the fabric
//! calls them.

use weir_wire::parse::Parsed;

/// Values of a DSCP (RFC 2474 s3).
pub const DSCP_COUNT: usize = 64;

/// Values of a VLAN tag's priority code point (IEEE 802.1Q s6.9.3).
pub const PCP_COUNT: usize = 8;

/// From the inner packet's classes to the outer one's. By default each is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marking {
    dscp: [u8; DSCP_COUNT],
    pcp: [u8; PCP_COUNT],
}

impl Default for Marking {
    fn default() -> Self {
        Self {
            dscp: std::array::from_fn(|class| class as u8),
            pcp: std::array::from_fn(|class| class as u8),
        }
    }
}

impl Marking {
    /// Packets of DSCP `inner` travel with `outer` (0 to 63; the lower six bits count).
    pub fn map_dscp(&mut self, inner: u8, outer: u8) {
        self.dscp[usize::from(inner) % DSCP_COUNT] = outer % DSCP_COUNT as u8;
    }

    /// Packets of VLAN priority `inner` travel with `outer` (0 to 7; the lower three bits count).
    pub fn map_pcp(&mut self, inner: u8, outer: u8) {
        self.pcp[usize::from(inner) % PCP_COUNT] = outer % PCP_COUNT as u8;
    }

    /// Of the outer packet: the DSCP as mapped, ECN as it is (RFC 6040 s4.1).
    #[inline]
    pub fn traffic_class(&self, inner: &Parsed) -> u8 {
        let class = inner.traffic_class;
        self.dscp[usize::from(class >> 2)] << 2 | class & 3
    }

    /// Of the outer packet's tag, where it has one: that of the inner packet's outermost tag. A
    /// packet without a tag has priority 0.
    #[inline]
    pub fn pcp(&self, inner: &Parsed) -> u8 {
        let tagged = inner.link.vlan_count > 0;
        self.pcp[if tagged { usize::from(inner.link.vlan_tci[0] >> 13) } else { 0 }]
    }

    /// What is not copied: (inner, outer) of DSCP.
    pub fn dscp_changes(&self) -> impl Iterator<Item = (u8, u8)> {
        changes(&self.dscp)
    }

    /// The same of VLAN priority.
    pub fn pcp_changes(&self) -> impl Iterator<Item = (u8, u8)> {
        changes(&self.pcp)
    }
}

fn changes(map: &[u8]) -> impl Iterator<Item = (u8, u8)> {
    (0_u8..).zip(map.iter().copied()).filter(|(inner, outer)| inner != outer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(traffic_class: u8, tags: &[u16]) -> Parsed {
        let mut parsed = Parsed { traffic_class, ..Parsed::default() };
        parsed.link.vlan_count = tags.len() as u8;
        parsed.link.vlan_tci[..tags.len()].copy_from_slice(tags);
        parsed
    }

    #[test]
    fn every_class_is_copied_unless_it_is_mapped() {
        let mut marking = Marking::default();
        assert!((0..=255).all(|class| marking.traffic_class(&packet(class, &[])) == class));
        assert!((0..8).all(|pcp| marking.pcp(&packet(0, &[pcp << 13 | 100])) == pcp as u8));
        marking.map_dscp(26, 34);
        marking.map_pcp(3, 5);
        for ecn in 0..4 {
            assert_eq!(marking.traffic_class(&packet(26 << 2 | ecn, &[])), 34 << 2 | ecn);
            assert_eq!(marking.traffic_class(&packet(27 << 2 | ecn, &[])), 27 << 2 | ecn);
        }
        assert_eq!(marking.pcp(&packet(0, &[3 << 13 | 7])), 5);
        assert_eq!(marking.dscp_changes().collect::<Vec<_>>(), [(26, 34)]);
        assert_eq!(marking.pcp_changes().collect::<Vec<_>>(), [(3, 5)]);
    }

    #[test]
    fn the_outermost_tag_decides_and_no_tag_is_priority_0() {
        let mut marking = Marking::default();
        assert_eq!(marking.pcp(&packet(0, &[2 << 13 | 7, 6 << 13 | 8])), 2);
        assert_eq!(marking.pcp(&packet(0, &[])), 0);
        marking.map_pcp(0, 1);
        assert_eq!(marking.pcp(&packet(0, &[])), 1);
    }
}
