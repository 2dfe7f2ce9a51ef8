//! SMTP (RFC 5321): commands and replies, and the mail between them.

use std::collections::VecDeque;

use super::mime::{File, Mail};
use super::unit::{FileState, FileTold, Record, Said, Unit};
use super::{Line, Lines, Parser};
use crate::buffers::event::{AppEvent, AppEvents};
use crate::buffers::progress::Progress;
use crate::digest::Digests;
use crate::heap::heap_size;
use crate::rule::{Buffer, Protocol};
use crate::value::Object;

/// Mails that wait for their server's answer, at most.
const MAILS_MAX: usize = 16;
/// Bytes of a line of mail that are kept, at most.
const LINE_LEN_MAX: usize = 4096;
/// And of a mail, whose files may come in one.
const MAIL_LINE_LEN_MAX: usize = 128 * 1024;
/// Bytes of a reply's line after which Suricata calls it long; it does so of no command's.
const REPLY_LEN: usize = 510;
/// Commands that wait for their reply and of which it matters, and receivers of a mail, at most.
const WAITING_MAX: usize = 64;
const RECEIVERS_MAX: usize = 128;
/// What a handshake of TLS begins with (RFC 8446 s5.1).
const TLS: u8 = 0x16;
/// A file is looked at again when it has grown by so much.
const FILE_STEP: usize = 16 * 1024;

/// States of a transaction behind its beginning, by their places among those that rules name.
const DATA: usize = 1;
const COMPLETE: usize = 2;

/// A command, as far as replies to it matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    StartTls,
    Data,
    Chunk,
    /// The end of a mail.
    Dot,
    Other,
}

/// Commands that nobody has answered. Replies come in their order (RFC 2920 s3.2), so they are
/// counted; remembered are the last one, and of which the reply matters.
#[derive(Debug, Default)]
struct Pipeline {
    /// Commands so far, and replies to them.
    sent: u64,
    answered: u64,
    last: Option<Command>,
    /// `DATA` and `STARTTLS`, each by its number; of too many, those sent last.
    noted: VecDeque<(u64, Command)>,
}

impl Pipeline {
    fn push(&mut self, command: Command) {
        if matches!(command, Command::Data | Command::StartTls) {
            if self.noted.len() == WAITING_MAX {
                self.noted.pop_front();
            }
            self.noted.push_back((self.sent, command));
        }
        self.sent += 1;
        self.last = Some(command);
    }

    fn is_empty(&self) -> bool {
        self.sent == self.answered
    }

    /// The command that was sent last, unless that was answered.
    fn last(&self) -> Option<Command> {
        self.last.filter(|_| !self.is_empty())
    }

    /// The command that a reply is to; `None`: to none.
    fn answer(&mut self) -> Option<Command> {
        let last = self.last()?;
        let number = self.answered;
        self.answered += 1;
        let noted = self.noted.pop_front_if(|it| it.0 == number).map(|it| it.1);
        Some(noted.unwrap_or(if self.is_empty() { last } else { Command::Other }))
    }

    fn has_data(&self) -> bool {
        self.noted.iter().any(|it| it.1 == Command::Data)
    }
}

/// What a client's bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Commands,
    Data,
    /// So many bytes of mail, the last or not.
    Chunk(u64, bool),
}

/// A mail and what led to it.
#[derive(Debug, Default)]
struct Transaction {
    number: u64,
    sender: Option<Vec<u8>>,
    receivers: Vec<Vec<u8>>,
    mail: Option<Mail>,
    /// No more of it comes.
    is_over: bool,
    events: AppEvents,
    /// Bytes of the file at hand that were looked at.
    looked_at: usize,
    /// How many files ended, and those that were not told of: name, size and digests.
    files: usize,
    ended: Vec<(Vec<u8>, u64, Digests)>,
}
heap_size!(Transaction { sender, receivers, mail, ended });

/// A connection.
#[derive(Debug)]
pub(crate) struct Smtp {
    lines: [Lines; 2],
    /// A mail's, whose chunks may end anywhere in one.
    chunked: Lines,
    mode: Mode,
    greeting: Option<Vec<u8>>,
    transaction: Option<Transaction>,
    /// Mails that are done with, until their server has answered.
    mails: Vec<Record>,
    /// How many there were.
    count: u64,
    pipeline: Pipeline,
    was_welcomed: bool,
    /// The client did not wait for the server's welcome.
    is_early: bool,
    /// QUIT was the last command.
    quits: bool,
    /// TLS comes next.
    is_over: bool,
    /// But something else came with the agreement to speak it.
    is_followed: bool,
    /// Something was odd since rules looked, for either side's to look at.
    is_odd: bool,
    /// What changed since rules looked.
    is_fresh: bool,
    /// Whose bytes are taken in.
    side: usize,
    /// How far the transaction of that number has come, as rules look at it with each side.
    progress: [(u64, Progress); 2],
}
heap_size!(Smtp { lines, chunked, greeting, transaction, mails });

