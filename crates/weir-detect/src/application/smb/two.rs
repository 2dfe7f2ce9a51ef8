//! Messages of SMB 2 and 3 (MS-SMB2 s2.2).

use super::{Asked, Head, LITTLE, RELATED, Smb, session, share, wide};
use crate::application::unit::{Said, Unit};
use crate::buffers::event::AppEvent;
use crate::value::{Object, text};

const HEAD_LEN: usize = 64;
/// The same with what a message says of the bytes that it moves.
const MOVING_LEN: usize = HEAD_LEN + 48;
/// Messages of one record, at most.
const MESSAGES_MAX: usize = 64;
/// A message of the server, and one that will be answered later.
const FROM_SERVER: u32 = 1;
const STATUS_PENDING: u32 = 0x103;
/// What was asked for is there, and more of its message waits in the pipe (MS-ERREF s2.3.1).
pub(super) const BUFFER_OVERFLOW: u32 = 0x8000_0005;
/// A call over a pipe (MS-FSCC s2.3).
const PIPE_TRANSCEIVE: u32 = 0x0011_c017;
/// Seconds between the beginnings of time of Windows and of Unix.
const EPOCH_S: u64 = 11_644_473_600;

const NEGOTIATE: u16 = 0;
const SESSION_SETUP: u16 = 1;
const TREE_CONNECT: u16 = 3;
const CREATE: u16 = 5;
const CLOSE: u16 = 6;
const READ: u16 = 8;
const WRITE: u16 = 9;
const IOCTL: u16 = 11;
const SET_INFO: u16 = 17;
/// What SET_INFO is about: a file's name, its end (MS-FSCC s2.4).
const OF_FILE: u8 = 1;
const RENAME: u8 = 10;
const DISPOSITION: u8 = 13;

/// The messages of a record, one behind the other.
pub(super) fn messages(smb: &mut Smb, side: usize, record: &[u8], said: &mut Said) -> Option<()> {
    smb.related = None;
    let mut rest = record;
    for _ in 0..MESSAGES_MAX {
        let next = LITTLE.long(rest, 20)? as usize;
        let whole = if next == 0 { rest } else { rest.get(..next)? };
        message(smb, side, whole, said)?;
        if next == 0 {
            break;
        }
        rest = rest.get(next..)?;
    }
    Some(())
}

fn message(smb: &mut Smb, side: usize, bytes: &[u8], said: &mut Said) -> Option<()> {
    let body = bytes.get(HEAD_LEN..)?;
    let command = LITTLE.word(bytes, 12)?;
    let flags = LITTLE.long(bytes, 16)?;
    let eight = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let head = Head {
        key: eight(24)?,
        command,
        command_name: command_name(command),
        status: LITTLE.long(bytes, 8)?,
        session: eight(40)?,
        tree: LITTLE.long(bytes, 36)?,
        version: 2,
    };
    let is_answer = flags & FROM_SERVER != 0;
    if is_answer != (side == 1) {
        smb.odd(super::ASTRAY[side], said);
        return Some(());
    }
    match is_answer {
        true if head.status == STATUS_PENDING => {}
        true => answer(smb, &head, bytes, body, said)?,
        false => request(smb, &head, bytes, body, said)?,
    }
    Some(())
}

/// Bytes that a message names by place and length, from its beginning.
fn named(bytes: &[u8], at: u32, length: u32) -> Option<&[u8]> {
    let at = at as usize;
    let rest = bytes.get(at..)?;
    Some(&rest[..rest.len().min(length as usize)])
}

fn file_identifier(body: &[u8], at: usize) -> Option<u128> {
    Some(u128::from_le_bytes(*body.get(at..)?.first_chunk()?))
}

