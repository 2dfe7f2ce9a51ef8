//! The other direction: associations and policies written for a kernel, as `ip xfrm` writes them,
//! with the NIC that is to carry them out; and what the kernel says it really did.
//!
//! | offload | NIC does | flags | since |
//! |---|---|---|---|
//! | crypto | AES-GCM | 0, `INBOUND` | Linux 4.11 |
//! | packet | all of ESP | `PACKET`, policies too | Linux 6.2; no NIC tried |

use std::net::IpAddr;

use zerocopy::{FromBytes, IntoBytes};
use zeroize::Zeroizing;

use crate::netlink::{HEADER_LEN, Writer, attributes};
use crate::state::address;
use crate::uapi::*;

/// `XFRM_OFFLOAD_INBOUND`.
pub const OFFLOAD_INBOUND: u8 = 2;
/// `XFRM_OFFLOAD_PACKET`.
pub const OFFLOAD_PACKET: u8 = 4;

/// Bytes of the longest message that installs an association: a window of 8192 packets.
const SECRET_ROOM: usize = 2048;

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
    /// The xfrm interface whose packets alone it is for, and where its numbers go on; `None`:
    /// everybody's, and a new key.
    pub bound: Option<Bound>,
}

/// What an association of an xfrm interface has beside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// The interface's `if_id`, which its sealed packets get as their mark too.
    pub interface: u32,
    /// Numbers up to this one were used.
    pub sealed: u64,
    /// Numbers up to this one were accepted, or count as if.
    pub opened: u64,
    /// Packets that it may seal before it ends.
    pub packets_max: u64,
}

impl Association<'_> {
    /// The request that installs it.
    pub fn install(&self, sequence: u32) -> Vec<u8> {
        self.write(kind::NEW_SA, sequence)
    }

    /// The request that gives an installed one the limit of packets that is in `bound`, and leaves
    /// its numbers as they are.
    pub fn extend(&self, sequence: u32) -> Vec<u8> {
        self.write(kind::UPD_SA, sequence)
    }

    fn write(&self, kind: u16, sequence: u32) -> Vec<u8> {
        let bound = self.bound.unwrap_or_default();
        let mut limits = LifetimeLimits::unlimited();
        let mut any_family = 0;
        if self.bound.is_some() {
            limits.hard_packets = bound.packets_max;
            // Else it would carry packets of its outer family alone.
            any_family = FLAG_ANY_FAMILY;
        }
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
            limits,
            request: self.request,
            family,
            mode: self.mode,
            flags: if self.extended_window.is_some() { FLAG_ESN } else { 0 } | any_family,
            ..SaInfo::default()
        };
        let mut name = [0; 64];
        name[..17].copy_from_slice(b"rfc4106(gcm(aes))");
        let room = size_of::<AeadHead>() + self.keying_material.len();
        let mut aead = Zeroizing::new(Vec::with_capacity(room));
        aead.extend_from_slice(&name);
        aead.extend((8 * self.keying_material.len() as u32).to_ne_bytes());
        aead.extend(128u32.to_ne_bytes());
        aead.extend_from_slice(self.keying_material);
        let mut writer = Writer::with_room(SECRET_ROOM, request(kind, sequence), &info)
            .with(attribute::ALG_AEAD, &aead[..]);
        if let Some(window) = self.extended_window {
            writer = writer.with(attribute::REPLAY_ESN_VALUE, &bound.numbers(window)[..]);
        }
        writer = writer.with_some(attribute::OFFLOAD_DEVICE, self.offload.as_ref());
        if self.bound.is_some() {
            writer = writer
                .with(attribute::SET_MARK, &bound.interface)
                .with(attribute::SET_MARK_MASK, &u32::MAX)
                .with(attribute::INTERFACE_ID, &bound.interface);
        }
        writer.finish()
    }

    /// The request that asks for it; see [`offloaded`] and [`Installed`].
    pub fn query(&self, sequence: u32) -> Vec<u8> {
        let header = Header { flags: flag::REQUEST, ..request(kind::GET_SA, sequence) };
        self.name(header)
    }

    /// The request that removes it.
    pub fn remove(&self, sequence: u32) -> Vec<u8> {
        self.name(request(kind::DEL_SA, sequence))
    }

    fn name(&self, header: Header) -> Vec<u8> {
        let (destination, family) = address(self.ends[1]);
        let id = SaId {
            destination,
            spi: self.spi.to_be_bytes(),
            family,
            protocol: PROTOCOL_ESP,
            ..SaId::default()
        };
        Writer::new(header, &id).finish()
    }
}

