//! Numbers and structures of `linux/netlink.h` and `linux/xfrm.h`, as 64-bit Linux lays them out.
//!
//! Integers are in the machine's order, except the byte arrays that hold SPIs and ports: those are
//! in network order.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Message types: `NLMSG_*` and `XFRM_MSG_*`.
pub mod kind {
    /// Acknowledgement or refusal.
    pub const ERROR: u16 = 2;
    /// End of a dump.
    pub const DONE: u16 = 3;
    /// A new association.
    pub const NEW_SA: u16 = 0x10;
    /// Remove an association.
    pub const DEL_SA: u16 = 0x11;
    /// Tell an association, or all.
    pub const GET_SA: u16 = 0x12;
    /// A new policy.
    pub const NEW_POLICY: u16 = 0x13;
    /// Remove a policy.
    pub const DEL_POLICY: u16 = 0x14;
    /// Tell a policy, or all.
    pub const GET_POLICY: u16 = 0x15;
    /// Choose an SPI for an association to come.
    pub const ALLOC_SPI: u16 = 0x16;
    /// A packet wants an association.
    pub const ACQUIRE: u16 = 0x17;
    /// An association reached a limit.
    pub const EXPIRE: u16 = 0x18;
    /// A policy, new or changed.
    pub const UPD_POLICY: u16 = 0x19;
    /// An association, changed.
    pub const UPD_SA: u16 = 0x1a;
    /// A policy reached a limit.
    pub const POL_EXPIRE: u16 = 0x1b;
    /// Remove all associations.
    pub const FLUSH_SA: u16 = 0x1c;
    /// Remove all policies.
    pub const FLUSH_POLICY: u16 = 0x1d;
    /// An association's numbering.
    pub const NEW_AE: u16 = 0x1e;
    /// Tell an association's numbering.
    pub const GET_AE: u16 = 0x1f;
    /// Answer to [`GET_SAD_INFO`].
    pub const NEW_SAD_INFO: u16 = 0x22;
    /// Tell how many associations there are.
    pub const GET_SAD_INFO: u16 = 0x23;
    /// Answer to [`GET_SPD_INFO`].
    pub const NEW_SPD_INFO: u16 = 0x24;
    /// Tell how many policies there are.
    pub const GET_SPD_INFO: u16 = 0x25;
    /// A peer moved behind its address translator.
    pub const MAPPING: u16 = 0x26;
}

/// `NLM_F_*`.
pub mod flag {
    /// A request.
    pub const REQUEST: u16 = 0x01;
    /// One of several messages.
    pub const MULTI: u16 = 0x02;
    /// An acknowledgement is wanted.
    pub const ACK: u16 = 0x04;
    /// All of them.
    pub const DUMP: u16 = 0x300;
    /// On an acknowledgement: the request's body is left out.
    pub const CAPPED: u16 = 0x100;
    /// On an acknowledgement: attributes follow that say more.
    pub const ACK_TLVS: u16 = 0x200;
}

/// Attribute types: `XFRMA_*`.
pub mod attribute {
    /// `xfrm_algo`.
    pub const ALG_AUTH: u16 = 1;
    /// `xfrm_algo`.
    pub const ALG_CRYPT: u16 = 2;
    /// `xfrm_algo`.
    pub const ALG_COMP: u16 = 3;
    /// [`super::Encapsulation`].
    pub const ENCAP: u16 = 4;
    /// [`super::Template`]s.
    pub const TEMPLATES: u16 = 5;
    /// [`super::SaInfo`].
    pub const SA: u16 = 6;
    /// [`super::PolicyInfo`].
    pub const POLICY: u16 = 7;
    /// [`super::LifetimeUsed`].
    pub const LIFETIME_VALUE: u16 = 9;
    /// [`super::ReplayState`].
    pub const REPLAY_VALUE: u16 = 10;
    /// An address.
    pub const SOURCE_ADDRESS: u16 = 13;
    /// Seconds since 1970.
    pub const LAST_USED: u16 = 15;
    /// [`super::PolicyType`].
    pub const POLICY_TYPE: u16 = 16;
    /// [`super::AeadHead`] and key.
    pub const ALG_AEAD: u16 = 18;
    /// `xfrm_algo_auth`.
    pub const ALG_AUTH_TRUNC: u16 = 20;
    /// [`super::Mark`].
    pub const MARK: u16 = 21;
    /// Bytes to pad to.
    pub const TFC_PAD: u16 = 22;
    /// [`super::ReplayEsnHead`] and bitmap.
    pub const REPLAY_ESN_VALUE: u16 = 23;
    /// More flags of an association.
    pub const EXTRA_FLAGS: u16 = 24;
    /// A protocol number, of a dump.
    pub const PROTOCOL: u16 = 25;
    /// Addresses, of a dump.
    pub const ADDRESS_FILTER: u16 = 26;
    /// [`super::Offload`].
    pub const OFFLOAD_DEVICE: u16 = 28;
    /// The mark that an association's packets get.
    pub const SET_MARK: u16 = 29;
    /// Which of its bits.
    pub const SET_MARK_MASK: u16 = 30;
    /// An xfrm interface.
    pub const INTERFACE_ID: u16 = 31;
    /// The last that Linux 6.12 knows.
    pub const LAST: u16 = 35;
}

