//! What rules ask of a packet's headers.

use std::sync::Arc;

use super::bits::{self, BitsHow};
use super::number::{Form, Numbers, digits, number, signed};
use super::ranges::Ranges;
use super::rpc::RpcTest;
use crate::behaviour::{self, Watch};
use crate::checksums::Checksum;
use crate::countries::CountryTest;
use crate::decode::Event;
use crate::rdma::RdmaTest;
use crate::reputation::ReputationTest;

/// The protocol of a rule's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// Anything, also what cannot be read.
    PacketHeader,
    /// Any packet of IP or RDMA.
    Ip,
    /// Any IPv4 packet.
    Ipv4,
    /// Any IPv6 packet.
    Ipv6,
    /// TCP, by stream and packet.
    Tcp,
    /// TCP, by packet alone.
    TcpPacket,
    /// TCP, by stream alone.
    TcpStream,
    /// UDP.
    Udp,
    /// ICMP, both versions.
    Icmp,
    /// ICMP of IPv4.
    Icmpv4,
    /// ICMPv6.
    Icmpv6,
    /// SCTP.
    Sctp,
    /// RDMA over RoCE or InfiniBand.
    Rdma,
    /// HTTP over TCP, of either version.
    Http,
    /// HTTP/1 alone.
    Http1,
    /// HTTP/2 alone.
    Http2,
    /// DNS over UDP or TCP.
    Dns,
    /// TLS over TCP.
    Tls,
    /// SMTP over TCP, as a stream.
    Smtp,
    /// FTP's control connection, as a stream.
    Ftp,
    /// SMB over TCP, as a stream.
    Smb,
    /// SSH, as a stream.
    Ssh,
    /// A data connection of FTP.
    FtpData,
    /// DCE/RPC over TCP or UDP.
    Dcerpc,
    /// SNMP over UDP.
    Snmp,
    /// Kerberos 5 over TCP or UDP.
    Krb5,
    /// SIP over TCP or UDP.
    Sip,
    /// MQTT over TCP.
    Mqtt,
    /// RFB (VNC) over TCP.
    Rfb,
    /// IKE over UDP.
    Ike,
    /// LDAP over TCP or UDP.
    Ldap,
    /// Modbus over TCP.
    Modbus,
    /// DNP3 over TCP.
    Dnp3,
    /// NFS over TCP or UDP.
    Nfs,
    /// PostgreSQL over TCP.
    Pgsql,
    /// QUIC over UDP.
    Quic,
    /// DHCP over UDP.
    Dhcp,
    /// NTP over UDP.
    Ntp,
    /// TFTP over UDP.
    Tftp,
    /// Multicast DNS over UDP.
    Mdns,
    /// Telnet, as a stream.
    Telnet,
    /// POP3 over TCP.
    Pop3,
    /// IMAP, as a stream.
    Imap,
    /// RDP, as a stream.
    Rdp,
    /// EtherNet/IP over TCP or UDP.
    Enip,
    /// WebSocket, as a stream.
    Websocket,
    /// BitTorrent's distributed hash table over UDP.
    BittorrentDht,
    /// DNS over HTTP/2.
    Doh2,
}

