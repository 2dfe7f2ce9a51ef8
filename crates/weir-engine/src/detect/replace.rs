//! Texts that rules replace in what a packet of TCP or UDP carries: written into its frame, with
//! the checksum corrected by what changed (RFC 1624).
//!
//! ```text
//!   judged, passes --texts--> wait --> the frame goes on --> written, checksum corrected
//! ```

use weir_detect::Replacement;
use weir_detect::tunnels::TunnelPorts;
use weir_wire::checksum::{Sum, updated};
use weir_wire::frame::Frame;
use weir_wire::parse::{Parsed, Transport};

/// What is to be written into the frame that was judged last, and how often that was done.
#[derive(Debug, Default)]
pub(super) struct Replacing {
    waiting: Vec<Replacement>,
    /// Texts that were replaced.
    pub(super) replaced: u64,
    /// Texts that were found where nothing is replaced: in what tunnels carry, in datagrams that
    /// came in pieces, and in RDMA, whose ICRC covers them.
    pub(super) left: u64,
}

impl Replacing {
    /// Keeps what is to be written into the frame at hand.
    #[inline]
    pub(super) fn keep(&mut self, texts: impl Iterator<Item = Replacement>) {
        self.waiting.clear();
        self.waiting.extend(texts);
    }

    /// Whether something is to be written.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Writes it.
    #[cold]
    pub(super) fn write(&mut self, frame: &mut Frame<'_>, parsed: &Parsed, tunnels: TunnelPorts) {
        let offload = frame.meta.offload.checksum;
        // Of the pseudo header alone: what the datagram carries is no part of it yet.
        let is_partial = offload.is_some_and(|it| it.start == parsed.transport_offset);
        let bytes = frame.bytes_mut();
        let may_change = parsed.rdma.is_none() && !tunnels.wraps(parsed);
        for text in self.waiting.drain(..) {
            let written = may_change.then(|| write(bytes, parsed, is_partial, &text)).flatten();
            match written {
                Some(()) => self.replaced += 1,
                None => self.left += 1,
            }
        }
    }
}

/// `None`: nothing of such a packet is replaced.
fn write(
    bytes: &mut [u8],
    parsed: &Parsed,
    is_partial: bool,
    Replacement { offset, bytes: text, .. }: &Replacement,
) -> Option<()> {
    let transport = usize::from(parsed.transport_offset);
    let (field, may_lack) = match parsed.transport {
        Transport::Tcp { .. } => (transport + 16, false),
        Transport::Udp { .. } => (transport + 6, true),
        _ => return None,
    };
    let start = usize::from(parsed.payload_offset) + offset;
    let end = start + text.len();
    if end > bytes.len().min(parsed.end as usize) {
        return None;
    }
    // The words that change, as the checksum counts them.
    let first = start - (start - transport) % 2;
    let last = (end + (end - transport) % 2).min(bytes.len());
    let sum = |bytes: &[u8]| Sum::new().with(&bytes[first..last]).folded();
    let old = sum(bytes);
    bytes[start..end].copy_from_slice(text);
    let new = sum(bytes);
    let checksum = bytes.get_mut(field..field + 2)?;
    let before = u16::from_be_bytes([checksum[0], checksum[1]]);
    if is_partial || (may_lack && before == 0) {
        return Some(());
    }
    let after = match updated(before, old, new) {
        0 if may_lack => u16::MAX,
        after => after,
    };
    checksum.copy_from_slice(&after.to_be_bytes());
    Some(())
}
