//! Files that HTTP carries: what a response brings, what a request sends, and those of a form.

use std::ops::Range;

use memchr::memmem;

use super::odd;
use super::transaction::{Half, Transaction};
use crate::application::unit::{FileState, FileTold, Record};
use crate::digest::{Digester, Digests};
use crate::value::Object;

/// Files of a form that are told apart, at most: the last is all that follows.
const PARTS_MAX: usize = 64;
/// Parts of any kind that are told apart, at most, likewise.
const DELIMITERS_MAX: usize = 1024;

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) name: Vec<u8>,
    /// Once it is whole.
    pub(crate) size: Option<u64>,
    /// Where it stands in the body at hand, unless it is all of the body.
    place: Option<Range<usize>>,
}

/// What files a body is to those who look for files.
enum Content {
    /// None: requests send files by `POST` and `PUT` alone, as Suricata has it.
    Nothing,
    /// All of it is one.
    Whole,
    /// Those among the parts of a form, which this stands between.
    Form(Vec<u8>),
}

impl Transaction {
    fn content(&self, side: usize, half: &Half) -> Content {
        if side == 1 || self.is_of_http2() {
            return Content::Whole;
        }
        match half.method.as_slice() {
            b"POST" => {
                let boundary = half.header(b"content-type").and_then(boundary);
                boundary.map_or(Content::Whole, Content::Form)
            }
            b"PUT" => Content::Whole,
            _ => Content::Nothing,
        }
    }

    /// Calls `look` with what is there of each file of a side, until it says yes; whether it did.
    pub(super) fn each_file(&self, side: usize, look: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let half = if side == 0 { &self.request } else { &self.response };
        let Some(half) = half.as_ref().filter(|it| !it.body.is_empty()) else { return false };
        match self.content(side, half) {
            Content::Nothing => false,
            Content::Whole => look(&half.body),
            Content::Form(boundary) => {
                let mut places = parts(&half.body, &boundary).into_iter().filter_map(|it| it.place);
                places.any(|it| !it.is_empty() && look(&half.body[it]))
            }
        }
    }

    /// The files that a side's body is, or consists of.
    pub(crate) fn files(&self, side: usize) -> Vec<File> {
        let half = if side == 0 { &self.request } else { &self.response };
        let Some(half) = half.as_ref().filter(|it| it.body_size > 0) else { return Vec::new() };
        match self.content(side, half) {
            Content::Nothing => return Vec::new(),
            Content::Form(boundary) => return parts(&half.body, &boundary),
            Content::Whole => {}
        }
        let named = half.header(b"content-disposition").filter(|_| side == 1).and_then(file_name);
        let path = || self.request.as_ref().map(Half::path).unwrap_or_default();
        let name = named.unwrap_or_else(path).to_vec();
        vec![File { name, size: half.is_complete.then_some(half.body_size), place: None }]
    }

    /// The digests of a side's file that is whole, as far as they are wanted.
    pub(crate) fn digests(&self, side: usize, file: &File) -> Digests {
        let half = if side == 0 { &self.request } else { &self.response };
        let Some(half) = half.as_ref().filter(|_| file.size.is_some()) else {
            return Digests::default();
        };
        let Some(place) = &file.place else { return half.digests() };
        let wanted = half.digester.as_ref().map(|it| it.wanted()).unwrap_or_default();
        match (Digester::of(wanted), half.body.get(place.clone())) {
            (Some(mut digester), Some(bytes)) => {
                digester.update(bytes);
                digester.digests()
            }
            _ => Digests::default(),
        }
    }

    /// The same once the side is whole, once.
    pub(crate) fn take_files(&mut self, side: usize) -> Vec<File> {
        let half = if side == 0 { &mut self.request } else { &mut self.response };
        let is_first = half
            .as_mut()
            .is_some_and(|it| it.is_complete && !std::mem::replace(&mut it.are_files_told, true));
        if is_first { self.files(side) } else { Vec::new() }
    }
}