impl Default for Smtp {
    fn default() -> Self {
        Self {
            lines: [Lines::new(MAIL_LINE_LEN_MAX), Lines::new(LINE_LEN_MAX)],
            chunked: Lines::new(MAIL_LINE_LEN_MAX),
            mode: Mode::Commands,
            greeting: None,
            transaction: None,
            mails: Vec::new(),
            count: 0,
            pipeline: Pipeline::default(),
            was_welcomed: false,
            is_early: false,
            quits: false,
            is_over: false,
            is_followed: false,
            is_odd: false,
            is_fresh: false,
            side: 0,
            progress: Default::default(),
        }
    }
}

impl Parser for Smtp {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        self.side = side;
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_over {
            match (side, self.mode) {
                (0, Mode::Chunk(left, is_last)) => self.chunk(&mut rest, left, is_last, said),
                _ => match self.lines[side].next(&mut rest) {
                    Some(line) if side == 1 => self.reply(&line.bytes, line.is_cut, said),
                    Some(line) => match self.mode {
                        Mode::Commands => self.command(&line.bytes, said),
                        _ => self.mail_line(&line.bytes, line.is_cut, said),
                    },
                    None => break,
                },
            }
        }
        self.tell_files(said);
        self.is_followed |= self.is_over && rest.first().is_some_and(|it| *it != TLS);
        let has_grown = |it: &Transaction| {
            let file = it.mail.as_ref().and_then(|it| it.file.as_ref());
            file.is_some_and(|file| file.content.bytes.len() >= it.looked_at + FILE_STEP)
        };
        let has_grown = self.transaction.as_ref().is_some_and(has_grown);
        let comes_further = self.comes_further();
        if self.is_fresh || has_grown || (comes_further && side == 0) {
            self.tell(None, said);
        } else if comes_further {
            // What clients say is looked at with them.
            said.units.push(self.unit());
        }
    }

    fn end(&mut self, said: &mut Said) {
        if let Some(mail) = self.transaction.as_mut().and_then(|it| it.mail.as_mut()) {
            mail.end();
        }
        self.done(said);
        said.records.append(&mut self.mails);
    }

    fn becomes_tls(&self) -> bool {
        self.is_over
    }

    fn is_followed(&self) -> bool {
        self.is_followed
    }
}

impl Smtp {
    /// The transaction at hand, or a new one behind one that is done.
    fn transaction(&mut self) -> &mut Transaction {
        let number = self.count;
        if self.transaction.is_none() {
            self.count += 1;
        }
        self.transaction.get_or_insert_with(|| Transaction { number, ..Transaction::default() })
    }

    /// The number of the transaction at hand, or the last, and its state.
    fn state(&self) -> Option<(u64, usize)> {
        match &self.transaction {
            Some(it) if it.is_over => Some((it.number, COMPLETE)),
            Some(it) => Some((it.number, if it.mail.is_some() { DATA } else { 0 })),
            None => Some((self.count.checked_sub(1)?, COMPLETE)),
        }
    }

    /// Whether it has come further since rules looked at it with this side, who do so now.
    fn comes_further(&mut self) -> bool {
        let Some((number, state)) = self.state() else { return false };
        let (known, progress) = &mut self.progress[self.side];
        if *known != number {
            (*known, *progress) = (number, Progress::default());
        }
        progress.reach(state);
        progress.show()
    }

    /// A unit that tells of the state alone.
    fn unit(&self) -> Unit {
        let (number, progress) = self.progress[self.side];
        let mut unit = Unit::new(Protocol::Smtp, number);
        unit.states = Some(progress.states());
        unit
    }

    fn odd(&mut self, event: AppEvent) {
        let is_new = self.transaction().events.raise(event);
        self.is_fresh |= is_new;
        self.is_odd |= is_new;
    }

