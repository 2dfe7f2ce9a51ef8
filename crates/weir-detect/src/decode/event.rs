//! What may be odd about a packet, in the names of Suricata's language.

macro_rules! events {
    ($($event:ident $name:literal)+) => {
        /// Something odd.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Event {
            $(#[doc = concat!("`", $name, "`")] $event,)+
        }

        impl Event {
            /// By its whole name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$event),)+
                    _ => None,
                }
            }

            /// Its name, beginning with `decoder.`, `stream.` or `applayer_`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$event => $name,)+
                }
            }
        }
    };
}

events! {
    SllTooSmall "decoder.sll.pkt_too_small"
    Sll2TooSmall "decoder.sll2.pkt_too_small"
    LoopbackTooSmall "decoder.ltnull.pkt_too_small"
    LoopbackUnknownType "decoder.ltnull.unsupported_type"
    RawWrongVersion "decoder.ipraw.invalid_ip_version"
    PppTooSmall "decoder.ppp.pkt_too_small"
    PppVjTooSmall "decoder.ppp.vju_pkt_too_small"
    PppIpv4TooSmall "decoder.ppp.ip4_pkt_too_small"
    PppIpv6TooSmall "decoder.ppp.ip6_pkt_too_small"
    PppWrongType "decoder.ppp.wrong_type"
    PppUnsupported "decoder.ppp.unsup_proto"
    PppoeTooSmall "decoder.pppoe.pkt_too_small"
    PppoeWrongCode "decoder.pppoe.wrong_code"
    PppoeMalformedTags "decoder.pppoe.malformed_tags"
    VntagTooSmall "decoder.vntag.header_too_small"
    VntagUnknownType "decoder.vntag.unknown_type"
    BackboneTooSmall "decoder.ieee8021ah.header_too_small"
    DceTooSmall "decoder.dce.pkt_too_small"
    MplsHeaderTooSmall "decoder.mpls.header_too_small"
    MplsTooSmall "decoder.mpls.pkt_too_small"
    MplsRouterAlert "decoder.mpls.bad_label_router_alert"
    MplsImplicitNull "decoder.mpls.bad_label_implicit_null"
    MplsReserved "decoder.mpls.bad_label_reserved"
    MplsUnknownPayload "decoder.mpls.unknown_payload_type"
    HdlcTooSmall "decoder.chdlc.pkt_too_small"
    ArpTooSmall "decoder.arp.pkt_too_small"
    ArpUnsupportedHardware "decoder.arp.unsupported_hardware"
    ArpUnsupportedProtocol "decoder.arp.unsupported_protocol"
    ArpInvalid "decoder.arp.invalid_pkt"
    ArpHardwareSize "decoder.arp.invalid_hardware_size"
    ArpProtocolSize "decoder.arp.invalid_protocol_size"
    ArpUnsupportedOperation "decoder.arp.unsupported_opcode"
    NshTooSmall "decoder.nsh.header_too_small"
    NshUnsupportedVersion "decoder.nsh.unsupported_version"
    NshHeaderLen "decoder.nsh.bad_header_length"
    NshReservedType "decoder.nsh.reserved_type"
    NshUnsupportedType "decoder.nsh.unsupported_type"
    NshUnknownPayload "decoder.nsh.unknown_payload"
    VxlanUnknownPayload "decoder.vxlan.unknown_payload_type"
    GeneveUnknownPayload "decoder.geneve.unknown_payload_type"
    // Of a driver that copies no part of packets here.
    AfPacketTruncated "decoder.afpacket.trunc_pkt"
    EthernetTooSmall "decoder.ethernet.pkt_too_small"
    EthernetUnknownType "decoder.ethernet.unknown_ethertype"
    VlanTooSmall "decoder.vlan.header_too_small"
    VlanUnknownType "decoder.vlan.unknown_type"
    VlanTooManyLayers "decoder.vlan.too_many_layers"
    TooManyLayers "decoder.too_many_layers"
    Ipv4TooSmall "decoder.ipv4.pkt_too_small"
    Ipv4HeaderTooSmall "decoder.ipv4.hlen_too_small"
    Ipv4LengthTooSmall "decoder.ipv4.iplen_smaller_than_hlen"
    Ipv4Truncated "decoder.ipv4.trunc_pkt"
    Ipv4WrongVersion "decoder.ipv4.wrong_ip_version"
    Ipv4OptionInvalidLen "decoder.ipv4.opt_invalid_len"
    Ipv4OptionPadRequired "decoder.ipv4.opt_pad_required"
    Ipv4OptionEndRequired "decoder.ipv4.opt_eol_required"
    Ipv4OptionDuplicate "decoder.ipv4.opt_duplicate"
    Ipv4OptionUnknown "decoder.ipv4.opt_unknown"
    Ipv4OptionInvalid "decoder.ipv4.opt_invalid"
    Ipv4OptionMalformed "decoder.ipv4.opt_malformed"
    Ipv4FragmentIgnored "decoder.ipv4.frag_ignored"
    Ipv4WithIcmpv6 "decoder.ipv4.icmpv6"
    Ipv4FragmentTooLarge "decoder.ipv4.frag_pkt_too_large"
    Ipv4FragmentOverlap "decoder.ipv4.frag_overlap"
    Ipv6TooSmall "decoder.ipv6.pkt_too_small"
    Ipv6Truncated "decoder.ipv6.trunc_pkt"
    Ipv6TruncatedExtension "decoder.ipv6.trunc_exthdr"
    Ipv6WrongVersion "decoder.ipv6.wrong_ip_version"
    Ipv6DoubleFragmentHeader "decoder.ipv6.exthdr_dupl_fh"
    Ipv6UselessFragmentHeader "decoder.ipv6.exthdr_useless_fh"
    Ipv6DoubleRoutingHeader "decoder.ipv6.exthdr_dupl_rh"
    Ipv6DoubleHopHeader "decoder.ipv6.exthdr_dupl_hh"
    Ipv6DoubleDestinationHeader "decoder.ipv6.exthdr_dupl_dh"
    Ipv6DoubleAuthentication "decoder.ipv6.exthdr_dupl_ah"
    Ipv6InvalidOptionLen "decoder.ipv6.exthdr_invalid_optlen"
    Ipv6AuthenticationReserved "decoder.ipv6.exthdr_ah_res_not_null"
    Ipv6HopUnknownOption "decoder.ipv6.hopopts_unknown_opt"
    Ipv6HopOnlyPadding "decoder.ipv6.hopopts_only_padding"
    Ipv6DestinationUnknownOption "decoder.ipv6.dstopts_unknown_opt"
    Ipv6DestinationOnlyPadding "decoder.ipv6.dstopts_only_padding"
    Ipv6RoutingType0 "decoder.ipv6.rh_type_0"
    Ipv6ZeroLenPadding "decoder.ipv6.zero_len_padn"
    Ipv6FragmentReserved "decoder.ipv6.fh_non_zero_reserved_field"
    Ipv6DataAfterNone "decoder.ipv6.data_after_none_header"
    Ipv6UnknownNextHeader "decoder.ipv6.unknown_next_header"
    Ipv6WithIcmpv4 "decoder.ipv6.icmpv4"
    Ipv6DoubleEsp "decoder.ipv6.exthdr_dupl_eh"
    Ipv6FragmentIgnored "decoder.ipv6.frag_ignored"
    Ipv4InIpv6TooSmall "decoder.ipv6.ipv4_in_ipv6_too_small"
    Ipv4InIpv6WrongVersion "decoder.ipv6.ipv4_in_ipv6_wrong_version"
    Ipv6InIpv6TooSmall "decoder.ipv6.ipv6_in_ipv6_too_small"
    Ipv6InIpv6WrongVersion "decoder.ipv6.ipv6_in_ipv6_wrong_version"
    Ipv6FragmentTooLarge "decoder.ipv6.frag_pkt_too_large"
    Ipv6FragmentOverlap "decoder.ipv6.frag_overlap"
    Ipv6FragmentInvalidLen "decoder.ipv6.frag_invalid_length"
    TcpTooSmall "decoder.tcp.pkt_too_small"
    TcpHeaderTooSmall "decoder.tcp.hlen_too_small"
    TcpInvalidOptionLen "decoder.tcp.invalid_optlen"
    TcpOptionInvalidLen "decoder.tcp.opt_invalid_len"
    TcpOptionDuplicate "decoder.tcp.opt_duplicate"
    UdpTooSmall "decoder.udp.pkt_too_small"
    UdpHeaderTooSmall "decoder.udp.hlen_too_small"
    UdpHeaderInvalid "decoder.udp.hlen_invalid"
    UdpLengthInvalid "decoder.udp.len_invalid"
    SctpTooSmall "decoder.sctp.pkt_too_small"
    EspTooSmall "decoder.esp.pkt_too_small"
    GreTooSmall "decoder.gre.pkt_too_small"
    GreWrongVersion "decoder.gre.wrong_version"
    Gre0Recursion "decoder.gre.version0_recur"
    Gre0Flags "decoder.gre.version0_flags"
    Gre0HeaderTooBig "decoder.gre.version0_hdr_too_big"
    Gre0MalformedRoute "decoder.gre.version0_malformed_sre_hdr"
    Gre1Checksum "decoder.gre.version1_chksum"
    Gre1Route "decoder.gre.version1_route"
    Gre1StrictRoute "decoder.gre.version1_ssr"
    Gre1Recursion "decoder.gre.version1_recur"
    Gre1Flags "decoder.gre.version1_flags"
    Gre1NoKey "decoder.gre.version1_no_key"
    Gre1WrongProtocol "decoder.gre.version1_wrong_protocol"
    Gre1MalformedRoute "decoder.gre.version1_malformed_sre_hdr"
    Gre1HeaderTooBig "decoder.gre.version1_hdr_too_big"
    ErspanTooSmall "decoder.erspan.header_too_small"
    ErspanWrongVersion "decoder.erspan.unsupported_version"
    ErspanTooManyVlans "decoder.erspan.too_many_vlan_layers"
    Icmpv4TooSmall "decoder.icmpv4.pkt_too_small"
    Icmpv4UnknownType "decoder.icmpv4.unknown_type"
    Icmpv4UnknownCode "decoder.icmpv4.unknown_code"
    Icmpv4InnerTruncated "decoder.icmpv4.ipv4_trunc_pkt"
    Icmpv4InnerVersion "decoder.icmpv4.ipv4_unknown_ver"
    Icmpv6TooSmall "decoder.icmpv6.pkt_too_small"
    Icmpv6UnknownType "decoder.icmpv6.unknown_type"
    Icmpv6UnknownCode "decoder.icmpv6.unknown_code"
    Icmpv6InnerTruncated "decoder.icmpv6.ipv6_trunc_pkt"
    Icmpv6InnerVersion "decoder.icmpv6.ipv6_unknown_version"
    Icmpv6ListenerHopLimit "decoder.icmpv6.mld_message_with_invalid_hl"
    Icmpv6UnassignedType "decoder.icmpv6.unassigned_type"
    Icmpv6Experimental "decoder.icmpv6.experimentation_type"
    StreamFinSyn "stream.fin_syn"
    StreamBrokenAck "stream.pkt_broken_ack"
    StreamBadWindowUpdate "stream.pkt_bad_window_update"
    StreamSpuriousRetransmission "stream.pkt_spurious_retransmission"
    StreamRetransmission "stream.pkt_retransmission"
    StreamRstWithoutSession "stream.rst_but_no_session"
    StreamRstWithData "stream.rst_with_data"
    StreamFinWithoutSession "stream.fin_but_no_session"
    StreamSynFlood "stream.3whs_syn_flood"
    StreamSynAckFlood "stream.3whs_synack_flood"
    StreamFastOpenIgnored "stream.3whs_synack_tfo_data_ignored"
    StreamSynAckWrongDirection "stream.3whs_synack_in_wrong_direction"
    StreamSynAckWrongAck "stream.3whs_synack_with_wrong_ack"
    StreamSynAckToServer "stream.3whs_synack_toserver_on_syn_recv"
    StreamSynAckDifferentAck "stream.3whs_synack_resend_with_diff_ack"
    StreamSynAckDifferentSeq "stream.3whs_synack_resend_with_diff_seq"
    StreamDataInjected "stream.3whs_ack_data_inject"
    StreamAsyncWrongSeq "stream.3whs_async_wrong_seq"
    StreamSynToClient "stream.3whs_syn_toclient_on_syn_recv"
    StreamSynDifferentSeq "stream.3whs_syn_resend_diff_seq_on_syn_recv"
    StreamAckWrongDirection "stream.3whs_ack_in_wrong_dir"
    StreamRightSeqWrongAck "stream.3whs_right_seq_wrong_ack_evasion"
    StreamWrongSeqWrongAck "stream.3whs_wrong_seq_wrong_ack"
    StreamFourWayWrongAck "stream.4whs_synack_with_wrong_ack"
    StreamFourWayWrongSyn "stream.4whs_synack_with_wrong_syn"
    StreamFourWayWrongSeq "stream.4whs_wrong_seq"
    StreamFourWayInvalidAck "stream.4whs_invalid_ack"
    StreamEstSynAckToServer "stream.est_synack_toserver"
    StreamEstSynAckDifferentAck "stream.est_synack_resend_with_diff_ack"
    StreamEstSynAckDifferentSeq "stream.est_synack_resend_with_diff_seq"
    StreamEstSynAckResend "stream.est_synack_resend"
    StreamEstSynToClient "stream.est_syn_toclient"
    StreamEstSynDifferentSeq "stream.est_syn_resend_diff_seq"
    StreamEstSynResend "stream.est_syn_resend"
    StreamEstBeforeLastAck "stream.est_pkt_before_last_ack"
    StreamEstInvalidAck "stream.est_invalid_ack"
    StreamEstOutOfWindow "stream.est_packet_out_of_window"
    StreamInvalidAck "stream.pkt_invalid_ack"
    StreamRstInvalidAck "stream.rst_invalid_ack"
    StreamFinInvalidAck "stream.fin_invalid_ack"
    StreamFinOutOfWindow "stream.fin_out_of_window"
    StreamFin1WrongSeq "stream.fin1_fin_wrong_seq"
    StreamFin1AckWrongSeq "stream.fin1_ack_wrong_seq"
    StreamFin1InvalidAck "stream.fin1_invalid_ack"
    StreamFin2WrongSeq "stream.fin2_fin_wrong_seq"
    StreamFin2AckWrongSeq "stream.fin2_ack_wrong_seq"
    StreamFin2InvalidAck "stream.fin2_invalid_ack"
    StreamCloseWaitFinOutOfWindow "stream.closewait_fin_out_of_window"
    StreamCloseWaitAckOutOfWindow "stream.closewait_ack_out_of_window"
    StreamCloseWaitInvalidAck "stream.closewait_invalid_ack"
    StreamCloseWaitBeforeLastAck "stream.closewait_pkt_before_last_ack"
    StreamLastAckWrongSeq "stream.lastack_ack_wrong_seq"
    StreamLastAckInvalidAck "stream.lastack_invalid_ack"
    StreamClosingWrongSeq "stream.closing_ack_wrong_seq"
    StreamClosingInvalidAck "stream.closing_invalid_ack"
    StreamTimeWaitWrongSeq "stream.timewait_ack_wrong_seq"
    StreamTimeWaitInvalidAck "stream.timewait_invalid_ack"
    StreamShutdownSyn "stream.shutdown_syn_resend"
    StreamSuspectedReset "stream.suspected_rst_inject"
    StreamGap "stream.reassembly_seq_gap"
    StreamOverlapDiffers "stream.reassembly_overlap_different_data"
    StreamDepthReached "stream.reassembly_depth_reached"
    StreamInvalidTimestamp "stream.pkt_invalid_timestamp"
    ApplicationMismatch "applayer_mismatch_protocol_both_directions"
    ApplicationWrongSide "applayer_wrong_direction_first_data"
    ApplicationOneSided "applayer_detect_protocol_only_one_direction"
    ApplicationSkipped "applayer_proto_detection_skipped"
    ApplicationNoTls "applayer_no_tls_after_starttls"
    ApplicationUnexpected "applayer_unexpected_protocol"
}

