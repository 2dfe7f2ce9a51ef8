//! Sending frames gathered from pieces: sendmmsg(2) and writev(2).

use std::io::{self, IoSlice};
use std::os::fd::RawFd;

use zerocopy::IntoBytes;

use crate::port::{BATCH, Outgoing};
use crate::vnet::VnetHeader;

/// Pieces of one frame, its virtio header included; the kernel's own limit (UIO_MAXIOV).
pub(crate) const PIECES_MAX: usize = 1024;

/// A batch being sent: memory for its headers and piece lists, kept between calls.
#[derive(Default)]
pub(crate) struct SendBatch {
    headers: Vec<VnetHeader>,
    pieces: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

// SAFETY: the raw pointers inside are set and used within one call of `send` only.
unsafe impl Send for SendBatch {}

impl std::fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendBatch").finish_non_exhaustive()
    }
}

fn piece(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// What one call of the kernel takes: a frame, or several joined to a super-packet.
pub(crate) struct Message<'a> {
    /// What goes before it.
    pub(crate) header: VnetHeader,
    /// Headers in the place of those of each frame; empty: each has its own.
    pub(crate) headers: &'a [u8],
    pub(crate) frames: &'a [Outgoing<'a>],
}

impl<'a> Message<'a> {
    /// A frame by itself.
    pub(crate) fn of(frame: &'a Outgoing<'a>) -> Self {
        let header = VnetHeader::for_outgoing(frame);
        Self { header, headers: &[], frames: std::slice::from_ref(frame) }
    }

    /// Its pieces, the virtio header not among them.
    fn pieces(&self) -> impl Iterator<Item = &'a [u8]> {
        let skipped = self.headers.len();
        let behind = self.frames.iter().flat_map(move |frame| {
            let (first, others) = frame
                .parts
                .split_first()
                .map_or((&[][..], &[][..]), |it| (it.0.get(skipped..).unwrap_or_default(), it.1));
            std::iter::once(first).chain(others.iter().map(|part| &**part))
        });
        std::iter::once(self.headers).filter(|it| !it.is_empty()).chain(behind)
    }
}

/// What to do about a message that the kernel refused.
pub(crate) enum Refused {
    /// Try it again.
    Again,
    /// Pass over it.
    Lost,
    /// Send neither it nor those behind it.
    End,
}

impl SendBatch {
    /// Sends `messages` (at most [`BATCH`], each of fewer than [`PIECES_MAX`] pieces) by one call
    /// after another; `failed(index, error)` says what to do with one that the kernel refused.
    pub(crate) fn send(
        &mut self,
        fd: RawFd,
        messages: &[Message<'_>],
        mut failed: impl FnMut(usize, io::Error) -> Refused,
    ) {
        debug_assert!(messages.len() <= BATCH);
        self.describe(messages);
        let mut next = 0;
        while next < messages.len() {
            let rest = &mut self.messages[next..];
            // SAFETY: every message points to pieces in `self.pieces`, which is not touched until
            // the loop ends, and these to `self.headers` and to the callers' slices, which
            // `messages` borrows. The kernel reads them only.
            let count = unsafe {
                libc::sendmmsg(
                    fd,
                    rest.as_mut_ptr(),
                    rest.len() as libc::c_uint,
                    libc::MSG_DONTWAIT,
                )
            };
            match usize::try_from(count) {
                Ok(count) if count > 0 => next += count,
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() == io::ErrorKind::Interrupted {
                        continue;
                    }
                    match failed(next, error) {
                        Refused::Again => {}
                        Refused::Lost => next += 1,
                        Refused::End => return,
                    }
                }
            }
        }
    }

    /// Lists the pieces of every message, then, when their memory no longer moves, the messages.
    fn describe(&mut self, messages: &[Message<'_>]) {
        self.headers.clear();
        self.pieces.clear();
        self.messages.clear();
        self.headers.extend(messages.iter().map(|message| message.header));
        for (message, header) in messages.iter().zip(&self.headers) {
            let first = self.pieces.len();
            self.pieces.push(piece(header.as_bytes()));
            self.pieces.extend(message.pieces().map(piece));
            // SAFETY: an all-zero mmsghdr is a valid one: no name, no pieces, no control data.
            let mut described: libc::mmsghdr = unsafe { std::mem::zeroed() };
            described.msg_hdr.msg_iovlen = (self.pieces.len() - first) as _;
            self.messages.push(described);
        }
        let mut first = 0;
        for described in &mut self.messages {
            described.msg_hdr.msg_iov = &raw mut self.pieces[first];
            first += described.msg_hdr.msg_iovlen;
        }
    }
}

/// Writes one frame, its virtio header before it, to a TAP.
pub(crate) fn write_frame(fd: RawFd, frame: &Outgoing<'_>) -> io::Result<usize> {
    const PIECES: usize = 64;
    let header = VnetHeader::for_outgoing(frame);
    let mut pieces = [piece(&[]); PIECES];
    if frame.parts.len() < PIECES {
        pieces[0] = piece(header.as_bytes());
        for (slot, part) in pieces[1..].iter_mut().zip(frame.parts) {
            *slot = piece(part);
        }
        return write_pieces(fd, &pieces[..=frame.parts.len()]);
    }
    let mut list = vec![piece(header.as_bytes())];
    list.extend(frame.parts.iter().map(|part: &IoSlice<'_>| piece(part)));
    write_pieces(fd, &list)
}

fn write_pieces(fd: RawFd, pieces: &[libc::iovec]) -> io::Result<usize> {
    // SAFETY: each piece was made from a slice that the caller of `write_frame` still borrows; the
    // kernel reads them only.
    let count = unsafe { libc::writev(fd, pieces.as_ptr(), pieces.len() as libc::c_int) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}
