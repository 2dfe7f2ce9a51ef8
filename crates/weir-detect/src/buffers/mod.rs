//! Buffers that rules look at beside a packet's payload, and what is done to them before.

pub(crate) mod dns;
pub(crate) mod event;
pub(crate) mod http;
pub(crate) mod progress;
pub(crate) mod ssh;
pub(crate) mod tls;
mod transform;

pub(crate) use transform::apply;

use crate::rule::{Buffer, Protocol};

/// Applications that carry files, beside HTTP.
const OF_FILES: [Protocol; 4] = [Protocol::Smtp, Protocol::FtpData, Protocol::Smb, Protocol::Nfs];

/// What hellos of TLS tell that come in QUIC.
const OF_QUIC: [Buffer; 5] =
    [Buffer::Ja3Hash, Buffer::Ja3String, Buffer::Ja3sHash, Buffer::Ja3sString, Buffer::Ja4Hash];

/// Whether messages of that application fill the buffer.
pub(crate) fn is_of(buffer: Buffer, application: Protocol) -> bool {
    match buffer {
        Buffer::FileData | Buffer::FileName if OF_FILES.contains(&application) => true,
        Buffer::DcerpcStub | Buffer::DcerpcInterface if application == Protocol::Smb => true,
        other if application == Protocol::Quic && OF_QUIC.contains(&other) => true,
        _ => protocol(buffer).is_some_and(|it| it.means(application)),
    }
}

/// All applications whose messages fill the buffer.
pub(crate) fn protocols(buffer: Buffer) -> impl Iterator<Item = Protocol> {
    let own = protocol(buffer);
    let others = OF_FILES.into_iter().chain([Protocol::Quic]);
    let others = others.filter(move |it| is_of(buffer, *it) && own != Some(*it));
    own.into_iter().chain(others)
}

/// Whose messages alone have the buffer: clients' or servers'.
pub(crate) fn to_server(buffer: Buffer) -> Option<bool> {
    match buffer {
        Buffer::TlsSni
        | Buffer::Ja3Hash
        | Buffer::Ja3String
        | Buffer::Ja4Hash
        | Buffer::SshHassh
        | Buffer::SshHasshString
        | Buffer::HttpUri
        | Buffer::HttpUriRaw
        | Buffer::HttpMethod
        | Buffer::HttpRequestLine
        | Buffer::HttpUserAgent
        | Buffer::HttpHost
        | Buffer::HttpHostRaw
        | Buffer::HttpReferer
        | Buffer::HttpAccept
        | Buffer::HttpAcceptEncoding
        | Buffer::HttpAcceptLanguage
        | Buffer::HttpRequestBody
        | Buffer::HttpRequestHeaderLine => Some(true),
        Buffer::TlsAlternativeName
        | Buffer::Ja3sHash
        | Buffer::Ja3sString
        | Buffer::SshHasshServer
        | Buffer::SshHasshServerString
        | Buffer::HttpStatusCode
        | Buffer::HttpStatusMessage
        | Buffer::HttpResponseLine
        | Buffer::HttpServer
        | Buffer::HttpLocation
        | Buffer::HttpResponseBody
        | Buffer::HttpResponseHeaderLine => Some(false),
        _ => None,
    }
}

/// Who alone says what is in the buffer: clients (true) or servers. A rule that looks at the other
/// never finds it; which message of a session tells of it may be the other's all the same.
pub(crate) fn said_by(buffer: Buffer) -> Option<bool> {
    match buffer {
        Buffer::DnsQuery
        | Buffer::SmtpHelo
        | Buffer::SmtpSender
        | Buffer::SmtpReceiver
        | Buffer::EmailFrom
        | Buffer::EmailTo
        | Buffer::EmailCc
        | Buffer::EmailSubject
        | Buffer::EmailDate
        | Buffer::EmailMessageId
        | Buffer::EmailMailer
        | Buffer::EmailReceived
        | Buffer::EmailUrl
        | Buffer::FtpCommand
        | Buffer::FtpCommandData
        | Buffer::SmbPipe
        | Buffer::SmbShare
        | Buffer::SmbUser
        | Buffer::SmbDomain
        | Buffer::SipMethod
        | Buffer::SipUri
        | Buffer::SipRequestLine
        | Buffer::MqttClient
        | Buffer::MqttUser
        | Buffer::MqttPassword
        | Buffer::MqttWillTopic
        | Buffer::MqttWillMessage
        | Buffer::MqttProtocolString
        | Buffer::MqttSubscribed
        | Buffer::MqttUnsubscribed
        | Buffer::IkeInitiator
        | Buffer::IkeVendor
        | Buffer::LdapRequestName
        | Buffer::LdapRequestAttribute
        | Buffer::PgsqlQuery
        | Buffer::QuicServerName
        | Buffer::QuicUserAgent
        | Buffer::QuicFingerprint => Some(true),
        Buffer::DnsResponse
        | Buffer::FtpReply
        | Buffer::FtpCode
        | Buffer::KrbClient
        | Buffer::KrbServer
        | Buffer::SipStatusCode
        | Buffer::SipStatusMessage
        | Buffer::SipResponseLine
        | Buffer::RfbName
        | Buffer::IkeResponder
        | Buffer::LdapResponseName
        | Buffer::LdapMessage
        | Buffer::LdapResponseAttribute => Some(false),
        other => to_server(other),
    }
}

