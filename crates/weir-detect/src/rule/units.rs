//! What rules ask of the numbers in what applications say: `snmp.version:2`, `mqtt.type:CONNECT`.

use std::sync::Arc;

use super::Protocol;
use super::digests::DigestList;
use super::modbus::ModbusTest;
use super::number::Form::{self, Any, Digits, Named, WithEnds};
use super::number::Numbers;
use crate::application::enip::cip::unpacked;
use crate::application::names;
use crate::application::unit::Unit;
use crate::digest::FileDigests;

macro_rules! fields {
    ($($field:ident $(($form:expr))? $($keyword:literal)* | $($protocol:ident)+;)+) => {
        /// A number that an application says.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Field {
            $($field,)+
        }

        impl Field {
            fn from_keyword(keyword: &str) -> Option<Self> {
                match keyword {
                    $($($keyword => Some(Self::$field),)*)+
                    _ => None,
                }
            }

            /// How rules write it, where a keyword of its own stands before it.
            fn form(self) -> Form {
                match self {
                    $(Self::$field => [$($form,)? Named][0],)+
                }
            }

            /// The applications that say it.
            pub(crate) fn protocols(self) -> &'static [Protocol] {
                match self {
                    $(Self::$field => &[$(Protocol::$protocol),+],)+
                }
            }
        }
    };
}

fields! {
    FtpBounce | Ftp;
    FtpPort (Any(16)) "ftp.dynamic_port" | Ftp;
    FtpMode (Named) "ftp.mode" | Ftp;
    FtpReplied (Named) "ftp.reply_received" | Ftp;
    FtpDataCommand (Named) "ftpdata_command" | FtpData;
    FileSize (Any(64)) "filesize" | Http Http2 Smtp FtpData Smb Nfs;
    SmbVersion (Digits(2)) "smb.version" | Smb;
    DcerpcOpnum (WithEnds(32)) "dcerpc.opnum" "dce_opnum" | Dcerpc Smb;
    SnmpVersion (Any(32)) "snmp.version" | Snmp;
    SnmpPdu (Any(32)) "snmp.pdu_type" | Snmp;
    SnmpTrap (Any(8)) "snmp.trap_type" | Snmp;
    KrbMessage (Digits(255)) "krb5_msg_type" | Krb5;
    KrbError (Digits(0x7fff_ffff)) "krb5_err_code" | Krb5;
    KrbEncryption (Digits(0x7fff_ffff)) "krb5.ticket_encryption" | Krb5;
    KrbWeak | Krb5;
    RfbSecurity (Any(32)) "rfb.sectype" | Rfb;
    RfbResult (Any(32)) "rfb.secresult" | Rfb;
    MqttType (Any(8)) "mqtt.type" | Mqtt;
    MqttVersion (Any(8)) "mqtt.protocol_version" | Mqtt;
    MqttQos (Digits(2)) "mqtt.qos" | Mqtt;
    MqttReason (Any(8)) "mqtt.reason_code" "mqtt.connack.return_code" | Mqtt;
    MqttSession (Named) "mqtt.connack.session_present" | Mqtt;
    MqttFlags | Mqtt;
    MqttConnectFlags | Mqtt;
    IkeExchange (Any(8)) "ike.exchtype" | Ike;
    IkeKeyLength (Any(32)) "ike.key_exchange_payload_length" | Ike;
    IkeNonceLength (Any(32)) "ike.nonce_payload_length" | Ike;
    IkeEncryption | Ike;
    IkeHash | Ike;
    IkeAuthentication | Ike;
    IkeGroup | Ike;
    IkeLifeType | Ike;
    IkeLifeDuration | Ike;
    IkeKeyBits | Ike;
    LdapRequest (Any(8)) "ldap.request.operation" | Ldap;
    LdapResponse (Any(8)) "ldap.responses.operation" | Ldap;
    LdapCount (Any(32)) "ldap.responses.count" | Ldap;
    LdapResult (Any(32)) "ldap.responses.result_code" | Ldap;
    ModbusUnit | Modbus;
    ModbusFunction | Modbus;
    ModbusSubfunction | Modbus;
    ModbusCategory | Modbus;
    ModbusAccess | Modbus;
    ModbusAddress | Modbus;
    ModbusQuantity | Modbus;
    ModbusValue | Modbus;
    Dnp3Function (Digits(255)) "dnp3.func" "dnp3_func" | Dnp3;
    Dnp3Object | Dnp3;
    Dnp3Indications | Dnp3;
    NfsProcedure (WithEnds(32)) "nfs_procedure" | Nfs;
    NfsVersion (WithEnds(32)) "nfs.version" "nfs_version" | Nfs;
    DhcpLease (Any(64)) "dhcp.leasetime" | Dhcp;
    DhcpRebinding (Any(64)) "dhcp.rebinding_time" | Dhcp;
    DhcpRenewal (Any(64)) "dhcp.renewal_time" | Dhcp;
    NtpVersion (Any(8)) "ntp.version" | Ntp;
    NtpMode (Any(8)) "ntp.mode" | Ntp;
    NtpStratum (Any(8)) "ntp.stratum" | Ntp;
    WebsocketOpcode (Any(8)) "websocket.opcode" | Websocket;
    WebsocketMask (Any(32)) "websocket.mask" | Websocket;
    WebsocketFlags | Websocket;
    EnipCommand (Any(16)) "enip_command" | Enip;
    EnipStatus (Any(32)) "enip.status" | Enip;
    EnipService | Enip;
    EnipClass (Any(32)) "enip.cip_class" | Enip;
    EnipInstance (Any(32)) "enip.cip_instance" | Enip;
    EnipAttribute (Any(32)) "enip.cip_attribute" | Enip;
    EnipCipStatus (Any(8)) "enip.cip_status" | Enip;
    EnipExtendedStatus (Any(16)) "enip.cip_extendedstatus" | Enip;
    EnipVersion (Any(16)) "enip.protocol_version" | Enip;
    EnipRevision (Any(16)) "enip.revision" | Enip;
    EnipVendor (Any(16)) "enip.vendor_id" | Enip;
    EnipDevice (Any(16)) "enip.device_type" | Enip;
    EnipProduct (Any(16)) "enip.product_code" | Enip;
    EnipSerial (Any(32)) "enip.serial" | Enip;
    EnipState (Any(8)) "enip.state" | Enip;
    EnipIdentityStatus (Any(16)) "enip.identity_status" | Enip;
    EnipCapabilities (Any(16)) "enip.capabilities" | Enip;
}

