//! What the state machine wants done, and what it is told of the data path.

use super::handshake::Role;
use super::key::PublicKey;
use super::path::Path;
use super::path_mtu::{Probe, ProbeMessage};
use crate::esp::icrc_tag::TagKey;
use crate::esp::sa::SaParameters;

/// What the state machine wants done.
#[derive(Debug)]
pub enum Effect {
    /// Send this datagram.
    Send {
        /// Where to.
        path: Path,
        /// What.
        datagram: Vec<u8>,
    },
    /// Put new associations in place: of several workers, worker 0's last. Then who has a packet
    /// of worker 0's, or the response that follows, knows that all of them open.
    Install(Box<Install>),
    /// These associations seal from now on, of all workers: a packet by worker 0's has come, or it
    /// was ours to begin. Told where there are several.
    InUse {
        /// With whom.
        peer: PublicKey,
        /// Under which worker 0 opens.
        open_spi: u32,
        /// How many share the peer's flows from now on.
        workers: u8,
    },
    /// Remove an association that opens, and those that other workers have beside it.
    Forget {
        /// Of whom.
        peer: PublicKey,
        /// Which: worker 0's.
        open_spi: u32,
    },
    /// Seal no more: the keys expired.
    Close {
        /// To whom.
        peer: PublicKey,
    },
    /// Seal an empty packet.
    Keepalive {
        /// To whom.
        peer: PublicKey,
    },
    /// Seal a question about the path's width, or the answer to one.
    Probe {
        /// To whom.
        peer: PublicKey,
        /// What.
        message: ProbeMessage,
    },
    /// Seal packets of so many bytes at most, outer IP header included.
    PathMtu {
        /// To whom.
        peer: PublicKey,
        /// The bytes.
        bytes: u16,
    },
}

/// New associations.
#[derive(Debug)]
pub struct Install {
    /// With whom.
    pub peer: PublicKey,
    /// The initiator seals with them at once; the responder from the first packet on that it opens.
    pub role: Role,
    /// Where the peer spoke from.
    pub path: Path,
    /// To the peer.
    pub seal: SaParameters,
    /// From the peer.
    pub open: SaParameters,
    /// The same for workers 1, 2, ...
    pub more: Vec<[SaParameters; 2]>,
    /// To and from a peer whose packets are tagged; the associations carry signs of life only.
    pub tags: Option<[TagKey; 2]>,
}

/// What the data path saw of one peer since it was last asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerActivity {
    /// SPI of the association that seals, and packets and bytes that it sealed so far; of several
    /// workers each tells its own.
    pub sealed: Option<(u32, u64, u64)>,
    /// Whether an authentic packet came.
    pub heard: bool,
    /// SPI of the pending association whose first packet came: its session is in use now.
    pub confirmed: Option<u32>,
    /// Where authentic packets come from now.
    pub moved_to: Option<Path>,
    /// A packet found no association to be sealed with; where the peer may be.
    pub wanted: Option<Option<Path>>,
    /// The peer asks how wide its path to us is: the largest probe that came.
    pub probed: Option<Probe>,
    /// The peer's answer to our own probes.
    pub probe_answered: Option<Probe>,
    /// ICMP said that a packet to the peer was too large for the path. Anyone may have sent it.
    pub too_large: bool,
    /// Its associations are gone: the kernel lost them or never took them, or a configured
    /// association needs the SPI of one.
    pub lost: bool,
}
