//! Messages of SMB 1 (MS-CIFS s2.2.4, MS-SMB s2.2.4).

use super::two::BUFFER_OVERFLOW;
use super::{Asked, Head, LITTLE, Smb, session, share, wide};
use crate::application::unit::{FileState, Said};
use crate::value::{Object, Value, text};

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
const NEGOTIATE: u8 = 0x72;
const SESSION_SETUP: u8 = 0x73;
const TREE_CONNECT: u8 = 0x75;
const CREATE: u8 = 0xa2;

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
}

fn request(smb: &mut Smb, head: &Head, body: &Body<'_>, said: &mut Said) -> Option<()> {
    let (mut unit, mut told, mut asked) = (smb.unit(), Object::default(), Asked::Other);
    let words = body.words;
    let file = |at: usize| LITTLE.word(words, at).map(u128::from);
    match u8::try_from(head.command).unwrap_or_default() {
        NEGOTIATE => {
            let dialects = body.bytes.split(|it| *it == 0);
            let dialects = dialects.filter_map(|it| it.strip_prefix(b"\x02")).take(64);
            smb.offered = dialects.map(<[u8]>::to_vec).collect();
            told.put("client_dialects", smb.offered.iter().collect::<Vec<_>>());
        }
        SESSION_SETUP => {
            let lengths = match words.len() {
                24 => LITTLE.word(words, 14).map(usize::from),
                26 => Some(
                    usize::from(LITTLE.word(words, 14)?) + usize::from(LITTLE.word(words, 16)?),
                ),
                _ => None,
            };
            let length = lengths.unwrap_or_default();
            session::describe(body.bytes.get(..length)?, &mut unit, &mut told);
            let mut at = length;
            if words.len() == 26 {
                // Account and domain stand before.
                at = body.text(body.text(at)?.1)?.1;
            }
            told.put("request", native(body, at)?);
        }
        TREE_CONNECT => {
            let length = usize::from(LITTLE.word(words, 6)?);
            let (name, end) = body.text(length)?;
            // Suricata's name of it lacks the first sign.
            let name = if body.is_wide { name.get(1..)?.to_vec() } else { name };
            let rest = body.bytes.get(end..).unwrap_or_default();
            let service = rest.split(|it| *it == 0).next().unwrap_or_default();
            // Clients ask for any service.
            let is_pipe = service == b"IPC" || name.to_ascii_uppercase().ends_with(b"\\IPC$");
            share(&name, is_pipe, &mut unit, &mut told);
            told.put("service", Object::default().with("request", service));
            asked = Asked::Tree(name);
        }
        CREATE => asked = Asked::File(create(body, &mut told)?),
        CLOSE => {
            close(smb, file(0)?, said);
            asked = Asked::Close(file(0)?);
        }
        READ => asked = Asked::Read(file(4)?, LITTLE.long(words, 6)?.into()),
        WRITE => {
            let length = moved(words, 20, 18)?;
            let data = body.named(LITTLE.word(words, 22)?, length)?;
            smb.content((0, file(4)?), (None, data, length.into()), head, said);
        }
        TRANSACTION if LITTLE.word(words, 28) == Some(TRANSACT_PIPE) => {
            let data = body.named(LITTLE.word(words, 24)?, LITTLE.word(words, 22)?.into())?;
            smb.content((0, file(30)?), (None, data, 0), head, said);
            asked = Asked::Pipe(file(30)?);
        }
        _ => {}
    }
    smb.request(head, unit, (told, asked), said);
    Some(())
}

/// A client closes a file. What it reads is told when that is answered; rules look at it now,
/// unless more of it is to come.
fn close(smb: &mut Smb, identifier: u128, said: &mut Said) {
    let is_awaited =
        smb.waiting.iter().any(|it| matches!(it.asked, Asked::Read(file, _) if file == identifier));
    let place = smb.files.iter().position(|it| it.identifier == identifier);
    let read = place.filter(|it| smb.files[*it].moved.is_some_and(|it| it.1 == 1));
    let Some(place) = read else { return smb.close(identifier, said) };
    smb.files[place].is_closing = true;
    if is_awaited || said.later.len() >= super::LATER_MAX {
        return;
    }
    let file = &mut smb.files[place];
    file.is_over = true;
    file.content.finish(said.wanted);
    let (size, digests) = (file.content.size, file.content.digests());
    let number = file.moved.map_or(0, |it| it.0);
    let mut unit = smb.file_unit(&smb.files[place], FileState::Closed, number, 1);
    unit.whole_file(size, digests);
    said.later.push(unit);
}

