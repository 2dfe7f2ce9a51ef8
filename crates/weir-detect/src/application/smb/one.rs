//! Messages of SMB 1 (MS-CIFS s2.2.4, MS-SMB s2.2.4).

use super::two::BUFFER_OVERFLOW;
use super::{Asked, Head, LITTLE, Request, Smb, session, share, told_text, wide};
use crate::application::unit::{FileState, Said, Unit};
use crate::buffers::event::AppEvent;
use crate::value::{Object, Value};

const HEAD_LEN: usize = 32;
/// Flags: an answer; and of the second word: names are in UTF-16.
const ANSWER: u8 = 0x80;
const UNICODE: u16 = 0x8000;
/// A call over a pipe.
const TRANSACT_PIPE: u16 = 0x26;

const CLOSE: u8 = 0x04;
const TRANSACTION: u8 = 0x25;
const READ: u8 = 0x2e;
const WRITE: u8 = 0x2f;
const TRANSACTION_2: u8 = 0x32;
pub(super) const NEGOTIATE: u8 = 0x72;
const SESSION_SETUP: u8 = 0x73;
const TREE_CONNECT: u8 = 0x75;
const CREATE: u8 = 0xa2;
/// Subcommands that change a path, and a file; their levels of a name, and of an end.
const SET_PATH: u16 = 6;
const SET_FILE: u16 = 8;
const RENAME: u16 = 1010;
const DISPOSITION: u16 = 1013;
/// Bytes of words of the shortest answer that chooses a dialect.
const NEGOTIATED_LEN: usize = 26;

/// Words and bytes of a message.
struct Body<'a> {
    message: &'a [u8],
    words: &'a [u8],
    bytes: &'a [u8],
    /// Where those begin in the message.
    bytes_at: usize,
    is_wide: bool,
}

impl<'a> Body<'a> {
    fn of(message: &'a [u8], is_wide: bool) -> Option<Self> {
        let count = 2 * usize::from(*message.get(HEAD_LEN)?);
        let words = message.get(HEAD_LEN + 1..HEAD_LEN + 1 + count)?;
        let bytes_at = HEAD_LEN + 3 + count;
        let bytes = message.get(bytes_at..).unwrap_or_default();
        Some(Self { message, words, bytes, bytes_at, is_wide })
    }

    /// The text at a place of the bytes, up to its end, and where it ends.
    fn text(&self, at: usize) -> Option<(Vec<u8>, usize)> {
        if !self.is_wide {
            let rest = self.bytes.get(at..)?;
            let length = rest.iter().position(|it| *it == 0).unwrap_or(rest.len());
            return Some((rest[..length].to_vec(), at + length + 1));
        }
        // At an even place of the message.
        let at = at + (self.bytes_at + at) % 2;
        let rest = self.bytes.get(at..)?;
        let length = rest.chunks_exact(2).position(|it| it == [0, 0]);
        let length = length.map_or(rest.len() & !1, |it| 2 * it);
        Some((wide(&rest[..length]), at + length + 2))
    }

    fn named(&self, at: u16, length: u32) -> Option<&'a [u8]> {
        let rest = self.message.get(usize::from(at)..)?;
        Some(&rest[..rest.len().min(length as usize)])
    }
}

pub(super) fn message(smb: &mut Smb, side: usize, bytes: &[u8], said: &mut Said) -> Option<()> {
    let command = *bytes.get(4)?;
    let (flags, more) = (*bytes.get(9)?, LITTLE.word(bytes, 10)?);
    let (tree, user, multiplex) =
        (LITTLE.word(bytes, 24)?, LITTLE.word(bytes, 28)?, LITTLE.word(bytes, 30)?);
    let process = LITTLE.word(bytes, 26)?;
    let head = Head {
        key: u64::from(multiplex) | u64::from(process) << 16,
        command: command.into(),
        command_name: command_name(command),
        status: LITTLE.long(bytes, 5)?,
        session: user.into(),
        tree: tree.into(),
        version: 1,
    };
    if (flags & ANSWER != 0) != (side == 1) {
        smb.odd(super::ASTRAY[side], said);
        return Some(());
    }
    let body = Body::of(bytes, more & UNICODE != 0)?;
    match side {
        0 => request(smb, &head, &body, said),
        _ => answer(smb, &head, &body, said),
    }
    Some(())
}