fn request(smb: &mut Smb, head: &Head, bytes: &[u8], body: &[u8], said: &mut Said) -> Option<()> {
    let (mut unit, mut told, mut asked) = (smb.unit(), Object::default(), Asked::Other);
    match head.command {
        NEGOTIATE => {
            let count = usize::from(LITTLE.word(body, 2)?);
            body.get(36..36 + 2 * count)?;
            let dialects = (0..count.min(64)).filter_map(|it| LITTLE.word(body, 36 + 2 * it));
            told.put("client_dialects", dialects.map(dialect_name).collect::<Vec<_>>());
            told.put("client_guid", super::guid(body.get(12..)?.first_chunk()?));
        }
        SESSION_SETUP => {
            let token = named(bytes, LITTLE.word(body, 12)?.into(), LITTLE.word(body, 14)?.into())?;
            session::describe(token, &mut unit, &mut told);
        }
        TREE_CONNECT => {
            let name = named(bytes, LITTLE.word(body, 4)?.into(), LITTLE.word(body, 6)?.into())?;
            let name = wide(name);
            let buffer = super::share_buffer(name.to_ascii_uppercase().ends_with(b"\\IPC$"));
            unit.text(buffer, &name);
            asked = Asked::Tree(name);
        }
        CREATE => {
            let name = named(bytes, LITTLE.word(body, 44)?.into(), LITTLE.word(body, 46)?.into())?;
            let name = wide(name);
            let options = LITTLE.long(body, 40)?;
            let shown = if name.is_empty() { b"<share_root>".to_vec() } else { name.clone() };
            told.put("filename", text(&shown));
            told.put("disposition", disposition_name(LITTLE.long(body, 36)?));
            let deletes = options & 0x1000 != 0;
            told.put("access", if deletes { "delete on close" } else { "normal" });
            smb.close(RELATED, said);
            smb.related = Some(name.clone());
            asked = Asked::File(name);
        }
        CLOSE => {
            let file = file_identifier(body, 8)?;
            smb.close(file, said);
            asked = Asked::Close(file);
        }
        READ => {
            let at = u64::from_le_bytes(*body.get(8..)?.first_chunk()?);
            asked = Asked::Read(file_identifier(body, 16)?, at);
            if Smb::is_too_much(LITTLE.long(body, 4)?, smb.moved_max[0]) {
                smb.odd(AppEvent::SmbReadRequest, said);
            }
        }
        WRITE => write(smb, head, bytes, body, said)?,
        IOCTL => {
            let file = file_identifier(body, 8)?;
            let function = LITTLE.long(body, 4)?;
            if function != PIPE_TRANSCEIVE {
                told.put("function", function_name(function));
            } else {
                let data = named(bytes, LITTLE.long(body, 24)?, LITTLE.long(body, 28)?)?;
                smb.content((0, file), (None, data, 0), head, said);
                asked = Asked::Pipe(file);
            }
        }
        SET_INFO => {
            if let Some(change) = change(smb, bytes, body) {
                (told, asked) = (change, Asked::Change);
            }
        }
        _ => {}
    }
    smb.request(head, unit, (told, asked), said);
    Some(())
}

fn write(smb: &mut Smb, head: &Head, bytes: &[u8], body: &[u8], said: &mut Said) -> Option<()> {
    let length = LITTLE.long(body, 4)?;
    let data = named(bytes, LITTLE.word(body, 2)?.into(), length)?;
    let at = u64::from_le_bytes(*body.get(8..)?.first_chunk()?);
    let file = file_identifier(body, 16)?;
    let lacks = data.len() < length as usize && !smb.is_cut;
    if lacks || Smb::is_too_much(length, smb.moved_max[1]) {
        smb.odd(AppEvent::SmbWriteSize, said);
    } else if smb.overlaps(file, at, length.into()) {
        smb.odd(AppEvent::SmbOverlap, said);
    }
    smb.place((0, file), at, length.into(), said);
    move_bytes(smb, file, (at, data, length), usize::from(LITTLE.word(body, 2)?), head, said);
    Some(())
}

/// Bytes of a file, from a place in the record on, as far as they came.
fn move_bytes(
    smb: &mut Smb,
    file: u128,
    (at, data, length): (u64, &[u8], u32),
    place: usize,
    head: &Head,
    said: &mut Said,
) {
    let side = smb.side;
    for (before, piece) in smb.pieces(data, place) {
        let is_last = before + piece.len() == data.len();
        let rest = u64::from(length).saturating_sub(before as u64);
        let length = if is_last { rest } else { piece.len() as u64 };
        let at = Some(at.saturating_add(before as u64));
        smb.content((side, file), (at, piece, length), head, said);
    }
}

