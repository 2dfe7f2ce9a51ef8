//! Messages of SMB 2 and 3 (MS-SMB2 s2.2).

use super::names::{self, STATUS_PENDING};
use super::{Asked, Head, LITTLE, RELATED, Request, Smb, session, share, told_text, wide};
use crate::application::unit::{Said, Unit};
use crate::buffers::event::AppEvent;
use crate::value::Object;

const HEAD_LEN: usize = 64;
/// Where bytes are that are written, and that are read.
const WRITTEN_AT: u16 = 112;
const READ_AT: u16 = 80;
/// The same with what a message says of the bytes that it moves.
const MOVING_LEN: usize = HEAD_LEN + 48;
/// A message of the server, and one that goes on with what it put off.
const FROM_SERVER: u32 = 1;
const IS_ASYNC: u32 = 2;
/// Bytes of requests to log in and to read, and of answers that connect a tree and open a file:
/// Suricata wants them to be there.
const SETUP_LEN: usize = 24;
const READ_LEN: usize = 48;
const TREE_LEN: usize = 15;
const CREATED_LEN: usize = 88;
/// What was asked for is there, and more of its message waits in the pipe (MS-ERREF s2.3.1).
pub(super) const BUFFER_OVERFLOW: u32 = 0x8000_0005;
/// A call over a pipe (MS-FSCC s2.3).
const PIPE_TRANSCEIVE: u32 = 0x0011_c017;

pub(super) const NEGOTIATE: u16 = 0;
pub(super) const SESSION_SETUP: u16 = 1;
pub(super) const TREE_CONNECT: u16 = 3;
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
    loop {
        let next = LITTLE.long(rest, 20)? as usize;
        // What is shorter than a head is no place for another message.
        let (whole, behind) = match next {
            ..HEAD_LEN => (rest, None),
            _ => rest.split_at_checked(next).map(|it| (it.0, Some(it.1)))?,
        };
        message(smb, side, whole, said)?;
        match behind {
            Some(behind) => rest = behind,
            None => return Some(()),
        }
    }
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
        // What is answered later names no tree.
        tree: if flags & IS_ASYNC != 0 { 0 } else { LITTLE.long(bytes, 36)? },
        version: 2,
    };
    let is_answer = flags & FROM_SERVER != 0;
    if is_answer != (side == 1) {
        smb.odd(super::ASTRAY[side], said);
        return Some(());
    }
    let ends_with_pending = matches!(command, NEGOTIATE | SESSION_SETUP | TREE_CONNECT);
    match is_answer {
        true if head.status == STATUS_PENDING && !ends_with_pending => smb.postpone(&head),
        true => answer(smb, &head, (bytes, body), said),
        false => request(smb, &head, (bytes, body), said),
    }
    Some(())
}

/// Bytes that a message names by place and length, from its beginning, as far as they are there.
fn named(bytes: &[u8], at: u32, length: u32) -> Option<&[u8]> {
    let at = at as usize;
    let rest = bytes.get(at..)?;
    Some(&rest[..rest.len().min(length as usize)])
}

/// The same, of which all must be there.
fn whole(bytes: &[u8], at: u32, length: u32) -> Option<&[u8]> {
    named(bytes, at, length).filter(|it| it.len() == length as usize)
}

fn file_identifier(body: &[u8], at: usize) -> Option<u128> {
    Some(u128::from_le_bytes(*body.get(at..)?.first_chunk()?))
}

/// A whole message, and what is behind its head.
type Parts<'a> = (&'a [u8], &'a [u8]);

fn request(smb: &mut Smb, head: &Head, parts: Parts<'_>, said: &mut Said) {
    if head.command == SESSION_SETUP && parts.1.len() < SETUP_LEN {
        return;
    }
    let mut unit = smb.unit();
    let asked = asked(smb, head, parts, &mut unit, said).unwrap_or_else(|| {
        // Suricata passes over what else it cannot read.
        if matches!(head.command, NEGOTIATE | TREE_CONNECT | CREATE | CLOSE | IOCTL) {
            unit.odd(AppEvent::SmbMalformed);
        }
        Default::default()
    });
    smb.request(head, unit, asked, said);
}