/// What is told of files.
impl Transaction {
    /// The files that `side` sends, as an alert tells of them: so far.
    pub(crate) fn told_files(&self, side: usize, number: u64) -> Vec<Object> {
        let told = |file: &File| {
            let state = if file.size.is_some() { FileState::Closed } else { FileState::Open };
            // Digests of a form's parts are made each time, which is too much for each alert.
            let digests = match file.place {
                Some(_) => Digests::default(),
                None => self.digests(side, file),
            };
            self.told_with(digests, side, file).object(state, number)
        };
        self.files(side).iter().map(told).collect()
    }

    /// The files of `side` of which more was to come when the connection ended, once.
    pub(crate) fn take_cut_files(&mut self, side: usize, number: u64) -> Vec<Record> {
        let half = if side == 0 { &mut self.request } else { &mut self.response };
        let is_first =
            half.as_mut().is_some_and(|it| !std::mem::replace(&mut it.are_files_told, true));
        let files = if is_first { self.files(side) } else { Vec::new() };
        let record = |file: &File| {
            // As Suricata has it: what a server sends ends with its connection.
            let is_whole = file.size.is_some() || side == 1;
            let state = if is_whole { FileState::Closed } else { FileState::Truncated };
            let objects = vec![("http", self.object())];
            Record::file_in(state, number, objects, &self.told(side, file))
        };
        files.iter().map(record).collect()
    }

    /// What is told of a file of `side`.
    pub(crate) fn told<'a>(&self, side: usize, file: &'a File) -> FileTold<'a> {
        self.told_with(self.digests(side, file), side, file)
    }

    fn told_with<'a>(&self, digests: Digests, side: usize, file: &'a File) -> FileTold<'a> {
        let half = if side == 0 { &self.request } else { &self.response };
        let so_far = || match (half, &file.place) {
            (Some(half), None) => half.body_size,
            (_, place) => place.as_ref().map_or(0, |it| it.len() as u64),
        };
        let size = file.size.unwrap_or_else(so_far);
        FileTold { name: &file.name, size, digests, side, range: self.range(side) }
    }
}

/// What stands between the parts of a form, without the dashes before it (RFC 7578 s4.1).
fn boundary(kind: &[u8]) -> Option<Vec<u8>> {
    const NAME: &[u8] = b"boundary=";
    if !odd::contains(kind, b"multipart/form-data") {
        return None;
    }
    // Not the end of another parameter's name.
    let begins = |at: usize| at.checked_sub(1).is_none_or(|it| b"; \t,".contains(&kind[it]));
    let is_name = |it: &&[u8]| it.eq_ignore_ascii_case(NAME);
    let mut places =
        kind.windows(NAME.len()).enumerate().filter(|it| is_name(&it.1) && begins(it.0));
    let text = kind[places.next()?.0 + NAME.len()..].trim_ascii();
    let mut found = Vec::new();
    match text.strip_prefix(b"\"") {
        None => found.extend(text.iter().take_while(|it| !b"; \t,".contains(it))),
        Some(quoted) => {
            let mut bytes = quoted.iter();
            while let Some(byte) = bytes.next().filter(|it| **it != b'"') {
                found.extend(if *byte == b'\\' { bytes.next() } else { Some(byte) });
            }
        }
    }
    (!found.is_empty()).then_some(found)
}

/// The name that a `Content-Disposition` gives a file (RFC 6266 s4.1).
fn file_name(disposition: &[u8]) -> Option<&[u8]> {
    odd::parameter(disposition, b"filename=")
}