/// Whether a message moves bytes of a file, is alone in its record, and what it says of them came.
pub(super) fn moves(message: &[u8]) -> bool {
    let is_alone = LITTLE.long(message, 20) == Some(0);
    let is_moving = matches!(LITTLE.word(message, 12), Some(READ | WRITE));
    message.len() >= MOVING_LEN && message.starts_with(b"\xfeSMB") && is_alone && is_moving
}

fn answer(smb: &mut Smb, head: &Head, bytes: &[u8], body: &[u8], said: &mut Said) -> Option<()> {
    let (mut unit, mut told) = (smb.unit(), Object::default());
    if head.command == NEGOTIATE {
        negotiated(smb, body, &mut told, said)?;
    }
    // What nobody asked for is no transaction.
    let mut request = smb.answered(head).unwrap_or_default();
    let is_done = head.status == 0;
    let has_data = is_done || head.status == BUFFER_OVERFLOW;
    match (head.command, std::mem::take(&mut request.asked)) {
        (SESSION_SETUP, _) => {
            let place = (LITTLE.word(body, 4), LITTLE.word(body, 6));
            if let (Some(at), Some(length)) = place
                && let Some(token) = named(bytes, at.into(), length.into())
            {
                session::describe(token, &mut Unit::new(unit.protocol, 0), &mut told);
            }
        }
        (TREE_CONNECT, Asked::Tree(name)) => {
            let kind = if is_done { body.get(2).copied().unwrap_or_default() } else { 0 };
            share(&name, kind == 2, &mut unit, &mut told);
            if is_done {
                smb.connect(head.tree, name, kind == 2);
                told.put("share_type", share_name(kind));
            }
        }
        (CREATE, Asked::File(name)) if is_done => {
            let eight = |at: usize| Some(u64::from_le_bytes(*body.get(at..)?.first_chunk()?));
            for (name, at) in [("created", 8), ("accessed", 16), ("modified", 24), ("changed", 32)]
            {
                told.put(name, (eight(at)? / 10_000_000).saturating_sub(EPOCH_S));
            }
            told.put("size", eight(48)?);
            told.put("fuid", super::guid(body.get(64..)?.first_chunk()?));
            smb.open(file_identifier(body, 64)?, name, head, said);
        }
        (CREATE, Asked::File(_)) => super::nothing_opened(&mut told),
        (READ, Asked::Read(file, at)) if has_data => {
            let length = LITTLE.long(body, 4)?;
            if Smb::is_too_much(length, smb.moved_max[0]) {
                smb.odd(AppEvent::SmbReadSize, said);
            }
            smb.place((1, file), at, length.into(), said);
            let place = *body.get(2)?;
            let data = named(bytes, place.into(), length)?;
            move_bytes(smb, file, (at, data, length), place.into(), head, said);
        }
        // Its client has not waited for what it read.
        (CLOSE, Asked::Close(file)) if is_done => smb.close(file, said),
        (IOCTL, Asked::Pipe(file)) if has_data => {
            let data = named(bytes, LITTLE.long(body, 32)?, LITTLE.long(body, 36)?)?;
            smb.content((1, file), (None, data, 0), head, said);
        }
        _ => {}
    }
    smb.answer(head, unit, (request, told), said);
    Some(())
}

/// The dialect that a server chose, and what it lets a message move.
fn negotiated(smb: &mut Smb, body: &[u8], told: &mut Object, said: &mut Said) -> Option<()> {
    smb.dialect = LITTLE.word(body, 4).map(dialect_name);
    let [read, write] = [LITTLE.long(body, 32)?, LITTLE.long(body, 36)?];
    told.put("server_guid", super::guid(body.get(8..)?.first_chunk()?));
    told.put("max_read_size", read);
    told.put("max_write_size", write);
    smb.moved_max = [read, write].map(|it| Some(it).filter(|it| *it > 0));
    for (most, event) in [(read, AppEvent::SmbReadSizeMax), (write, AppEvent::SmbWriteSizeMax)] {
        if Smb::is_too_much(most, None) {
            smb.odd(event, said);
        }
    }
    Some(())
}