/// Multicast groups: `XFRMNLGRP_*`.
pub mod group {
    /// [`super::kind::ACQUIRE`].
    pub const ACQUIRE: u32 = 1;
    /// [`super::kind::EXPIRE`].
    pub const EXPIRE: u32 = 2;
    /// Associations that come and go.
    pub const SA: u32 = 3;
    /// Policies that come and go.
    pub const POLICY: u32 = 4;
    /// [`super::kind::MAPPING`].
    pub const MAPPING: u32 = 8;
}

/// `AF_INET`.
pub const FAMILY_V4: u16 = 2;
/// `AF_INET6`.
pub const FAMILY_V6: u16 = 10;
/// IP protocol numbers that NETLINK_XFRM speaks of: ESP, AH, IPComp.
pub const PROTOCOL_ESP: u8 = 50;
/// See [`PROTOCOL_ESP`].
pub const PROTOCOL_AH: u8 = 51;
/// See [`PROTOCOL_ESP`].
pub const PROTOCOL_COMP: u8 = 108;
/// `IPSEC_PROTO_ANY`: in a template or a dump, any of them.
pub const PROTOCOL_ANY: u8 = 255;
/// `XFRM_MODE_TRANSPORT`.
pub const MODE_TRANSPORT: u8 = 0;
/// `XFRM_MODE_TUNNEL`.
pub const MODE_TUNNEL: u8 = 1;
/// The last mode that Linux knows (`XFRM_MODE_BEET` is 4, `IPTFS` 5).
pub const MODE_LAST: u8 = 5;
/// `XFRM_POLICY_IN`.
pub const DIRECTION_IN: u8 = 0;
/// `XFRM_POLICY_OUT`.
pub const DIRECTION_OUT: u8 = 1;
/// `XFRM_POLICY_FWD`.
pub const DIRECTION_FORWARD: u8 = 2;
/// `XFRM_POLICY_ALLOW`.
pub const ACTION_ALLOW: u8 = 0;
/// `XFRM_POLICY_BLOCK`.
pub const ACTION_BLOCK: u8 = 1;
/// `XFRM_STATE_AF_UNSPEC`: the selector is of any family.
pub const FLAG_ANY_FAMILY: u8 = 32;
/// `XFRM_STATE_ESN`: 64-bit sequence numbers.
pub const FLAG_ESN: u8 = 128;
/// `UDP_ENCAP_ESPINUDP`.
pub const ENCAP_ESP_IN_UDP: u16 = 2;
/// `XFRM_INF`: no limit.
pub const UNLIMITED: u64 = u64::MAX;

/// `xfrm_address_t`: IPv4 in the first four bytes, or IPv6.
pub type Address = [u8; 16];

