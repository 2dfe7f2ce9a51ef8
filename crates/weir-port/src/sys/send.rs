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

impl SendBatch {
    /// Sends `frames` (at most [`BATCH`], each of fewer than [`PIECES_MAX`] pieces) by one call
    /// after another; `failed(index, error)` says what to do with a frame that the kernel refused:
    /// `true` tries it again, `false` passes over it. Returns how many frames it took.
    pub(crate) fn send(
        &mut self,
        fd: RawFd,
        frames: &[Outgoing<'_>],
        mut failed: impl FnMut(usize, io::Error) -> bool,
    ) -> u64 {
        debug_assert!(frames.len() <= BATCH);
        self.describe(frames);
        let mut sent = 0;
        let mut next = 0;
        while next < frames.len() {
            let rest = &mut self.messages[next..];
            // SAFETY: every message points to pieces in `self.pieces`, which is not touched until
            // the loop ends, and these to `self.headers` and to the callers' slices, which
            // `frames` borrows. The kernel reads them only.
            let count = unsafe {
                libc::sendmmsg(
                    fd,
                    rest.as_mut_ptr(),
                    rest.len() as libc::c_uint,
                    libc::MSG_DONTWAIT,
                )
            };
            match usize::try_from(count) {
                Ok(count) if count > 0 => {
                    sent += count as u64;
                    next += count;
                }
                _ => {
                    let error = io::Error::last_os_error();
                    let again = error.kind() == io::ErrorKind::Interrupted || failed(next, error);
                    next += usize::from(!again);
                }
            }
        }
        sent
    }

    /// Lists the pieces of every frame, then, when their memory no longer moves, the messages.
    fn describe(&mut self, frames: &[Outgoing<'_>]) {
        self.headers.clear();
        self.pieces.clear();
        self.messages.clear();
        self.headers.extend(frames.iter().map(VnetHeader::for_outgoing));
        for (frame, header) in frames.iter().zip(&self.headers) {
            self.pieces.push(piece(header.as_bytes()));
            self.pieces.extend(frame.parts.iter().map(|part| piece(part)));
        }
        let mut first = 0;
        for frame in frames {
            let count = frame.parts.len() + 1;
            // SAFETY: an all-zero mmsghdr is a valid one: no name, no pieces, no control data.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_iov = &raw mut self.pieces[first];
            message.msg_hdr.msg_iovlen = count as _;
            self.messages.push(message);
            first += count;
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