/// As EVE spells a kind of share (MS-SMB2 s2.2.10).
fn share_name(kind: u8) -> &'static str {
    match kind {
        1 => "FILE",
        2 => "PIPE",
        3 => "PRINT",
        _ => "UNKNOWN",
    }
}

/// As EVE spells them.
fn command_name(command: u16) -> String {
    const NAMES: [&str; 19] = [
        "NEGOTIATE_PROTOCOL",
        "SESSION_SETUP",
        "SESSION_LOGOFF",
        "TREE_CONNECT",
        "TREE_DISCONNECT",
        "CREATE",
        "CLOSE",
        "FLUSH",
        "READ",
        "WRITE",
        "LOCK",
        "IOCTL",
        "CANCEL",
        "KEEPALIVE",
        "FIND",
        "CHANGE_NOTIFY",
        "GET_INFO",
        "SET_INFO",
        "OPLOCK_BREAK",
    ];
    match NAMES.get(usize::from(command)) {
        Some(name) => format!("SMB2_COMMAND_{name}"),
        None => command.to_string(),
    }
}

fn dialect_name(dialect: u16) -> String {
    match dialect {
        0x0202 => "2.02",
        0x0210 => "2.10",
        0x0222 => "2.22",
        0x0224 => "2.24",
        0x02ff => "2.??",
        0x0300 => "3.00",
        0x0302 => "3.02",
        0x0310 => "3.10",
        0x0311 => "3.11",
        other => return format!("{other}"),
    }
    .to_owned()
}

fn disposition_name(disposition: u32) -> &'static str {
    match disposition {
        0 => "FILE_SUPERSEDE",
        1 => "FILE_OPEN",
        2 => "FILE_CREATE",
        3 => "FILE_OPEN_IF",
        4 => "FILE_OVERWRITE",
        5 => "FILE_OVERWRITE_IF",
        _ => "UNKNOWN",
    }
}

/// MS-FSCC s2.3, MS-SMB2 s2.2.31.
fn function_name(code: u32) -> String {
    match code {
        0x0006_0194 => "FSCTL_DFS_GET_REFERRALS",
        0x0006_01b0 => "FSCTL_DFS_GET_REFERRALS_EX",
        0x0009_00a4 => "FSCTL_SET_REPARSE_POINT",
        0x0009_8208 => "FSCTL_FILE_LEVEL_TRIM",
        0x0011_000c => "FSCTL_PIPE_PEEK",
        0x0011_0018 => "FSCTL_PIPE_WAIT",
        PIPE_TRANSCEIVE => "FSCTL_PIPE_TRANSCEIVE",
        0x0014_0078 => "FSCTL_SRV_REQUEST_RESUME_KEY",
        0x0014_01d4 => "FSCTL_LMR_REQUEST_RESILIENCY",
        0x0014_01fc => "FSCTL_QUERY_NETWORK_INTERFACE_INFO",
        0x0014_0204 => "FSCTL_VALIDATE_NEGOTIATE_INFO",
        0x0014_4064 => "FSCTL_SRV_ENUMERATE_SNAPSHOTS",
        0x0014_40f2 => "FSCTL_SRV_COPYCHUNK",
        0x0014_41bb => "FSCTL_SRV_READ_HASH",
        0x0014_80f2 => "FSCTL_SRV_COPYCHUNK_WRITE",
        other => return format!("{other:#x}"),
    }
    .to_owned()
}