    fn command(&mut self, line: &[u8], said: &mut Said) {
        let end = line.iter().position(|it| !it.is_ascii_alphabetic()).unwrap_or(line.len());
        let (word, rest) = line.split_at(end);
        let word = word.to_ascii_lowercase();
        let is_after = matches!(word.as_slice(), b"quit" | b"rset") && self.count > 0;
        if self.transaction.is_none() && is_after {
            return self.pipeline.push(Command::Other);
        }
        self.transaction();
        if !self.was_welcomed {
            self.odd(AppEvent::SmtpNoWelcome);
        }
        self.follow(Command::StartTls);
        let mut command = Command::Other;
        match word.as_slice() {
            b"starttls" => command = Command::StartTls,
            b"data" => {
                command = Command::Data;
                self.mode = Mode::Data;
                self.transaction().mail = Some(Mail::with_digests(said.wanted));
            }
            b"bdat" => {
                command = Command::Chunk;
                self.begin_chunk(rest);
            }
            b"helo" | b"ehlo" => {
                if self.greeting.is_some() {
                    self.odd(AppEvent::SmtpDuplicate);
                }
                self.greeting = Some(rest.trim_ascii().to_vec());
                self.is_fresh = true;
            }
            b"mail" => {
                let is_second = self.transaction().sender.is_some();
                if is_second {
                    self.odd(AppEvent::SmtpDuplicate);
                } else if let Some(path) = path(rest, b"from:") {
                    self.transaction().sender = Some(path);
                    self.is_fresh = true;
                }
            }
            b"rcpt" => {
                if let Some(path) = path(rest, b"to:") {
                    let receivers = &mut self.transaction().receivers;
                    if receivers.len() < RECEIVERS_MAX {
                        receivers.push(path);
                    }
                    self.is_fresh = true;
                }
            }
            b"rset" => {
                self.tell_last(said);
                self.done(said);
            }
            b"quit" => {
                self.tell_last(said);
                self.quits = true;
            }
            _ => {}
        }
        self.pipeline.push(command);
    }

    /// The client says more although it has to wait for the reply to such a command (RFC 2920
    /// s3.1).
    fn follow(&mut self, command: Command) {
        if self.pipeline.last() == Some(command) {
            self.odd(AppEvent::SmtpPipelined);
        }
    }

    /// `BDAT 86 LAST`
    fn begin_chunk(&mut self, rest: &[u8]) {
        let mut words = rest.split(u8::is_ascii_whitespace).filter(|it| !it.is_empty());
        let size = words.next().and_then(|it| std::str::from_utf8(it).ok()?.parse().ok());
        let Some(size) = size else { return self.odd(AppEvent::SmtpChunk) };
        let is_last = words.next().is_some_and(|it| it.eq_ignore_ascii_case(b"last"));
        self.transaction().mail.get_or_insert_default();
        self.mode = Mode::Chunk(size, is_last);
    }

    fn awaits_chunk(&self) -> bool {
        matches!(self.mode, Mode::Chunk(..))
    }

    fn chunk(&mut self, rest: &mut &[u8], left: u64, is_last: bool, said: &mut Said) {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
        let (mut own, behind) = rest.split_at(count);
        *rest = behind;
        while let Some(line) = self.chunked.next(&mut own) {
            self.chunk_line(&line);
        }
        let left = left - count as u64;
        self.mode = if left > 0 { Mode::Chunk(left, is_last) } else { Mode::Commands };
        let is_end = left == 0 && is_last;
        // The last line may lack its end.
        if is_end
            && !self.chunked.held.is_empty()
            && let Some(line) = self.chunked.next(&mut &b"\n"[..])
        {
            self.chunk_line(&line);
        }
        self.files(said);
        if is_end {
            self.end_of_mail(said);
        }
    }

    fn chunk_line(&mut self, line: &Line) {
        if let Some(mail) = &mut self.transaction().mail {
            mail.line(&line.bytes, line.is_cut);
        }
    }

    fn mail_line(&mut self, line: &[u8], is_cut: bool, said: &mut Said) {
        self.follow(Command::Data);
        if line == b"." {
            self.mode = Mode::Commands;
            self.pipeline.push(Command::Dot);
            return self.end_of_mail(said);
        }
        // A dot more, that it is not taken for the end.
        let line = line.strip_prefix(b".").filter(|_| line.starts_with(b"..")).unwrap_or(line);
        let Some(mail) = &mut self.transaction().mail else { return };
        let had_headers = mail.has_headers;
        mail.line(line, is_cut);
        let has_headers = mail.has_headers;
        self.is_fresh |= has_headers != had_headers;
        self.files(said);
    }

    fn end_of_mail(&mut self, said: &mut Said) {
        if let Some(mail) = &mut self.transaction().mail {
            mail.end();
        }
        self.files(said);
        self.tell_last(said);
        self.done(said);
    }

