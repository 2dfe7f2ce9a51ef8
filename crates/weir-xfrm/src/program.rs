//! The other direction: associations and policies written for a kernel, as `ip xfrm` writes them,
//! with the NIC that is to carry them out; and what the kernel says it really did.
//!
//! | offload | NIC does | flags | since |
//! |---|---|---|---|
//! | crypto | AES-GCM | 0, `INBOUND` | Linux 4.11 |
//! | packet | all of ESP | `PACKET`, policies too | Linux 6.2; untested here |

use std::net::IpAddr;

use zerocopy::{FromBytes, IntoBytes};

use crate::netlink::{HEADER_LEN, Writer, attributes};
use crate::state::address;
use crate::uapi::*;

/// `XFRM_OFFLOAD_INBOUND`.
pub const OFFLOAD_INBOUND: u8 = 2;
/// `XFRM_OFFLOAD_PACKET`.
pub const OFFLOAD_PACKET: u8 = 4;

/// An association for a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Association<'a> {
    /// Outer addresses, source and destination.
    pub ends: [IpAddr; 2],
    /// Its index.
    pub spi: u32,
    /// The number by which policies ask for it.
    pub request: u32,
    /// [`MODE_TRANSPORT`] or [`MODE_TUNNEL`].
    pub mode: u8,
    /// Key of AES-GCM and four bytes of salt.
    pub keying_material: &'a [u8],
    /// 64-bit numbers with a window of so many packets; `None`: 32 bits, no window.
    pub extended_window: Option<u32>,
    /// The NIC; `None`: the kernel itself.
    pub offload: Option<Offload>,
}

impl Association<'_> {
    /// The request that installs it.
    pub fn install(&self, sequence: u32) -> Vec<u8> {
        let (source, _) = address(self.ends[0]);
        let (destination, family) = address(self.ends[1]);
        let info = SaInfo {
            id: Id {
                destination,
                spi: self.spi.to_be_bytes(),
                protocol: PROTOCOL_ESP,
                ..Id::default()
            },
            source,
            limits: LifetimeLimits::unlimited(),
            request: self.request,
            family,
            mode: self.mode,
            flags: if self.extended_window.is_some() { FLAG_ESN } else { 0 },
            ..SaInfo::default()
        };
        let mut name = [0; 64];
        name[..17].copy_from_slice(b"rfc4106(gcm(aes))");
        let mut aead = name.to_vec();
        aead.extend((8 * self.keying_material.len() as u32).to_ne_bytes());
        aead.extend(128u32.to_ne_bytes());
        aead.extend_from_slice(self.keying_material);
        let esn = self.extended_window.map(|window| ReplayEsnHead {
            words: window.div_ceil(32),
            window,
            ..ReplayEsnHead::default()
        });
        let writer = Writer::new(request(kind::NEW_SA, sequence), &info)
            .with(attribute::ALG_AEAD, &aead[..])
            .with_some(attribute::REPLAY_ESN_VALUE, esn.as_ref());
        writer.with_some(attribute::OFFLOAD_DEVICE, self.offload.as_ref()).finish()
    }

    /// The request that asks for it; see [`offloaded`].
    pub fn query(&self, sequence: u32) -> Vec<u8> {
        let (destination, family) = address(self.ends[1]);
        let id = SaId {
            destination,
            spi: self.spi.to_be_bytes(),
            family,
            protocol: PROTOCOL_ESP,
            ..SaId::default()
        };
        let header = Header { flags: flag::REQUEST, ..request(kind::GET_SA, sequence) };
        Writer::new(header, &id).finish()
    }
}

/// The request that lists all associations.
pub fn list(sequence: u32) -> Vec<u8> {
    let header = Header { flags: flag::REQUEST | flag::DUMP, ..request(kind::GET_SA, sequence) };
    Writer::new(header, &SaId::default()).finish()
}

/// The request that removes the association that the body of a listed message describes, when it
/// has this request number: others are others'.
pub fn remove_listed(body: &[u8], wanted: u32, sequence: u32) -> Option<Vec<u8>> {
    let (info, _) = SaInfo::read_from_prefix(body).ok()?;
    let id = SaId {
        destination: info.id.destination,
        spi: info.id.spi,
        family: info.family,
        protocol: info.id.protocol,
        ..SaId::default()
    };
    (info.request == wanted).then(|| Writer::new(request(kind::DEL_SA, sequence), &id).finish())
}

/// What a kernel's answer to [`Association::query`] says of its NIC: `None` when it seals by
/// itself, whatever was asked for. Kernels before 6.2 take a request for `crypto` on a NIC without
/// ESP and say nothing: only this tells.
pub fn offloaded(answer: &[u8]) -> Option<Offload> {
    let rest = answer.get(HEADER_LEN + size_of::<SaInfo>()..)?;
    let (_, value) = attributes(rest).find(|(kind, _)| *kind == attribute::OFFLOAD_DEVICE)?;
    Some(Offload::read_from_prefix(value).ok()?.0)
}

/// A policy for a kernel.
#[derive(Clone, Copy, Debug)]
pub struct PolicyRequest {
    /// Networks and their lengths, source and destination.
    pub networks: [(IpAddr, u8); 2],
    /// [`DIRECTION_IN`], [`DIRECTION_OUT`] or [`DIRECTION_FORWARD`].
    pub direction: u8,
    /// Outer addresses of the association, source and destination.
    pub ends: [IpAddr; 2],
    /// The association's request number.
    pub request: u32,
    /// Its mode.
    pub mode: u8,
    /// The NIC, for `packet`.
    pub offload: Option<Offload>,
}

impl PolicyRequest {
    /// The request that installs it.
    pub fn install(&self, sequence: u32) -> Vec<u8> {
        let [(source, source_len), (destination, destination_len)] = self.networks;
        let (destination, family) = address(destination);
        let selector = Selector {
            destination,
            source: address(source).0,
            family,
            destination_len,
            source_len,
            ..Selector::default()
        };
        let (outer, outer_family) = address(self.ends[1]);
        let info = PolicyInfo {
            selector,
            limits: LifetimeLimits::unlimited(),
            direction: self.direction,
            ..PolicyInfo::default()
        };
        let template = Template {
            id: Id { destination: outer, protocol: PROTOCOL_ESP, ..Id::default() },
            family: outer_family,
            source: address(self.ends[0]).0,
            request: self.request,
            mode: self.mode,
            authentication: u32::MAX,
            encryption: u32::MAX,
            compression: u32::MAX,
            ..Template::default()
        };
        Writer::new(request(kind::NEW_POLICY, sequence), &info)
            .with(attribute::TEMPLATES, template.as_bytes())
            .with_some(attribute::OFFLOAD_DEVICE, self.offload.as_ref())
            .finish()
    }
}

fn request(kind: u16, sequence: u32) -> Header {
    Header { kind, flags: flag::REQUEST | flag::ACK, sequence, ..Header::default() }
}
