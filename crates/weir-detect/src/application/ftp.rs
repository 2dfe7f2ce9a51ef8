//! FTP (RFC 959, 2428): commands and their replies, and the connections for data that they
//! announce.

use std::collections::VecDeque;

use super::file::Content;
use super::unit::{Announced, FileState, FileTold, Record, Said, Unit};
use super::{Line, Lines, Parser, Unanswered};
use crate::buffers::event::AppEvent;
use crate::heap::heap_size;
use crate::rule::{Buffer, Field, Protocol};
use crate::value::{Object, Value};

/// Bytes of a line that are kept, at most.
const LINE_LEN_MAX: usize = 4096;
/// Commands that wait for their reply, and lines of a reply, at most.
const WAITING_MAX: usize = 64;
const REPLIES_MAX: usize = 128;

/// Commands of a file that they name.
const OF_FILES: [&[u8]; 3] = [b"RETR", b"STOR", b"APPE"];
/// Others whose data come by a connection of their own.
const MOVING: [&[u8]; 4] = [b"STOU", b"LIST", b"NLST", b"MLSD"];
/// A line with one of the former names a file if it is so long.
const NAMING_LEN: usize = 6;
/// Commands that Suricata 8.0.7 finds wherever they stand in a line.
const KNOWN: [&[u8]; 48] = [
    b"PORT", b"EPRT", b"PASV", b"EPSV", b"RETR", b"STOR", b"ABOR", b"ACCT", b"ALLO", b"APPE",
    b"CDUP", b"CHMOD", b"CWD", b"DELE", b"HELP", b"IDLE", b"LIST", b"MAIL", b"MDTM", b"MKD",
    b"MLFL", b"MLSD", b"MODE", b"MRCP", b"MRSQ", b"MSAM", b"MSND", b"MSOM", b"NLST", b"NOOP",
    b"PASS", b"PWD", b"QUIT", b"REIN", b"REST", b"RMD", b"RNFR", b"RNTO", b"SITE", b"SIZE",
    b"SMNT", b"STAT", b"STOU", b"STRU", b"SYST", b"TYPE", b"UMASK", b"USER",
];
/// In so many bytes of a line a command is looked for.
const COMMAND_WITHIN: usize = 256;

/// A command and its reply.
#[derive(Debug, Default)]
struct Exchange {
    number: u64,
    command: Vec<u8>,
    data: Vec<u8>,
    codes: Vec<Vec<u8>>,
    replies: Vec<Vec<u8>>,
    is_command_cut: bool,
    is_cut: bool,
    /// Port of the connection for data, and whether the server opens it.
    port: Option<(u16, bool)>,
    events: Vec<AppEvent>,
}
heap_size!(Exchange { command, data, codes, replies });

/// A control connection.
#[derive(Debug)]
pub(crate) struct Ftp {
    lines: [Lines; 2],
    waiting: VecDeque<Exchange>,
    count: u64,
    /// The connection for data that was agreed on last.
    agreed: Option<Announced>,
    unanswered: Unanswered,
    is_flooded: bool,
    is_over: bool,
}
heap_size!(Ftp { lines, waiting });

impl Default for Ftp {
    fn default() -> Self {
        Self {
            lines: [Lines::new(LINE_LEN_MAX), Lines::new(LINE_LEN_MAX)],
            waiting: VecDeque::new(),
            count: 0,
            agreed: None,
            unanswered: Unanswered::default(),
            is_flooded: false,
            is_over: false,
        }
    }
}

impl Parser for Ftp {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        let mut rest = bytes;
        while !self.is_over {
            let Some(line) = self.lines[side].next(&mut rest) else { break };
            match side {
                0 => self.command(&line, said),
                _ => self.reply(&line, said),
            }
        }
    }

    fn end(&mut self, said: &mut Said) {
        let waiting = std::mem::take(&mut self.waiting);
        said.records.extend(waiting.iter().map(Exchange::record));
    }

    fn becomes_tls(&self) -> bool {
        self.is_over
    }
}

impl Ftp {
    fn begin(&mut self) -> Exchange {
        self.count += 1;
        Exchange { number: self.count - 1, ..Exchange::default() }
    }