macro_rules! layout {
    ($($(#[$doc:meta])* $name:ident [$size:literal] { $($field:ident: $type:ty,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        #[allow(missing_docs, reason = "the fields are those of linux/xfrm.h")]
        pub struct $name { $(pub $field: $type,)+ }
        const _: () = assert!(size_of::<$name>() == $size);
    )+};
}

layout! {
    /// `nlmsghdr`.
    Header [16] { length: u32, kind: u16, flags: u16, sequence: u32, port: u32, }
    /// `xfrm_id`.
    Id [24] { destination: Address, spi: [u8; 4], protocol: u8, _pad: [u8; 3], }
    /// `xfrm_selector`.
    Selector [56] {
        destination: Address, source: Address,
        destination_port: [u8; 2], destination_port_mask: [u8; 2],
        source_port: [u8; 2], source_port_mask: [u8; 2],
        family: u16, destination_len: u8, source_len: u8, protocol: u8, _pad: [u8; 3],
        interface: i32, user: u32,
    }
    /// `xfrm_lifetime_cfg`: limits; packets and bytes, seconds since made, seconds since used.
    LifetimeLimits [64] {
        soft_bytes: u64, hard_bytes: u64, soft_packets: u64, hard_packets: u64,
        soft_add_seconds: u64, hard_add_seconds: u64,
        soft_use_seconds: u64, hard_use_seconds: u64,
    }
    /// `xfrm_lifetime_cur`.
    LifetimeUsed [32] { bytes: u64, packets: u64, add_time: u64, use_time: u64, }
    /// `xfrm_stats`.
    Statistics [12] { replay_window: u32, replay: u32, integrity_failed: u32, }
    /// `xfrm_usersa_info`.
    SaInfo [224] {
        selector: Selector, id: Id, source: Address,
        limits: LifetimeLimits, used: LifetimeUsed, statistics: Statistics,
        sequence: u32, request: u32, family: u16,
        mode: u8, replay_window: u8, flags: u8, _pad: [u8; 7],
    }
    /// `xfrm_usersa_id`.
    SaId [24] { destination: Address, spi: [u8; 4], family: u16, protocol: u8, _pad: u8, }
    /// `xfrm_userspi_info`.
    SpiRange [232] { info: SaInfo, min: u32, max: u32, }
    /// `xfrm_aevent_id`.
    EventId [48] { sa: SaId, source: Address, flags: u32, request: u32, }
    /// `xfrm_userpolicy_info`.
    PolicyInfo [168] {
        selector: Selector, limits: LifetimeLimits, used: LifetimeUsed,
        priority: u32, index: u32, direction: u8, action: u8, flags: u8, share: u8, _pad: [u8; 4],
    }
    /// `xfrm_userpolicy_id`.
    PolicyId [64] { selector: Selector, index: u32, direction: u8, _pad: [u8; 3], }
    /// `xfrm_userpolicy_type`.
    PolicyType [6] { kind: u8, _pad: u8, reserved: u16, reserved_too: u8, _pad_too: u8, }
    /// `xfrm_user_tmpl`.
    Template [64] {
        id: Id, family: u16, _pad: u16, source: Address, request: u32,
        mode: u8, share: u8, optional: u8, _pad_too: u8,
        authentication: u32, encryption: u32, compression: u32,
    }
    /// `xfrm_user_acquire`.
    Acquire [280] {
        id: Id, source: Address, selector: Selector, policy: PolicyInfo,
        authentication: u32, encryption: u32, compression: u32, sequence: u32,
    }
    /// `xfrm_user_expire`.
    Expire [232] { info: SaInfo, hard: u8, _pad: [u8; 7], }
    /// `xfrm_user_polexpire`.
    PolicyExpire [176] { policy: PolicyInfo, hard: u8, _pad: [u8; 7], }
    /// `xfrm_user_mapping`.
    Mapping [64] {
        id: SaId, request: u32, old_source: Address, new_source: Address,
        old_port: [u8; 2], new_port: [u8; 2],
    }
    /// `xfrm_encap_tmpl`.
    Encapsulation [24] {
        kind: u16, source_port: [u8; 2], destination_port: [u8; 2], _pad: u16, original: Address,
    }
    /// `xfrm_replay_state`.
    ReplayState [12] { sealed: u32, opened: u32, bitmap: u32, }
    /// `xfrm_replay_state_esn` before its bitmap.
    ReplayEsnHead [24] {
        words: u32, sealed: u32, opened: u32, sealed_high: u32, opened_high: u32, window: u32,
    }
    /// `xfrm_algo_aead` before its key; lengths in bits.
    AeadHead [72] { name: [[u8; 32]; 2], key_bits: u32, icv_bits: u32, }
    /// `xfrm_mark`.
    Mark [8] { value: u32, mask: u32, }
    /// `xfrm_user_offload`.
    Offload [8] { interface: i32, flags: u8, _pad: [u8; 3], }
    /// `xfrmu_sadhinfo` and `xfrmu_spdhinfo`: places in the kernel's hash tables.
    HashInfo [8] { now: u32, max: u32, }
    /// `xfrmu_spdinfo`.
    PolicyCounts [24] {
        inward: u32, outward: u32, forward: u32,
        socket_inward: u32, socket_outward: u32, socket_forward: u32,
    }
}
