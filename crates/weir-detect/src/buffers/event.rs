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
    HttpRequestExtension "http.request_chunk_extension";
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
    TlsCertificateDer "tls.certificate_invalid_der";
    Ssh:
    SshBanner "ssh.invalid_banner"
    SshLongBanner "ssh.long_banner"
    SshRecord "ssh.invalid_record";
}

/// What was odd about a message, each thing once, in the order in which it came up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AppEvents(Vec<AppEvent>);

impl AppEvents {
    /// Adds one; whether it is new.
    pub(crate) fn raise(&mut self, event: AppEvent) -> bool {
        let is_new = !self.0.contains(&event);
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
