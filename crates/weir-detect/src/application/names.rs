//! Numbers of applications by their names: as rules write them, and as EVE spells them.

use crate::rule::Field;

/// Names and what they stand for.
pub(crate) type Names = &'static [(&'static str, i64)];

/// What `name` stands for, in either case.
pub(crate) fn number_of(names: Names, name: &str) -> Option<i64> {
    names.iter().find(|it| it.0.eq_ignore_ascii_case(name)).map(|it| it.1)
}

/// The first name of `number`.
pub(crate) fn name_of(names: Names, number: impl Into<i64>) -> Option<&'static str> {
    let number = number.into();
    names.iter().find(|it| it.1 == number).map(|it| it.0)
}

/// What rules mean by `name` in a field.
pub(crate) fn number(field: Field, name: &str) -> Option<u64> {
    let names: Names = match field {
        Field::SnmpPdu => SNMP_PDU,
        Field::SnmpTrap => SNMP_TRAP,
        Field::KrbEncryption => KRB_ENCRYPTION,
        Field::RfbResult => RFB_RESULT,
        Field::MqttType => MQTT_TYPE,
        Field::MqttSession => YES,
        Field::FtpReplied => match name.to_ascii_lowercase().as_str() {
            "on" => return Some(1),
            "off" => return Some(0),
            _ => YES,
        },
        Field::FtpMode => &[("active", 1), ("passive", 2)],
        Field::FtpDataCommand => &[("retr", 1), ("stor", 2)],
        Field::LdapRequest | Field::LdapResponse => LDAP_OPERATION,
        Field::LdapResult => LDAP_RESULT,
        Field::NfsProcedure => NFS_PROCEDURE,
        Field::Dnp3Function => DNP3_FUNCTION,
        Field::NtpMode => NTP_MODE,
        Field::WebsocketOpcode => WEBSOCKET_OPCODE,
        Field::EnipCommand => ENIP_COMMAND,
        Field::EnipStatus => ENIP_STATUS,
        _ => return None,
    };
    number_of(names, name).and_then(|it| u64::try_from(it).ok())
}

const YES: Names = &[("yes", 1), ("true", 1), ("1", 1), ("no", 0), ("false", 0), ("0", 0)];

/// RFC 3416 s3.
pub(crate) const SNMP_PDU: Names = &[
    ("get_request", 0),
    ("get_next_request", 1),
    ("response", 2),
    ("set_request", 3),
    ("trap_v1", 4),
    ("get_bulk_request", 5),
    ("inform_request", 6),
    ("trap_v2", 7),
    ("report", 8),
];

/// RFC 1157 s4.1.6.
pub(crate) const SNMP_TRAP: Names = &[
    ("cold_start", 0),
    ("warm_start", 1),
    ("link_down", 2),
    ("link_up", 3),
    ("authentication_failure", 4),
    ("egp_neighbor_loss", 5),
    ("enterprise_specific", 6),
];

/// MQTT 5.0 s2.1.2.
pub(crate) const MQTT_TYPE: Names = &[
    ("connect", 1),
    ("connack", 2),
    ("publish", 3),
    ("puback", 4),
    ("pubrec", 5),
    ("pubrel", 6),
    ("pubcomp", 7),
    ("subscribe", 8),
    ("suback", 9),
    ("unsubscribe", 10),
    ("unsuback", 11),
    ("pingreq", 12),
    ("pingresp", 13),
    ("disconnect", 14),
    ("auth", 15),
    ("unassigned", 0),
];

/// MQTT 5.0 s3.1.2.3.
pub(crate) const MQTT_CONNECT: Names = &[
    ("username", 0x80),
    ("password", 0x40),
    ("will_retain", 0x20),
    ("will", 0x04),
    ("clean_session", 0x02),
];

/// RFC 6143 s7.1.3.
pub(crate) const RFB_RESULT: Names = &[("ok", 0), ("fail", 1), ("toomany", 2)];

