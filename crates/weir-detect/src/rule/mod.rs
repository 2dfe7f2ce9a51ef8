//! Rules: text to what the detector evaluates.
//!
//! ```text
//! text --syntax--> statement --build--> Rule --load--> RuleSet (patterns, groups, order)
//! ```

mod asn1;
mod bits;
mod build;
mod bytes;
mod calls;
mod content;
mod description;
mod digests;
pub mod filters;
mod form;
mod frames;
mod header;
mod hook;
mod keywords;
pub mod load;
mod modbus;
mod number;
mod pcre;
pub mod ranges;
mod relative;
mod replace;
mod requires;
mod rpc;
mod spoken;
mod state;
pub(crate) mod step;
pub mod syntax;
mod tag;
mod transforms;
mod units;
pub mod variables;

use std::sync::Arc;

use crate::alert::TextScope;
use crate::buffers::event::AppEvent;
use crate::frame::FrameKind;
pub use header::Protocol;
pub(crate) use header::{Header, HeaderTest, VlanLayer};
pub(crate) use hook::{Hook, HttpPlace, OF_HTTP, OF_TLS};
pub(crate) use number::Numbers;
pub(crate) use spoken::{MessageField, MessageTest, Speaks, Speech, Spoken};
pub(crate) use state::{
    Amount, BitScope, BitTest, BitVerb, Counted, FlowCount, FlowTest, Phases, RateFilter,
    StreamSize, Suppression, Threshold, ThresholdKind, Track,
};
pub(crate) use step::{Step, TextTest};
pub(crate) use tag::{Tag, TagLimit, Tagged};
pub(crate) use units::{Field, UnitTest};

/// A rule's place in its [`RuleSet`](crate::RuleSet): the order of evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleIndex(pub u32);

/// What a rule that matches wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// No more rules for this packet, or this flow.
    Pass,
    /// Drop, and tell.
    Drop,
    /// Drop, answer the sender, and tell.
    Reject,
    /// Tell.
    Alert,
}

impl Action {
    /// The usual order: what one lets pass, no other drops.
    pub const ORDER: [Self; 4] = [Self::Pass, Self::Drop, Self::Reject, Self::Alert];

    /// By the word that rules begin with, in letters of either case.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "alert" => Self::Alert,
            "pass" => Self::Pass,
            "drop" => Self::Drop,
            "reject" | "rejectsrc" | "rejectdst" | "rejectboth" => Self::Reject,
            _ => return None,
        })
    }

    /// By the word that rules begin with, behind which they may say how far it goes: `drop:flow`.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::from_name(word.split_once(':').map_or(word, |it| it.0))
    }

    /// Whether the packet goes no further.
    pub fn is_blocking(self) -> bool {
        matches!(self, Self::Drop | Self::Reject)
    }
}

/// How far goes what a rule wants: `drop:packet`, `pass:flow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// For the packet that it matched.
    Packet,
    /// For the rest of the flow.
    Flow,
}

macro_rules! buffers {
    ($($buffer:ident $($name:literal)* | $($modifier:literal)*;)+) => {
        /// Bytes that contents and patterns are looked for in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Buffer {
            $(
                #[doc = concat!("Rules say: ", $("`", $name, "` ",)* $("`", $modifier, "`",)* ".")]
                $buffer,
            )+
            /// Rules say: `frame`, and of which kind.
            Frame(FrameKind),
        }

        impl Buffer {
            /// Whether it is a header of a packet.
            pub(crate) fn is_header(self) -> bool {
                crate::buffers::protocol(self).is_none()
                    && !matches!(self, Self::Payload | Self::Frame(_))
            }

            /// By the keyword that stands before its contents.
            pub(crate) fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($($name => Some(Self::$buffer),)*)+
                    _ => None,
                }
            }

            /// Its first keyword.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$buffer => [$($name,)* $($modifier,)*][0],)+
                    Self::Frame(_) => "frame",
                }
            }

            /// By the keyword that stands behind a content.
            pub(crate) fn from_modifier(name: &str) -> Option<Self> {
                match name {
                    $($($modifier => Some(Self::$buffer),)*)+
                    _ => None,
                }
            }
        }
    };
}

