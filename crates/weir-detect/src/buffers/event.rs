//! What may be odd about messages of applications, in the names of Suricata's language
//! (`app-layer-event`).

use crate::rule::Protocol;

macro_rules! events {
    ($($protocol:ident: $($event:ident $name:literal)+;)+) => {
        /// Something odd that an application said.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum AppEvent {
            $($(#[doc = concat!("`", $name, "`")] $event,)+)+
        }

        impl AppEvent {
            /// By its whole name, in lower case.
            pub(crate) fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($($name => Some(Self::$event),)+)+
                    _ => None,
                }
            }

            /// Its name, with the protocol's before a dot.
            pub fn name(self) -> &'static str {
                match self {
                    $($(Self::$event => $name,)+)+
                }
            }

            /// The application whose messages it is about.
            pub(crate) fn protocol(self) -> Protocol {
                match self {
                    $($(Self::$event)|+ => Protocol::$protocol,)+
                }
            }
        }
    };
}

events! {
    Http:
    HttpUnknownError "http.unknown_error"
    HttpInflateFailed "http.gzip_decompression_failed"
    HttpRequestColon "http.request_field_missing_colon"
    HttpResponseColon "http.response_field_missing_colon"
    HttpRequestChunk "http.invalid_request_chunk_len"
    HttpResponseChunk "http.invalid_response_chunk_len"
    HttpRequestTransferEncoding "http.invalid_transfer_encoding_value_in_request"
    HttpResponseTransferEncoding "http.invalid_transfer_encoding_value_in_response"
    HttpRequestLength "http.invalid_content_length_field_in_request"
    HttpResponseLength "http.invalid_content_length_field_in_response"
    HttpContinueAgain "http.100_continue_already_seen"
    HttpUnmatchedResponse "http.unable_to_match_response_to_request"
    HttpServerPort "http.invalid_server_port_in_request"
    HttpAuthorityPort "http.invalid_authority_port"
    HttpRequestHeader "http.request_header_invalid"
    HttpResponseHeader "http.response_header_invalid"
    HttpHostMissing "http.missing_host_header"
    HttpHostAmbiguous "http.host_header_ambiguous"
    HttpRequestFolding "http.invalid_request_field_folding"
    HttpResponseFolding "http.invalid_response_field_folding"
    HttpRequestTooLong "http.request_field_too_long"
    HttpResponseTooLong "http.response_field_too_long"
    HttpMultipartError "http.multipart_generic_error"
    HttpMultipartEmpty "http.multipart_no_filedata"
    HttpMultipartHeader "http.multipart_invalid_header"
    HttpPortMismatch "http.request_server_port_tcp_port_mismatch"
    HttpTargetHost "http.request_uri_host_invalid"
    HttpHeaderHost "http.request_header_host_invalid"
    HttpTargetDelimiter "http.uri_delim_non_compliant"
    HttpMethodDelimiter "http.method_delim_non_compliant"
    HttpLeadingSpace "http.request_line_leading_whitespace"
    HttpEncodingLayers "http.too_many_encoding_layers"
    HttpEncodingHeader "http.abnormal_ce_header"
    HttpAuthorization "http.request_auth_unrecognized"
    HttpRequestRepetition "http.request_header_repetition"
    HttpResponseRepetition "http.response_header_repetition"
    HttpMultipartRanges "http.response_multipart_byteranges"
    HttpChunkedOddly "http.response_abnormal_transfer_encoding"
    HttpChunkedEarly "http.response_chunked_old_proto"
    HttpResponseProtocol "http.response_invalid_protocol"
    HttpResponseStatus "http.response_invalid_status"
    HttpLineIncomplete "http.request_line_incomplete"
    HttpDoubleEncoded "http.double_encoded_uri"
    HttpLineInvalid "http.request_line_invalid"
    HttpBodyUnexpected "http.request_body_unexpected"
    HttpLzmaMemory "http.lzma_memlimit_reached"
    HttpRequestLengths "http.duplicate_content_length_field_in_request"
    HttpResponseLengths "http.duplicate_content_length_field_in_response"
    HttpBomb "http.compression_bomb"
    HttpBombLimit "http.compression_bomb_limit_reached"
    HttpWarnings "http.too_many_warnings"
    HttpRange "http.range_invalid"
    HttpFileName "http.file_name_too_long"
    HttpProtocolChange "http.failed_protocol_change"
    HttpNoProtocol "http.request_line_missing_protocol"
    HttpRequestHeaders "http.request_too_many_headers"
    HttpResponseHeaders "http.response_too_many_headers"
    HttpRequestExtension "http.request_chunk_extension"
    HttpResponseExtension "http.response_chunk_extension"
    HttpResponseBodyUnexpected "http.response_body_unexpected"
    HttpLengthBegin "http.content_length_extra_data_start"
    HttpLengthEnd "http.content_length_extra_data_end"
    HttpSwitchesWithBody "http.switching_proto_with_content_length"
    HttpUnknownMethod "http.request_line_unknown_method"
    HttpUnknownMethodAlone "http.request_line_unknown_method_no_protocol"
    HttpUnknownMethodProtocol "http.request_line_unknown_method_invalid_protocol"
    HttpResponseLineProtocol "http.response_line_invalid_protocol"
    HttpResponseLineStatus "http.response_line_invalid_response_status"
    HttpRequestNameEmpty "http.request_invalid_empty_name"
    HttpResponseNameEmpty "http.response_invalid_empty_name"
    HttpRequestNameBlank "http.request_invalid_lws_after_name"
    HttpResponseNameBlank "http.response_invalid_lws_after_name"
    HttpResponseName "http.response_header_name_not_token"
    HttpProtocolBlanks "http.protocol_contains_extra_data"
    HttpRequestGap "http.missing_outbound_transaction_data"
    HttpResponseGap "http.missing_inbound_transaction_data"
    HttpLzmaOff "http.lzma_decompression_disabled"
    HttpLzmaTwice "http.compression_bomb_double_lzma"
    HttpEncodingInvalid "http.invalid_content_encoding";
    Http2:
    Http2FrameHeader "http2.invalid_frame_header"
    Http2Magic "http2.invalid_client_magic"
    Http2FrameData "http2.invalid_frame_data"
    Http2Header "http2.invalid_header"
    Http2FrameLength "http2.invalid_frame_length"
    Http2ExtraData "http2.extra_header_data"
    Http2LongFrame "http2.long_frame_data"
    Http2StreamReuse "http2.stream_id_reuse"
    Http2Settings "http2.invalid_http1_settings"
    Http2Inflate "http2.failed_decompression"
    Http2Range "http2.invalid_range"
    Http2HeaderOverflow "http2.header_integer_overflow"
    Http2TableOverflow "http2.header_table_overflow"
    Http2TooManyStreams "http2.too_many_streams"
    Http2HostMismatch "http2.authority_host_mismatch"
    Http2UserInfo "http2.userinfo_in_uri"
    Http2TooLong "http2.reassembly_limit_reached"
    Http2DnsRequest "http2.dns_request_too_long"
    Http2DnsResponse "http2.dns_response_too_long"
    Http2DataStreamZero "http2.data_stream_zero"
    Http2TooManyFrames "http2.too_many_frames"
    Http2Bomb "http2.compression_bomb";
    Dns:
    DnsMalformed "dns.malformed_data"
    DnsNotRequest "dns.not_request"
    DnsNotResponse "dns.not_response"
    DnsReserved "dns.z_flag_set"
    DnsOpcode "dns.invalid_opcode"
    DnsNameTooLong "dns.name_too_long"
    DnsLoop "dns.infinite_loop"
    DnsLabels "dns.too_many_labels"
    DnsAdditionals "dns.invalid_additionals"
    DnsAuthorities "dns.invalid_authorities";
    Tls:
    TlsRecordType "tls.invalid_record_type"
    TlsHandshakeMessage "tls.invalid_handshake_message"
    TlsInvalidHeartbeat "tls.invalid_heartbeat_message"
    TlsOverflowHeartbeat "tls.overflow_heartbeat_message"
    TlsHandshakeLength "tls.handshake_invalid_length"
    TlsManyNames "tls.multiple_sni_extensions"
    TlsNameType "tls.invalid_sni_type"
    TlsNameLength "tls.invalid_sni_length"
    TlsAlert "tls.invalid_alert_message"
    TlsCertificate "tls.invalid_certificate"
    TlsCertificateDer "tls.certificate_invalid_der"
    TlsCertificateLength "tls.certificate_invalid_length"
    TlsCertificateVersion "tls.certificate_invalid_version"
    TlsCertificateSerial "tls.certificate_invalid_serial"
    TlsCertificateAlgorithm "tls.certificate_invalid_algorithmidentifier"
    TlsCertificateDate "tls.certificate_invalid_date"
    TlsCertificateExtensions "tls.certificate_invalid_extensions"
    TlsCertificateName "tls.certificate_invalid_x509name"
    TlsCertificateSubject "tls.certificate_invalid_subject"
    TlsCertificateIssuer "tls.certificate_invalid_issuer"
    TlsCertificateValidity "tls.certificate_invalid_validity"
    TlsRecordVersion "tls.invalid_record_version"
    TlsHeader "tls.invalid_tls_header"
    TlsRecord "tls.invalid_ssl_record"
    TlsErrorMessage "tls.error_message_encountered"
    TlsHeartbeat "tls.heartbeat_message"
    TlsHeartbeatLeak "tls.dataleak_heartbeat_mismatch"
    TlsSsl2Header "tls.invalid_sslv2_header"
    TlsManyRecords "tls.too_many_records_in_packet"
    TlsManyAlternativeNames "tls.too_many_subject_alternative_names";
    Ssh:
    SshBanner "ssh.invalid_banner"
    SshLongBanner "ssh.long_banner"
    SshRecord "ssh.invalid_record"
    SshLongOffer "ssh.long_kex_record";
    Smtp:
    SmtpReply "smtp.invalid_reply"
    SmtpUnmatchedReply "smtp.unable_to_match_reply_with_request"
    SmtpCommandLength "smtp.max_command_line_len_exceeded"
    SmtpReplyLength "smtp.max_reply_line_len_exceeded"
    SmtpNoWelcome "smtp.no_server_welcome_message"
    SmtpTlsRejected "smtp.tls_rejected"
    SmtpDataRejected "smtp.data_command_rejected"
    SmtpDuplicate "smtp.duplicate_fields"
    SmtpPipelined "smtp.invalid_pipelined_sequence"
    SmtpChunkLength "smtp.bdat_chunk_len_exceeded"
    SmtpContent "smtp.unparsable_content"
    SmtpProtocolChange "smtp.failed_protocol_change"
    SmtpChunk "smtp.invalid_bdat"
    SmtpMimeMalformed "smtp.mime_malformed_msg"
    SmtpMimeFailed "smtp.mime_parse_failed"
    SmtpMimeBase64 "smtp.mime_invalid_base64"
    SmtpMimeQuoted "smtp.mime_invalid_qp"
    SmtpMimeLine "smtp.mime_long_line"
    SmtpMimeEncodedLine "smtp.mime_long_enc_line"
    SmtpMimeHeaderName "smtp.mime_long_header_name"
    SmtpMimeHeaderValue "smtp.mime_long_header_value"
    SmtpMimeBoundary "smtp.mime_long_boundary"
    SmtpMimeFileName "smtp.mime_long_filename";
    Ftp:
    FtpRequestLength "ftp.request_command_too_long"
    FtpReplyLength "ftp.response_command_too_long"
    FtpNoPort "ftp.file_before_port"
    FtpNoName "ftp.file_without_name"
    FtpMany "ftp.too_many_transactions";
    Snmp:
    SnmpMalformed "snmp.malformed_data"
    SnmpSecurityModel "snmp.unknown_security_model"
    SnmpVersion "snmp.version_mismatch";
    Sip:
    SipInvalid "sip.invalid_data";
    Rfb:
    RfbResult "rfb.unknown_security_result"
    RfbSecurity "rfb.unimplemented_security_type"
    RfbMalformed "rfb.malformed_message"
    RfbConfused "rfb.confused_state"
    RfbTooLong "rfb.too_long_string";
    Mqtt:
    MqttMalformed "mqtt.malformed_traffic"
    MqttQos "mqtt.invalid_qos_level"
    MqttType "mqtt.unassigned_msg_type"
    MqttTwice "mqtt.double_connect"
    MqttUnintroduced "mqtt.unintroduced_message"
    MqttNoConnect "mqtt.missing_connect"
    MqttNoPublish "mqtt.missing_publish"
    MqttNoSubscribe "mqtt.missing_subscribe"
    MqttNoUnsubscribe "mqtt.missing_unsubscribe"
    MqttNoIdentifier "mqtt.missing_msg_id"
    MqttMany "mqtt.too_many_transactions"
    MqttManyMessages "mqtt.too_many_messages"
    MqttManyProperties "mqtt.too_many_properties";
    Krb5:
    KrbMalformed "krb5.malformed_data"
    KrbWeak "krb5.weak_encryption";
    Dhcp:
    DhcpTruncated "dhcp.truncated_options"
    DhcpMalformed "dhcp.malformed_options";
    Ntp:
    NtpMalformed "ntp.malformed_data";
    BittorrentDht:
    BittorrentMalformed "bittorrent-dht.malformed_packet";
    Modbus:
    ModbusProtocol "modbus.invalid_protocol_id"
    ModbusUnsolicited "modbus.unsolicited_response"
    ModbusLength "modbus.invalid_length"
    ModbusException "modbus.invalid_exception_code"
    ModbusMismatch "modbus.value_mismatch"
    ModbusFlooded "modbus.flooded"
    ModbusFunction "modbus.invalid_function_code"
    ModbusValue "modbus.invalid_value";
    Ldap:
    LdapInvalid "ldap.invalid_data"
    LdapMany "ldap.too_many_transactions"
    LdapResponses "ldap.too_many_responses"
    LdapUnasked "ldap.request_not_found";
    Smb:
    SmbMalformed "smb.malformed_data"
    SmbNtlmssp "smb.malformed_ntlmssp_request"
    SmbReadSize "smb.read_response_too_large"
    SmbWriteSize "smb.write_request_too_large"
    SmbReadSizeMax "smb.negotiate_max_read_size_too_large"
    SmbWriteSizeMax "smb.negotiate_max_write_size_too_large"
    SmbOverlap "smb.file_overlap"
    SmbReadRequest "smb.read_request_too_large"
    SmbRequestToClient "smb.request_to_client"
    SmbResponseToServer "smb.response_to_server"
    SmbReadQueueSize "smb.read_queue_size_exceeded"
    SmbReadQueueCount "smb.read_queue_cnt_exceeded"
    SmbWriteQueueSize "smb.write_queue_size_exceeded"
    SmbWriteQueueCount "smb.write_queue_cnt_exceeded"
    SmbDialects "smb.negotiate_malformed_dialects"
    SmbInternal "smb.internal_error"
    SmbTooMany "smb.too_many_transactions";
    Ike:
    IkeMalformed "ike.malformed_data"
    IkeWeakEncryption "ike.weak_crypto_enc"
    IkeWeakPrf "ike.weak_crypto_prf"
    IkeWeakGroup "ike.weak_crypto_dh"
    IkeWeakAuthentication "ike.weak_crypto_auth"
    IkeNoGroup "ike.weak_crypto_no_dh"
    IkeNoAuthentication "ike.weak_crypto_no_auth"
    IkeNoEncryption "ike.no_encryption"
    IkeUnknownProposal "ike.unknown_proposal"
    IkeManyProposals "ike.multiple_server_proposal"
    IkeInvalidProposal "ike.invalid_proposal";
    Quic:
    QuicDecrypt "quic.failed_decrypt"
    QuicData "quic.error_on_data"
    QuicHeader "quic.error_on_header"
    QuicTooLong "quic.crypto_frag_too_long";
    Pop3:
    Pop3Many "pop3.too_many_transactions"
    Pop3RequestLength "pop3.request_too_long"
    Pop3Arguments "pop3.incorrect_argument_count"
    Pop3Unknown "pop3.unknown_command"
    Pop3ResponseLength "pop3.response_too_long";
    Websocket:
    WebsocketSkipped "websocket.skip_end_of_payload"
    WebsocketTooLong "websocket.reassembly_limit_reached";
    Enip:
    EnipInvalid "enip.invalid_pdu"
    EnipMany "enip.too_many_transactions";
    Pgsql:
    PgsqlLength "pgsql.invalid_length"
    PgsqlRequest "pgsql.malformed_request"
    PgsqlResponse "pgsql.malformed_response"
    PgsqlMany "pgsql.too_many_transactions"
    PgsqlManyResponses "pgsql.too_many_responses";
    Dnp3:
    Dnp3Length "dnp3.len_too_small"
    Dnp3LinkChecksum "dnp3.bad_link_crc"
    Dnp3TransportChecksum "dnp3.bad_transport_crc"
    Dnp3Object "dnp3.unknown_object"
    Dnp3Objects "dnp3.too_many_objects"
    Dnp3TooLong "dnp3.too_long_reassembly"
    Dnp3Flooded "dnp3.flooded"
    Dnp3Points "dnp3.too_many_points";
    Nfs:
    NfsMalformed "nfs.malformed_data"
    NfsMany "nfs.too_many_transactions";
    Mdns:
    MdnsMalformed "mdns.malformed_data"
    MdnsNotRequest "mdns.not_request"
    MdnsNotResponse "mdns.not_response"
    MdnsLoop "mdns.infinite_loop"
    MdnsLabels "mdns.too_many_labels"
    MdnsReserved "mdns.z_flag_set"
    MdnsOpcode "mdns.invalid_opcode"
    MdnsNameTooLong "mdns.name_too_long"
    MdnsAdditionals "mdns.invalid_additionals"
    MdnsAuthorities "mdns.invalid_authorities";
}