/// Which of several numbers must be as a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Any,
    All,
    /// Counted from the first, or with a sign from the last.
    At(i32),
}

/// What a rule asks of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UnitTest {
    Number {
        field: Field,
        numbers: Vec<Numbers>,
        which: Which,
    },
    /// Bits of a number: those that must be set and those that must not; or one of the first.
    Bits {
        field: Field,
        set: i64,
        clear: i64,
        is_any: bool,
    },
    /// `dcerpc.iface`
    Interface {
        identifier: [u8; 16],
        versions: Option<Numbers>,
        /// Whichever fragment of a request it is.
        is_any_fragment: bool,
    },
    Modbus(ModbusTest),
    /// `cip_service`: a service, and the class and attribute that it is asked of.
    Service {
        service: u8,
        class: Option<u16>,
        attribute: Option<u16>,
    },
    /// A connection for data that goes to somebody else (`ftpbounce`).
    Bounce,
    /// A file whose digest is in a list, or is not (`filemd5`).
    Digest {
        list: Arc<DigestList>,
        is_negated: bool,
    },
    /// A file (`filestore`).
    File,
}

impl UnitTest {
    /// `snmp.version:2`; `None`: no such keyword.
    pub(crate) fn parse(name: &str, value: &str) -> Option<Result<Self, String>> {
        let bits = |field, names: &[(&str, i64)], is_any| bits(field, value, names, is_any);
        Some(match name {
            "dcerpc.iface" | "dce_iface" => interface(value),
            "modbus" => ModbusTest::parse(value).map(Self::Modbus),
            "ftpbounce" => Ok(Self::Bounce),
            "filestore" => file_store(value),
            "krb5.ticket_encryption" => ticket_encryption(value),
            "mqtt.flags" => bits(Field::MqttFlags, &[("dup", 8), ("retain", 1)], false),
            "mqtt.connect.flags" => bits(Field::MqttConnectFlags, names::MQTT_CONNECT, false),
            "dnp3.ind" | "dnp3_ind" => bits(Field::Dnp3Indications, names::DNP3_INDICATIONS, true),
            "dnp3.obj" | "dnp3_obj" => dnp3_object(value),
            "cip_service" => service(value),
            "websocket.flags" => {
                bits(Field::WebsocketFlags, &[("fin", 0x80), ("comp", 0x40)], false)
            }
            "ike.chosen_sa_attribute" => ike_attribute(value),
            _ => number(Field::from_keyword(name)?, value),
        })
    }