/// Where lines of a form are that stand between its parts: they begin with the boundary, and blanks
/// or, behind the last part, dashes follow. A part may have more than it in a line of its own.
fn delimiters<'a>(body: &'a [u8], dashed: &'a [u8]) -> impl Iterator<Item = Range<usize>> + 'a {
    let lines = memmem::find_iter(body, dashed).filter(|at| *at == 0 || body[at - 1] == b'\n');
    let places = lines.filter_map(|at| {
        let behind = &body[at + dashed.len()..];
        let line = memchr::memchr(b'\n', behind).map_or(behind, |it| &behind[..it]);
        let is_line = line.trim_ascii().is_empty() || line.starts_with(b"--");
        is_line.then_some(at..at + dashed.len())
    });
    places.take(DELIMITERS_MAX)
}

/// The bytes of a part's head, with the empty line behind it.
fn head_of(part: &[u8]) -> Option<usize> {
    // Behind the rest of the boundary's line.
    let mut line = memchr::memchr(b'\n', part)? + 1;
    loop {
        let end = line + memchr::memchr(b'\n', part.get(line..)?)?;
        if matches!(&part[line..end], b"" | b"\r") {
            return Some(end + 1);
        }
        line = end + 1;
    }
}

/// The files among the parts of a form, each whole once the next boundary is there.
fn parts(body: &[u8], boundary: &[u8]) -> Vec<File> {
    let dashed = [b"--", boundary].concat();
    let mut places = delimiters(body, &dashed).peekable();
    let mut found = Vec::new();
    let mut passed = 0;
    while let Some(place) = places.next() {
        passed += 1;
        // What nobody tells apart any more may be a file.
        let is_rest = passed == DELIMITERS_MAX;
        let next = places.peek().map(|it| it.start);
        let end = next.filter(|_| found.len() + 1 < PARTS_MAX);
        let part = &body[place.end..end.unwrap_or(body.len())];
        let head = head_of(&body[place.end..next.unwrap_or(body.len())]);
        let Some(head) = head.or(is_rest.then_some(0)) else { continue };
        let mut lines = part[..head].split(|it| *it == b'\n');
        let named = lines.clone().find_map(file_name).unwrap_or_default();
        // Some receivers take other ways to name it: `filename*=`, blanks before the sign.
        if named.is_empty() && !is_rest && !lines.any(is_named_otherwise) {
            continue;
        }
        let content = &part[head..];
        let content = content.strip_suffix(b"\n").unwrap_or(content);
        let content = content.strip_suffix(b"\r").unwrap_or(content);
        let first = place.end + head;
        let size = end.map(|_| content.len() as u64);
        found.push(File { name: named.to_vec(), size, place: Some(first..first + content.len()) });
        if found.len() == PARTS_MAX {
            break;
        }
    }
    found
}

