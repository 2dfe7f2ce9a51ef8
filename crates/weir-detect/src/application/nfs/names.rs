//! How EVE spells what NFS and ONC RPC number.

use super::xdr::Xdr;
use crate::value::{Object, text};

/// Flavour of credentials that tell a host and a user (RFC 5531 s14).
const UNIX: u32 = 1;

/// Procedures of version 2, by their numbers (RFC 1094 s2.2).
const SECOND: [&str; 18] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "ROOT",
    "LOOKUP",
    "READLINK",
    "READ",
    "WRITECACHE",
    "WRITE",
    "CREATE",
    "REMOVE",
    "RENAME",
    "LINK",
    "SYMLINK",
    "MKDIR",
    "RMDIR",
    "READDIR",
    "STATFS",
];
/// The procedures of version 4, and its operations by their numbers (RFC 7530 s16).
const FOURTH: [&str; 40] = [
    "NULL",
    "COMPOUND",
    "2",
    "ACCESS",
    "CLOSE",
    "COMMIT",
    "CREATE",
    "DELEGPURGE",
    "DELEGRETURN",
    "GETATTR",
    "GETFH",
    "LINK",
    "LOCK",
    "LOCKT",
    "LOCKU",
    "LOOKUP",
    "LOOKUPP",
    "NVERIFY",
    "OPEN",
    "OPENATTR",
    "OPEN_CONFIRM",
    "OPEN_DOWNGRADE",
    "PUTFH",
    "PUTPUBFH",
    "PUTROOTFH",
    "READ",
    "READDIR",
    "READLINK",
    "REMOVE",
    "RENAME",
    "RENEW",
    "RESTOREFH",
    "SAVEFH",
    "SECINFO",
    "SETATTR",
    "SETCLIENTID",
    "SETCLIENTID_CONFIRM",
    "VERIFY",
    "WRITE",
    "RELEASE_LOCKOWNER",
];

/// What stands before what is signed: its length and a number (RFC 2203 s5.3.2.2).
pub(super) const SIGNED_HEAD_LEN: usize = 8;

/// Whether what a call brings, and its answer, is signed, by the credentials with which it begins:
/// those of RPCSEC_GSS with the service of integrity (RFC 2203 s5.3.1).
pub(super) fn is_signed(mut xdr: Xdr<'_>) -> bool {
    const GSS: u32 = 6;
    const DATA: u32 = 0;
    const INTEGRITY: u32 = 2;
    let mut service = || {
        let flavour = xdr.number().filter(|it| *it == GSS)?;
        let mut inner = Xdr { rest: xdr.opaque()? };
        let (_, procedure, _) = (inner.number()?, inner.number()?, inner.number()?);
        let service = inner.number().filter(|_| procedure == DATA)?;
        Some((flavour, service))
    };
    service() == Some((GSS, INTEGRITY))
}

/// The flavour of credentials, and what those of Unix tell.
pub(super) fn credentials(xdr: &mut Xdr<'_>) -> Option<(String, Object)> {
    let flavour = xdr.number()?;
    let mut inner = Xdr { rest: xdr.opaque()? };
    let name = match flavour {
        0 => "NULL",
        UNIX => {
            inner.pass(4)?;
            let machine = text(inner.opaque()?);
            let (user, group) = (inner.number()?, inner.number()?);
            let object = Object::default().with("machine_name", machine);
            return Some(("UNIX".to_owned(), object.with("uid", user).with("gid", group)));
        }
        2 => "SHORT",
        3 => "DH",
        4 => "KERB",
        5 => "RSA",
        6 => "GSS",
        other => return Some((other.to_string(), Object::default())),
    };
    Some((name.to_owned(), Object::default()))
}

/// As EVE spells them, in the version that a flow speaks.
pub(super) fn procedure_name(version: u32, procedure: u32) -> String {
    let name = match version {
        4 => FOURTH.get(procedure as usize).copied(),
        0..=2 => SECOND.get(procedure as usize).copied(),
        _ => {
            let names = crate::application::names::NFS_PROCEDURE;
            let name = crate::application::names::name_of(names, i64::from(procedure));
            return name.map_or_else(|| procedure.to_string(), str::to_ascii_uppercase);
        }
    };
    name.map_or_else(|| procedure.to_string(), str::to_owned)
}

/// RFC 1813 s2.6, as EVE spells them.
pub(super) fn status_name(status: u32) -> String {
    match status {
        0 => "OK",
        1 => "ERR_PERM",
        2 => "ERR_NOENT",
        5 => "ERR_IO",
        6 => "ERR_NXIO",
        13 => "ERR_ACCES",
        17 => "ERR_EXIST",
        18 => "ERR_XDEV",
        19 => "ERR_NODEV",
        20 => "ERR_NOTDIR",
        21 => "ERR_ISDIR",
        22 => "ERR_INVAL",
        27 => "ERR_FBIG",
        28 => "ERR_NOSPC",
        30 => "ERR_ROFS",
        31 => "ERR_MLINK",
        63 => "ERR_NAMETOOLONG",
        66 => "ERR_NOTEMPTY",
        69 => "ERR_DQUOT",
        70 => "ERR_STALE",
        71 => "ERR_REMOTE",
        10001 => "ERR_BADHANDLE",
        10002 => "ERR_NOT_SYNC",
        10003 => "ERR_BAD_COOKIE",
        10004 => "ERR_NOTSUPP",
        10005 => "ERR_TOOSMALL",
        10006 => "ERR_SERVERFAULT",
        10007 => "ERR_BADTYPE",
        10008 => "ERR_JUKEBOX",
        other => return other.to_string(),
    }
    .to_owned()
}