    fn any(field: Field, numbers: Vec<Numbers>) -> Self {
        Self::Number { field, numbers, which: Which::Any }
    }

    fn only(field: Field, number: u64) -> Self {
        Self::any(field, vec![Numbers::one(number)])
    }

    /// The applications that it may be asked of.
    pub(crate) fn protocols(&self) -> &'static [Protocol] {
        match self {
            Self::Number { field, .. } | Self::Bits { field, .. } => field.protocols(),
            Self::Interface { .. } => Field::DcerpcOpnum.protocols(),
            Self::Modbus(_) => Field::ModbusUnit.protocols(),
            Self::Service { .. } => Field::EnipService.protocols(),
            Self::Bounce => Field::FtpBounce.protocols(),
            Self::Digest { .. } | Self::File => Field::FileSize.protocols(),
        }
    }

    /// Who alone says what it asks for: clients (true) or servers.
    pub(crate) fn said_by(&self) -> Option<bool> {
        match self {
            Self::Number { field, .. } => match field {
                Field::MqttQos
                | Field::MqttVersion
                | Field::LdapRequest
                | Field::NfsVersion
                | Field::NfsProcedure => Some(true),
                Field::FtpReplied | Field::LdapResponse | Field::LdapCount | Field::LdapResult => {
                    Some(false)
                }
                _ => None,
            },
            Self::Bits { field: Field::MqttFlags | Field::MqttConnectFlags, .. }
            | Self::Modbus(_)
            | Self::Bounce => Some(true),
            _ => None,
        }
    }

    /// Whether it asks for digests of files.
    pub(crate) fn is_of_digests(&self) -> bool {
        matches!(self, Self::Digest { .. })
    }

    /// The digests of files that it asks for.
    pub(crate) fn digests(&self) -> FileDigests {
        match self {
            Self::Digest { list, .. } => list.kind(),
            _ => FileDigests::default(),
        }
    }

    /// Whether a unit that `source` has sent is as asked.
    pub(crate) fn holds(&self, unit: &Unit, source: u128) -> bool {
        match self {
            Self::Bounce => unit.numbers(Field::FtpBounce).any(|it| it != i64::from(source as u32)),
            Self::Number { field, numbers, which } => {
                let is_meant = |number: i64| {
                    u64::try_from(number).is_ok_and(|it| numbers.iter().any(|of| of.contain(it)))
                };
                let mut all = unit.numbers(*field);
                match which {
                    Which::Any => all.any(is_meant),
                    Which::All => {
                        let all: Vec<i64> = all.collect();
                        !all.is_empty() && all.into_iter().all(is_meant)
                    }
                    Which::At(place) => {
                        let all: Vec<i64> = all.collect();
                        let place = match usize::try_from(*place) {
                            Ok(place) => Some(place),
                            Err(_) => all.len().checked_sub(place.unsigned_abs() as usize),
                        };
                        place.and_then(|it| all.get(it)).is_some_and(|it| is_meant(*it))
                    }
                }
            }
            Self::Bits { field, set, clear, is_any } => {
                unit.numbers(*field).any(|it| match is_any {
                    true => it & set != 0,
                    false => it & set == *set && it & clear == 0,
                })
            }
            Self::Interface { identifier, versions, is_any_fragment } => {
                let is_meant = |bytes: &[u8]| match bytes.split_first_chunk::<16>() {
                    Some((known, [high, low, is_first])) => {
                        let version = u64::from(u16::from_be_bytes([*high, *low]));
                        known == identifier
                            && versions.is_none_or(|it| it.contain(version))
                            && (*is_any_fragment || *is_first == 1)
                    }
                    _ => false,
                };
                unit.each(super::Buffer::DcerpcInterface, &mut |it| is_meant(it))
            }
            Self::Modbus(test) => test.holds(unit),
            Self::File => unit.each(super::Buffer::FileName, &mut |_| true),
            Self::Digest { list, is_negated } => {
                unit.digests().iter().any(|it| list.has(it).is_some_and(|has| has != *is_negated))
            }
            Self::Service { service, class, attribute } => {
                unit.numbers(Field::EnipService).any(|it| {
                    let (asked, of_class, of_attribute) = unpacked(it);
                    let is_meant = |wanted: Option<u16>, it| {
                        wanted.is_none_or(|wanted| it == Some(i64::from(wanted)))
                    };
                    asked == i64::from(*service)
                        && is_meant(*class, of_class)
                        && is_meant(*attribute, of_attribute)
                })
            }
        }
    }
}