/// Applications and their names, in rules and in EVE.
const APPLICATIONS: [(Protocol, &str); 34] = [
    (Protocol::Http, "http"),
    (Protocol::Http2, "http2"),
    (Protocol::Dns, "dns"),
    (Protocol::Tls, "tls"),
    (Protocol::Smtp, "smtp"),
    (Protocol::Ftp, "ftp"),
    (Protocol::Smb, "smb"),
    (Protocol::Ssh, "ssh"),
    (Protocol::FtpData, "ftp-data"),
    (Protocol::Dcerpc, "dcerpc"),
    (Protocol::Snmp, "snmp"),
    (Protocol::Krb5, "krb5"),
    (Protocol::Sip, "sip"),
    (Protocol::Mqtt, "mqtt"),
    (Protocol::Rfb, "rfb"),
    (Protocol::Ike, "ike"),
    (Protocol::Ldap, "ldap"),
    (Protocol::Modbus, "modbus"),
    (Protocol::Dnp3, "dnp3"),
    (Protocol::Nfs, "nfs"),
    (Protocol::Pgsql, "pgsql"),
    (Protocol::Quic, "quic"),
    (Protocol::Dhcp, "dhcp"),
    (Protocol::Ntp, "ntp"),
    (Protocol::Tftp, "tftp"),
    (Protocol::Mdns, "mdns"),
    (Protocol::Telnet, "telnet"),
    (Protocol::Pop3, "pop3"),
    (Protocol::Imap, "imap"),
    (Protocol::Rdp, "rdp"),
    (Protocol::Enip, "enip"),
    (Protocol::Websocket, "websocket"),
    (Protocol::BittorrentDht, "bittorrent-dht"),
    (Protocol::Doh2, "doh2"),
];

impl Protocol {
    /// By its name in rules.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "ip" => Self::Ip,
            "pkthdr" => Self::PacketHeader,
            "ipv4" | "ip4" => Self::Ipv4,
            "ipv6" | "ip6" => Self::Ipv6,
            "tcp" => Self::Tcp,
            "tcp-pkt" => Self::TcpPacket,
            "tcp-stream" => Self::TcpStream,
            "udp" => Self::Udp,
            "icmp" => Self::Icmp,
            "icmpv4" | "icmp4" => Self::Icmpv4,
            "icmpv6" | "icmp6" => Self::Icmpv6,
            "sctp" => Self::Sctp,
            "rdma" => Self::Rdma,
            "http1" => Self::Http1,
            "ssl" => Self::Tls,
            other => APPLICATIONS.iter().find(|it| it.1 == other)?.0,
        })
    }

    /// What may be spoken in a flow.
    pub(crate) fn spoken() -> impl Iterator<Item = Self> {
        APPLICATIONS.iter().map(|it| it.0)
    }

    /// As EVE's `app_proto` spells an application.
    pub(crate) fn name(self) -> &'static str {
        let known = if self == Self::Http1 { Self::Http } else { self };
        APPLICATIONS.iter().find(|it| it.0 == known).map_or("unknown", |it| it.1)
    }

    /// Whether it is spoken over another that the stages know.
    pub fn is_application(self) -> bool {
        self >= Self::Http
    }

    /// Whether its rules may be about TCP, though they name no application: contents of theirs
    /// stand in the stream there.
    pub(crate) fn may_be_of_tcp(self) -> bool {
        matches!(self, Self::Tcp | Self::Ip | Self::Ipv4 | Self::Ipv6 | Self::PacketHeader)
    }

    /// Whether datagrams carry it, beside streams or alone.
    pub(crate) fn is_of_datagrams(self) -> bool {
        use Protocol as P;
        let is_of_both = matches!(self, P::Dns | P::Dcerpc | P::Krb5 | P::Sip | P::Ldap | P::Nfs);
        is_of_both || self.is_of_datagrams_alone() || self == P::Enip
    }

    /// Whether no stream carries it.
    pub(crate) fn is_of_datagrams_alone(self) -> bool {
        use Protocol as P;
        matches!(
            self,
            P::Snmp | P::Ike | P::Quic | P::Dhcp | P::Ntp | P::Tftp | P::Mdns | P::BittorrentDht
        )
    }

    /// Whether a rule that says this means what is `spoken`: HTTP is HTTP/1 or, where somebody
    /// speaks it, HTTP/2.
    pub(crate) fn means(self, spoken: Self) -> bool {
        let is_http = |it: Self| matches!(it, Self::Http | Self::Http1);
        self == spoken
            || (self == Self::Http && spoken == Self::Http2)
            || (is_http(self) && is_http(spoken))
            || (spoken == Self::Doh2 && matches!(self, Self::Http2 | Self::Dns))
            // Pipes carry calls.
            || (self == Self::Dcerpc && spoken == Self::Smb)
    }

    /// Whether its messages are that application's, or carry such.
    pub(crate) fn carries(self, other: Self) -> bool {
        let is_of_doh = matches!(other, Self::Http | Self::Http2 | Self::Dns);
        self.means(other) || (self == Self::Doh2 && is_of_doh)
    }
}

