//! Files that HTTP carries: what a response brings, what a request sends, and those of a form.

use std::borrow::Cow;
use std::ops::Range;

use super::half::{Data, Half};
use super::odd;
use super::transaction::Transaction;
use crate::application::unit::{FileState, FileTold, Record};
use crate::digest::{Digester, Digests};
use crate::heap::heap_size;
use crate::value::Object;

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) name: Vec<u8>,
    /// Once it is whole.
    pub(crate) size: Option<u64>,
    /// Where it stands in the body at hand, unless it is all of the body.
    pub(super) place: Option<Range<usize>>,
}
heap_size!(File { name });

/// What answers are told to be about whose request nobody saw, as Suricata has it.
pub(super) const URI_NOT_SEEN: &[u8] = b"/libhtp::request_uri_not_seen";

/// What files a body is to those who look for files.
enum Content<'a> {
    /// None: requests send files by `POST` and `PUT` alone, as Suricata has it.
    Nothing,
    /// All of it is one.
    Whole,
    /// Those among the parts of a form.
    Form(&'a [File]),
}

impl Transaction {
    fn content<'a>(&self, side: usize, half: &'a Half) -> Content<'a> {
        if side == 1 || self.is_of_http2() {
            return Content::Whole;
        }
        match (half.method.as_slice(), &half.form) {
            (b"POST", Some(form)) => Content::Form(form.files()),
            (b"POST" | b"PUT", _) => Content::Whole,
            _ => Content::Nothing,
        }
    }

    /// Calls `look` with what is there of each file of a side, until it says yes; whether it did.
    pub(super) fn each_file(&self, side: usize, look: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let Some(half) = self.half(side).filter(|it| !it.body.is_empty()) else { return false };
        match self.content(side, half) {
            Content::Nothing => false,
            Content::Whole => look(&half.body),
            Content::Form(files) => {
                let places = files.iter().filter_map(|it| half.body.get(it.place.clone()?));
                places.filter(|it| !it.is_empty()).any(look)
            }
        }
    }

    /// The files that a side's body is, or consists of.
    pub(crate) fn files(&self, side: usize) -> Cow<'_, [File]> {
        let is_file = |it: &&Half| it.body_size > 0 || it.data != Data::Nothing;
        let Some(half) = self.half(side).filter(is_file) else {
            return Cow::default();
        };
        match self.content(side, half) {
            Content::Nothing => return Cow::default(),
            Content::Form(files) => return Cow::Borrowed(files),
            Content::Whole => {}
        }
        let disposition = half.header(b"content-disposition").filter(|_| side == 1);
        let named = disposition.and_then(file_name);
        let unseen = if self.is_of_http2() { &[][..] } else { URI_NOT_SEEN };
        let path = || self.request.as_ref().map_or(unseen, Half::path);
        let name = named.unwrap_or_else(|| path().to_vec());
        let size = half.is_complete.then_some(half.body_size);
        Cow::Owned(vec![File { name, size, place: None }])
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

    /// The files of a side once that is whole, or no more of it is kept; once.
    pub(crate) fn take_files(&mut self, side: usize) -> Vec<File> {
        let is_of_http2 = self.is_of_http2();
        let half = if side == 0 { &mut self.request } else { &mut self.response };
        let is_whole = |it: &&mut Half| match is_of_http2 {
            true => it.data == Data::Whole,
            false => it.is_complete && !it.is_followed || it.is_file_cut(),
        };
        let is_first = half
            .as_mut()
            .filter(is_whole)
            .is_some_and(|it| !std::mem::replace(&mut it.are_files_told, true));
        if is_first { self.files(side).into_owned() } else { Vec::new() }
    }
}

/// What is told of files.
impl Transaction {
    /// The files that `side` sends, as an alert tells of them: so far.
    pub(crate) fn told_files(&self, side: usize, number: u64) -> Vec<Object> {
        let told = |file: &File| {
            let is_whole = file.size.is_some() && self.is_file_ended(side);
            let state = match is_whole {
                true => FileState::Closed,
                false if self.half(side).is_some_and(Half::is_file_cut) => FileState::Truncated,
                false => FileState::Open,
            };
            // Digests of a form's parts are made each time, which is too much for each alert.
            let digests = match file.place {
                Some(_) => Digests::default(),
                None => self.digests(side, file),
            };
            self.told_with(digests, side, file).object(state, number)
        };
        self.files(side).iter().map(told).collect()
    }

    /// Whether a side's file has come to its own end: of HTTP/2 a frame of data says that, and not
    /// one of headers, though rules know its size then.
    fn is_file_ended(&self, side: usize) -> bool {
        !self.is_of_http2() || self.half(side).is_some_and(|it| it.data == Data::Whole)
    }

    /// The files of `side` of which more was to come when the connection ended, once.
    pub(crate) fn take_cut_files(&mut self, side: usize, number: u64) -> Vec<Record> {
        let half = if side == 0 { &mut self.request } else { &mut self.response };
        let is_first =
            half.as_mut().is_some_and(|it| !std::mem::replace(&mut it.are_files_told, true));
        let files = if is_first { self.files(side) } else { Cow::default() };
        let record = |file: &File| {
            // As Suricata has it: what a server sends ends with its connection, in HTTP/1.
            let is_whole = match self.is_of_http2() {
                true => file.size.is_some() && self.is_file_ended(side),
                false => file.size.is_some() || side == 1,
            };
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
        let range = self.range(side);
        // As Suricata has it, whose files of HTTP/2 have a name where they are parts of one.
        let is_named = !self.is_of_http2() || range.is_some();
        let name = is_named.then_some(&file.name[..]);
        FileTold { name, size, digests, side, range }
    }
}

/// The name that a `Content-Disposition` gives a file (RFC 6266 s4.1): between quotes, what a
/// backslash stands before stands for itself.
pub(super) fn file_name(disposition: &[u8]) -> Option<Vec<u8>> {
    const NAME: &[u8] = b"filename=";
    let found = odd::parameter(disposition, NAME)?;
    let at = disposition.windows(NAME.len()).position(|it| it.eq_ignore_ascii_case(NAME))?;
    let Some(quoted) = disposition[at + NAME.len()..].trim_ascii().strip_prefix(b"\"") else {
        return Some(found.to_vec());
    };
    Some(odd::unquoted(quoted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::http::BodyWanted;
    use crate::digest::FileDigests;

    fn transaction(request: &[u8], response: &[u8], body: &[u8]) -> Transaction {
        let mut response = Half::response(response);
        let digests = FileDigests { md5: true, ..FileDigests::default() };
        response.add_body(body, BodyWanted { digests, ..BodyWanted::default() });
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
        assert_eq!(transaction(b"GET /a HTTP/1.1\r\n\r\n", head, b"").files(1).len(), 0);
    }
}