/// Whether a message may have several of it, each of which may be another that a rule asks for.
pub(crate) fn may_be_many(buffer: Buffer) -> bool {
    matches!(
        buffer,
        Buffer::DnsQuery
            | Buffer::DnsQuestion
            | Buffer::DnsAnswer
            | Buffer::DnsResponse
            | Buffer::DnsAuthority
            | Buffer::DnsAdditional
            | Buffer::MdnsQuery
            | Buffer::MdnsAnswer
            | Buffer::MdnsAuthority
            | Buffer::MdnsAdditional
            | Buffer::MdnsResponse
            | Buffer::HttpRequestHeaderLine
            | Buffer::HttpResponseHeaderLine
            | Buffer::Http2HeaderName
            | Buffer::TlsCertificates
            | Buffer::TlsAlternativeName
            | Buffer::TlsAlpn
            | Buffer::SmtpReceiver
            | Buffer::EmailUrl
            | Buffer::EmailReceived
            | Buffer::KrbClient
            | Buffer::KrbServer
            | Buffer::MqttSubscribed
            | Buffer::MqttUnsubscribed
            | Buffer::IkeVendor
            | Buffer::QuicFingerprintHash
            | Buffer::QuicFingerprint
            | Buffer::LdapResponseName
            | Buffer::LdapMessage
            | Buffer::LdapRequestAttribute
            | Buffer::LdapResponseAttribute
    )
}

/// The application that a buffer belongs to, or the first of several; `None`: it is any packet's.
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
        Buffer::DnsQuery
        | Buffer::DnsQuestion
        | Buffer::DnsResponse
        | Buffer::DnsAnswer
        | Buffer::DnsAuthority
        | Buffer::DnsAdditional => Some(Protocol::Dns),
        Buffer::TlsSni
        | Buffer::TlsCertificates
        | Buffer::TlsSubject
        | Buffer::TlsIssuer
        | Buffer::TlsSerial
        | Buffer::TlsFingerprint
        | Buffer::TlsAlternativeName
        | Buffer::TlsAlpn
        | Buffer::TlsRandom
        | Buffer::TlsRandomTime
        | Buffer::TlsRandomBytes
        | Buffer::Ja3Hash
        | Buffer::Ja3String
        | Buffer::Ja3sHash
        | Buffer::Ja3sString
        | Buffer::Ja4Hash => Some(Protocol::Tls),
        Buffer::SshProtocol
        | Buffer::SshSoftware
        | Buffer::SshHassh
        | Buffer::SshHasshString
        | Buffer::SshHasshServer
        | Buffer::SshHasshServerString => Some(Protocol::Ssh),
        Buffer::Http2HeaderName => Some(Protocol::Http2),
        Buffer::Frame(kind) => Some(kind.protocol()),
        // Those of HTTP stand before.
        other if other < Buffer::FileName => Some(Protocol::Http),
        other => Some(by_name(other.name()).unwrap_or(Protocol::Http)),
    }
}

/// The application whose name a keyword begins with: of those that are told in units.
fn by_name(keyword: &str) -> Option<Protocol> {
    let first = keyword.split_once('.')?.0;
    match first {
        "http" | "file" => None,
        "email" => Some(Protocol::Smtp),
        "sdp" => Some(Protocol::Sip),
        other => Protocol::from_name(other),
    }
}