/// Addresses, ports and protocol.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) protocol: Protocol,
    pub(crate) source: Arc<Ranges>,
    pub(crate) source_ports: Arc<Ranges>,
    pub(crate) destination: Arc<Ranges>,
    pub(crate) destination_ports: Arc<Ranges>,
    pub(crate) is_both_ways: bool,
    /// Both sides of a transaction are meant together, of which this is the request.
    pub(crate) is_transactional: bool,
    /// Some addresses are named by exception (`!10.0.0.1`).
    pub(crate) excepts: bool,
}

impl Header {
    /// Whether it is for a packet between these twice: its two directions differ, and both are as
    /// it says.
    pub(crate) fn is_twice(&self, from: (u128, u16), to: (u128, u16), has_ports: bool) -> bool {
        self.is_both_ways
            && (self.source != self.destination || self.source_ports != self.destination_ports)
            && self.is_between(from, to, has_ports)
            && self.is_between(to, from, has_ports)
    }

    /// Whether addresses and ports are as it says of a packet between these.
    pub(crate) fn is_between(&self, from: (u128, u16), to: (u128, u16), has_ports: bool) -> bool {
        let fits_port = |ports: &Ranges, port: u16| {
            ports.is_all() || (has_ports && ports.contains(port.into()))
        };
        self.source.contains(from.0)
            && self.destination.contains(to.0)
            && fits_port(&self.source_ports, from.1)
            && fits_port(&self.destination_ports, to.1)
    }
}

impl HeaderTest {
    /// Whether it is of a packet's own, so that contents beside it stand in that packet.
    pub(crate) fn is_of_packet(&self) -> bool {
        match self {
            Self::PayloadLen { .. }
            | Self::Ttl(_)
            | Self::TrafficClass(_)
            | Self::Ipv4Id(_)
            | Self::IpProtocol(_)
            | Self::FragmentBits { .. }
            | Self::FragmentOffset(_)
            | Self::IpOption(_)
            | Self::VlanCount(_)
            | Self::Vlan { .. } => true,
            _ => self.is_of_segment(),
        }
    }

    /// Whether a rule about the stream alone may ask for it.
    pub(crate) fn goes_with_stream(&self) -> bool {
        matches!(
            self,
            Self::Event(_)
                | Self::Checksum { .. }
                | Self::Rebuilt(_)
                | Self::IpVersion(_)
                | Self::Rdma(_)
                | Self::Sign { .. }
        )
    }

    /// The same of a field of TCP.
    fn is_of_segment(&self) -> bool {
        matches!(
            self,
            Self::TcpFlags { .. }
                | Self::TcpSequence(_)
                | Self::TcpAcknowledgment(_)
                | Self::TcpWindow(_)
        )
    }
}