buffers! {
    Payload "pkt_data" |;
    HttpUri "http.uri" | "http_uri" "uricontent";
    HttpUriRaw "http.uri.raw" | "http_raw_uri";
    HttpMethod "http.method" | "http_method";
    HttpProtocol "http.protocol" "http_protocol" |;
    HttpRequestLine "http.request_line" "http_request_line" |;
    HttpResponseLine "http.response_line" "http_response_line" |;
    HttpHeader "http.header" | "http_header";
    HttpHeaderRaw "http.header.raw" | "http_raw_header";
    HttpHeaderNames "http.header_names" "http_header_names" |;
    HttpStart "http.start" "http_start" |;
    HttpCookie "http.cookie" | "http_cookie";
    HttpUserAgent "http.user_agent" | "http_user_agent";
    HttpHost "http.host" | "http_host";
    HttpHostRaw "http.host.raw" | "http_raw_host";
    HttpReferer "http.referer" "http_referer" |;
    HttpAccept "http.accept" "http_accept" |;
    HttpAcceptEncoding "http.accept_enc" "http_accept_enc" |;
    HttpAcceptLanguage "http.accept_lang" "http_accept_lang" |;
    HttpConnection "http.connection" "http_connection" |;
    HttpContentType "http.content_type" "http_content_type" |;
    HttpContentLength "http.content_len" "http_content_len" |;
    HttpServer "http.server" |;
    HttpLocation "http.location" |;
    HttpRequestBody "http.request_body" | "http_client_body";
    HttpRequestHeaderLine "http.request_header" "http_request_header" |;
    HttpResponseHeaderLine "http.response_header" "http_response_header" |;
    HttpResponseBody "http.response_body" | "http_server_body";
    HttpStatusCode "http.stat_code" | "http_stat_code";
    HttpStatusMessage "http.stat_msg" | "http_stat_msg";
    Http2HeaderName "http2.header_name" |;
    FileData "file.data" "file_data" |;
    DnsQuery "dns.query" "dns_query" |;
    DnsQuestion "dns.queries.rrname" "dns.query.name" |;
    DnsAnswer "dns.answers.rrname" "dns.answer.name" |;
    DnsResponse "dns.response.rrname" |;
    DnsAuthority "dns.authorities.rrname" |;
    DnsAdditional "dns.additionals.rrname" |;
    TlsSni "tls.sni" "tls_sni" |;
    TlsCertificates "tls.certs" |;
    TlsSubject "tls.cert_subject" "tls_cert_subject" |;
    TlsIssuer "tls.cert_issuer" "tls_cert_issuer" |;
    TlsSerial "tls.cert_serial" "tls_cert_serial" |;
    TlsFingerprint "tls.cert_fingerprint" "tls_cert_fingerprint" |;
    TlsAlternativeName "tls.subjectaltname" |;
    TlsAlpn "tls.alpn" |;
    TlsRandom "tls.random" |;
    TlsRandomTime "tls.random_time" |;
    TlsRandomBytes "tls.random_bytes" |;
    Ja3Hash "ja3.hash" "ja3_hash" |;
    Ja3String "ja3.string" "ja3_string" |;
    Ja3sHash "ja3s.hash" |;
    Ja3sString "ja3s.string" |;
    Ja4Hash "ja4.hash" |;
    SshProtocol "ssh.proto" "ssh_proto" |;
    SshSoftware "ssh.software" "ssh_software" |;
    SshHassh "ssh.hassh" |;
    SshHasshString "ssh.hassh.string" |;
    SshHasshServer "ssh.hassh.server" |;
    SshHasshServerString "ssh.hassh.server.string" |;
    FileName "file.name" |;
    SmtpHelo "smtp.helo" |;
    SmtpSender "smtp.mail_from" |;
    SmtpReceiver "smtp.rcpt_to" |;
    EmailFrom "email.from" |;
    EmailTo "email.to" |;
    EmailCc "email.cc" |;
    EmailSubject "email.subject" |;
    EmailDate "email.date" |;
    EmailMessageId "email.message_id" |;
    EmailMailer "email.x_mailer" |;
    EmailReceived "email.received" |;
    EmailUrl "email.url" |;
    FtpCommand "ftp.command" |;
    FtpCommandData "ftp.command_data" |;
    FtpReply "ftp.reply" |;
    FtpCode "ftp.completion_code" |;
    SmbPipe "smb.named_pipe" "smb_named_pipe" |;
    SmbShare "smb.share" "smb_share" |;
    SmbUser "smb.ntlmssp_user" |;
    SmbDomain "smb.ntlmssp_domain" |;
    DcerpcInterface "dcerpc.interface_and_version" |;
    DcerpcStub "dcerpc.stub_data" "dce_stub_data" |;
    SnmpCommunity "snmp.community" |;
    SnmpUser "snmp.usm" |;
    KrbClient "krb5.cname" "krb5_cname" |;
    KrbServer "krb5.sname" "krb5_sname" |;
    SipMethod "sip.method" |;
    SipUri "sip.uri" |;
    SipProtocol "sip.protocol" |;
    SipStatusCode "sip.stat_code" |;
    SipStatusMessage "sip.stat_msg" |;
    SipRequestLine "sip.request_line" |;
    SipResponseLine "sip.response_line" |;
    SipFrom "sip.from" |;
    SipTo "sip.to" |;
    SipVia "sip.via" |;
    SipUserAgent "sip.user_agent" "sip.ua" |;
    SipContentType "sip.content_type" |;
    SipContentLength "sip.content_length" |;
    SdpSessionName "sdp.session_name" |;
    SdpSessionInfo "sdp.session_info" |;
    SdpOrigin "sdp.origin" |;
    SdpUri "sdp.uri" |;
    SdpEmail "sdp.email" |;
    SdpPhoneNumber "sdp.phone_number" |;
    SdpConnection "sdp.connection_data" |;
    SdpBandwidth "sdp.bandwidth" |;
    SdpTime "sdp.time" |;
    SdpRepeatTime "sdp.repeat_time" |;
    SdpTimezone "sdp.timezone" |;
    SdpKey "sdp.encryption_key" |;
    SdpAttribute "sdp.attribute" |;
    SdpMedia "sdp.media.media" |;
    SdpMediaInfo "sdp.media.media_info" |;
    SdpMediaConnection "sdp.media.connection_data" |;
    SdpMediaKey "sdp.media.encryption_key" |;
    MqttClient "mqtt.connect.clientid" |;
    MqttUser "mqtt.connect.username" |;
    MqttPassword "mqtt.connect.password" |;
    MqttWillTopic "mqtt.connect.willtopic" |;
    MqttWillMessage "mqtt.connect.willmessage" |;
    MqttProtocolString "mqtt.connect.protocol_string" |;
    MqttTopic "mqtt.publish.topic" |;
    MqttMessage "mqtt.publish.message" |;
    MqttSubscribed "mqtt.subscribe.topic" |;
    MqttUnsubscribed "mqtt.unsubscribe.topic" |;
    RfbName "rfb.name" |;
    IkeInitiator "ike.init_spi" |;
    IkeResponder "ike.resp_spi" |;
    IkeVendor "ike.vendor" |;
    IkeNonce "ike.nonce_payload" |;
    IkeKeyExchange "ike.key_exchange_payload" |;
    LdapRequestName "ldap.request.dn" |;
    LdapResponseName "ldap.responses.dn" |;
    LdapMessage "ldap.responses.message" |;
    LdapRequestAttribute "ldap.request.attribute_type" |;
    LdapResponseAttribute "ldap.responses.attribute_type" |;
    Dnp3Data "dnp3.data" "dnp3_data" |;
    PgsqlQuery "pgsql.query" |;
    QuicVersion "quic.version" |;
    QuicServerName "quic.sni" |;
    QuicUserAgent "quic.ua" |;
    QuicFingerprintHash "quic.cyu.hash" |;
    QuicFingerprint "quic.cyu.string" |;
    WebsocketPayload "websocket.payload" |;
    EnipProductName "enip.product_name" |;
    EnipServiceName "enip.service_name" |;
    NtpReference "ntp.reference_id" |;
    MdnsQuery "mdns.queries.rrname" |;
    MdnsAnswer "mdns.answers.rrname" |;
    MdnsAuthority "mdns.authorities.rrname" |;
    MdnsAdditional "mdns.additionals.rrname" |;
    MdnsResponse "mdns.response.rrname" |;
    IpSource "ip.src" |;
    IpDestination "ip.dst" |;
    Ipv4Header "ipv4.hdr" |;
    Ipv6Header "ipv6.hdr" |;
    TcpHeader "tcp.hdr" |;
    UdpHeader "udp.hdr" |;
    Icmpv4Header "icmpv4.hdr" |;
    Icmpv6Header "icmpv6.hdr" |;
}