/// Whether a line names a file, though not by `filename=`.
fn is_named_otherwise(line: &[u8]) -> bool {
    const NAME: &[u8] = b"filename";
    let mut places = line.windows(NAME.len()).enumerate();
    let place = places.find(|it| it.1.eq_ignore_ascii_case(NAME));
    place.is_some_and(|(at, _)| {
        let behind = &line[at + NAME.len()..];
        behind.starts_with(b"*") || behind.starts_with(b" ") || behind.starts_with(b"\t")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::FileDigests;

    fn transaction(request: &[u8], response: &[u8], body: &[u8]) -> Transaction {
        let mut response = Half::response(response);
        let wanted = FileDigests { md5: true, ..FileDigests::default() };
        response.add_body(body, wanted);
        Transaction {
            request: Some(Half::request(request)),
            response: Some(response),
            ..Transaction::default()
        }
    }

    fn name(request: &str, headers: &str) -> String {
        let request = format!("GET {request} HTTP/1.1\r\nHost: h\r\n\r\n");
        let response = format!("HTTP/1.1 200 OK\r\n{headers}\r\n");
        let transaction = transaction(request.as_bytes(), response.as_bytes(), b"body");
        let [file] = &transaction.files(1)[..] else { panic!("{transaction:?}") };
        String::from_utf8(file.name.clone()).unwrap()
    }

    #[test]
    fn a_response_is_called_as_it_says_or_as_it_was_asked_for() {
        assert_eq!(name("/dir/a%20b.exe?x=1", ""), "/dir/a b.exe");
        assert_eq!(name("http://h/p/q.zip", ""), "/p/q.zip");
        let said = "Content-Disposition: attachment; filename=\"b c.doc\"\r\n";
        assert_eq!(name("/get.php", said), "b c.doc");
        let coded = "Content-Disposition: attachment; filename*=UTF-8''c.doc\r\n";
        assert_eq!(name("/get.php", coded), "/get.php");
    }

    #[test]
    fn what_is_not_whole_has_no_size_and_what_is_empty_is_no_file() {
        let head = b"HTTP/1.1 200 OK\r\n\r\n";
        let mut whole = transaction(b"GET /a HTTP/1.1\r\n\r\n", head, b"body");
        assert_eq!(whole.files(1)[0].size, None);
        assert_eq!(whole.take_files(1), []);
        if let Some(half) = &mut whole.response {
            half.is_complete = true;
        }
        let file = &whole.files(1)[0];
        assert_eq!(whole.digests(1, file).md5, Some(crate::digest::md5(b"body")));
        assert_eq!(whole.take_files(1)[0].size, Some(4));
        assert_eq!(whole.take_files(1), [], "told once");
        assert_eq!(transaction(b"GET /a HTTP/1.1\r\n\r\n", head, b"").files(1), []);
    }

    #[test]
    fn the_boundary_is_a_parameter_of_its_own() {
        for (kind, expected) in [
            ("multipart/form-data; boundary=x", "x"),
            ("multipart/form-data; xboundary=y; Boundary=x;a=b", "x"),
            ("multipart/form-data;\tboundary=x\t", "x"),
            ("multipart/form-data; boundary=x, y", "x"),
            (r#"multipart/form-data; boundary="a\"; \b"; c=d"#, "a\"; b"),
        ] {
            assert_eq!(boundary(kind.as_bytes()), Some(expected.into()), "{kind}");
        }
    }

    #[test]
    fn files_of_a_form_are_its_parts_with_names() {
        let form = b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\nvalue\r\n\
            --x\r\nContent-Disposition: form-data; name=f; filename=\"up.exe\"\r\n\r\nMZ\r\n\
            --x\r\nContent-Disposition: form-data; name=g; filename=two.txt\r\n\r\nbegun";
        let shown = |it: &File| (String::from_utf8(it.name.clone()).unwrap(), it.size);
        let found: Vec<_> = parts(form, b"x").iter().map(shown).collect();
        assert_eq!(found, [("up.exe".into(), Some(2)), ("two.txt".into(), None)]);
        // What begins as the boundary does is none, and who ends lines otherwise is read likewise.
        let odd = b"before\n--x \nContent-Disposition: form-data; name=f; filename*=UTF-8''a\n\n\
            a --x b\n--xy\n\n--x c\n--x--\n";
        let file = &parts(odd, b"x")[0];
        assert_eq!(&odd[file.place.clone().unwrap()], b"a --x b\n--xy\n\n--x c");
        let many = [&b"--x\r\nA: b; name=a\r\n\r\n1\r\n".repeat(100)[..], form].concat();
        assert_eq!(parts(&many, b"x").len(), 2);
        let empty = [b"--x\r\n".repeat(DELIMITERS_MAX + 1), form.to_vec()].concat();
        assert_eq!(parts(&empty, b"x")[0].place.clone().unwrap().end, empty.len());
        let many = form.repeat(100);
        let last = parts(&many, b"x").pop().unwrap().place.unwrap();
        assert_eq!((parts(&many, b"x").len(), last.end), (PARTS_MAX, many.len()));
        let whole = [&form[..], b"\r\n--x--\r\n"].concat();
        let two = &parts(&whole, b"x")[1];
        assert_eq!(two.size, Some(5));
        assert_eq!(&whole[two.place.clone().unwrap()], b"begun");
    }
}