impl Event {
    /// Whether a segment of which it is told has no place in its connection. What does not fit in
    /// one that is established may have passed others on its way.
    pub(crate) fn refuses_segment(self) -> bool {
        !matches!(
            self,
            Self::StreamEstBeforeLastAck
                | Self::StreamEstInvalidAck
                | Self::StreamEstOutOfWindow
                | Self::StreamFastOpenIgnored
                | Self::StreamSuspectedReset
        )
    }

    /// Whether a segment of which it is told is no part of its stream, as Suricata has it: its
    /// receiver has all of it and more, or it lies beside what that takes.
    pub(crate) fn is_of_segment_beside(self) -> bool {
        matches!(
            self,
            Self::StreamEstBeforeLastAck | Self::StreamEstInvalidAck | Self::StreamEstOutOfWindow
        )
    }

    /// Whether it is about what is spoken over a connection.
    pub fn is_of_application(self) -> bool {
        matches!(
            self,
            Self::ApplicationMismatch
                | Self::ApplicationWrongSide
                | Self::ApplicationOneSided
                | Self::ApplicationSkipped
                | Self::ApplicationNoTls
                | Self::ApplicationUnexpected
        )
    }

    /// Whether it says that a connection ends of which nobody saw the beginning.
    pub(crate) fn is_without_session(self) -> bool {
        matches!(self, Self::StreamRstWithoutSession | Self::StreamFinWithoutSession)
    }

    /// Whether a segment came again.
    pub fn is_repetition(self) -> bool {
        matches!(self, Self::StreamRetransmission | Self::StreamSpuriousRetransmission)
    }

    /// Whether it says nothing bad: losses and their mending, captures that begin in the middle.
    pub fn is_common(self) -> bool {
        matches!(
            self,
            Self::StreamRetransmission
                | Self::StreamSpuriousRetransmission
                | Self::StreamRstWithoutSession
                | Self::StreamFinWithoutSession
        )
    }
}