/// What a request opens, and how; its name.
fn create(body: &Body<'_>, told: &mut Object) -> Option<Vec<u8>> {
    let words = body.words;
    let name = body.text(0)?.0;
    let shown = if name.is_empty() { b"<share_root>".to_vec() } else { name.clone() };
    let options = LITTLE.long(words, 39)?;
    told.put(super::opened_as(options), text(&shown));
    let dispositions = ["SUPERSEDE", "OPEN", "CREATE", "OPEN_IF", "OVERWRITE", "OVERWRITE_IF"];
    let disposition = dispositions.get(LITTLE.long(words, 35)? as usize);
    told.put("disposition", format!("FILE_{}", disposition.unwrap_or(&"UNKNOWN")));
    let deletes = options & 0x1000 != 0;
    told.put("access", if deletes { "delete on close" } else { "normal" });
    Some(name)
}

fn answer(smb: &mut Smb, head: &Head, body: &Body<'_>, said: &mut Said) -> Option<()> {
    let (unit, mut told) = (smb.unit(), Object::default());
    let words = body.words;
    let command = u8::try_from(head.command).unwrap_or_default();
    if command == NEGOTIATE {
        let chosen = LITTLE.word(words, 0).and_then(|it| smb.offered.get(usize::from(it)));
        smb.dialect = chosen.map(|it| text(it));
        if words.len() == 34 {
            told.put_some("server_guid", body.bytes.first_chunk().map(super::guid));
        }
    }
    // What nobody asked for is no transaction.
    let mut request = smb.answered(head).unwrap_or_default();
    let is_done = head.status == 0;
    let has_data = is_done || head.status == BUFFER_OVERFLOW;
    match (command, std::mem::take(&mut request.asked)) {
        (SESSION_SETUP, _) if words.len() >= 6 => {
            let length = if words.len() >= 8 { usize::from(LITTLE.word(words, 6)?) } else { 0 };
            if let Some(native) = native(body, length) {
                told.put("response", native);
            }
        }
        (TREE_CONNECT, Asked::Tree(name)) if is_done => {
            let named = body.bytes.split(|it| *it == 0).next().unwrap_or_default();
            smb.connect(head.tree, name, named == b"IPC");
            if let Some(Value::Object(service)) = request.object.value("service") {
                let both = service.clone().with("response", named);
                request.object = without(&request.object, "service").with("service", both);
            }
        }
        (CREATE, Asked::File(_)) if !is_done => super::nothing_opened(&mut told),
        (CREATE, Asked::File(name)) if is_done => {
            let file = LITTLE.word(words, 5)?;
            let eight = |at: usize| Some(u64::from_le_bytes(*words.get(at..)?.first_chunk()?));
            for (name, at) in [("created", 11), ("accessed", 19), ("modified", 27), ("changed", 35)]
            {
                told.put(name, (eight(at)? / 10_000_000).saturating_sub(11_644_473_600));
            }
            told.put("size", eight(47)?);
            told.put("fuid", format!("{file:04x}"));
            smb.open(file.into(), name, head, said);
        }
        (CLOSE, Asked::Close(file)) => {
            let is_meant = |it: &super::File| it.identifier == file && it.is_closing;
            if smb.files.iter().any(is_meant) {
                smb.close(file, said);
            }
        }
        (READ, Asked::Read(file, _)) if has_data => {
            let length = moved(words, 10, 14)?;
            let data = body.named(LITTLE.word(words, 12)?, length)?;
            smb.content((1, file), (None, data, length.into()), head, said);
        }
        (TRANSACTION, Asked::Pipe(file)) if has_data => {
            let data = body.named(LITTLE.word(words, 14)?, LITTLE.word(words, 12)?.into())?;
            smb.content((1, file), (None, data, 0), head, said);
        }
        _ => {}
    }
    smb.answer(head, unit, (request, told), said);
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
    Some(Object::default().with("native_os", text(&system)).with("native_lm", text(&program)))
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
