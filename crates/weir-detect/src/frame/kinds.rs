//! Which frames there are, by the names that rules call them.

use crate::rule::Protocol;

/// A kind of frame: `pdu` of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameKind {
    protocol: Protocol,
    name: &'static str,
}

/// Those of each protocol.
const KINDS: [(Protocol, &[&str]); 17] = [
    (Protocol::Http1, &["request", "response"]),
    (Protocol::Http2, &["pdu", "hdr", "data"]),
    (Protocol::Tls, &["pdu", "hdr", "data", "alert", "heartbeat", "ssl2.hdr", "ssl2.pdu"]),
    (Protocol::Dns, &["pdu"]),
    (Protocol::Ssh, &["record.hdr", "record.data", "record.pdu"]),
    (
        Protocol::Smb,
        &[
            "nbss.pdu",
            "nbss.hdr",
            "nbss.data",
            "smb1.pdu",
            "smb1.hdr",
            "smb1.data",
            "smb2.pdu",
            "smb2.hdr",
            "smb2.data",
            "smb3.pdu",
            "smb3.hdr",
            "smb3.data",
        ],
    ),
    (Protocol::Dcerpc, &["hdr", "data", "pdu"]),
    (
        Protocol::Sip,
        &[
            "pdu",
            "request.line",
            "response.line",
            "request.headers",
            "response.headers",
            "request.body",
            "response.body",
        ],
    ),
    (
        Protocol::Nfs,
        &[
            "rpc.pdu",
            "rpc.hdr",
            "rpc.data",
            "rpc.creds",
            "nfs.pdu",
            "nfs.status",
            "nfs4.pdu",
            "nfs4.hdr",
            "nfs4.ops",
            "nfs4.status",
        ],
    ),
    (Protocol::Mqtt, &["pdu", "header", "data"]),
    (Protocol::Ldap, &["pdu"]),
    (Protocol::Enip, &["hdr", "data", "pdu", "cip", "enip.item"]),
    (Protocol::Websocket, &["header", "pdu", "data"]),
    (Protocol::Telnet, &["pdu", "ctl", "data"]),
    (Protocol::Smtp, &["command_line", "data", "response_line"]),
    (Protocol::Rfb, &["pdu"]),
    (Protocol::Mdns, &["pdu"]),
];

impl FrameKind {
    /// Of `tls.stream`, which is no unit, the protocol.
    pub(crate) fn stream(text: &str, rule: Option<Protocol>) -> Result<Option<Protocol>, String> {
        let (protocol, "stream") = named(text, rule)? else { return Ok(None) };
        if protocol.is_of_datagrams_alone() || rule == Some(Protocol::Udp) {
            return Err(format!("`{text}` comes in datagrams, which are no stream"));
        }
        Ok(Some(if protocol == Protocol::Http { Protocol::Http1 } else { protocol }))
    }

    /// `tls.pdu`, or `pdu` alone in a rule of TLS.
    pub(crate) fn parse(text: &str, rule: Option<Protocol>) -> Result<Self, String> {
        let (protocol, name) = named(text, rule)?;
        let kind = Self::of(protocol, name).ok_or_else(|| format!("no frame `{text}` is known"))?;
        let is_carried = match rule {
            Some(Protocol::Udp) => protocol.is_of_datagrams(),
            Some(Protocol::Tcp) => !protocol.is_of_datagrams_alone(),
            _ => true,
        };
        is_carried.then_some(kind).ok_or_else(|| format!("`{text}` does not come by that"))
    }

    /// The one of that name.
    pub(super) fn of(protocol: Protocol, name: &str) -> Option<Self> {
        // Frames are of HTTP/1 and of HTTP/2, not of either.
        let protocol = match protocol {
            Protocol::Http => Protocol::Http1,
            Protocol::Doh2 => Protocol::Http2,
            other => other,
        };
        let (_, names) = KINDS.iter().find(|it| it.0 == protocol)?;
        let name = names.iter().find(|it| **it == name)?;
        Some(Self { protocol, name })
    }

    /// Whose units they are.
    pub(crate) fn protocol(self) -> Protocol {
        self.protocol
    }

    /// As rules of any protocol name it: `dns.pdu`.
    pub(crate) fn full_name(self) -> String {
        format!("{}.{}", self.protocol.name(), self.name)
    }

    /// Without the protocol's.
    pub(crate) fn name(self) -> &'static str {
        self.name
    }
}

/// The protocol and the name of a frame, in a rule of that protocol.
fn named(text: &str, rule: Option<Protocol>) -> Result<(Protocol, &str), String> {
    let text = text.trim();
    let application = |it: &Protocol| it.is_application();
    let long = text.split_once('.').and_then(|(protocol, name)| {
        Some((Protocol::from_name(protocol).filter(application)?, name))
    });
    match (long, rule.filter(application)) {
        (Some((protocol, _)), Some(rule)) if !rule.means(protocol) => {
            Err(format!("`{text}` belongs to another protocol than the rule's"))
        }
        (Some(long), _) => Ok(long),
        (None, Some(rule)) => Ok((rule, text)),
        (None, None) => Err(format!("`{text}`: of which protocol?")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str, rule: Protocol) -> Option<(Protocol, &'static str)> {
        let kind = FrameKind::parse(text, Some(rule)).ok()?;
        Some((kind.protocol, kind.name))
    }

    #[test]
    fn a_protocol_stands_before_the_name_or_before_the_rule() {
        assert_eq!(named("tls.pdu", Protocol::Tcp), Some((Protocol::Tls, "pdu")));
        assert_eq!(named("pdu", Protocol::Tls), Some((Protocol::Tls, "pdu")));
        assert_eq!(named("smb1.data", Protocol::Smb), Some((Protocol::Smb, "smb1.data")));
        assert_eq!(named("smb.smb1.data", Protocol::Tcp), Some((Protocol::Smb, "smb1.data")));
        assert_eq!(named("http1.request", Protocol::Http), Some((Protocol::Http1, "request")));
        assert_eq!(named("request", Protocol::Http1), Some((Protocol::Http1, "request")));
    }

    #[test]
    fn what_belongs_elsewhere_is_no_frame() {
        for (text, rule) in [
            ("tls.pdu", Protocol::Smb),
            ("tls.pdu", Protocol::Udp),
            ("mdns.pdu", Protocol::Tcp),
            ("smb1.pdu", Protocol::Tls),
            ("pdu", Protocol::Tcp),
            ("tls", Protocol::Tcp),
            ("tls.request", Protocol::Tcp),
        ] {
            assert_eq!(named(text, rule), None, "{text} in a rule of {rule:?}");
        }
    }
}