/// Whose files are to be kept, and which. None are: as without an output for files, the rule asks
/// that there is one.
fn file_store(value: &str) -> Result<UnitTest, String> {
    const SIDES: [&str; 5] = ["request", "to_server", "response", "to_client", "both"];
    const SCOPES: [&str; 4] = ["file", "tx", "ssn", "flow"];
    let mut words = value.split(',').map(str::trim);
    let side = words.next().unwrap_or_default();
    let is_known = side.is_empty() || SIDES.contains(&side) || SCOPES.contains(&side);
    match words.next().is_none_or(|it| SCOPES.contains(&it)) && words.next().is_none() && is_known {
        true => Ok(UnitTest::File),
        false => Err(format!("`{value}` behind filestore")),
    }
}

/// A number or a name of what is in a field, several for operations of DCE/RPC, and for responses
/// of LDAP which of them.
fn number(field: Field, value: &str) -> Result<UnitTest, String> {
    let is_of_several = matches!(field, Field::LdapResponse | Field::LdapResult);
    let (value, which) = match value.split_once(',') {
        Some((value, which)) if is_of_several => (value, which.trim()),
        _ => (value, "any"),
    };
    let which = match which {
        "any" => Which::Any,
        "all" => Which::All,
        other => Which::At(other.parse().map_err(|_| format!("`{other}` behind `{value}`"))?),
    };
    if value.contains(',') && field != Field::DcerpcOpnum {
        return Err(format!("`{value}`: one of them"));
    }
    let numbers: Result<Vec<Numbers>, String> =
        value.split(',').map(|it| one_number(field, it)).collect();
    Ok(UnitTest::Number { field, numbers: numbers?, which })
}

fn one_number(field: Field, text: &str) -> Result<Numbers, String> {
    let text = text.trim();
    let (is_negated, word) = match text.strip_prefix("!=").or_else(|| text.strip_prefix('!')) {
        Some(word) => (true, word.trim()),
        None => (false, text),
    };
    if let Some(number) = names::number(field, word) {
        let number = Numbers::one(number);
        return Ok(if is_negated { number.negated() } else { number });
    }
    field.form().parse(text)
}

/// `dup,!retain`, or what their number must be; where one suffices, a number that has them.
fn bits(
    field: Field,
    value: &str,
    names: &[(&str, i64)],
    is_any: bool,
) -> Result<UnitTest, String> {
    if is_any && let Some(set) = super::number::number(value).filter(|it| *it <= 0xffff) {
        return Ok(UnitTest::Bits { field, set: set as i64, clear: 0, is_any });
    }
    if !is_any && let Ok(numbers) = Numbers::parse(value, 8) {
        return Ok(UnitTest::any(field, vec![numbers]));
    }
    let (mut set, mut clear) = (0, 0);
    for word in value.split(',').map(str::trim) {
        let (into, name) = match word.strip_prefix('!') {
            Some(name) => (&mut clear, name.trim()),
            None => (&mut set, word),
        };
        let known = names.iter().find(|it| it.0 == name);
        *into |= known.ok_or_else(|| format!("`{name}` is none of its flags"))?.1;
    }
    Ok(UnitTest::Bits { field, set, clear, is_any })
}

/// `367abb81-9844-35f1-ad32-98f038001003,>1,any_frag`
fn interface(value: &str) -> Result<UnitTest, String> {
    let mut parts = value.split(',').map(str::trim);
    let text = parts.next().unwrap_or_default();
    let wrong = || format!("`{text}` is no interface");
    let digits: Vec<u8> = text.bytes().filter(|it| *it != b'-').collect();
    let mut identifier = [0; 16];
    if digits.len() != 32 {
        return Err(wrong());
    }
    for (byte, pair) in identifier.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    let (mut versions, mut is_any_fragment) = (None, false);
    for part in parts {
        match part {
            "any_frag" => is_any_fragment = true,
            _ => versions = Some(Numbers::parse(part, 16)?),
        }
    }
    Ok(UnitTest::Interface { identifier, versions, is_any_fragment })
}

/// `weak`, or a list of kinds of encryption, all of it perhaps negated.
fn ticket_encryption(value: &str) -> Result<UnitTest, String> {
    let value = value.trim();
    let (is_negated, list) = match value.strip_prefix('!') {
        Some(list) => (true, list),
        None => (false, value),
    };
    if list == "weak" {
        return Ok(UnitTest::only(Field::KrbWeak, u64::from(!is_negated)));
    }
    let numbers: Result<Vec<Numbers>, String> =
        list.split(',').map(|it| one_number(Field::KrbEncryption, it)).collect();
    let numbers = numbers?;
    match (is_negated, numbers.as_slice()) {
        (false, _) => Ok(UnitTest::any(Field::KrbEncryption, numbers)),
        (true, [one]) => Ok(UnitTest::any(Field::KrbEncryption, vec![one.negated()])),
        _ => Err("of a negated list, each one".to_owned()),
    }
}