    /// Files that ended.
    fn files(&mut self, said: &mut Said) {
        let transaction = self.transaction();
        let Some(mail) = &mut transaction.mail else { return };
        for file in mail.take_ended() {
            self.tell(Some(&file), said);
            let transaction = self.transaction();
            transaction.looked_at = 0;
            transaction.files += 1;
            if transaction.files > RECEIVERS_MAX {
                continue;
            }
            let (size, digests) = (file.content.size, file.content.digests());
            transaction.ended.push((file.name, size, digests));
        }
    }

    /// Tells of files that ended, with what is known of their mail by now.
    fn tell_files(&mut self, said: &mut Said) {
        let Some(transaction) = &mut self.transaction else { return };
        let (number, ended) = (transaction.number, std::mem::take(&mut transaction.ended));
        let Some(transaction) = self.transaction.as_ref().filter(|_| !ended.is_empty()) else {
            return;
        };
        let objects = self.objects(transaction);
        for (name, size, digests) in &ended {
            let file =
                FileTold { name: Some(name), size: *size, digests: *digests, side: 0, range: None };
            said.records.push(Record::file(number, objects.clone(), &file));
        }
    }

    /// The transaction is done with.
    fn done(&mut self, said: &mut Said) {
        self.tell_files(said);
        let Some(transaction) = self.transaction.take() else { return };
        self.chunked = Lines::new(MAIL_LINE_LEN_MAX);
        let objects = self.objects(&transaction);
        let number = Some(transaction.number);
        self.mails.push(Record { kind: "smtp", number, objects, side: None });
        if self.mails.len() > MAILS_MAX {
            said.records.append(&mut self.mails);
        }
        self.is_fresh = false;
    }

    fn objects(&self, transaction: &Transaction) -> super::unit::Objects {
        let mut smtp = Object::default();
        smtp.put_some("helo", self.greeting.as_ref());
        smtp.put_some("mail_from", transaction.sender.as_ref());
        if !transaction.receivers.is_empty() {
            smtp.put("rcpt_to", transaction.receivers.iter().collect::<Vec<_>>());
        }
        let mut objects = vec![("smtp", smtp)];
        objects.extend(transaction.mail.as_ref().map(|it| ("email", it.object())));
        objects
    }

    /// Has rules look at a transaction of which no more comes.
    fn tell_last(&mut self, said: &mut Said) {
        let Some(transaction) = &mut self.transaction else { return };
        transaction.is_over = true;
        let had_files = transaction.files > 0;
        self.tell(None, said);
        if let Some(unit) = said.units.last_mut() {
            (unit.is_last, unit.had_files) = (true, had_files);
        }
    }

    /// Has rules look at the transaction, and at a file that ended.
    fn tell(&mut self, ended: Option<&File>, said: &mut Said) {
        self.is_fresh = false;
        self.comes_further();
        let mut unit = self.unit();
        let Some(transaction) = &self.transaction else { return said.units.push(unit) };
        unit.some_text(Buffer::SmtpHelo, self.greeting.as_deref());
        unit.some_text(Buffer::SmtpSender, transaction.sender.as_deref());
        transaction.receivers.iter().for_each(|it| unit.text(Buffer::SmtpReceiver, it));
        unit.events = transaction.events.clone();
        if std::mem::take(&mut self.is_odd) {
            let mut odd = Unit::new(Protocol::Smtp, transaction.number);
            odd.events = transaction.events.clone();
            said.later.push(odd);
        }
        if let Some(mail) = &transaction.mail {
            mail.events.as_slice().iter().for_each(|it| unit.odd(*it));
            for (buffer, name) in HEADERS {
                mail.all(name).for_each(|it| unit.text(*buffer, it));
            }
            mail.urls().iter().for_each(|it| unit.text(Buffer::EmailUrl, it));
            if let Some(file) = ended.or(mail.file.as_ref()) {
                unit.text(Buffer::FileName, &file.name);
                unit.text(Buffer::FileData, &file.content.bytes);
                let (size, digests) = (file.content.size, file.content.digests());
                if file.is_complete {
                    unit.whole_file(size, digests);
                }
                let state = if file.is_complete { FileState::Closed } else { FileState::Open };
                let told = FileTold { name: Some(&file.name), size, digests, side: 0, range: None };
                unit.files.push(told.object(state, transaction.number));
            }
        }
        for (name, object) in self.objects(transaction) {
            unit.tells(name, object);
        }
        if let Some(transaction) = &mut self.transaction
            && let Some(file) = transaction.mail.as_ref().and_then(|it| it.file.as_ref())
        {
            transaction.looked_at = file.content.bytes.len();
        }
        said.units.push(unit);
    }

