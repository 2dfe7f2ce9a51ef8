//! Answers to one request: messages back to who asked, and notices to who listens.

use zerocopy::IntoBytes;

use crate::netlink::{HEADER_LEN, Writer};
use crate::refusal::Refusal;
use crate::uapi::{Header, flag, kind};

/// Bytes of a datagram, at most, unless one message is longer: every reader has room for a page.
const DATAGRAM_BYTES: usize = 4096;

/// The attribute of an acknowledgement that holds words (`NLMSGERR_ATTR_MSG`).
const WORDS: u16 = 1;

/// Who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// Its netlink port, which every answer names.
    pub port: u32,
    /// Whether it wants words with refusals (`NETLINK_EXT_ACK`).
    pub wants_words: bool,
    /// Whether it can do without its request in refusals (`NETLINK_CAP_ACK`).
    pub caps_acknowledgements: bool,
}

/// What one of the multicast groups hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// `XFRMNLGRP_*`.
    pub group: u32,
    /// The datagram.
    pub datagram: Vec<u8>,
}

/// All that follows from a datagram.
#[derive(Debug, Default)]
pub struct Answer {
    /// To who asked, in this order.
    pub datagrams: Vec<Vec<u8>>,
    /// To the groups.
    pub notices: Vec<Notice>,
    /// Whether the plan is another one.
    pub changed: bool,
}

/// One request on its way.
pub(crate) struct Exchange<'a> {
    pub(crate) now: u64,
    pub(crate) asker: Asker,
    pub(crate) header: Header,
    pub(crate) answer: &'a mut Answer,
}

impl Exchange<'_> {
    /// The header of a message in answer.
    pub(crate) fn header(&self, kind: u16) -> Header {
        let (sequence, port) = (self.header.sequence, self.asker.port);
        Header { length: 0, kind, flags: 0, sequence, port }
    }

    pub(crate) fn reply(&mut self, message: Vec<u8>) {
        self.answer.datagrams.push(message);
    }

    /// Sends a list, packed into datagrams, and its end.
    pub(crate) fn reply_all(&mut self, messages: impl Iterator<Item = Vec<u8>>) {
        let end = Header { flags: flag::MULTI, ..self.header(kind::DONE) };
        let end = Writer::new(end, &0u32).finish();
        let mut datagram = Vec::new();
        for mut message in messages.chain([end]) {
            let flags = u16::from_ne_bytes([message[6], message[7]]) | flag::MULTI;
            message[6..8].copy_from_slice(&flags.to_ne_bytes());
            if !datagram.is_empty() && datagram.len() + message.len() > DATAGRAM_BYTES {
                self.answer.datagrams.push(std::mem::take(&mut datagram));
            }
            datagram.extend(message);
        }
        self.answer.datagrams.push(datagram);
    }

    /// Tells a group of a change that this request made.
    pub(crate) fn notify(&mut self, group: u32, datagram: Vec<u8>) {
        self.answer.notices.push(Notice { group, datagram });
        self.answer.changed = true;
    }

    /// Acknowledges or refuses, with the request's `body` unless the asker can do without.
    pub(crate) fn acknowledge(&mut self, body: &[u8], refusal: Option<&Refusal>) {
        let errno = refusal.map_or(0, |refusal| -refusal.errno.0);
        let mut header = self.header(kind::ERROR);
        let capped = errno == 0 || self.asker.caps_acknowledgements;
        header.flags |= if capped { flag::CAPPED } else { 0 };
        let words = refusal.filter(|_| self.asker.wants_words);
        header.flags |= if words.is_some() { flag::ACK_TLVS } else { 0 };
        let mut error = errno.to_ne_bytes().to_vec();
        error.extend_from_slice(self.header.as_bytes());
        debug_assert_eq!(error.len(), 4 + HEADER_LEN);
        if !capped {
            error.extend_from_slice(body);
        }
        let mut writer = Writer::new(header, &error[..]);
        if let Some(refusal) = words {
            writer = writer.with(WORDS, format!("{}\0", refusal.text).as_bytes());
        }
        self.answer.datagrams.push(writer.finish());
    }
}
