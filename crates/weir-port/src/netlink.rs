//! Just enough of rtnetlink(7) to ask about interfaces and to set addresses: requests out,
//! attributes in.

use std::io;

use crate::sys::socket::Socket;

pub(crate) const RTM_DELLINK: u16 = 17;
pub(crate) const RTM_GETLINK: u16 = 18;
pub(crate) const RTM_NEWADDR: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

const FLAG_REQUEST: u16 = 1;
const FLAG_ACK: u16 = 4;
/// Root and match: all that there are.
pub(crate) const FLAG_DUMP: u16 = 0x300;
pub(crate) const FLAG_CREATE_REPLACE: u16 = 0x400 | 0x100;
pub(crate) const FLAG_CREATE_NEW: u16 = 0x400 | 0x200;

const HEADER_LEN: usize = 16;
/// The kernel answers in datagrams of at most 32 KiB.
const BUFFER_LEN: usize = 32 * 1024;
/// Datagrams of one answer; a dump that does not end here is given up.
const DATAGRAMS_MAX: usize = 4096;

/// A message from the kernel.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) body: Vec<u8>,
}

/// A request socket. It keeps speaking to the network namespace it was opened in.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let socket = Socket::open(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends a request and collects the answer until its acknowledgement or end.
    ///
    /// # Errors
    /// The kernel's refusal, as an errno.
    pub(crate) fn request(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
    ) -> io::Result<Vec<Message>> {
        self.sequence += 1;
        let flags = FLAG_REQUEST | flags | if flags & FLAG_DUMP == 0x300 { 0 } else { FLAG_ACK };
        let mut request = Vec::with_capacity(HEADER_LEN + body.len());
        request.extend(((HEADER_LEN + body.len()) as u32).to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend(flags.to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        request.extend(0u32.to_ne_bytes());
        request.extend(body);
        self.socket.send(&request)?;

        let mut messages = Vec::new();
        let mut buffer = vec![0; BUFFER_LEN];
        for _ in 0..DATAGRAMS_MAX {
            let len = self.socket.receive(&mut buffer, 0)?.min(BUFFER_LEN);
            if take_messages(&buffer[..len], self.sequence, &mut messages)? {
                return Ok(messages);
            }
        }
        Err(io::Error::other("the kernel's netlink answer does not end"))
    }
}

/// Adds the messages of a datagram; true at the end of the answer.
fn take_messages(
    mut datagram: &[u8],
    sequence: u32,
    messages: &mut Vec<Message>,
) -> io::Result<bool> {
    while let Some(len) = u32_at(datagram, 0) {
        let len = len as usize;
        if len < HEADER_LEN || len > datagram.len() {
            break;
        }
        let kind = u16_at(datagram, 4).unwrap_or_default();
        let body = &datagram[HEADER_LEN..len];
        if u32_at(datagram, 8) == Some(sequence) {
            match kind {
                NLMSG_ERROR => {
                    let errno = u32_at(body, 0).unwrap_or_default() as i32;
                    return if errno == 0 {
                        Ok(true)
                    } else {
                        Err(io::Error::from_raw_os_error(-errno))
                    };
                }
                NLMSG_DONE => return Ok(true),
                _ => messages.push(Message { body: body.to_vec() }),
            }
        }
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// `(type, value)` of each attribute; stops at the first that does not fit.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(bytes, 0)?);
        // The two upper bits flag nesting and byte order.
        let kind = u16_at(bytes, 2)? & 0x3fff;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of the first attribute of this type.
pub(crate) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

/// Appends an attribute.
pub(crate) fn push_attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.extend(((4 + value.len()) as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back_as_they_were_pushed() {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, 3, b"eth0\0");
        push_attribute(&mut bytes, 4, &9000u32.to_ne_bytes());
        let found: Vec<_> = attributes(&bytes).collect();
        assert_eq!(found, [(3, &b"eth0\0"[..]), (4, &9000u32.to_ne_bytes()[..])]);
    }

    #[test]
    fn damaged_attributes_end_the_list() {
        assert_eq!(attributes(&[200, 0, 1, 0, 9]).count(), 0);
        assert_eq!(attributes(&[2, 0, 1, 0, 9]).count(), 0);
        assert_eq!(attributes(&[4, 0, 1, 0, 9]).count(), 1);
    }

    #[test]
    fn the_kernel_names_the_loopback_device() {
        let mut body = vec![0; 16];
        body[4..8].copy_from_slice(&1i32.to_ne_bytes());
        let answer = Netlink::open().unwrap().request(RTM_GETLINK, 0, &body).unwrap();
        assert_eq!(attribute(&answer[0].body[16..], 3), Some(&b"lo\0"[..]));
    }

    #[test]
    fn refusal_is_an_errno() {
        let mut body = vec![0; 16];
        body[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        let error = Netlink::open().unwrap().request(RTM_GETLINK, 0, &body).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