    fn reply(&mut self, line: &[u8], is_cut: bool, said: &mut Said) {
        let digits = line.iter().take(3).take_while(|it| it.is_ascii_digit()).count();
        if is_cut || line.len() > REPLY_LEN {
            self.odd(AppEvent::SmtpReplyLength);
        }
        if digits < 3 {
            return self.odd(AppEvent::SmtpReply);
        }
        let is_first = !std::mem::replace(&mut self.was_welcomed, true);
        // More lines of it follow.
        if line.get(3) == Some(&b'-') {
            self.was_welcomed = !is_first;
            return;
        }
        let (answers, is_welcome) = (!self.pipeline.is_empty(), line.starts_with(b"220"));
        if is_first && (is_welcome || !answers) {
            self.is_early = answers;
            if !is_welcome {
                self.odd(AppEvent::SmtpNoWelcome);
                self.odd(AppEvent::SmtpReply);
            }
            return;
        }
        self.answer(line);
        said.records.append(&mut self.mails);
        // Who takes the welcome for the first answer has one too many in the end.
        if self.pipeline.is_empty() && std::mem::take(&mut self.is_early) {
            self.odd(AppEvent::SmtpReply);
        }
        if self.pipeline.is_empty() && std::mem::take(&mut self.quits) {
            self.done(said);
            said.records.append(&mut self.mails);
        }
    }

    /// What the server says of a command.
    fn answer(&mut self, line: &[u8]) {
        match self.pipeline.answer() {
            None => {}
            Some(Command::StartTls) if line.starts_with(b"220") => self.is_over = true,
            Some(Command::StartTls) => self.odd(AppEvent::SmtpTlsRejected),
            Some(Command::Data) if !line.starts_with(b"3") => {
                self.odd(AppEvent::SmtpDataRejected);
                // What follows are commands again, unless it is the mail of a later one.
                if !self.pipeline.has_data() && self.mode == Mode::Data {
                    self.mode = Mode::Commands;
                    self.transaction().mail = None;
                }
            }
            // Who knows chunks takes in all of one before he answers, so nothing of it comes.
            Some(Command::Chunk)
                if self.pipeline.is_empty() && line.starts_with(b"5") && self.awaits_chunk() =>
            {
                self.mode = Mode::Commands;
            }
            Some(_) => {}
        }
    }
}

/// Which headers rules look at.
const HEADERS: &[(Buffer, &str)] = &[
    (Buffer::EmailFrom, "from"),
    (Buffer::EmailTo, "to"),
    (Buffer::EmailCc, "cc"),
    (Buffer::EmailSubject, "subject"),
    (Buffer::EmailDate, "date"),
    (Buffer::EmailMessageId, "message-id"),
    (Buffer::EmailMailer, "x-mailer"),
    (Buffer::EmailReceived, "received"),
];

/// What stands behind `FROM:` or `TO:`, up to a blank.
fn path(rest: &[u8], word: &[u8]) -> Option<Vec<u8>> {
    let rest = rest.trim_ascii_start();
    let is_meant = rest.get(..word.len())?.eq_ignore_ascii_case(word);
    let path = rest[word.len()..].trim_ascii_start().split(u8::is_ascii_whitespace).next()?;
    is_meant.then(|| path.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mails_chunks_end_anywhere_in_its_lines() {
        let (mut smtp, mut said) = (Smtp::default(), Said::default());
        let lines: [(usize, &str); 9] = [
            (1, "220 mx\r\n"),
            (0, "EHLO me\r\n"),
            (1, "250 ok\r\n"),
            (0, "MAIL FROM:<a@b>\r\n"),
            (1, "250 ok\r\n"),
            (0, "BDAT 9\r\nSubject: BDAT 23 LAST\r\nx\r\n\r\nhttp://a.example/x"),
            (1, "250 ok\r\n250 ok\r\n"),
            (0, "QUIT\r\n"),
            (1, "221 bye\r\n"),
        ];
        lines.iter().for_each(|(side, text)| smtp.take(*side, text.as_bytes(), &mut said));
        smtp.end(&mut said);
        assert_eq!(said.records.len(), 1, "QUIT is a command: {said:?}");
        let looked = |buffer, text: &[u8]| {
            said.units.iter().any(|it| it.each(buffer, &mut |it| it.ends_with(text)))
        };
        assert!(looked(Buffer::EmailSubject, b"x"));
        assert!(looked(Buffer::EmailUrl, b"a.example/x"), "its last line");
    }
}