    fn command(&mut self, line: &Line, said: &mut Said) {
        let mut exchange = self.begin();
        let text = line.bytes.trim_ascii_start();
        (exchange.command, exchange.data) = command_of(text);
        exchange.is_command_cut = line.is_cut;
        if line.is_cut {
            exchange.events.push(AppEvent::FtpRequestLength);
        }
        let address = match exchange.command.as_slice() {
            b"PORT" => numbers(exchange.data.trim_ascii()).map(|it| (it.0, it.1)),
            b"EPRT" => extended(exchange.data.trim_ascii()).map(|it| (None, it)),
            _ => None,
        };
        if let Some((_, port)) = address {
            exchange.port = Some((port, true));
            self.agreed = Some(announced(true, port));
        }
        let is_of_file = OF_FILES.contains(&exchange.command.as_slice());
        if is_of_file && line.bytes.trim_ascii_end().len() < NAMING_LEN {
            exchange.events.push(AppEvent::FtpNoName);
        } else if is_of_file || MOVING.contains(&exchange.command.as_slice()) {
            // What stands within another word, a server takes for nothing, and the port stays.
            let word = text.split(u8::is_ascii_whitespace).next().unwrap_or_default();
            let is_word = word.eq_ignore_ascii_case(&exchange.command);
            let agreed = if is_word { self.agreed.take() } else { self.agreed.clone() };
            match agreed {
                Some(agreed) => said.announced.push(Announced {
                    command: exchange.command.clone(),
                    file: exchange.data.trim_ascii().to_vec(),
                    ..agreed
                }),
                None => exchange.events.push(AppEvent::FtpNoPort),
            }
        }
        let mut unit = exchange.unit();
        if let Some((Some(named), _)) = address {
            let [.., a, b, c, d] = named;
            unit.number(Field::FtpBounce, u32::from_be_bytes([a, b, c, d]));
        }
        said.units.push(unit);
        let is_many = self.unanswered.make_room(&mut self.waiting, WAITING_MAX);
        if is_many && !std::mem::replace(&mut self.is_flooded, true) {
            let mut unit = Unit::new(Protocol::Ftp, exchange.number);
            unit.odd(AppEvent::FtpMany);
            said.units.push(unit);
        }
        self.waiting.push_back(exchange);
    }

    fn reply(&mut self, line: &Line, said: &mut Said) {
        if self.waiting.is_empty() {
            let greeting = self.begin();
            self.waiting.push_back(greeting);
        }
        let Some(exchange) = self.waiting.front_mut() else { return };
        let bytes = &line.bytes;
        let has_code = bytes.len() >= 3 && bytes[..3].iter().all(u8::is_ascii_digit);
        // Lines that others follow are told whole.
        let is_last = has_code && bytes.get(3) != Some(&b'-');
        let (code, text) = match is_last {
            true => (&bytes[..3], bytes.get(4..).unwrap_or_default()),
            false => (&bytes[..0], bytes.as_slice()),
        };
        if exchange.replies.len() < REPLIES_MAX {
            if is_last {
                exchange.codes.push(code.to_vec());
            }
            exchange.replies.push(text.to_vec());
        }
        exchange.is_cut |= line.is_cut;
        if line.is_cut && !exchange.events.contains(&AppEvent::FtpReplyLength) {
            exchange.events.push(AppEvent::FtpReplyLength);
        }
        if !is_last {
            return;
        }
        let passive = match (exchange.command.as_slice(), code) {
            (b"PASV", b"227") => bracketed(text).and_then(numbers).map(|it| it.1),
            (b"EPSV", b"229") => bracketed(text).and_then(extended),
            _ => None,
        };
        if let Some(port) = passive {
            exchange.port = Some((port, false));
            self.agreed = Some(announced(false, port));
        }
        let unit = exchange.unit();
        if exchange.port.is_some() {
            said.later.push(unit.clone());
        }
        said.units.push(unit);
        // A transfer begins: the reply when it has ended is the command's.
        if code.starts_with(b"1") {
            return;
        }
        self.is_over = exchange.command == b"AUTH" && code == b"234";
        said.records.push(exchange.record());
        self.waiting.pop_front();
    }
}

/// The command of a line, in upper case, and what stands behind it: the first that is known, or the
/// first word.
fn command_of(line: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let known = (0..line.len().min(COMMAND_WITHIN)).find_map(|at| {
        let is_here = |it: &&&[u8]| {
            line[at..].get(..it.len()).is_some_and(|word| word.eq_ignore_ascii_case(it))
        };
        KNOWN.iter().find(is_here)
    });
    let word = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let command = known.map_or(&line[..word], |it| it);
    // One blank ends the command: what more of them stand there are of what it is about.
    let data = line.get(command.len() + 1..).unwrap_or_default().trim_ascii_end();
    (command.to_ascii_uppercase(), data.to_vec())
}

