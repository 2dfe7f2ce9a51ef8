//! POP3 (RFC 1939, RFC 2449, RFC 5034): commands and what is answered.

use std::collections::VecDeque;

use super::unit::{Record, Said, Unit};
use super::{Line, Lines, Parser};
use crate::buffers::event::AppEvent;
use crate::heap::heap_size;
use crate::rule::Protocol;
use crate::value::{Object, Value};

/// Bytes of a line that are kept, at most.
const LINE_LEN_MAX: usize = 4096;
/// Bytes of a command and of an answer, with the end of their line, at most (RFC 2449 s4).
const COMMAND_LEN_MAX: usize = 255;
const ANSWER_LEN_MAX: usize = 512;
/// Commands that wait for their answer, and lines of one that are told of, at most.
const WAITING_MAX: usize = 256;
const DATA_MAX: usize = 1024;
const LINE_END_LEN: usize = 2;

/// Commands, and how many words may stand behind each.
const COMMANDS: [(&str, std::ops::RangeInclusive<usize>); 17] = [
    ("USER", 1..=1),
    ("PASS", 1..=1),
    ("APOP", 2..=2),
    ("AUTH", 0..=2),
    ("STAT", 0..=0),
    ("LIST", 0..=1),
    ("UIDL", 0..=1),
    ("RETR", 1..=1),
    ("TOP", 2..=2),
    ("DELE", 1..=1),
    ("NOOP", 0..=0),
    ("RSET", 0..=0),
    ("QUIT", 0..=0),
    ("CAPA", 0..=0),
    ("STLS", 0..=0),
    ("UTF8", 0..=0),
    ("LANG", 0..=1),
];
/// What EVE calls a line of an exchange that `AUTH` began.
const OF_AUTHENTICATION: &str = "<SASL DATA>";

/// A command, and as much of its answer as came.
#[derive(Debug, Default)]
struct Exchange {
    number: u64,
    command: String,
    words: Vec<Vec<u8>>,
    is_asked: bool,
    answer: Option<Answer>,
}
heap_size!(Exchange { command, words, answer });

#[derive(Debug)]
struct Answer {
    is_good: bool,
    header: Vec<u8>,
    data: Vec<Vec<u8>>,
}
heap_size!(Answer { header, data });

/// A connection.
#[derive(Debug)]
pub(crate) struct Pop3 {
    lines: [Lines; 2],
    waiting: VecDeque<Exchange>,
    count: u64,
    /// The client's next lines answer the server.
    is_authenticating: bool,
    becomes_tls: bool,
}
heap_size!(Pop3 { lines, waiting });

impl Default for Pop3 {
    fn default() -> Self {
        Self {
            lines: [Lines::new(LINE_LEN_MAX), Lines::new(LINE_LEN_MAX)],
            waiting: VecDeque::new(),
            count: 0,
            is_authenticating: false,
            becomes_tls: false,
        }
    }
}

impl Parser for Pop3 {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        let mut rest = bytes;
        while let Some(line) = self.lines[side].next(&mut rest) {
            match side {
                0 => self.command(&line, said),
                _ => self.answer(&line, said),
            }
            if self.becomes_tls {
                return;
            }
        }
    }

    fn end(&mut self, said: &mut Said) {
        for exchange in std::mem::take(&mut self.waiting) {
            said.records.push(exchange.record());
        }
    }

    fn becomes_tls(&self) -> bool {
        self.becomes_tls
    }
}

impl Pop3 {
    fn exchange(&mut self) -> Exchange {
        self.count += 1;
        Exchange { number: self.count - 1, ..Exchange::default() }
    }

    fn command(&mut self, line: &Line, said: &mut Said) {
        let mut exchange = self.exchange();
        exchange.is_asked = true;
        let mut unit = Unit::new(Protocol::Pop3, exchange.number);
        if line.is_cut || line.bytes.len() + LINE_END_LEN > COMMAND_LEN_MAX {
            unit.odd(AppEvent::Pop3RequestLength);
        }
        let mut words = line.bytes.split(|it| *it == b' ').filter(|it| !it.is_empty());
        if self.is_authenticating {
            exchange.command = OF_AUTHENTICATION.to_owned();
        } else {
            exchange.command = crate::value::text(words.next().unwrap_or_default());
            exchange.words = words.map(<[u8]>::to_vec).collect();
            match COMMANDS.iter().find(|it| it.0 == exchange.command) {
                None => unit.odd(AppEvent::Pop3Unknown),
                Some((_, counts)) if !counts.contains(&exchange.words.len()) => {
                    unit.odd(AppEvent::Pop3Arguments);
                }
                Some(_) => {}
            }
            self.is_authenticating = exchange.command == "AUTH" && !exchange.words.is_empty();
        }
        if self.waiting.len() == WAITING_MAX {
            unit.odd(AppEvent::Pop3Many);
            said.records.extend(self.waiting.pop_front().map(Exchange::record));
        }
        unit.tells("pop3", exchange.object());
        self.waiting.push_back(exchange);
        said.tell(unit);
    }