/// `75`, `14,1` or `14,1,3`: service, class and attribute.
fn service(value: &str) -> Result<UnitTest, String> {
    let wrong = || format!("`{value}`: a service, perhaps a class, perhaps an attribute");
    let numbers: Option<Vec<u16>> = value.split(',').map(|it| it.trim().parse().ok()).collect();
    let (service, class, attribute) = match numbers.as_deref() {
        Some([service]) => (*service, None, None),
        Some([service, class]) => (*service, Some(*class), None),
        Some([service, class, attribute]) => (*service, Some(*class), Some(*attribute)),
        _ => return Err(wrong()),
    };
    let service = u8::try_from(service).map_err(|_| wrong())?;
    Ok(UnitTest::Service { service, class, attribute })
}

/// `1,2`: group and variation.
fn dnp3_object(value: &str) -> Result<UnitTest, String> {
    let number = |text: &str| text.trim().parse::<u8>().ok();
    let pair = value.split_once(',').and_then(|(a, b)| Some((number(a)?, number(b)?)));
    let (group, variation) = pair.ok_or_else(|| format!("`{value}`: a group and a variation"))?;
    Ok(UnitTest::only(Field::Dnp3Object, u64::from(group) << 8 | u64::from(variation)))
}

/// `alg_hash=2`
fn ike_attribute(value: &str) -> Result<UnitTest, String> {
    let (name, number) = value.split_once('=').ok_or("a name, `=` and a number")?;
    let field = match name.trim() {
        "alg_enc" => Field::IkeEncryption,
        "alg_hash" => Field::IkeHash,
        "alg_auth" => Field::IkeAuthentication,
        "alg_dh" => Field::IkeGroup,
        "sa_life_type" => Field::IkeLifeType,
        "sa_life_duration" => Field::IkeLifeDuration,
        "sa_key_length" => Field::IkeKeyBits,
        other => return Err(format!("`{other}` is no attribute of a security association")),
    };
    Ok(UnitTest::any(field, vec![Digits(u32::MAX.into()).parse(number)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(keyword: &str, value: &str, numbers: &[(Field, i64)]) -> bool {
        let mut unit = Unit::new(Protocol::Snmp, 0);
        numbers.iter().for_each(|(field, number)| unit.number(*field, *number));
        UnitTest::parse(keyword, value).unwrap().unwrap().holds(&unit, 0)
    }

    #[test]
    fn numbers_may_be_named() {
        let connect = [(Field::MqttType, 1)];
        assert!(holds("mqtt.type", "CONNECT", &connect) && holds("mqtt.type", "1", &connect));
        assert!(!holds("mqtt.type", "PUBLISH", &connect));
        assert!(holds("snmp.version", "!3", &[(Field::SnmpVersion, 2)]));
        assert!(!holds("snmp.version", "!3", &[]), "what is not there is not as the rule says");
        assert!(UnitTest::parse("mqtt.type", "CONECT").unwrap().is_err());
    }

    #[test]
    fn of_several_numbers_the_meant_ones_decide() {
        let results = [(Field::LdapResponse, 4), (Field::LdapResponse, 5)];
        assert!(holds("ldap.responses.operation", "search_result_done", &results));
        assert!(!holds("ldap.responses.operation", "search_result_done,all", &results));
        assert!(!holds("ldap.responses.operation", "search_result_done,0", &results));
        assert!(holds("ldap.responses.operation", "5,-1", &results));
    }

    #[test]
    fn sizes_have_units() {
        assert!(holds("filesize", ">1KiB", &[(Field::FileSize, 1025)]));
        assert!(!holds("filesize", ">1KB", &[(Field::FileSize, 1024)]));
    }

    #[test]
    fn flags_must_be_set_or_not() {
        assert!(holds("mqtt.flags", "dup,!retain", &[(Field::MqttFlags, 8)]));
        assert!(!holds("mqtt.flags", "dup,!retain", &[(Field::MqttFlags, 9)]));
        assert!(holds(
            "dnp3_ind",
            "device_restart,no_func_code_support",
            &[(Field::Dnp3Indications, 0x8000)]
        ));
    }
}