/// What a request tells and asks for, unless it is cut.
fn asked(
    smb: &mut Smb,
    head: &Head,
    (bytes, body): Parts<'_>,
    unit: &mut Unit,
    said: &mut Said,
) -> Option<(Object, Asked)> {
    let (mut told, mut asked) = (Object::default(), Asked::Other);
    match head.command {
        NEGOTIATE => {
            let count = usize::from(LITTLE.word(body, 2)?);
            body.get(36..36 + 2 * count)?;
            let dialects = (0..count.min(64)).filter_map(|it| LITTLE.word(body, 36 + 2 * it));
            told.put("client_dialects", dialects.map(dialect_name).collect::<Vec<_>>());
            told.put("client_guid", super::guid(body.get(12..)?.first_chunk()?));
        }
        SESSION_SETUP => {
            let token = whole(bytes, LITTLE.word(body, 12)?.into(), LITTLE.word(body, 14)?.into())?;
            session::describe(token, unit, &mut told);
        }
        TREE_CONNECT => {
            let name = named(bytes, LITTLE.word(body, 4)?.into(), LITTLE.word(body, 6)?.into())?;
            let name = wide(name);
            let buffer = super::share_buffer(name.to_ascii_uppercase().ends_with(b"\\IPC$"));
            unit.text(buffer, &name);
            asked = Asked::Tree(name);
        }
        CREATE => {
            let name = create(bytes, body, &mut told)?;
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
            let body = body.get(..READ_LEN)?;
            let file = file_identifier(body, 16)?;
            asked = Asked::Read(file, u64::from_le_bytes(*body.get(8..)?.first_chunk()?));
            if Smb::is_too_much(LITTLE.long(body, 4)?, smb.moved_max[0]) {
                smb.odd(AppEvent::SmbReadRequest, said);
                asked = Asked::TooMuch(file);
            }
        }
        WRITE => write(smb, head, (bytes, body), said)?,
        IOCTL => {
            let file = file_identifier(body, 8)?;
            let function = LITTLE.long(body, 4)?;
            let data = whole(bytes, LITTLE.long(body, 24)?, LITTLE.long(body, 28)?)?;
            asked = match function {
                PIPE_TRANSCEIVE if smb.transceive((0, file), data, head, said) => Asked::Pipe(file),
                PIPE_TRANSCEIVE => Asked::Transceive(file),
                _ => Asked::Other,
            };
            told.put("function", names::function_name(function));
        }
        SET_INFO => {
            if let Some(change) = change(smb, bytes, body) {
                (told, asked) = (change, Asked::Change);
            }
        }
        _ => {}
    }
    Some((told, asked))
}

/// What a request opens, and how; its name.
fn create(bytes: &[u8], body: &[u8], told: &mut Object) -> Option<Vec<u8>> {
    let name = wide(whole(bytes, LITTLE.word(body, 44)?.into(), LITTLE.word(body, 46)?.into())?);
    let options = LITTLE.long(body, 40)?;
    let shown = if name.is_empty() { "<share_root>".to_owned() } else { told_text(&name) };
    told.put(super::opened_as(&name, options), shown);
    told.put("disposition", disposition_name(LITTLE.long(body, 36)?));
    let deletes = options & 0x1000 != 0;
    told.put("access", if deletes { "delete on close" } else { "normal" });
    Some(name)
}

fn write(smb: &mut Smb, head: &Head, (bytes, body): Parts<'_>, said: &mut Said) -> Option<()> {
    let length = LITTLE.long(body, 4)?;
    let file = file_identifier(body, 16)?;
    let place = LITTLE.word(body, 2)?;
    let (data, place) = moved(smb, (bytes, file), (place, WRITTEN_AT), length, said)?;
    let at = u64::from_le_bytes(*body.get(8..)?.first_chunk()?);
    let lacks = data.len() < length as usize && !smb.is_cut;
    if lacks || Smb::is_too_much(length, smb.moved_max[1]) {
        smb.odd(AppEvent::SmbWriteSize, said);
        smb.stray(file, data, said);
    } else {
        move_bytes(smb, file, (at, data, length), place, head, said);
    }
    Some(())
}