/// What is done to a buffer before it is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Transform {
    /// With these bytes, again and again.
    Xor(Arc<[u8]>),
    DotPrefix,
    StripWhitespace,
    CompressWhitespace,
    ToLowercase,
    ToUppercase,
    UrlDecode,
    HeaderLowercase,
    StripPseudoHeaders,
    Md5,
    Sha1,
    Sha256,
    FromBase64(FromBase64),
    /// To so many bytes, at most.
    Gunzip(usize),
    ZlibInflate(usize),
    /// The first group of the expression.
    Captured(Expression),
    /// What is registered below a public suffix.
    Domain,
    PublicSuffix,
}

/// `from_base64`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FromBase64 {
    pub(crate) bytes: Option<u32>,
    pub(crate) offset: u32,
    pub(crate) mode: Base64Mode,
}

/// What is made of letters that are none of base 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Base64Mode {
    /// Nothing may be wrong.
    Strict,
    /// They end it.
    Rfc4648,
    /// They are passed over.
    Rfc2045,
}

/// A regular expression, told from others by its text.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    pub(crate) text: Arc<str>,
    pub(crate) regex: pcre2::bytes::Regex,
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

impl PartialOrd for Expression {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Expression {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl std::hash::Hash for Expression {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// A buffer and what is done to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BufferKey {
    pub(crate) buffer: Buffer,
    pub(crate) transforms: Vec<Transform>,
}

/// All that a rule asks of one buffer.
#[derive(Clone, Debug)]
pub(crate) struct BufferTest {
    pub(crate) key: BufferKey,
    pub(crate) steps: Vec<Step>,
    pub(crate) absence: Absence,
    /// In a rule about both sides of a transaction: whose buffer it is.
    pub(crate) side: Option<usize>,
}

/// What a rule says of a buffer that is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Absence {
    /// It does not match.
    #[default]
    Fails,
    /// It must not be there (`absent`).
    Wanted,
    /// It must not be there, or be as the steps say (`absent:or_else`).
    OrElse,
}

/// Whom a rule that rejects answers; of several the first of these counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answered {
    /// Who sent the packet (`reject`, `rejectsrc`).
    #[default]
    Sender,
    /// For whom it was (`rejectdst`).
    Receiver,
    /// Either (`rejectboth`).
    Both,
}