/// RFC 3961, RFC 4120 s6.1, RFC 4757, RFC 6803, RFC 8009.
pub(crate) const KRB_ENCRYPTION: Names = &[
    ("null", 0),
    ("des-cbc-crc", 1),
    ("des-cbc-md4", 2),
    ("des-cbc-md5", 3),
    ("des3-cbc-md5", 5),
    ("des3-cbc-sha1", 7),
    ("dsaWithSHA1-CmsOID", 9),
    ("md5WithRSAEncryption-CmsOID", 10),
    ("sha1WithRSAEncryption-CmsOID", 11),
    ("rc2CBC-EnvOID", 12),
    ("rsaEncryption-EnvOID", 13),
    ("rsaES-OAEP-ENV-OID", 14),
    ("des-ede3-cbc-Env-OID", 15),
    ("des3-cbc-sha1-kd", 16),
    ("aes128-cts-hmac-sha1-96", 17),
    ("aes256-cts-hmac-sha1-96", 18),
    ("aes128-cts-hmac-sha256-128", 19),
    ("aes256-cts-hmac-sha384-192", 20),
    ("rc4-hmac", 23),
    ("rc4-hmac-exp", 24),
    ("camellia128-cts-cmac", 25),
    ("camellia256-cts-cmac", 26),
    ("subkey-keymaterial", 65),
];

/// RFC 4511 s4.2 and on: the tags of operations.
pub(crate) const LDAP_OPERATION: Names = &[
    ("bind_request", 0),
    ("bind_response", 1),
    ("unbind_request", 2),
    ("search_request", 3),
    ("search_result_entry", 4),
    ("search_result_done", 5),
    ("modify_request", 6),
    ("modify_response", 7),
    ("add_request", 8),
    ("add_response", 9),
    ("del_request", 10),
    ("del_response", 11),
    ("mod_dn_request", 12),
    ("mod_dn_response", 13),
    ("compare_request", 14),
    ("compare_response", 15),
    ("abandon_request", 16),
    ("search_result_reference", 19),
    ("extended_request", 23),
    ("extended_response", 24),
    ("intermediate_response", 25),
];

/// RFC 4511 s4.1.9.
pub(crate) const LDAP_RESULT: Names = &[
    ("success", 0),
    ("operations_error", 1),
    ("protocol_error", 2),
    ("time_limit_exceeded", 3),
    ("size_limit_exceeded", 4),
    ("compare_false", 5),
    ("compare_true", 6),
    ("auth_method_not_supported", 7),
    ("stronger_auth_required", 8),
    ("referral", 10),
    ("admin_limit_exceeded", 11),
    ("unavailable_critical_extension", 12),
    ("confidentiality_required", 13),
    ("sasl_bind_in_progress", 14),
    ("no_such_attribute", 16),
    ("undefined_attribute_type", 17),
    ("inappropriate_matching", 18),
    ("constraint_violation", 19),
    ("attribute_or_value_exists", 20),
    ("invalid_attribute_syntax", 21),
    ("no_such_object", 32),
    ("alias_problem", 33),
    ("invalid_dn_syntax", 34),
    ("is_leaf", 35),
    ("alias_dereferencing_problem", 36),
    ("inappropriate_authentication", 48),
    ("invalid_credentials", 49),
    ("insufficient_access_rights", 50),
    ("busy", 51),
    ("unavailable", 52),
    ("unwilling_to_perform", 53),
    ("loop_detect", 54),
    ("naming_violation", 64),
    ("object_class_violation", 65),
    ("not_allowed_on_non_leaf", 66),
    ("not_allowed_on_rdn", 67),
    ("entry_already_exists", 68),
    ("object_class_mods_prohibited", 69),
    ("affects_multiple_dsas", 71),
    ("other", 80),
];

/// RFC 1813 s3, and beyond those of version 4 (RFC 7530 s16).
pub(crate) const NFS_PROCEDURE: Names = &[
    ("null", 0),
    ("getattr", 1),
    ("setattr", 2),
    ("lookup", 3),
    ("access", 4),
    ("readlink", 5),
    ("read", 6),
    ("write", 7),
    ("create", 8),
    ("mkdir", 9),
    ("symlink", 10),
    ("mknod", 11),
    ("remove", 12),
    ("rmdir", 13),
    ("rename", 14),
    ("link", 15),
    ("readdir", 16),
    ("readdirplus", 17),
    ("fsstat", 18),
    ("fsinfo", 19),
    ("pathconf", 20),
    ("commit", 21),
];