/// One thing asked of a packet's headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeaderTest {
    PayloadLen {
        numbers: Numbers,
        /// There must be a payload: all lengths but one are meant (`dsize:!5`).
        is_there: bool,
        /// The greatest number that is written: contents must fit into so many bytes.
        most: Option<u64>,
    },
    Ttl(Numbers),
    TrafficClass(Numbers),
    Ipv4Id(Numbers),
    IpProtocol(Numbers),
    /// 4 or 6.
    IpVersion(Numbers),
    /// Whether it was put together from fragments.
    Rebuilt(bool),
    Rpc(RpcTest),
    FragmentBits {
        bits: u8,
        how: BitsHow,
    },
    FragmentOffset(Numbers),
    IpOption(u8),
    SameAddress,
    TcpFlags {
        bits: u8,
        ignored: u8,
        how: BitsHow,
    },
    TcpSequence(Numbers),
    TcpAcknowledgment(Numbers),
    TcpWindow(Numbers),
    TcpMss(Numbers),
    TcpShift(Numbers),
    IcmpType(Numbers),
    IcmpCode(Numbers),
    IcmpId(Numbers),
    IcmpSequence(Numbers),
    Event(Event),
    VlanCount(Numbers),
    Vlan {
        numbers: Numbers,
        layer: VlanLayer,
    },
    Icmpv6Mtu(Numbers),
    Checksum {
        of: Checksum,
        is_valid: bool,
    },
    Reputation(ReputationTest),
    Country(CountryTest),
    Rdma(RdmaTest),
    /// Whether what is watched for says that the packet belongs to it.
    Sign {
        watch: Watch,
        bit: u8,
    },
}

/// Which of a packet's VLANs is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VlanLayer {
    Any,
    All,
    /// Counted from the outermost, or with a sign from the innermost.
    At(i8),
}

/// The test that a keyword of headers makes; `None` if it is not such a keyword.
pub(crate) fn test(name: &str, value: &str) -> Option<Result<HeaderTest, String>> {
    let of_form = |form: Form| form.parse(value.trim().trim_matches('"'));
    let numbers = |bits| of_form(Form::Any(bits));
    let short = || of_form(Form::Digits(u16::MAX.into()));
    let long = || of_form(Form::Digits(u32::MAX.into()));
    Some(match name {
        "dsize" => payload_len(value),
        // Suricata's `template2`, the model for new keywords, asks for the same.
        "ttl" | "template2" => numbers(8).map(HeaderTest::Ttl),
        "tos" => traffic_class(value).map(HeaderTest::TrafficClass),
        "id" => short().map(HeaderTest::Ipv4Id),
        "l3_proto" => ip_version(value).map(HeaderTest::IpVersion),
        "rpc" => RpcTest::parse(value).map(HeaderTest::Rpc),
        "ip_proto" => ip_protocol(value).map(HeaderTest::IpProtocol),
        "fragbits" => bits::of_fragment(value),
        "fragoffset" => fragment_offset(value).map(HeaderTest::FragmentOffset),
        "ipopts" => ip_option(value).map(HeaderTest::IpOption),
        "sameip" => Ok(HeaderTest::SameAddress),
        "flags" | "tcp.flags" => bits::of_segment(value),
        "seq" | "tcp.seq" => long().map(HeaderTest::TcpSequence),
        "ack" | "tcp.ack" => long().map(HeaderTest::TcpAcknowledgment),
        "window" | "tcp.window" => but_one(value).map(HeaderTest::TcpWindow),
        "tcp.mss" => numbers(16).map(HeaderTest::TcpMss),
        "tcp.wscale" => numbers(8).map(HeaderTest::TcpShift),
        "itype" => numbers(8).map(HeaderTest::IcmpType),
        "icode" => numbers(8).map(HeaderTest::IcmpCode),
        "icmp_id" => short().map(HeaderTest::IcmpId),
        "icmp_seq" => short().map(HeaderTest::IcmpSequence),
        "decode-event" | "engine-event" => event(&format!("decoder.{}", value.trim())),
        // Two events have a second name.
        "stream-event" => {
            let name = value.trim().replace("_with_different_ack", "_with_diff_ack");
            event(&format!("stream.{name}"))
        }
        "vlan.layers" => vlan_numbers(value, 8, 3).map(HeaderTest::VlanCount),
        "vlan.id" => vlan(value),
        "icmpv6.mtu" => numbers(32).map(HeaderTest::Icmpv6Mtu),
        _ if name.ends_with("-csum") => return checksum(name, value),
        _ => {
            if let Some(watch) = behaviour::watch(name, value) {
                return Some(watch.map(|watch| HeaderTest::Sign { watch, bit: 0 }));
            }
            return crate::rdma::test(name, value).map(|it| it.map(HeaderTest::Rdma));
        }
    })
}