    fn answer(&mut self, line: &Line, said: &mut Said) {
        let is_mail = self.waiting.front().is_some_and(Exchange::is_mail);
        if let Some(data) = self.waiting.front_mut().and_then(|it| it.answer.as_mut()) {
            if line.bytes == b"." {
                self.complete(said);
            } else if !is_mail && data.data.len() < DATA_MAX {
                data.data.push(line.bytes.strip_prefix(b".").unwrap_or(&line.bytes).to_vec());
            }
            return;
        }
        let (is_good, header) = match line.bytes.as_slice() {
            [b'+', b'O', b'K', header @ ..] => (true, header),
            [b'-', b'E', b'R', b'R', header @ ..] => (false, header),
            // The client is to go on.
            _ => return,
        };
        let mut exchange = match self.waiting.pop_front() {
            Some(exchange) => exchange,
            None => self.exchange(),
        };
        let header = header.trim_ascii_start().to_vec();
        exchange.answer = Some(Answer { is_good, header, data: Vec::new() });
        self.is_authenticating = false;
        let mut unit = Unit::new(Protocol::Pop3, exchange.number);
        if line.is_cut || line.bytes.len() + LINE_END_LEN > ANSWER_LEN_MAX {
            unit.odd(AppEvent::Pop3ResponseLength);
        }
        unit.tells("pop3", exchange.object());
        said.units.push(unit);
        self.becomes_tls = is_good && exchange.command == "STLS";
        let goes_on = is_good && exchange.has_lines();
        self.waiting.push_front(exchange);
        if !goes_on {
            self.complete(said);
        }
    }

    fn complete(&mut self, said: &mut Said) {
        said.records.extend(self.waiting.pop_front().map(Exchange::record));
    }
}

impl Exchange {
    /// Whether lines up to a period follow a good answer (RFC 1939 s3).
    fn has_lines(&self) -> bool {
        match self.command.as_str() {
            "CAPA" | "RETR" | "TOP" => true,
            "LIST" | "UIDL" | "AUTH" | "LANG" => self.words.is_empty(),
            _ => false,
        }
    }

    /// Whether its answer is a mail, of which nothing is told.
    fn is_mail(&self) -> bool {
        self.command == "RETR" && self.answer.as_ref().is_some_and(|it| it.is_good)
    }

    fn object(&self) -> Object {
        let list = |it: &[Vec<u8>]| Value::List(it.iter().map(Value::from).collect());
        let mut object = Object::default();
        if self.is_asked {
            let request = Object::default()
                .with("command", self.command.as_str())
                .with("args", list(&self.words));
            object.put("request", request);
        }
        if let Some(answer) = self.answer.as_ref().filter(|_| !self.is_mail()) {
            let response = Object::default()
                .with("success", answer.is_good)
                .with("status", if answer.is_good { "OK" } else { "ERR" })
                .with("header", &answer.header)
                .with("data", list(&answer.data));
            object.put("response", response);
        }
        object
    }

    fn record(self) -> Record {
        Record::new("pop3", self.number, self.object())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(lines: &[(usize, &[u8])]) -> (Said, Pop3) {
        let (mut pop3, mut said) = (Pop3::default(), Said::default());
        for (side, bytes) in lines {
            bytes.chunks(7).for_each(|it| pop3.take(*side, it, &mut said));
        }
        (said, pop3)
    }

    #[test]
    fn an_answer_of_several_lines_ends_with_a_period() {
        let (said, _) = said(&[
            (1, b"+OK ready\r\n"),
            (0, b"LIST\r\nLIST 2\r\n"),
            (1, b"+OK 2\r\n1 120\r\n..x\r\n.\r\n+OK 2 200\r\n"),
        ]);
        assert_eq!(said.records.len(), 3);
        let Some(Value::Object(answer)) = said.records[1].objects[0].1.value("response") else {
            panic!("{said:?}")
        };
        assert_eq!(answer.value("data"), Some(&vec!["1 120", ".x"].into()));
        assert!(said.records[0].objects[0].1.value("request").is_none(), "a greeting");
    }

    #[test]
    fn of_a_mail_nothing_is_told() {
        let (said, _) = said(&[
            (0, b"RETR 1\r\n"),
            (1, b"+OK msg\r\nSubject: x\r\n\r\nbody\r\n.\r\n"),
            (0, b"RETR 2\r\nTOP 1 0\r\n"),
            (1, b"-ERR none\r\n+OK\r\nSubject: x\r\n.\r\n"),
        ]);
        let answers: Vec<bool> =
            said.records.iter().map(|it| it.objects[0].1.value("response").is_some()).collect();
        assert_eq!(answers, [false, true, true]);
    }

    #[test]
    fn commands_that_nobody_knows_or_that_say_too_much_are_odd() {
        let (said, _) = said(&[(0, b"HELLO\r\nPASS a b\r\n")]);
        assert!(said.units[0].events.has(AppEvent::Pop3Unknown));
        assert!(said.units[1].events.has(AppEvent::Pop3Arguments));
    }

    #[test]
    fn lines_of_an_authentication_are_no_commands() {
        let lines: [(usize, &[u8]); 4] =
            [(0, b"AUTH PLAIN\r\n"), (1, b"+ \r\n"), (0, b"AGIA\r\n"), (1, b"+OK\r\n")];
        let (said, _) = said(&lines);
        assert!(said.units.iter().all(|it| it.events.as_slice().is_empty()), "{said:?}");
    }

    #[test]
    fn tls_follows_a_good_answer_alone() {
        assert!(!said(&[(0, b"STLS\r\n"), (1, b"-ERR\r\n")]).1.becomes_tls());
        assert!(said(&[(0, b"STLS\r\n"), (1, b"+OK\r\n")]).1.becomes_tls());
    }
}