impl AppEvent {
    /// Whether it is told as often as it comes up.
    pub(crate) fn is_told_each_time(self) -> bool {
        use AppEvent::*;
        matches!(
            self,
            HttpResponseBodyUnexpected
                | HttpLengthBegin
                | HttpLengthEnd
                | HttpProtocolBlanks
                | HttpEncodingHeader
                | HttpEncodingLayers
                | Http2FrameData
                | Http2StreamReuse
        )
    }
}

/// Of each of these Suricata tells the first alone, of a request and its response together.
const ONCE_OF: [&[AppEvent]; 3] = [
    &[
        AppEvent::HttpRequestHeader,
        AppEvent::HttpRequestNameBlank,
        AppEvent::HttpRequestNameEmpty,
        AppEvent::HttpResponseName,
        AppEvent::HttpResponseNameBlank,
        AppEvent::HttpResponseNameEmpty,
    ],
    &[AppEvent::HttpRequestColon, AppEvent::HttpResponseColon],
    &[AppEvent::HttpRequestFolding, AppEvent::HttpResponseFolding],
];

/// What was odd about a message, each thing once, in the order in which it came up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AppEvents(Vec<AppEvent>);

impl AppEvents {
    /// Adds one; whether it is new.
    pub(crate) fn raise(&mut self, event: AppEvent) -> bool {
        let is_new = match ONCE_OF.iter().find(|it| it.contains(&event)) {
            Some(group) => !group.iter().any(|it| self.0.contains(it)),
            None => !self.0.contains(&event),
        };
        if is_new {
            self.0.push(event);
        }
        is_new
    }

    pub(crate) fn has(&self, event: AppEvent) -> bool {
        self.0.contains(&event)
    }

    pub(crate) fn as_slice(&self) -> &[AppEvent] {
        &self.0
    }
}