/// `dsize:>5`; as in Suricata 8.0.7, `!5` asks for a payload, and `!4<>6` does not.
fn payload_len(value: &str) -> Result<HeaderTest, String> {
    let numbers = Numbers::parse(value, 16)?;
    let is_there = value.trim().starts_with('!') && !value.contains(['-', '>']);
    // The end of `<9` and of `3<>9` is none of them.
    let beyond = u64::from(value.contains('<') || value.contains('-'));
    let most = numbers.most().map(|it| it + beyond);
    Ok(HeaderTest::PayloadLen { numbers, is_there, most })
}

/// What is odd about a packet, by its whole name.
pub(super) fn event(name: &str) -> Result<HeaderTest, String> {
    let event = Event::from_name(name).ok_or_else(|| format!("`{name}` is not raised here"))?;
    Ok(HeaderTest::Event(event))
}

/// `vlan.id:300,1`
fn vlan(value: &str) -> Result<HeaderTest, String> {
    let (id, layer) = value.split_once(',').unwrap_or((value, "any"));
    let layer = match layer.trim() {
        "any" => VlanLayer::Any,
        "all" => VlanLayer::All,
        other => match other.parse::<i8>() {
            Ok(at) if (-3..=2).contains(&at) => VlanLayer::At(at),
            _ => return Err(format!("`{other}` is no layer of vlan.id")),
        },
    };
    Ok(HeaderTest::Vlan { numbers: vlan_numbers(id, 16, 4095)?, layer })
}

/// Numbers of which none that is written is beyond `most`.
fn vlan_numbers(value: &str, bits: u32, most: u64) -> Result<Numbers, String> {
    let written = value.split(|it: char| !it.is_ascii_alphanumeric()).filter_map(number);
    match written.max().is_some_and(|it| it > most) {
        true => Err(format!("`{value}`: {most} at most")),
        false => Numbers::parse(value, bits),
    }
}

/// `fragoffset:>5`: what stands behind the number is passed over, as Suricata 8.0.7 does.
fn fragment_offset(value: &str) -> Result<Numbers, String> {
    let wrong = || format!("`{value}` is no offset of a fragment");
    let text = value.trim();
    let (sign, rest) = text.split_at(text.len() - text.trim_start_matches(['<', '>']).len());
    let rest = rest.trim_start();
    let end = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
    let number = rest[..end].parse::<u16>().map_err(|_| wrong())?;
    Numbers::compared(sign, number.into()).ok_or_else(wrong)
}

/// `tcpv4-csum:invalid`
fn checksum(name: &str, value: &str) -> Option<Result<HeaderTest, String>> {
    let of = match name {
        "ipv4-csum" => Checksum::Ipv4,
        "tcpv4-csum" => Checksum::Tcpv4,
        "tcpv6-csum" => Checksum::Tcpv6,
        "udpv4-csum" => Checksum::Udpv4,
        "udpv6-csum" => Checksum::Udpv6,
        "icmpv4-csum" => Checksum::Icmpv4,
        "icmpv6-csum" => Checksum::Icmpv6,
        _ => return None,
    };
    Some(match value.trim().trim_matches('"').to_ascii_lowercase().as_str() {
        "valid" => Ok(HeaderTest::Checksum { of, is_valid: true }),
        "invalid" => Ok(HeaderTest::Checksum { of, is_valid: false }),
        other => Err(format!("`{other}` behind {name}: valid or invalid")),
    })
}

/// A number, or all but it.
fn but_one(value: &str) -> Result<Numbers, String> {
    let form = Form::Digits(u16::MAX.into());
    match value.trim().strip_prefix('!') {
        Some(rest) => form.parse(rest).map(Numbers::negated),
        None => form.parse(value),
    }
}

