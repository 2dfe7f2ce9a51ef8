//! Buffers that rules look at beside a packet's payload, and what is done to them before.

mod certificate;
pub(crate) mod dns;
pub(crate) mod event;
pub(crate) mod http;
mod ja3;
mod ja4;
pub(crate) mod ssh;
pub(crate) mod tls;
mod transform;

pub(crate) use transform::apply;

use crate::rule::{Buffer, Protocol};

/// Whether this detector fills the buffer, so that a rule about it can run.
pub(crate) fn is_filled(_: Buffer) -> bool {
    true
}

/// The application that a buffer belongs to; `None`: it is any packet's.
pub(crate) fn protocol(buffer: Buffer) -> Option<Protocol> {
    match buffer {
        Buffer::Payload
        | Buffer::IpSource
        | Buffer::IpDestination
        | Buffer::Ipv4Header
        | Buffer::Ipv6Header
        | Buffer::TcpHeader
        | Buffer::UdpHeader
        | Buffer::Icmpv4Header
        | Buffer::Icmpv6Header => None,
        Buffer::DnsQuery | Buffer::DnsAnswer | Buffer::DnsAuthority | Buffer::DnsAdditional => {
            Some(Protocol::Dns)
        }
        Buffer::TlsSni
        | Buffer::TlsCertificates
        | Buffer::TlsSubject
        | Buffer::TlsIssuer
        | Buffer::TlsSerial
        | Buffer::TlsFingerprint
        | Buffer::Ja3Hash
        | Buffer::Ja3String
        | Buffer::Ja3sHash
        | Buffer::Ja3sString
        | Buffer::Ja4Hash => Some(Protocol::Tls),
        Buffer::SshProtocol | Buffer::SshSoftware => Some(Protocol::Ssh),
        _ => Some(Protocol::Http),
    }
}