impl Exchange {
    fn unit(&self) -> Unit {
        let mut unit = Unit::new(Protocol::Ftp, self.number);
        if !self.command.is_empty() {
            unit.text(Buffer::FtpCommand, &self.command);
            if !self.data.is_empty() {
                // As Suricata has it: with a zero behind.
                unit.text(Buffer::FtpCommandData, &[self.data.as_slice(), b"\0"].concat());
            }
        }
        // What the server says unasked is no reply; and numbers are told with replies.
        if !self.command.is_empty() && !self.replies.is_empty() {
            self.replies.iter().for_each(|it| unit.text(Buffer::FtpReply, it));
            self.codes.iter().for_each(|it| unit.text(Buffer::FtpCode, it));
            // One that others follow (`150`) does not count as received.
            let is_replied = self.codes.last().is_some_and(|it| !it.starts_with(b"1"));
            unit.number(Field::FtpReplied, i64::from(is_replied));
            if let Some((port, is_active)) = self.port {
                unit.number(Field::FtpPort, port);
                unit.number(Field::FtpMode, if is_active { 1 } else { 2 });
            }
        }
        self.events.iter().for_each(|it| unit.odd(*it));
        unit.tells("ftp", self.object());
        unit
    }

    fn object(&self) -> Object {
        let mut object = Object::default();
        // Of others, as `AUTH`, the reply alone is told.
        if KNOWN.contains(&self.command.as_slice()) {
            object.put("command", &self.command);
            if !self.data.is_empty() {
                object.put("command_data", &self.data);
                object.put("command_truncated", self.is_command_cut);
            }
        }
        if !self.codes.is_empty() {
            object.put("completion_code", list(&self.codes));
        }
        if !self.replies.is_empty() {
            object.put("reply", list(&self.replies));
        }
        if let Some((port, is_active)) = self.port {
            object.put("dynamic_port", port);
            object.put("mode", if is_active { "active" } else { "passive" });
        }
        object.put("reply_received", if self.replies.is_empty() { "no" } else { "yes" });
        object.put("reply_truncated", self.is_cut);
        object
    }

    fn record(&self) -> Record {
        Record::new("ftp", self.number, self.object())
    }
}

fn list(texts: &[Vec<u8>]) -> Value {
    texts.iter().collect::<Vec<_>>().into()
}

fn announced(is_active: bool, port: u16) -> Announced {
    Announced { is_active, port, command: Vec::new(), file: Vec::new() }
}

/// `192,0,2,1,4,1`: an address, mapped, and a port.
fn numbers(text: &[u8]) -> Option<(Option<[u8; 16]>, u16)> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let bytes: Vec<u8> = text.split(',').map_while(|it| it.trim().parse().ok()).collect();
    let [a, b, c, d, high, low] = bytes[..] else { return None };
    let address = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d];
    Some((Some(address), u16::from_be_bytes([high, low])))
}

/// The port in `|1|192.0.2.1|1025|`.
fn extended(text: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let mark = text.chars().next()?;
    text.split(mark).nth(3)?.parse().ok()
}

/// What stands in brackets.
fn bracketed(text: &[u8]) -> Option<&[u8]> {
    let from = text.iter().position(|it| *it == b'(')? + 1;
    let length = text[from..].iter().position(|it| *it == b')')?;
    Some(&text[from..from + length])
}

/// How much more of a file is worth another look.
const FILE_STEP: usize = 16 * 1024;

/// A connection for data.
#[derive(Debug)]
pub(crate) struct Data {
    announced: Announced,
    file: Content,
    looked_at: usize,
    side: usize,
}
heap_size!(Data { file });

impl Data {
    pub(crate) fn new(announced: Announced) -> Self {
        Self { announced, file: Content::default(), looked_at: 0, side: 0 }
    }

    /// Whether it is no list of files.
    fn is_file(&self) -> bool {
        !matches!(self.announced.command.as_slice(), b"LIST" | b"NLST" | b"MLSD")
    }

    fn command(&self) -> i64 {
        if self.announced.command == b"RETR" { 1 } else { 2 }
    }

    /// What the rules look at of a file that has come so far.
    fn unit(&self, state: FileState) -> Unit {
        let mut unit = Unit::new(Protocol::FtpData, 0);
        unit.text(Buffer::FileName, &self.announced.file);
        unit.text(Buffer::FileData, &self.file.bytes);
        unit.number(Field::FtpDataCommand, self.command());
        unit.tells("ftp_data", self.object());
        let told = self.told();
        unit.files.push(told.object(state, 0));
        if state == FileState::Closed {
            unit.whole_file(told.size, told.digests);
        }
        unit
    }

