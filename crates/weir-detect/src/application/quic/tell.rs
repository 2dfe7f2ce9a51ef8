//! What is told of hellos in QUIC.

use super::super::names::{Names, name_of};
use super::super::unit::Unit;
use super::packet::Packet;
use super::{google, ja3};
use crate::buffers::event::AppEvent;
use crate::buffers::tls::Hello;
use crate::rule::Buffer;
use crate::value::{Object, Value};

const SERVER_NAME: u16 = 0;
const SIGNATURE_ALGORITHMS: u16 = 13;
const PROTOCOLS: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;
/// Extensions that are told of, at most.
const EXTENSIONS_MAX: usize = 256;

/// Puts what a hello of TLS says.
pub(super) fn hello(side: usize, hello: &Hello, unit: &mut Unit, object: &mut Object) {
    let [of_hash, of_line] = match side {
        0 => [Buffer::Ja3Hash, Buffer::Ja3String],
        _ => [Buffer::Ja3sHash, Buffer::Ja3sString],
    };
    unit.some_text(Buffer::QuicServerName, hello.server_name.as_deref());
    unit.text(of_hash, &hello.ja3.hash);
    unit.text(of_line, &hello.ja3.line);
    object.put_some("sni", hello.server_name.as_ref());
    let fingerprint =
        Object::default().with("hash", &hello.ja3.hash).with("string", &hello.ja3.line);
    object.put(if side == 0 { "ja3" } else { "ja3s" }, fingerprint);
    if let [_, rest @ ..] = hello.ja4.as_slice() {
        // Its first letter says what carries it.
        let of_quic = [b"q", rest].concat();
        unit.text(Buffer::Ja4Hash, &of_quic);
        object.put("ja4", &of_quic);
    }
    let extensions: Vec<Value> =
        hello.extensions.iter().take(EXTENSIONS_MAX).map(|it| extension(*it, hello)).collect();
    if !extensions.is_empty() {
        object.put("extensions", Value::List(extensions));
    }
}

fn extension(kind: u16, hello: &Hello) -> Value {
    let mut object = Object::default();
    object.put_some("name", name_of(EXTENSIONS, kind));
    object.put("type", ja3::told(kind));
    let values: Vec<Value> = match kind {
        SERVER_NAME => hello.server_name.iter().map(Value::from).collect(),
        SIGNATURE_ALGORITHMS => {
            hello.signature_algorithms.iter().map(|it| it.to_string().into()).collect()
        }
        PROTOCOLS => hello.protocols.iter().map(Value::from).collect(),
        SUPPORTED_VERSIONS => hello.versions.iter().map(|it| version_name(*it).into()).collect(),
        _ => Vec::new(),
    };
    if !values.is_empty() {
        object.put("values", Value::List(values));
    }
    object.into()
}

/// A version of TLS among those that are offered, as EVE spells it here.
fn version_name(version: u16) -> String {
    match version {
        0x300 => "Ssl30".into(),
        0x301..=0x304 => format!("Tls1{}", version - 0x301),
        other => format!("TlsVersion({other} / {other:#x})"),
    }
}

/// Puts what a hello of Google's versions says.
pub(super) fn google(packet: &Packet<'_>, unit: &mut Unit, object: &mut Object) {
    let hello = match google::Hello::read(&packet.bytes[packet.head..]) {
        Ok(Some(hello)) => hello,
        Ok(None) => return,
        Err(()) => return unit.odd(AppEvent::QuicData),
    };
    unit.some_text(Buffer::QuicServerName, hello.server_name.as_deref());
    unit.some_text(Buffer::QuicUserAgent, hello.user_agent.as_deref());
    object.put_some("sni", hello.server_name.as_ref());
    object.put_some("ua", hello.user_agent.as_ref());
    if let Some((line, hash)) = hello.fingerprint(packet.version) {
        unit.text(Buffer::QuicFingerprint, line.as_bytes());
        unit.text(Buffer::QuicFingerprintHash, &hash);
        let fingerprint = Object::default().with("hash", &hash).with("string", line);
        object.put("cyu", vec![fingerprint]);
    }
}

/// Extensions of TLS (IANA's registry of ExtensionType values), as EVE spells them.
const EXTENSIONS: Names = &[
    ("server_name", 0),
    ("max_fragment_length", 1),
    ("client_certificate_url", 2),
    ("trusted_ca_keys", 3),
    ("truncated_hmac", 4),
    ("status_request", 5),
    ("user_mapping", 6),
    ("client_authz", 7),
    ("server_authz", 8),
    ("cert_type", 9),
    ("supported_groups", 10),
    ("ec_point_formats", 11),
    ("srp", 12),
    ("signature_algorithms", 13),
    ("use_srtp", 14),
    ("heartbeat", 15),
    ("alpn", 16),
    ("status_request_v2", 17),
    ("signed_certificate_timestamp", 18),
    ("client_certificate_type", 19),
    ("server_certificate_type", 20),
    ("padding", 21),
    ("encrypt_then_mac", 22),
    ("extended_master_secret", 23),
    ("token_binding", 24),
    ("cached_info", 25),
    ("tls_lts", 26),
    ("compress_certificate", 27),
    ("record_size_limit", 28),
    ("pwd_protect", 29),
    ("pwd_clear", 30),
    ("password_salt", 31),
    ("ticket_pinning", 32),
    ("tls_cert_with_extern_psk", 33),
    ("delegated_credentials", 34),
    ("session_ticket", 35),
    ("tlmsp", 36),
    ("tlmsp_proxying", 37),
    ("tlmsp_delegate", 38),
    ("supported_ekt_ciphers", 39),
    ("pre_shared_key", 41),
    ("early_data", 42),
    ("supported_versions", 43),
    ("cookie", 44),
    ("psk_key_exchange_modes", 45),
    ("certificate_authorities", 47),
    ("oid_filters", 48),
    ("post_handshake_auth", 49),
    ("signature_algorithms_cert", 50),
    ("key_share", 51),
    ("transparency_info", 52),
    ("connection_id_deprecated", 53),
    ("connection_id", 54),
    ("external_id_hash", 55),
    ("external_session_id", 56),
    ("quic_transport_parameters", 57),
    ("ticket_request", 58),
    ("dnssec_chain", 59),
    ("next_protocol_negotiation", 13_172),
    ("renegotiation_info", 65_281),
];