/// The few numbers that Suricata takes in quotes too, a sign within them.
fn without_quotes(value: &str) -> &str {
    let text = value.trim();
    text.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(text)
}

/// `tos:8`, `tos:!8`, `tos:x10`
fn traffic_class(value: &str) -> Result<Numbers, String> {
    let text = without_quotes(value);
    let (is_negated, text) = match text.strip_prefix('!') {
        Some(rest) => (true, rest.trim()),
        None => (false, text),
    };
    let number = match text.strip_prefix(['x', 'X']) {
        Some(hex) => u8::from_str_radix(hex, 16).ok(),
        None => text.parse::<u8>().ok(),
    };
    let number = number.ok_or_else(|| format!("`{value}` is no type of service"))?.into();
    Ok(Numbers::between(number, number, is_negated))
}

/// `l3_proto:ip6`
fn ip_version(value: &str) -> Result<Numbers, String> {
    match value.trim().to_ascii_lowercase().as_str() {
        "ipv4" | "ip4" | "ip" => Ok(Numbers::one(4)),
        "ipv6" | "ip6" => Ok(Numbers::one(6)),
        other => Err(format!("`{other}` is no version of IP")),
    }
}

/// Protocols that rules name, by their numbers at IANA.
const IP_PROTOCOLS: [(&str, u8); 44] = [
    ("ip", 0),
    ("hopopt", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ggp", 3),
    ("ipencap", 4),
    ("ipip", 4),
    ("st", 5),
    ("tcp", 6),
    ("egp", 8),
    ("igp", 9),
    ("pup", 12),
    ("udp", 17),
    ("hmp", 20),
    ("xns-idp", 22),
    ("rdp", 27),
    ("iso-tp4", 29),
    ("dccp", 33),
    ("xtp", 36),
    ("ddp", 37),
    ("idpr-cmtp", 38),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("idrp", 45),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("skip", 57),
    ("ipv6-icmp", 58),
    ("icmp6", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("vmtp", 81),
    ("eigrp", 88),
    ("ospf", 89),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("isis", 124),
    ("sctp", 132),
    ("udplite", 136),
];

fn ip_protocol(value: &str) -> Result<Numbers, String> {
    let text = without_quotes(value);
    let (sign, name) = match text.split_at_checked(1) {
        Some((sign @ ("!" | "<" | ">"), name)) => (sign, name.trim_start()),
        _ => ("", text),
    };
    let named = || IP_PROTOCOLS.iter().find(|it| it.0.eq_ignore_ascii_case(name)).map(|it| it.1);
    let number = digits(name).and_then(|it| u8::try_from(it).ok()).or_else(named);
    let number = number.ok_or_else(|| format!("no protocol `{name}`"))?;
    Numbers::compared(sign, number.into()).ok_or_else(|| format!("`{value}` behind ip_proto"))
}

fn ip_option(value: &str) -> Result<u8, String> {
    Ok(match value.trim().to_ascii_lowercase().as_str() {
        "any" => u8::MAX,
        "eol" => 0,
        "nop" => 1,
        "rr" => 7,
        "qs" => 25,
        "ts" => 68,
        "sec" => 130,
        "lsrr" => 131,
        "esec" => 133,
        "cipso" => 134,
        "satid" => 136,
        "ssrr" => 137,
        "rtralt" => 148,
        other => return Err(format!("no IP option `{other}`")),
    })
}

/// A number of at most `most`, for keywords of one number.
pub(crate) fn bounded(value: &str, most: u64) -> Result<u64, String> {
    let found = number(value).or_else(|| signed(value).and_then(|it| u64::try_from(it).ok()));
    found.filter(|it| *it <= most).ok_or_else(|| format!("`{value}` is not a number to {most}"))
}