impl Bound {
    /// `xfrm_replay_state_esn`. A window that begins behind accepted numbers comes with its bitmap,
    /// in which all of them are: a late packet is lost by a restart, and none is taken twice.
    fn numbers(&self, window: u32) -> Vec<u8> {
        let head = ReplayEsnHead {
            words: window.div_ceil(32),
            sealed: self.sealed as u32,
            sealed_high: (self.sealed >> 32) as u32,
            opened: self.opened as u32,
            opened_high: (self.opened >> 32) as u32,
            window,
        };
        let mut bytes = head.as_bytes().to_vec();
        if self.opened > 0 {
            bytes.resize(bytes.len() + 4 * head.words as usize, u8::MAX);
        }
        bytes
    }
}

/// An association as a kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The number by which policies ask for it.
    pub request: u32,
    /// `if_id` of its xfrm interface; 0: none.
    pub interface: u32,
    /// Its index.
    pub spi: u32,
    /// Its outer destination.
    pub destination: Address,
    /// Packets and bytes that it sealed or opened since it was installed.
    pub used: LifetimeUsed,
    /// Replays and forgeries that it dropped.
    pub statistics: Statistics,
    /// The last number that it used.
    pub sealed: u64,
    /// The highest number that it accepted.
    pub opened: u64,
}

impl Installed {
    /// From the body of a message that describes an association.
    pub fn read(body: &[u8]) -> Option<Self> {
        let (info, rest) = SaInfo::read_from_prefix(body).ok()?;
        let find = |wanted| attributes(rest).find(|(kind, _)| *kind == wanted);
        let esn = find(attribute::REPLAY_ESN_VALUE)
            .and_then(|(_, value)| Some(ReplayEsnHead::read_from_prefix(value).ok()?.0))
            .unwrap_or_default();
        let interface = find(attribute::INTERFACE_ID)
            .and_then(|(_, value)| Some(u32::read_from_prefix(value).ok()?.0));
        Some(Self {
            request: info.request,
            interface: interface.unwrap_or(0),
            spi: u32::from_be_bytes(info.id.spi),
            destination: info.id.destination,
            used: info.used,
            statistics: info.statistics,
            sealed: u64::from(esn.sealed_high) << 32 | u64::from(esn.sealed),
            opened: u64::from(esn.opened_high) << 32 | u64::from(esn.opened),
        })
    }
}

/// The request that lists all associations.
pub fn list(sequence: u32) -> Vec<u8> {
    let header = Header { flags: flag::REQUEST | flag::DUMP, ..request(kind::GET_SA, sequence) };
    Writer::new(header, &[0u8; 0]).finish()
}

/// Key and salt of the association that the body of a message describes, if the kernel tells them.
pub fn keying_material(body: &[u8]) -> Option<&[u8]> {
    let rest = body.get(size_of::<SaInfo>()..)?;
    let (_, value) = attributes(rest).find(|(kind, _)| *kind == attribute::ALG_AEAD)?;
    value.get(size_of::<AeadHead>()..)
}

/// The request that removes the association that the body of a listed message describes, whoever's
/// it is: see [`Installed`].
pub fn remove_listed(body: &[u8], sequence: u32) -> Option<Vec<u8>> {
    let (info, _) = SaInfo::read_from_prefix(body).ok()?;
    let id = SaId {
        destination: info.id.destination,
        spi: info.id.spi,
        family: info.family,
        protocol: info.id.protocol,
        ..SaId::default()
    };
    Some(Writer::new(request(kind::DEL_SA, sequence), &id).finish())
}