    fn told(&self) -> FileTold<'_> {
        let (size, digests) = (self.file.size, self.file.digests());
        FileTold { name: Some(&self.announced.file), size, digests, side: self.side, range: None }
    }

    fn object(&self) -> Object {
        let file = Object::default().with("filename", &self.announced.file);
        file.with("command", &self.announced.command)
    }
}

impl Parser for Data {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        self.side = side;
        if !self.is_file() {
            return;
        }
        self.file.add(bytes, said.wanted);
        let Content { bytes: kept, size, .. } = &self.file;
        // Little of it is looked at as it comes: it may be all.
        let step = if said.is_inline { 1 } else { FILE_STEP };
        let is_worth = kept.len() >= self.looked_at + step || *size < FILE_STEP as u64;
        if bytes.is_empty() || !is_worth {
            return;
        }
        if self.looked_at == 0 {
            // The command is of both sides, whichever opened the connection.
            let mut command = Unit::new(Protocol::FtpData, 0);
            command.number(Field::FtpDataCommand, self.command());
            command.tells("ftp_data", self.object());
            said.later.push(command);
        }
        self.looked_at = self.file.bytes.len();
        said.units.push(self.unit(FileState::Open));
    }

    fn close(&mut self, side: usize, said: &mut Said) {
        if side == self.side && self.file.size > 0 {
            said.units.push(self.unit(FileState::Closed));
        }
    }

    fn end(&mut self, said: &mut Said) {
        said.records.push(Record::new("ftp_data", 0, self.object()));
        if self.is_file() {
            said.records.push(Record::file(0, vec![("ftp_data", self.object())], &self.told()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(lines: &[(usize, &str)]) -> Said {
        let (mut ftp, mut said) = (Ftp::default(), Said::default());
        lines.iter().for_each(|(side, text)| ftp.take(*side, text.as_bytes(), &mut said));
        said
    }

    #[test]
    fn commands_are_told_with_their_replies() {
        let said = said(&[(1, "220-a\r\n220 b\r\n"), (0, "user me\r\n"), (1, "331 next\r\n")]);
        let [greeting, user] = &said.records[..] else { panic!("{said:?}") };
        assert_eq!(greeting.objects[0].1.value("reply"), Some(&vec!["220-a", "b"].into()));
        let object = &user.objects[0].1;
        assert_eq!(object.value("command"), Some(&"USER".into()));
        assert_eq!(object.value("command_data"), Some(&"me".into()));
        assert_eq!(object.value("completion_code"), Some(&vec!["331"].into()));
    }

    #[test]
    fn of_commands_that_are_not_known_the_reply_is_told() {
        let said = said(&[(0, "AUTH TLS\r\n"), (1, "502 no\r\n")]);
        let object = &said.records[0].objects[0].1;
        assert!(object.value("command").is_none() && object.value("command_data").is_none());
        assert_eq!(object.value("completion_code"), Some(&vec!["502"].into()));
    }

    #[test]
    fn inline_each_piece_of_a_file_is_looked_at() {
        for (is_inline, looks) in [(false, 5), (true, 9)] {
            let announced = said(&[(0, "EPRT |1|192.0.2.1|1026|\r\n"), (0, "STOR b\r\n")]);
            let mut data = Data::new(announced.announced.into_iter().next().unwrap());
            let mut said = Said { is_inline, ..Said::default() };
            (0..9).for_each(|_| data.take(0, &[b'x'; 10_000], &mut said));
            assert_eq!((said.units.len(), said.later.len()), (looks, 1));
        }
    }

    #[test]
    fn connections_for_data_are_announced() {
        let passive = said(&[
            (0, "PASV\r\n"),
            (1, "227 Entering Passive Mode (192,0,2,1,4,1).\r\n"),
            (0, "RETR a.txt\r\n"),
        ]);
        let announced = &passive.announced[0];
        assert_eq!((announced.is_active, announced.port), (false, 1025));
        assert_eq!(announced.file, b"a.txt");
        let active = said(&[(0, "EPRT |1|192.0.2.1|1026|\r\n"), (0, "STOR b\r\n")]);
        assert_eq!((active.announced[0].is_active, active.announced[0].port), (true, 1026));
        let lists = said(&[(0, "EPRT |1|192.0.2.1|1026|\r\n"), (0, "LIST\r\n")]);
        let mut data = Data::new(lists.announced.into_iter().next().unwrap());
        let mut told = Said::default();
        data.take(1, b"a.txt\r\n", &mut told);
        data.end(&mut told);
        assert_eq!((told.units.len(), told.records.len()), (0, 1), "a list is no file");
        let neither = said(&[(0, "RETR a\r\n")]);
        assert!(neither.units[0].events.has(AppEvent::FtpNoPort));
    }
}