/// MS-ERREF s2.3.
pub(super) fn status_name(status: u32) -> String {
    match status {
        0 => "STATUS_SUCCESS",
        0x103 => "STATUS_PENDING",
        0x10b => "STATUS_NOTIFY_CLEANUP",
        0x10c => "STATUS_NOTIFY_ENUM_DIR",
        0x8000_0005 => "STATUS_BUFFER_OVERFLOW",
        0x8000_0006 => "STATUS_NO_MORE_FILES",
        0xc000_0001 => "STATUS_UNSUCCESSFUL",
        0xc000_0002 => "STATUS_NOT_IMPLEMENTED",
        0xc000_0003 => "STATUS_INVALID_INFO_CLASS",
        0xc000_0008 => "STATUS_INVALID_HANDLE",
        0xc000_000d => "STATUS_INVALID_PARAMETER",
        0xc000_000f => "STATUS_NO_SUCH_FILE",
        0xc000_0010 => "STATUS_INVALID_DEVICE_REQUEST",
        0xc000_0011 => "STATUS_END_OF_FILE",
        0xc000_0016 => "STATUS_MORE_PROCESSING_REQUIRED",
        0xc000_0022 => "STATUS_ACCESS_DENIED",
        0xc000_0023 => "STATUS_BUFFER_TOO_SMALL",
        0xc000_0033 => "STATUS_OBJECT_NAME_INVALID",
        0xc000_0034 => "STATUS_OBJECT_NAME_NOT_FOUND",
        0xc000_0035 => "STATUS_OBJECT_NAME_COLLISION",
        0xc000_003a => "STATUS_OBJECT_PATH_NOT_FOUND",
        0xc000_0043 => "STATUS_SHARING_VIOLATION",
        0xc000_0064 => "STATUS_NO_SUCH_USER",
        0xc000_006a => "STATUS_WRONG_PASSWORD",
        0xc000_006d => "STATUS_LOGON_FAILURE",
        0xc000_0071 => "STATUS_PASSWORD_EXPIRED",
        0xc000_0072 => "STATUS_ACCOUNT_DISABLED",
        0xc000_00ac => "STATUS_PIPE_NOT_AVAILABLE",
        0xc000_00b5 => "STATUS_IO_TIMEOUT",
        0xc000_00ba => "STATUS_FILE_IS_A_DIRECTORY",
        0xc000_00bb => "STATUS_NOT_SUPPORTED",
        0xc000_00c9 => "STATUS_NETWORK_NAME_DELETED",
        0xc000_00cc => "STATUS_BAD_NETWORK_NAME",
        0xc000_0101 => "STATUS_DIRECTORY_NOT_EMPTY",
        0xc000_0120 => "STATUS_CANCELLED",
        0xc000_0128 => "STATUS_FILE_CLOSED",
        0xc000_014b => "STATUS_PIPE_BROKEN",
        0xc000_0203 => "STATUS_USER_SESSION_DELETED",
        0xc000_0225 => "STATUS_NOT_FOUND",
        0xc000_0257 => "STATUS_PATH_NOT_COVERED",
        0xc000_0275 => "STATUS_NOT_A_REPARSE_POINT",
        0xc000_035c => "STATUS_NETWORK_SESSION_EXPIRED",
        other => return format!("{other}"),
    }
    .to_owned()
}

/// What SET_INFO (MS-SMB2 s2.2.39) changes of a file, where that is its name or that it goes.
fn change(smb: &Smb, bytes: &[u8], body: &[u8]) -> Option<Object> {
    let (kind, class) = (*body.get(2)?, *body.get(3)?);
    let data = named(bytes, LITTLE.word(body, 8)?.into(), LITTLE.long(body, 4)?)?;
    let file = file_identifier(body, 16)?;
    let name = smb.files.iter().find(|it| it.identifier == file).map(|it| text(&it.name));
    let name = name.unwrap_or_else(|| "<unknown>".to_owned());
    let mut told = Object::default();
    match (kind, class) {
        (OF_FILE, RENAME) => {
            let length = LITTLE.long(data, 16)? as usize;
            let new = wide(data.get(20..20_usize.checked_add(length)?)?);
            let what = Object::default()
                .with("class", "FILE_INFO")
                .with("info_level", "SMB2_FILE_RENAME_INFO");
            told.put("set_info", what);
            told.put("rename", Object::default().with("from", name).with("to", text(&new)));
        }
        (OF_FILE, DISPOSITION) => {
            let goes = *data.first()? != 0;
            told.put("filename", name);
            told.put("access", if goes { "delete on close" } else { "normal" });
        }
        _ => return None,
    }
    told.put("fuid", super::guid(&file.to_le_bytes()));
    Some(told)
}