/// The request that lists all policies.
pub fn list_policies(sequence: u32) -> Vec<u8> {
    let header =
        Header { flags: flag::REQUEST | flag::DUMP, ..request(kind::GET_POLICY, sequence) };
    Writer::new(header, &[0u8; 0]).finish()
}

/// The request that removes the policy that the body of a listed message describes, where it is
/// of the xfrm interface with this `if_id`; `None`: it is not.
pub fn remove_listed_policy(body: &[u8], interface: u32, sequence: u32) -> Option<Vec<u8>> {
    let (info, rest) = PolicyInfo::read_from_prefix(body).ok()?;
    let (_, value) = attributes(rest).find(|(kind, _)| *kind == attribute::INTERFACE_ID)?;
    if u32::read_from_prefix(value).ok()?.0 != interface {
        return None;
    }
    let id = PolicyId { selector: info.selector, direction: info.direction, ..PolicyId::default() };
    let writer = Writer::new(request(kind::DEL_POLICY, sequence), &id);
    Some(writer.with(attribute::INTERFACE_ID, &interface).finish())
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
    /// The one association that it may use; `None`: any that is fit.
    pub spi: Option<u32>,
    /// Its mode.
    pub mode: u8,
    /// The NIC, for `packet`.
    pub offload: Option<Offload>,
    /// `if_id` of the xfrm interface whose packets alone it is for; `None`: everybody's.
    pub interface: Option<u32>,
}

impl PolicyRequest {
    /// The request that installs it.
    pub fn install(&self, sequence: u32) -> Vec<u8> {
        self.write(kind::NEW_POLICY, sequence)
    }

    /// The request that puts it in the place of the one for the same packets, in one step, or
    /// where there is none.
    pub fn replace(&self, sequence: u32) -> Vec<u8> {
        self.write(kind::UPD_POLICY, sequence)
    }

    fn write(&self, kind: u16, sequence: u32) -> Vec<u8> {
        let selector = self.selector();
        let (outer, outer_family) = address(self.ends[1]);
        let info = PolicyInfo {
            selector,
            limits: LifetimeLimits::unlimited(),
            direction: self.direction,
            ..PolicyInfo::default()
        };
        let template = Template {
            id: Id {
                destination: outer,
                spi: self.spi.unwrap_or(0).to_be_bytes(),
                protocol: PROTOCOL_ESP,
                ..Id::default()
            },
            family: outer_family,
            source: address(self.ends[0]).0,
            request: self.request,
            mode: self.mode,
            authentication: u32::MAX,
            encryption: u32::MAX,
            compression: u32::MAX,
            ..Template::default()
        };
        Writer::new(request(kind, sequence), &info)
            .with(attribute::TEMPLATES, template.as_bytes())
            .with_some(attribute::OFFLOAD_DEVICE, self.offload.as_ref())
            .with_some(attribute::INTERFACE_ID, self.interface.as_ref())
            .finish()
    }

    /// The request that removes it.
    pub fn remove(&self, sequence: u32) -> Vec<u8> {
        let selector = self.selector();
        let id = PolicyId { selector, direction: self.direction, ..PolicyId::default() };
        Writer::new(request(kind::DEL_POLICY, sequence), &id)
            .with_some(attribute::INTERFACE_ID, self.interface.as_ref())
            .finish()
    }

    fn selector(&self) -> Selector {
        let [(source, source_len), (destination, destination_len)] = self.networks;
        let (destination, family) = address(destination);
        Selector {
            destination,
            source: address(source).0,
            family,
            destination_len,
            source_len,
            ..Selector::default()
        }
    }
}

fn request(kind: u16, sequence: u32) -> Header {
    Header { kind, flags: flag::REQUEST | flag::ACK, sequence, ..Header::default() }
}