/// IEEE 1815 s4.4.
pub(crate) const DNP3_FUNCTION: Names = &[
    ("confirm", 0),
    ("read", 1),
    ("write", 2),
    ("select", 3),
    ("operate", 4),
    ("direct_operate", 5),
    ("direct_operate_nr", 6),
    ("immed_freeze", 7),
    ("immed_freeze_nr", 8),
    ("freeze_clear", 9),
    ("freeze_clear_nr", 10),
    ("freeze_at_time", 11),
    ("freeze_at_time_nr", 12),
    ("cold_restart", 13),
    ("warm_restart", 14),
    ("initialize_data", 15),
    ("initialize_appl", 16),
    ("start_appl", 17),
    ("stop_appl", 18),
    ("save_config", 19),
    ("enable_unsolicited", 20),
    ("disable_unsolicited", 21),
    ("assign_class", 22),
    ("delay_measure", 23),
    ("record_current_time", 24),
    ("open_file", 25),
    ("close_file", 26),
    ("delete_file", 27),
    ("get_file_info", 28),
    ("authenticate_file", 29),
    ("abort_file", 30),
    ("activate_config", 31),
    ("authenticate_req", 32),
    ("authenticate_err", 33),
    ("response", 129),
    ("unsolicited_response", 130),
    ("authenticate_resp", 131),
];

/// IEEE 1815 s4.5: the first byte above the second.
pub(crate) const DNP3_INDICATIONS: Names = &[
    ("all_stations", 0x0100),
    ("class_1_events", 0x0200),
    ("class_2_events", 0x0400),
    ("class_3_events", 0x0800),
    ("need_time", 0x1000),
    ("local_control", 0x2000),
    ("device_trouble", 0x4000),
    ("device_restart", 0x8000),
    ("no_func_code_support", 0x0001),
    ("object_unknown", 0x0002),
    ("parameter_error", 0x0004),
    ("event_buffer_overflow", 0x0008),
    ("already_executing", 0x0010),
    ("config_corrupt", 0x0020),
    ("reserved_2", 0x0040),
    ("reserved_1", 0x0080),
];

/// MODBUS application protocol, section 5.
pub(crate) const MODBUS_CATEGORIES: Names = &[
    ("unassigned", 1),
    ("public", 6),
    ("user", 8),
    ("reserved", 16),
    ("assigned", 2),
    ("all", 31),
];

/// What a function does, to which table.
pub(crate) const MODBUS_ACCESS: Names =
    &[("read", 1), ("write", 2), ("discretes", 4), ("coils", 8), ("input", 16), ("holding", 32)];

/// RFC 5905 s7.3.
pub(crate) const NTP_MODE: Names = &[
    ("symmetric_active", 1),
    ("symmetric_passive", 2),
    ("client", 3),
    ("server", 4),
    ("broadcast", 5),
    ("control", 6),
    ("private", 7),
];

/// RFC 6455 s5.2.
pub(crate) const WEBSOCKET_OPCODE: Names =
    &[("continuation", 0), ("text", 1), ("binary", 2), ("close", 8), ("ping", 9), ("pong", 10)];

/// Common Industrial Protocol volume 2, section 2-3.
pub(crate) const ENIP_COMMAND: Names = &[
    ("nop", 0),
    ("list_services", 4),
    ("list_identity", 0x63),
    ("list_interfaces", 0x64),
    ("register_session", 0x65),
    ("unregister_session", 0x66),
    ("send_r_r_data", 0x6f),
    ("send_unit_data", 0x70),
    ("indicate_status", 0x72),
    ("cancel", 0x73),
];

/// The same, section 2-3.5.
pub(crate) const ENIP_STATUS: Names = &[
    ("success", 0),
    ("invalid_cmd", 1),
    ("no_resources", 2),
    ("incorrect_data", 3),
    ("invalid_session", 0x64),
    ("invalid_length", 0x65),
    ("unsupported_prot_rev", 0x69),
    ("encap_header_error", 0x6a),
];
