//! Compounds of NFS version 4 (RFC 7530 s16, RFC 8881 s18): several operations in one call, of
//! which each has its own form. What is behind one whose form is not known is not looked at.
//!
//! Suricata 8.0.7 knows fewer forms: what it does not know is odd, and is passed over here.

use super::xdr::Xdr;

/// Operations of a compound that are looked at, at most: servers take fewer.
const OPERATIONS_MAX: u32 = 64;

const ACCESS: u32 = 3;
const CLOSE: u32 = 4;
const COMMIT: u32 = 5;
pub(super) const CREATE: u32 = 6;
const DELEGPURGE: u32 = 7;
const DELEGRETURN: u32 = 8;
const GETATTR: u32 = 9;
const GETFH: u32 = 10;
const LINK: u32 = 11;
const LOCK: u32 = 12;
const LOCKT: u32 = 13;
const LOCKU: u32 = 14;
const LOOKUP: u32 = 15;
const LOOKUPP: u32 = 16;
const NVERIFY: u32 = 17;
pub(super) const OPEN: u32 = 18;
const OPENATTR: u32 = 19;
const OPEN_CONFIRM: u32 = 20;
const OPEN_DOWNGRADE: u32 = 21;
const PUTFH: u32 = 22;
const PUTPUBFH: u32 = 23;
const PUTROOTFH: u32 = 24;
pub(super) const READ: u32 = 25;
const READDIR: u32 = 26;
const READLINK: u32 = 27;
pub(super) const REMOVE: u32 = 28;
const RENAME: u32 = 29;
const RENEW: u32 = 30;
const RESTOREFH: u32 = 31;
const SAVEFH: u32 = 32;
const SECINFO: u32 = 33;
const SETATTR: u32 = 34;
const SETCLIENTID: u32 = 35;
const SETCLIENTID_CONFIRM: u32 = 36;
const VERIFY: u32 = 37;
pub(super) const WRITE: u32 = 38;
const EXCHANGE_ID: u32 = 42;
const CREATE_SESSION: u32 = 43;
const DESTROY_SESSION: u32 = 44;
const LAYOUTGET: u32 = 50;
const LAYOUTRETURN: u32 = 51;
const SECINFO_NO_NAME: u32 = 52;
const SEQUENCE: u32 = 53;
const DESTROY_CLIENTID: u32 = 57;
const RECLAIM_COMPLETE: u32 = 58;

/// Bytes that stand for a state, for a session, and for what changed in a folder.
const STATE_LEN: usize = 16;
const SESSION_LEN: usize = 16;
const CHANGE_LEN: usize = 20;