fn request(smb: &mut Smb, head: &Head, body: &Body<'_>, said: &mut Said) {
    let mut unit = smb.unit();
    let asked = asked(smb, head, body, &mut unit, said).unwrap_or_else(|| {
        if head.command != SESSION_SETUP.into() {
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
    body: &Body<'_>,
    unit: &mut Unit,
    said: &mut Said,
) -> Option<(Object, Asked)> {
    let (mut told, mut asked) = (Object::default(), Asked::Other);
    let words = body.words;
    let file = |at: usize| LITTLE.word(words, at).map(u128::from);
    match u8::try_from(head.command).unwrap_or_default() {
        NEGOTIATE => {
            smb.offered.clear();
            let dialects = body.bytes.strip_suffix(b"\0")?.split(|it| *it == 0).take(64);
            smb.offered = dialects.map(|it| it.get(1..).unwrap_or_default().to_vec()).collect();
            if smb.offered.iter().any(Vec::is_empty) {
                unit.odd(AppEvent::SmbDialects);
            }
            told.put("client_dialects", smb.offered.iter().collect::<Vec<_>>());
        }
        SESSION_SETUP => log_in(body, unit, &mut told)?,
        TREE_CONNECT => {
            let length = usize::from(LITTLE.word(words, 6)?);
            let (name, end) = body.text(length)?;
            // Suricata's name of it lacks the first sign.
            let name = name.get(1..).unwrap_or_default().to_vec();
            let rest = body.bytes.get(end..).unwrap_or_default();
            let service = rest.split(|it| *it == 0).next().unwrap_or_default();
            // Clients ask for any service.
            let is_pipe = service == b"IPC" || name.to_ascii_uppercase().ends_with(b"\\IPC$");
            unit.text(super::share_buffer(is_pipe), &name);
            told.put("service", Object::default().with("request", service));
            asked = Asked::Tree(name);
        }
        CREATE => asked = Asked::File(create(body, &mut told)?),
        CLOSE => {
            close(smb, file(0)?, said);
            asked = Asked::Close(file(0)?);
        }
        READ => asked = Asked::Read(file(4)?, place(words, 20)?),
        WRITE => {
            let length = moved(words, 20, 18)?;
            let data = body.named(LITTLE.word(words, 22)?, length)?;
            if data.len() < length as usize && !smb.is_cut {
                smb.stray(file(4)?, data, said);
            } else {
                let piece = (Some(place(words, 24)?), data, length.into());
                smb.content((0, file(4)?), piece, head, said);
            }
        }
        TRANSACTION_2 => {
            if let Some(change) = change(smb, body) {
                (told, asked) = (change, Asked::Change);
            }
        }
        TRANSACTION if LITTLE.word(words, 28) == Some(TRANSACT_PIPE) => {
            let data = body.named(LITTLE.word(words, 24)?, LITTLE.word(words, 22)?.into())?;
            smb.transceive((0, file(30)?), data, head, said);
            asked = Asked::Pipe(file(30)?);
        }
        _ => {}
    }
    Some((told, asked))
}

/// Who logs in, and what runs there.
fn log_in(body: &Body<'_>, unit: &mut Unit, told: &mut Object) -> Option<()> {
    let words = body.words;
    let lengths = match words.len() {
        24 => LITTLE.word(words, 14).map(usize::from),
        26 => Some(usize::from(LITTLE.word(words, 14)?) + usize::from(LITTLE.word(words, 16)?)),
        _ => None,
    };
    let length = lengths.unwrap_or_default();
    session::describe(body.bytes.get(..length)?, unit, told);
    let mut at = length;
    if words.len() == 26 {
        // Account and domain stand before.
        at = body.text(body.text(at)?.1)?.1;
    }
    told.put("request", native(body, at)?);
    Some(())
}

/// Where in a file bytes are read or written; the upper half stands at `high`, if it is there.
fn place(words: &[u8], high: usize) -> Option<u64> {
    let low = u64::from(LITTLE.long(words, 6)?);
    Some(u64::from(LITTLE.long(words, high).unwrap_or_default()) << 32 | low)
}

/// What SET_PATH_INFORMATION and SET_FILE_INFORMATION (MS-CIFS s2.2.6.7 and 9, MS-SMB s2.2.2.3.5)
/// change, where that is a file's name or that it goes.
fn change(smb: &Smb, body: &Body<'_>) -> Option<Object> {
    let words = body.words;
    let part = |count: usize, at: usize| {
        body.named(LITTLE.word(words, at)?, LITTLE.word(words, count)?.into())
    };
    let (asked, data) = (part(18, 20)?, part(22, 24)?);
    let (command, level, name, file) = match LITTLE.word(words, 28)? {
        SET_PATH => ("SET_PATH_INFO", LITTLE.word(asked, 0)?, asked.get(6..)?, None),
        SET_FILE => ("SET_FILE_INFO", LITTLE.word(asked, 2)?, &[][..], LITTLE.word(asked, 0)),
        _ => return None,
    };
    let known = smb.files.iter().find(|it| file.map(u128::from) == Some(it.identifier));
    let name = match file {
        None => told_text(&wide(name)),
        Some(_) => known.map_or_else(|| "<unknown>".to_owned(), |it| told_text(&it.name)),
    };
    let mut told = Object::default();
    match level {
        RENAME => {
            let length = LITTLE.long(data, 8)? as usize;
            let new = wide(data.get(12..12_usize.checked_add(length)?)?);
            told.put("rename", Object::default().with("from", name).with("to", told_text(&new)));
        }
        DISPOSITION => {
            let goes = *data.first()? == 1;
            told.put("filename", name);
            told.put("access", if goes { "delete on close" } else { "normal" });
            told.put("subcmd", command);
            told.put("level_of_interest", "Set Disposition Information");
        }
        _ => return None,
    }
    told.put("fuid", file.map_or_else(String::new, |it| format!("{it:04x}")));
    Some(told)
}

/// A client closes a file. What it reads is told when that is answered; rules look at it now,
/// unless more of it is to come.
fn close(smb: &mut Smb, identifier: u128, said: &mut Said) {
    let is_awaited =
        smb.waiting.iter().any(|it| matches!(it.asked, Asked::Read(file, _) if file == identifier));
    let is_read = |it: &super::File| it.identifier == identifier && it.moved[1].is_some();
    let Some(place) = smb.files.iter().position(is_read) else {
        return smb.close(identifier, said);
    };
    let mut file = smb.files.remove(place);
    file.is_closing = true;
    smb.finish(&mut file, 0, said);
    smb.tell_file(&file, 0, FileState::Closed, said);
    file.moved[0] = None;
    if !is_awaited {
        smb.finish(&mut file, 1, said);
    }
    smb.files.insert(place, file);
}

/// What a request opens, and how; its name.
fn create(body: &Body<'_>, told: &mut Object) -> Option<Vec<u8>> {
    let words = body.words;
    let name = body.text(0)?.0;
    let shown = if name.is_empty() { b"<share_root>".to_vec() } else { name.clone() };
    let options = LITTLE.long(words, 39)?;
    told.put(super::opened_as(&name, options), told_text(&shown));
    let dispositions = ["SUPERSEDE", "OPEN", "CREATE", "OPEN_IF", "OVERWRITE", "OVERWRITE_IF"];
    let disposition = dispositions.get(LITTLE.long(words, 35)? as usize);
    let disposition = disposition.map_or_else(|| "UNKNOWN".to_owned(), |it| format!("FILE_{it}"));
    told.put("disposition", disposition);
    let deletes = options & 0x1000 != 0;
    told.put("access", if deletes { "delete on close" } else { "normal" });
    Some(name)
}

fn answer(smb: &mut Smb, head: &Head, body: &Body<'_>, said: &mut Said) {
    let (mut unit, mut told) = (smb.unit(), Object::default());
    // What nobody asked for is no transaction.
    let mut request = smb.answered(head).unwrap_or_default();
    let asked = request.asked.clone();
    let read = match u8::try_from(head.command).unwrap_or_default() {
        NEGOTIATE => negotiated(smb, head, body, &request, (&mut unit, &mut told)),
        READ | TRANSACTION | CLOSE => delivered(smb, head, body, &asked, said),
        _ => described(smb, head, body, (&mut request, &asked), (&mut unit, &mut told), said),
    };
    // Suricata goes on waiting for an answer that it can read.
    let goes_on = [NEGOTIATE, TREE_CONNECT].contains(&(head.command as u8));
    if read.is_none() && request.is_told && goes_on {
        return smb.keep(request, said);
    }
    smb.answer(head, unit, (request, told), said);
}

/// The dialect that a server chose of those that it was offered.
fn negotiated(
    smb: &mut Smb,
    head: &Head,
    body: &Body<'_>,
    request: &Request,
    (unit, told): (&mut Unit, &mut Object),
) -> Option<()> {
    let words = body.words;
    if head.status != 0 {
        told.put("server_guid", "");
        return Some(());
    }
    let chosen = smb.offered.get(usize::from(LITTLE.word(words, 0)?));
    smb.dialect = chosen.map(|it| told_text(it));
    // What was offered could not be read.
    if request.object.value("client_dialects").is_none() {
        return Some(());
    }
    if smb.dialect.is_none() {
        unit.odd(AppEvent::SmbDialects);
    }
    if words.len() == 34 {
        told.put_some("server_guid", body.bytes.first_chunk().map(super::guid));
    }
    (words.len() >= NEGOTIATED_LEN).then_some(())
}

/// What an answer tells, unless it is cut.
fn described(
    smb: &mut Smb,
    head: &Head,
    body: &Body<'_>,
    (request, asked): (&mut Request, &Asked),
    (unit, told): (&mut Unit, &mut Object),
    said: &mut Said,
) -> Option<()> {
    let words = body.words;
    let is_done = head.status == 0;
    match (u8::try_from(head.command).unwrap_or_default(), asked) {
        (SESSION_SETUP, _) => {
            let length = if words.len() >= 8 { usize::from(LITTLE.word(words, 6)?) } else { 0 };
            let none = || Object::default().with("native_os", "").with("native_lm", "");
            told.put("response", native(body, length).unwrap_or_else(none));
        }
        (TREE_CONNECT, Asked::Tree(name)) if is_done => {
            let named = body.bytes.split(|it| *it == 0).next().unwrap_or_default();
            share(name, named == b"IPC", unit, told);
            smb.connect(head.tree, name.clone(), named == b"IPC");
            if let Some(Value::Object(service)) = request.object.value("service") {
                let both = service.clone().with("response", named);
                request.object = without(&request.object, "service").with("service", both);
            }
        }
        (TREE_CONNECT, Asked::Tree(_)) if body.bytes.is_empty() => return None,
        (TREE_CONNECT, Asked::Tree(name)) => share(name, false, unit, told),
        (CREATE, Asked::File(_)) if !is_done => super::nothing_opened(told),
        (CREATE, Asked::File(name)) => {
            let file = LITTLE.word(words, 5)?;
            let eight = |at: usize| Some(u64::from_le_bytes(*words.get(at..)?.first_chunk()?));
            for (name, at) in [("created", 11), ("accessed", 19), ("modified", 27), ("changed", 35)]
            {
                told.put(name, super::unix_seconds(eight(at)?));
            }
            told.put("size", eight(47)?);
            told.put("fuid", format!("{file:04x}"));
            smb.open(file.into(), name.clone(), head, said);
        }
        _ => {}
    }
    Some(())
}

/// What an answer brings, unless it is cut.
fn delivered(
    smb: &mut Smb,
    head: &Head,
    body: &Body<'_>,
    asked: &Asked,
    said: &mut Said,
) -> Option<()> {
    let words = body.words;
    let has_data = head.status == 0 || head.status == BUFFER_OVERFLOW;
    match (u8::try_from(head.command).unwrap_or_default(), asked) {
        (CLOSE, Asked::Close(file)) => {
            let is_meant = |it: &super::File| it.identifier == *file && it.is_closing;
            if smb.files.iter().any(is_meant) {
                smb.close(*file, said);
            }
        }
        (READ, Asked::Read(file, at)) if has_data => {
            let length = moved(words, 10, 14)?;
            let data = body.named(LITTLE.word(words, 12)?, length)?;
            // More of a pipe waits; a file has no more than was asked for.
            let is_partial = head.status != 0 && !smb.is_pipe(*file);
            if is_partial || data.len() < length as usize && !smb.is_cut {
                smb.stray(*file, data, said);
            } else {
                smb.content((1, *file), (Some(*at), data, length.into()), head, said);
            }
        }
        (TRANSACTION, Asked::Pipe(file)) if has_data => {
            let data = body.named(LITTLE.word(words, 14)?, LITTLE.word(words, 12)?.into())?;
            smb.transceive((1, *file), data, head, said);
        }
        (TRANSACTION, Asked::Pipe(file)) => smb.deny(*file, head, said),
        _ => {}
    }
    Some(())
}

/// The length of what is read or written; its upper half stands apart (MS-SMB s2.2.4.2 and 3).
fn moved(words: &[u8], low: usize, high: usize) -> Option<u32> {
    Some(u32::from(LITTLE.word(words, high)?) << 16 | u32::from(LITTLE.word(words, low)?))
}

fn without(object: &Object, name: &str) -> Object {
    let mut rest = Object::default();
    let others = object.iter().filter(|it| it.0 != name);
    others.for_each(|(name, value)| rest.put(name.to_owned(), value.clone()));
    rest
}

/// The system and the server's or client's program that a side runs.
fn native(body: &Body<'_>, at: usize) -> Option<Object> {
    let (system, end) = body.text(at)?;
    let program = body.text(end).map(|it| it.0).unwrap_or_default();
    Some(
        Object::default()
            .with("native_os", told_text(&system))
            .with("native_lm", told_text(&program)),
    )
}

/// As EVE spells them.
fn command_name(command: u8) -> String {
    let name = match command {
        0x00 => "CREATE_DIRECTORY",
        0x01 => "DELETE_DIRECTORY",
        0x02 => "OPEN",
        0x03 => "CREATE",
        0x04 => "CLOSE",
        0x05 => "FLUSH",
        0x06 => "DELETE",
        0x07 => "RENAME",
        0x08 => "QUERY_INFORMATION",
        0x09 => "SET_INFORMATION",
        0x0a => "READ",
        0x0b => "WRITE",
        0x0c => "LOCK_BYTE_RANGE",
        0x0d => "UNLOCK_BYTE_RANGE",
        0x0e => "CREATE_TEMPORARY",
        0x0f => "CREATE_NEW",
        0x10 => "CHECK_DIRECTORY",
        0x11 => "PROCESS_EXIT",
        0x12 => "SEEK",
        0x13 => "LOCK_AND_READ",
        0x14 => "WRITE_AND_UNLOCK",
        0x24 => "LOCKING_ANDX",
        0x25 => "TRANS",
        0x2b => "ECHO",
        0x2c => "WRITE_AND_CLOSE",
        0x2d => "OPEN_ANDX",
        0x2e => "READ_ANDX",
        0x2f => "WRITE_ANDX",
        0x32 => "TRANS2",
        0x33 => "TRANS2_SECONDARY",
        0x34 => "FIND_CLOSE2",
        0x71 => "TREE_DISCONNECT",
        0x72 => "NEGOTIATE_PROTOCOL",
        0x73 => "SESSION_SETUP_ANDX",
        0x74 => "LOGOFF_ANDX",
        0x75 => "TREE_CONNECT_ANDX",
        0x80 => "QUERY_INFO_DISK",
        0xa0 => "NT_TRANS",
        0xa1 => "NT_TRANS_SECONDARY",
        0xa2 => "NT_CREATE_ANDX",
        0xa4 => "NT_CANCEL",
        other => return other.to_string(),
    };
    format!("SMB1_COMMAND_{name}")
}