/// The bytes that a message moves, and where in it they begin: as it says, for receivers look
/// there, but not within its head. Suricata looks where they should be; rules look at both.
fn moved<'a>(
    smb: &Smb,
    (bytes, file): (&'a [u8], u128),
    (said_at, at): (u16, u16),
    length: u32,
    said: &mut Said,
) -> Option<(&'a [u8], usize)> {
    let places = [said_at.max(at), said_at.min(at)];
    let [data, other] = places.map(|it| named(bytes, it.into(), length));
    let Some(data) = data else { return other.map(|it| (it, places[1].into())) };
    if let Some(other) = other.filter(|_| said_at != at) {
        smb.stray(file, other, said);
    }
    Some((data, places[0].into()))
}

/// What is read of a file, from a place on.
fn read(
    smb: &mut Smb,
    head: &Head,
    (file, at): (u128, u64),
    (bytes, body): Parts<'_>,
    said: &mut Said,
) -> Option<()> {
    let length = LITTLE.long(body, 4)?;
    let place = (*body.get(2)?).into();
    let (data, place) = moved(smb, (bytes, file), (place, READ_AT), length, said)?;
    let is_too_much = Smb::is_too_much(length, smb.moved_max[0]);
    if is_too_much {
        smb.odd(AppEvent::SmbReadSize, said);
    }
    if is_too_much || data.len() < length as usize && !smb.is_cut {
        smb.stray(file, data, said);
    } else {
        move_bytes(smb, file, (at, data, length), place, head, said);
    }
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

fn answer(smb: &mut Smb, head: &Head, parts: Parts<'_>, said: &mut Said) {
    let (mut unit, mut told) = (smb.unit(), Object::default());
    // What nobody asked for is no transaction.
    let request = match smb.answered(head) {
        None if head.command == NEGOTIATE => smb.upgraded(),
        request => request,
    };
    let request = request.unwrap_or_default();
    let read = match head.command {
        NEGOTIATE | SESSION_SETUP | TREE_CONNECT | CREATE => {
            described(smb, head, &request, parts, (&mut unit, &mut told), said)
        }
        _ => delivered(smb, head, &request.asked, parts, said),
    };
    match head.command {
        // Suricata goes on waiting for one that it can read.
        NEGOTIATE | TREE_CONNECT | CREATE if read.is_none() => {
            if request.is_told {
                smb.keep(request, said);
            }
            return;
        }
        IOCTL if read.is_none() => unit.odd(AppEvent::SmbMalformed),
        _ => {}
    }
    smb.answer(head, unit, (request, told), said);
}

/// What an answer tells, unless it is cut.
fn described(
    smb: &mut Smb,
    head: &Head,
    request: &Request,
    (bytes, body): Parts<'_>,
    (unit, told): (&mut Unit, &mut Object),
    said: &mut Said,
) -> Option<()> {
    let is_done = head.status == 0;
    match (head.command, &request.asked) {
        (NEGOTIATE, _) if is_done => negotiated(smb, body, unit, told)?,
        (NEGOTIATE, _) => told.put("server_guid", ""),
        (SESSION_SETUP, _) => {
            let place = (LITTLE.word(body, 4), LITTLE.word(body, 6));
            if let (Some(at), Some(length)) = place
                && let Some(token) = named(bytes, at.into(), length.into())
            {
                session::describe(token, &mut Unit::new(unit.protocol, 0), told);
            }
        }
        (TREE_CONNECT, Asked::Tree(name)) => {
            let kind = if is_done { *body.get(..TREE_LEN)?.get(2)? } else { 0 };
            share(name, kind == 2, unit, told);
            told.put("share_type", share_name(kind));
            if is_done {
                smb.connect(head.tree, name.clone(), kind == 2);
            }
        }
        (CREATE, Asked::File(name)) if is_done => {
            let eight = |at: usize| Some(u64::from_le_bytes(*body.get(at..)?.first_chunk()?));
            let size = eight(48)?;
            let file = file_identifier(body, 64)?;
            body.get(..CREATED_LEN)?;
            for (name, at) in [("created", 8), ("accessed", 16), ("modified", 24), ("changed", 32)]
            {
                // Suricata tells the lower half.
                let seconds = super::unix_seconds(eight(at)?);
                told.put(name, seconds & u64::from(u32::MAX));
            }
            told.put("size", size);
            told.put("fuid", super::guid(&file.to_le_bytes()));
            smb.open(file, name.clone(), head, said);
        }
        (CREATE, Asked::File(_)) => super::nothing_opened(told),
        _ => {}
    }
    Some(())
}

/// What an answer brings, unless it is cut.
fn delivered(
    smb: &mut Smb,
    head: &Head,
    asked: &Asked,
    (bytes, body): Parts<'_>,
    said: &mut Said,
) -> Option<()> {
    let is_done = head.status == 0;
    let has_data = is_done || head.status == BUFFER_OVERFLOW;
    match (head.command, asked) {
        (READ, Asked::Read(file, at)) if has_data => {
            read(smb, head, (*file, *at), (bytes, body), said)?;
        }
        (READ, Asked::TooMuch(file)) if has_data => {
            let data = named(bytes, (*body.get(2)?).into(), LITTLE.long(body, 4)?)?;
            smb.stray(*file, data, said);
        }
        // Its client has not waited for what it read.
        (CLOSE, Asked::Close(file)) if is_done => smb.close(*file, said),
        (IOCTL, Asked::Pipe(file)) if !has_data => smb.deny(*file, head, said),
        (IOCTL, asked) if has_data => {
            let place = (LITTLE.long(body, 32)?, LITTLE.long(body, 36)?);
            if let Asked::Pipe(file) | Asked::Transceive(file) = asked {
                let data = named(bytes, place.0, place.1)?;
                smb.transceive((1, *file), data, head, said);
            }
            whole(bytes, place.0, place.1)?;
        }
        _ => {}
    }
    Some(())
}

/// The dialect that a server chose, and what it lets a message move.
fn negotiated(smb: &mut Smb, body: &[u8], unit: &mut Unit, told: &mut Object) -> Option<()> {
    let [read, write] = [LITTLE.long(body, 32)?, LITTLE.long(body, 36)?];
    smb.dialect = LITTLE.word(body, 4).filter(|it| *it != 0).map(dialect_name);
    told.put("server_guid", super::guid(body.get(8..)?.first_chunk()?));
    smb.moved_max = [read, write].map(|it| Some(it).filter(|it| *it > 0));
    told.put_some("max_read_size", smb.moved_max[0]);
    told.put_some("max_write_size", smb.moved_max[1]);
    for (most, event) in [(read, AppEvent::SmbReadSizeMax), (write, AppEvent::SmbWriteSizeMax)] {
        if Smb::is_too_much(most, None) {
            unit.odd(event);
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

/// What SET_INFO (MS-SMB2 s2.2.39) changes of a file, where that is its name or that it goes.
fn change(smb: &Smb, bytes: &[u8], body: &[u8]) -> Option<Object> {
    let (kind, class) = (*body.get(2)?, *body.get(3)?);
    let data = named(bytes, LITTLE.word(body, 8)?.into(), LITTLE.long(body, 4)?)?;
    let file = file_identifier(body, 16)?;
    let known = smb.files.iter().find(|it| it.identifier == file).map(|it| it.name.as_slice());
    // Suricata knows what this record opens, but for another name.
    let related = smb.related.as_deref().filter(|_| file == RELATED && class == DISPOSITION);
    let name = known.or(related).map_or_else(|| "<unknown>".to_owned(), told_text);
    let mut told = Object::default();
    match (kind, class) {
        (OF_FILE, RENAME) => {
            let length = LITTLE.long(data, 16)? as usize;
            let new = wide(data.get(20..20_usize.checked_add(length)?)?);
            let what = Object::default()
                .with("class", "FILE_INFO")
                .with("info_level", "SMB2_FILE_RENAME_INFO");
            told.put("set_info", what);
            told.put("rename", Object::default().with("from", name).with("to", told_text(&new)));
        }
        (OF_FILE, DISPOSITION) => {
            let goes = *data.first()? == 1;
            told.put("filename", name);
            told.put("access", if goes { "delete on close" } else { "normal" });
        }
        _ => return None,
    }
    told.put("fuid", super::guid(&file.to_le_bytes()));
    Some(told)
}