/// What a rule says is not to be told of what it matches (`config:logging disable`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Untold {
    Flow,
    Transaction,
}

/// The content of a rule that the matcher looks for in all buffers at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FastPattern {
    pub(crate) test: usize,
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) is_nocase: bool,
}

/// A rule that can be run in full.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What it wants.
    pub action: Action,
    /// How far that goes; `None`: as what it looks at says.
    pub(crate) scope: Option<Scope>,
    /// Generator: 1, unless it says otherwise.
    pub generator: u32,
    /// Its number.
    pub sid: u32,
    /// Its revision.
    pub revision: u32,
    /// What it says when it matches.
    pub message: String,
    /// Short name of its class.
    pub class: String,
    /// 1 is the most severe; by its class, unless it says otherwise.
    pub priority: u32,
    /// `metadata`, as key and value.
    pub metadata: Vec<(String, String)>,
    /// `reference`, as type and name.
    pub references: Vec<(String, String)>,
    /// Which end it calls the target, if it names one: `src_ip` or `dest_ip`.
    pub target: Option<String>,
    /// Whom it answers, where it says that it rejects.
    pub answered: Option<Answered>,
    /// What it matches is looked at no further (`bypass`).
    pub(crate) bypasses: bool,
    pub(crate) untold: Option<Untold>,
    pub(crate) spoken: Vec<Spoken>,
    /// What speaks in the streams that it looks at as frames: `frame:tls.stream`.
    pub(crate) stream_of: Option<Protocol>,
    pub(crate) messages: Vec<MessageTest>,
    /// What it asks of numbers in what applications say.
    pub(crate) units: Vec<UnitTest>,
    /// What must be odd about the message.
    pub(crate) app_events: Vec<AppEvent>,
    pub(crate) header: Header,
    /// When alone it is looked at.
    pub(crate) hook: Option<Hook>,
    pub(crate) flow: FlowTest,
    pub(crate) tests: Vec<HeaderTest>,
    pub(crate) buffers: Vec<BufferTest>,
    pub(crate) bits: Vec<BitTest>,
    pub(crate) stream_sizes: Vec<StreamSize>,
    pub(crate) texts: Vec<TextTest>,
    pub(crate) threshold: Option<Threshold>,
    pub(crate) filter: Option<Threshold>,
    pub(crate) is_silent: bool,
    pub(crate) tags: Vec<Tag>,
    /// Alerts although it lets pass.
    pub(crate) tells_pass: bool,
    /// It tells what it would drop, and drops nothing.
    pub(crate) is_tried: bool,
    pub(crate) flow_counts: Vec<FlowCount>,
    pub(crate) suppressions: Vec<Suppression>,
    pub(crate) rate: Option<RateFilter>,
    pub(crate) fast: Option<FastPattern>,
    /// What it looks at.
    pub(crate) facts: crate::ruleset::Facts,
    /// Writes something over what it finds in packets.
    pub(crate) replaces: bool,
    /// Looks at packets, not at the stream that they make.
    pub(crate) needs_packet: bool,
    /// Looks at the stream.
    pub(crate) needs_stream: bool,
}

impl Rule {
    /// Whether it looks for contents of a stream as such, were it in one application's alone.
    pub fn is_of_stream(&self) -> bool {
        self.looks_into_streams() && (!self.is_of_application() || self.has_only_payload())
    }

    /// Whether it looks for contents of a stream, were it in one application's alone.
    pub fn looks_into_streams(&self) -> bool {
        self.needs_stream && self.has_payload()
    }

    /// The frames that it looks at, if it does.
    pub(crate) fn frame(&self) -> Option<FrameKind> {
        self.buffers.iter().find_map(|it| match it.key.buffer {
            Buffer::Frame(kind) => Some(kind),
            _ => None,
        })
    }

    /// Whether an expression of it captures texts that are kept so.
    pub(crate) fn captures(&self, kept: TextScope) -> bool {
        let captures = |it: &Step| match it {
            Step::Pcre(it) => it
                .captures
                .iter()
                .any(|it| matches!(it.1, step::Capture::Text(it, _) if it == kept)),
            _ => false,
        };
        self.buffers.iter().any(|it| it.steps.iter().any(captures))
    }

    /// What the rule's header says of the protocol.
    pub fn protocol(&self) -> Protocol {
        self.header.protocol
    }
}
