//! Why a request is refused: an error number as the kernel gives it, and words for who reads them.

use std::borrow::Cow;

/// An errno of Linux. Only those that NETLINK_XFRM gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// No such policy, or no SPI free.
    pub const ENOENT: Errno = Errno(2);
    /// No such association.
    pub const ESRCH: Errno = Errno(3);
    /// The worker does not answer.
    pub const EIO: Errno = Errno(5);
    /// It is there already.
    pub const EEXIST: Errno = Errno(17);
    /// A value that cannot be.
    pub const EINVAL: Errno = Errno(22);
    /// An attribute is too short.
    pub const ERANGE: Errno = Errno(34);
    /// No such algorithm.
    pub const ENOSYS: Errno = Errno(38);
    /// Not compiled in.
    pub const ENOPROTOOPT: Errno = Errno(92);
    /// AH, IPComp, BEET: what Weir does not do.
    pub const EPROTONOSUPPORT: Errno = Errno(93);
    /// What Weir does not do with an otherwise valid request.
    pub const EOPNOTSUPP: Errno = Errno(95);
    /// The outer address is nobody's here.
    pub const EADDRNOTAVAIL: Errno = Errno(99);
    /// A table is full.
    pub const ENOBUFS: Errno = Errno(105);
}

/// A refusal; `text` travels as an extended acknowledgement, which `ip` prints.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text} (errno {})", errno.0)]
pub struct Refusal {
    /// The number.
    pub errno: Errno,
    /// The words.
    pub text: Cow<'static, str>,
}

impl Refusal {
    /// A refusal.
    pub fn new(errno: Errno, text: impl Into<Cow<'static, str>>) -> Self {
        Self { errno, text: text.into() }
    }
}

/// `Err` of a [`Refusal`].
pub(crate) fn refuse<T>(errno: Errno, text: &'static str) -> Result<T, Refusal> {
    Err(Refusal::new(errno, text))
}