/// What an operation of a call asks for, as far as files are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked<'a> {
    /// The file that what follows is about.
    Handle(&'a [u8]),
    /// What follows is about the folder above all others.
    Root,
    Open(&'a [u8]),
    Lookup(&'a [u8]),
    Create(&'a [u8]),
    Remove(&'a [u8]),
    /// From that byte on.
    Read(u64),
    /// From that byte on; how it is to be kept, how many bytes there are, and those that are here.
    Write(u64, u32, (u64, &'a [u8])),
    Close,
    Commit,
    Other,
}

/// What an operation of an answer tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told<'a> {
    Handle(&'a [u8]),
    /// Whether the file ends there, how many bytes there are, and those that are here.
    Read(bool, (u64, &'a [u8])),
    Other,
}

/// The operations of a compound, one by one.
pub(super) struct Operations<'a> {
    xdr: Xdr<'a>,
    left: u32,
    /// One is of a form that Suricata does not know, or of none.
    pub(super) is_odd: bool,
}

impl<'a> Operations<'a> {
    /// Those of a call.
    pub(super) fn of_call(mut xdr: Xdr<'a>) -> Option<Self> {
        let (_tag, _minor) = (xdr.opaque()?, xdr.number()?);
        Some(Self { left: xdr.number()?.min(OPERATIONS_MAX), xdr, is_odd: false })
    }

    /// Those of an answer.
    pub(super) fn of_answer(mut xdr: Xdr<'a>) -> Option<Self> {
        let (_status, _tag) = (xdr.number()?, xdr.opaque()?);
        Some(Self { left: xdr.number()?.min(OPERATIONS_MAX), xdr, is_odd: false })
    }

    /// The next of a call.
    pub(super) fn asked(&mut self) -> Option<Asked<'a>> {
        self.left = self.left.checked_sub(1)?;
        let operation = self.xdr.number();
        self.is_odd |= !operation.is_some_and(is_known);
        let asked = operation.and_then(|it| self.one_asked(it));
        self.go_on(asked)
    }

    /// The next of an answer: its number, its status, and what it tells. One that failed is the
    /// last.
    pub(super) fn told(&mut self) -> Option<(u32, u32, Told<'a>)> {
        self.left = self.left.checked_sub(1)?;
        let head = self.xdr.number().zip(self.xdr.number());
        let (operation, status) = self.go_on(head)?;
        self.is_odd |= !is_known(operation);
        if status != 0 {
            self.left = 0;
            self.is_odd |= matches!(operation, LAYOUTRETURN | SECINFO_NO_NAME);
            return Some((operation, status, Told::Other));
        }
        let told = self.one_told(operation);
        Some((operation, status, self.go_on(told).unwrap_or(Told::Other)))
    }

    /// Nothing can be read behind what is of no form that is known.
    fn go_on<T>(&mut self, read: Option<T>) -> Option<T> {
        if read.is_none() {
            (self.left, self.is_odd) = (0, true);
        }
        read
    }

    fn one_asked(&mut self, operation: u32) -> Option<Asked<'a>> {
        let xdr = &mut self.xdr;
        Some(match operation {
            PUTFH => Asked::Handle(xdr.handle()?),
            PUTROOTFH => Asked::Root,
            LOOKUP => Asked::Lookup(xdr.name()?),
            REMOVE => Asked::Remove(xdr.name()?),
            CREATE => Asked::Create(created(xdr)?),
            OPEN => return self.open(),
            READ => {
                xdr.pass(STATE_LEN)?;
                let at = xdr.wide()?;
                xdr.pass(4)?;
                Asked::Read(at)
            }
            WRITE => {
                xdr.pass(STATE_LEN)?;
                let (at, stable) = (xdr.wide()?, xdr.number()?);
                Asked::Write(at, stable, xdr.data()?)
            }
            CLOSE => {
                xdr.pass(4 + STATE_LEN)?;
                Asked::Close
            }
            COMMIT => {
                xdr.pass(12)?;
                Asked::Commit
            }
            _ => {
                pass_asked(operation, xdr)?;
                Asked::Other
            }
        })
    }

    /// Which file is opened: by its name, or none that is named (RFC 7530 s16.16, RFC 8881 s18.16).
    fn open(&mut self) -> Option<Asked<'a>> {
        let xdr = &mut self.xdr;
        xdr.pass(20)?;
        xdr.opaque()?;
        if xdr.number()? == 1 {
            match xdr.number()? {
                0 | 1 => xdr.attributes()?,
                2 => xdr.pass(8)?,
                3 => {
                    self.is_odd = true;
                    xdr.pass(8)?;
                    xdr.attributes()?;
                }
                _ => return None,
            }
        }
        let claim = xdr.number()?;
        self.is_odd |= claim > 1;
        Some(match claim {
            0 | 3 => Asked::Open(xdr.name()?),
            1 => {
                xdr.pass(4)?;
                Asked::Other
            }
            2 => {
                xdr.pass(STATE_LEN)?;
                Asked::Open(xdr.name()?)
            }
            4 | 6 => Asked::Other,
            5 => {
                xdr.pass(STATE_LEN)?;
                Asked::Other
            }
            _ => return None,
        })
    }

    fn one_told(&mut self, operation: u32) -> Option<Told<'a>> {
        let xdr = &mut self.xdr;
        match operation {
            GETFH => return Some(Told::Handle(xdr.handle()?)),
            READ => return Some(Told::Read(xdr.number()? == 1, xdr.data()?)),
            OPEN => self.is_odd |= opened(xdr)?,
            _ => pass_told(operation, xdr)?,
        }
        Some(Told::Other)
    }
}

/// Whether Suricata knows the form of an operation.
fn is_known(operation: u32) -> bool {
    matches!(
        operation,
        ACCESS..=CREATE
            | DELEGRETURN..=GETFH
            | LOOKUP
            | OPEN
            | OPEN_CONFIRM
            | PUTFH
            | PUTROOTFH..=READDIR
            | REMOVE..=RENEW
            | SAVEFH
            | SETATTR..=SETCLIENTID_CONFIRM
            | WRITE
            | EXCHANGE_ID..=DESTROY_SESSION
            | LAYOUTGET..=SEQUENCE
            | DESTROY_CLIENTID
            | RECLAIM_COMPLETE
    )
}

/// The name of what is created.
fn created<'a>(xdr: &mut Xdr<'a>) -> Option<&'a [u8]> {
    match xdr.number()? {
        // Devices, and a link.
        3 | 4 => xdr.pass(8)?,
        5 => drop(xdr.opaque()?),
        _ => {}
    }
    let name = xdr.name()?;
    xdr.attributes()?;
    Some(name)
}

/// Passes over what an operation asks that is about no file's name and content.
fn pass_asked(operation: u32, xdr: &mut Xdr<'_>) -> Option<()> {
    match operation {
        GETFH | LOOKUPP | PUTPUBFH | READLINK | RESTOREFH | SAVEFH => Some(()),
        ACCESS | OPENATTR | SECINFO_NO_NAME | RECLAIM_COMPLETE => xdr.pass(4),
        DELEGPURGE | RENEW | DESTROY_CLIENTID => xdr.pass(8),
        SETCLIENTID_CONFIRM => xdr.pass(16),
        DELEGRETURN => xdr.pass(STATE_LEN),
        DESTROY_SESSION => xdr.pass(SESSION_LEN),
        OPEN_CONFIRM => xdr.pass(STATE_LEN + 4),
        OPEN_DOWNGRADE => xdr.pass(STATE_LEN + 12),
        SEQUENCE => xdr.pass(SESSION_LEN + 16),
        LOCKU => xdr.pass(STATE_LEN + 24),
        GETATTR => xdr.words(),
        LINK | SECINFO => xdr.opaque().map(drop),
        RENAME => xdr.opaque().and_then(|_| xdr.opaque()).map(drop),
        VERIFY | NVERIFY => xdr.attributes(),
        SETATTR => xdr.pass(STATE_LEN).and_then(|()| xdr.attributes()),
        READDIR => xdr.pass(24).and_then(|()| xdr.words()),
        LOCKT => xdr.pass(28).and_then(|()| xdr.opaque()).map(drop),
        LOCK => {
            xdr.pass(24)?;
            // An owner that is known, or a new one.
            match xdr.number()? {
                0 => xdr.pass(STATE_LEN + 4),
                _ => xdr.pass(STATE_LEN + 16).and_then(|()| xdr.opaque()).map(drop),
            }
        }
        SETCLIENTID => {
            xdr.pass(8)?;
            let _ = (xdr.opaque()?, xdr.number()?, xdr.opaque()?, xdr.opaque()?);
            xdr.pass(4)
        }
        EXCHANGE_ID => {
            xdr.pass(8)?;
            let _ = (xdr.opaque()?, xdr.number()?);
            unguarded(xdr)?;
            makers(xdr)
        }
        LAYOUTGET => xdr.pass(40 + STATE_LEN),
        LAYOUTRETURN => {
            xdr.pass(12)?;
            match xdr.number()? {
                1 => xdr.pass(STATE_LEN + 16).and_then(|()| xdr.opaque()).map(drop),
                _ => Some(()),
            }
        }
        _ => None,
    }
}

/// How a state is guarded: not at all, or nothing behind it is looked at.
fn unguarded(xdr: &mut Xdr<'_>) -> Option<()> {
    (xdr.number()? == 0).then_some(())
}

/// Who has made a client or a server: at most one.
fn makers(xdr: &mut Xdr<'_>) -> Option<()> {
    match xdr.number()? {
        0 => Some(()),
        1 => {
            let _ = (xdr.opaque()?, xdr.opaque()?);
            xdr.pass(12)
        }
        _ => None,
    }
}

/// Passes over what such an operation tells.
fn pass_told(operation: u32, xdr: &mut Xdr<'_>) -> Option<()> {
    match operation {
        DELEGPURGE | DELEGRETURN | LOCKT | LOOKUP | LOOKUPP | NVERIFY | OPENATTR | PUTFH
        | PUTPUBFH | PUTROOTFH | RENEW | RESTOREFH | SAVEFH | SETCLIENTID_CONFIRM | VERIFY
        | DESTROY_SESSION | DESTROY_CLIENTID | RECLAIM_COMPLETE => Some(()),
        ACCESS | COMMIT => xdr.pass(8),
        CLOSE | LOCK | LOCKU | OPEN_CONFIRM | OPEN_DOWNGRADE => xdr.pass(STATE_LEN),
        SETCLIENTID | WRITE => xdr.pass(16),
        LINK | REMOVE => xdr.pass(CHANGE_LEN),
        RENAME => xdr.pass(2 * CHANGE_LEN),
        CREATE => xdr.pass(CHANGE_LEN).and_then(|()| xdr.words()),
        GETATTR => xdr.attributes(),
        READLINK => xdr.opaque().map(drop),
        SETATTR | SECINFO_NO_NAME => xdr.words(),
        SEQUENCE => xdr.pass(SESSION_LEN + 20),
        READDIR => {
            xdr.pass(8)?;
            while xdr.number()? == 1 {
                xdr.pass(8)?;
                xdr.opaque()?;
                xdr.attributes()?;
            }
            xdr.pass(4)
        }
        EXCHANGE_ID => {
            xdr.pass(16)?;
            unguarded(xdr)?;
            xdr.pass(8)?;
            let _ = (xdr.opaque()?, xdr.opaque()?);
            makers(xdr)
        }
        CREATE_SESSION => {
            xdr.pass(SESSION_LEN + 8)?;
            (0..2).try_for_each(|_| xdr.pass(24).and_then(|()| xdr.words()))
        }
        LAYOUTGET => {
            xdr.pass(4 + STATE_LEN)?;
            for _ in 0..xdr.number()? {
                xdr.pass(24)?;
                xdr.opaque()?;
            }
            Some(())
        }
        LAYOUTRETURN => match xdr.number()? {
            1 => xdr.pass(STATE_LEN),
            _ => Some(()),
        },
        _ => None,
    }
}

/// What opening a file gives: also what its client may do with it by itself. Whether Suricata does
/// not know that.
fn opened(xdr: &mut Xdr<'_>) -> Option<bool> {
    xdr.pass(STATE_LEN + CHANGE_LEN + 4)?;
    xdr.words()?;
    match xdr.number()? {
        0 => return Some(false),
        1 => xdr.pass(STATE_LEN + 4)?,
        // May grow by so much.
        2 => xdr.pass(STATE_LEN + 4 + 12)?,
        // None is given, and why.
        3 => {
            if matches!(xdr.number()?, 1 | 2) {
                xdr.pass(4)?;
            }
            return Some(true);
        }
        _ => return None,
    }
    xdr.pass(12)?;
    xdr.opaque()?;
    Some(false)
}
