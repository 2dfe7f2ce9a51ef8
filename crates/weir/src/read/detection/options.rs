//! How captures are looked at.

use std::path::PathBuf;

use weir_detect::fragments::Policy;
use weir_detect::tunnels::TunnelPorts;
use weir_detect::{AsSuricata, FileDigests, Limits};

use super::super::events::Events;
use super::{Checksums, Exception};

/// Flows at a time; beyond, the one that has been silent longest ends.
const FLOWS_MAX: usize = 1 << 18;
/// Bytes of a stream that are looked at again inline (Suricata's `toserver-chunk-size`).
const LOOKED_AT_AGAIN: usize = 2560;

/// How captures are looked at.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Keys the detector's tables.
    pub seed: u64,
    /// Whether packets are dropped as a gateway would, and dropped ones told of.
    pub is_inline: bool,
    /// Whether streams are looked at as by Suricata in IPS mode: pieces of bodies as they come,
    /// what matched before with each segment again, and of bytes in one place the first.
    pub as_ips: bool,
    /// Whether what is said over TCP counts when it was acknowledged, as it does for who watches
    /// alone.
    pub waits: bool,
    /// Whether it is told of flows that what is spoken there is not known, as Suricata does.
    pub tells_failed: bool,
    /// Whether TCP segments with wrong checksums are part of their connection.
    pub checksums: Checksums,
    /// Whether TCP connections are taken up where their beginning was not seen.
    pub midstream: bool,
    /// What is done with those where that is not so.
    pub midstream_policy: Option<Exception>,
    /// Alerts of one packet that are told, at most; others are counted.
    pub alerts_max: Option<usize>,
    /// A connection of which a side has sent so many bytes is looked at no further.
    pub bypass_depth: Option<u64>,
    /// Bytes of each side of a connection that are put together; those behind are looked at packet
    /// by packet.
    pub stream_depth: Option<u64>,
    /// Whether TCP segments are dropped that have no place in their connection.
    pub drops_invalid: bool,
    /// Whether rules look into TLS, and into SSH, once it is encrypted.
    pub looks_into_encrypted: [bool; 2],
    /// Whether connections of TLS, and of SSH, are looked at no further then.
    pub bypasses_encrypted: [bool; 2],
    /// Where datagrams carry packets.
    pub tunnels: TunnelPorts,
    /// Layers of one packet, at most; as many as there may be at all unless told otherwise.
    pub layers_max: Option<usize>,
    /// How fragments that overlap are put together.
    pub policy: Policy,
    /// What is done with flows whose application says something that cannot be read.
    pub error_policy: Option<Exception>,
    /// Which events there are beside those of kind `alert`.
    pub events: Events,
    /// Whether packets are of one flow that differ by their VLANs alone.
    pub ignores_vlans: bool,
    /// Digests of files that are told beside those that rules ask for.
    pub digests: FileDigests,
    /// Whether `http` has all headers of requests, and of responses.
    pub http_headers: [bool; 2],
    /// Whether `dhcp` tells of all messages, in full.
    pub dhcp_extended: bool,
    /// What else is done as Suricata does.
    pub as_suricata: AsSuricata,
    /// The names, in lower case, of others that it has of both.
    pub http_custom: Vec<String>,
    /// Of HTTP, what was asked of whom by what is told, and not how (`extended: no`).
    pub http_brief: bool,
    /// Bytes of a stream that an alert tells, at most, where that is bounded.
    pub payload_max: Option<usize>,
    /// The folder of sets that rules change; none is written where there is none.
    pub datasets: Option<PathBuf>,
}

impl Options {
    /// What bounds the detector, and what it does where it cannot look.
    pub(super) fn limits(&self) -> Limits {
        let Options { seed, midstream, ignores_vlans, digests, http_headers, .. } = *self;
        Limits {
            flows: FLOWS_MAX,
            seed,
            midstream,
            ignores_vlans,
            digests,
            dhcp_extended: self.dhcp_extended,
            http_headers: http_headers.map(|it| it || !self.http_custom.is_empty()),
            waits_for_acknowledgment: self.waits,
            looks_into_encrypted: self.looks_into_encrypted,
            stream_depth: self.stream_depth,
            refuses_invalid: self.drops_invalid,
            // A connection gets no further once it is dropped.
            refuses_parser_errors: self.is_inline
                && matches!(self.error_policy, Some(Exception::DropFlow | Exception::Reject)),
            checks_segments: self.checksums != Checksums::Trusted,
            as_suricata: AsSuricata {
                looks_at_pieces: self.as_ips,
                looks_again: if self.as_ips { LOOKED_AT_AGAIN } else { 0 },
                ..self.as_suricata
            },
            ..Limits::default()
        }
    }
}
