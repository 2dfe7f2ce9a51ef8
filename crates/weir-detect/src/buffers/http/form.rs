//! The files of a form, told apart as its bytes come (RFC 7578, RFC 2046 s5.1).

use memchr::memmem;

use super::files::{File, file_name};
use super::odd;
use crate::heap::heap_size;

/// Files of a form that are told apart, at most: the last is all that follows.
const FILES_MAX: usize = 64;
/// Parts of any kind that are told apart, at most, likewise.
const PARTS_MAX: usize = 1024;

/// A form whose body grows. What was looked through is not looked through again: its sender may
/// send it byte by byte.
#[derive(Debug, Default)]
pub(super) struct Form {
    /// What stands before each part, in each way that receivers read it.
    boundaries: Vec<Boundary>,
    /// Those that came, the last of which may be begun.
    files: Vec<File>,
    /// The part that the next delimiter will end.
    part: Option<Part>,
    /// Whether the last of the files is that part's, as far as it came.
    is_begun: bool,
    /// Parts that have begun.
    parts: usize,
    /// Where the last delimiter that was passed ends.
    passed: usize,
}
heap_size!(Form { boundaries, files, part });

/// What stands before each part.
#[derive(Debug, Default)]
struct Boundary {
    /// With the dashes.
    delimiter: Vec<u8>,
    /// None that was not passed begins before this place.
    sought: usize,
}
heap_size!(Boundary { delimiter });

/// A part of a form.
#[derive(Debug)]
struct Part {
    /// Where its content begins, behind an empty line, if that came.
    content: Option<usize>,
    /// Until then: where the line of its head begins that is not whole; the first is the rest of
    /// the delimiter's.
    line: usize,
    /// Where it begins.
    start: usize,
    /// How its head calls the file that it is, if it is one.
    name: Option<Vec<u8>>,
}
heap_size!(Part { name });

/// A line that stands between parts.
struct Delimiter {
    start: usize,
    end: usize,
    /// The whole line came: it will not turn out to be none.
    is_whole: bool,
}

impl Form {
    /// The form that a `Content-Type` speaks of, if it does.
    pub(super) fn of(kind: &[u8]) -> Option<Self> {
        let begun = |it: Vec<u8>| Boundary { delimiter: [b"--", &*it].concat(), sought: 0 };
        let boundaries: Vec<_> = boundaries(kind).into_iter().map(begun).collect();
        (!boundaries.is_empty()).then(|| Self { boundaries, ..Self::default() })
    }

    /// Its files, each whole once the next delimiter is there.
    pub(super) fn files(&self) -> &[File] {
        &self.files
    }

    /// Its body was let go of, and another may begin.
    pub(super) fn let_go(&mut self) {
        let mut boundaries = std::mem::take(&mut self.boundaries);
        boundaries.iter_mut().for_each(|it| it.sought = 0);
        *self = Self { boundaries, ..Self::default() };
    }

    /// No more comes: a last part that no delimiter ends, ends here.
    pub(super) fn end(&mut self) {
        if let Some(last) = self.files.last_mut().filter(|_| self.is_begun) {
            last.size = last.place.as_ref().map(|it| it.len() as u64);
        }
    }

    /// Looks at what has been added to the body.
    pub(super) fn grow(&mut self, body: &[u8]) {
        if std::mem::take(&mut self.is_begun) {
            self.files.pop();
        }
        loop {
            let next = self.next(body);
            let end = next.as_ref().map(|it| it.start);
            // What nobody tells apart any more may be a file.
            let is_rest = self.parts == PARTS_MAX;
            if let Some(part) = &mut self.part {
                part.read_head(&body[..end.unwrap_or(body.len())]);
                let is_last = self.files.len() + 1 == FILES_MAX;
                let file = part.file(body, end.filter(|_| !is_last), is_rest);
                let is_file = file.is_some();
                self.files.extend(file);
                if is_file && is_last {
                    self.is_begun = true;
                    return;
                }
                self.is_begun = is_file;
            }
            let Some(next) = next.filter(|it| it.is_whole) else { return };
            self.is_begun = false;
            self.parts += 1;
            self.passed = next.end;
            self.part = Some(Part { content: None, line: next.end, start: next.end, name: None });
        }
    }

    /// The next line between parts.
    fn next(&mut self, body: &[u8]) -> Option<Delimiter> {
        if self.parts == PARTS_MAX {
            return None;
        }
        let passed = self.passed;
        let found = self.boundaries.iter_mut().filter_map(|it| it.next(body, passed));
        found.min_by_key(|it| it.0)?.1
    }
}

impl Boundary {
    /// Where the next line begins that stands between parts, behind what was `passed`: with the
    /// boundary, and blanks or, behind the last part, dashes follow. A part may have more than the
    /// boundary in a line of its own; one that is not whole may turn out to be none. What was
    /// looked through is not looked through again.
    fn next(&mut self, body: &[u8], passed: usize) -> Option<(usize, Option<Delimiter>)> {
        let from = self.sought.max(passed);
        let behind = body.get(from..)?;
        for at in memmem::find_iter(behind, &self.delimiter).map(|at| from + at) {
            if at > 0 && body[at - 1] != b'\n' {
                continue;
            }
            let end = at + self.delimiter.len();
            let rest = &body[end..];
            let length = memchr::memchr(b'\n', rest);
            let line = &rest[..length.unwrap_or(rest.len())];
            if line.trim_ascii().is_empty() || line.starts_with(b"--") {
                self.sought = at;
                return Some((at, Some(Delimiter { start: at, end, is_whole: length.is_some() })));
            }
            if length.is_none() {
                self.sought = at;
                return Some((at, None));
            }
        }
        // Only the beginning of one may stand at the end.
        self.sought = from.max((body.len() + 1).saturating_sub(self.delimiter.len()));
        None
    }
}

impl Part {
    /// Looks for the end of the head in the body, which ends where the part does.
    fn read_head(&mut self, body: &[u8]) {
        while self.content.is_none()
            && let Some(length) = memchr::memchr(b'\n', body.get(self.line..).unwrap_or_default())
        {
            let is_first = self.line == self.start;
            let end = self.line + length;
            if !is_first && matches!(&body[self.line..end], b"" | b"\r") {
                self.content = Some(end + 1);
                self.name = name(&body[self.start..end]);
            }
            self.line = end + 1;
        }
    }

    /// The file that it is, if it is one, which `end` ends; what `is_rest` is one in any case.
    fn file(&self, body: &[u8], end: Option<usize>, is_rest: bool) -> Option<File> {
        let first = self.content.or(is_rest.then_some(self.start))?;
        let name = self.name.clone().or(is_rest.then(Vec::new))?;
        let content = &body[first..end.unwrap_or(body.len())];
        let content = content.strip_suffix(b"\n").unwrap_or(content);
        let content = content.strip_suffix(b"\r").unwrap_or(content);
        let size = end.map(|_| content.len() as u64);
        Some(File { name, size, place: Some(first..first + content.len()) })
    }
}

/// How the head of a part calls the file that it is, if it is one.
fn name(head: &[u8]) -> Option<Vec<u8>> {
    let mut lines = head.split(|it| *it == b'\n');
    let named = lines.clone().find_map(file_name).unwrap_or_default();
    // Some receivers take other ways to name it: `filename*=`, blanks before the sign.
    let is_file = !named.is_empty() || lines.any(is_named_otherwise);
    is_file.then_some(named)
}

/// Parameters that may name what stands between parts, at most, and ways to read one.
const BOUNDARIES_MAX: usize = 8;

/// What may stand between the parts of a body of several (RFC 2046 s5.1.1), without the dashes
/// before it: of several parameters some receivers take the first and others the last, and of one
/// without quotes some go on behind a blank or a comma.
fn boundaries(kind: &[u8]) -> Vec<Vec<u8>> {
    const NAME: &[u8] = b"boundary=";
    let mut found: Vec<Vec<u8>> = Vec::new();
    if !odd::contains(kind, b"multipart/") {
        return found;
    }
    // Not the end of another parameter's name.
    let begins = |at: usize| at.checked_sub(1).is_none_or(|it| b"; \t,".contains(&kind[it]));
    let is_name = |it: &&[u8]| it.eq_ignore_ascii_case(NAME);
    let places = kind.windows(NAME.len()).enumerate().filter(|it| is_name(&it.1) && begins(it.0));
    for (at, _) in places {
        let text = kind[at + NAME.len()..].trim_ascii();
        let read = match text.strip_prefix(b"\"") {
            None => {
                let until = |ends: &[u8]| {
                    let end = text.iter().position(|it| ends.contains(it)).unwrap_or(text.len());
                    text[..end].trim_ascii().to_vec()
                };
                vec![until(b"; \t,"), until(b";")]
            }
            Some(quoted) => vec![odd::unquoted(quoted)],
        };
        for boundary in read {
            let is_new = !boundary.is_empty() && !found.contains(&boundary);
            if is_new && found.len() < BOUNDARIES_MAX {
                found.push(boundary);
            }
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

    /// The files of a form that came as a whole, and the same by its pieces.
    fn parts(body: &[u8], boundary: &[u8]) -> Vec<File> {
        let kind = [b"multipart/form-data; boundary=", boundary].concat();
        let files = |step: usize| {
            let mut form = Form::of(&kind).unwrap();
            let places = (0..body.len()).step_by(step).chain([body.len()]);
            places.for_each(|it| form.grow(&body[..it]));
            form.files
        };
        let whole = files(body.len().max(1));
        for step in [1, 2, 3, 7, 50] {
            assert_eq!(files(step), whole, "{step}");
        }
        // So far, at each place, as if no more came.
        let mut form = Form::of(&kind).unwrap();
        for end in (0..body.len().min(1000)).chain([body.len()]) {
            form.grow(&body[..end]);
            let mut other = Form::of(&kind).unwrap();
            other.grow(&body[..end]);
            assert_eq!(form.files, other.files, "{end}");
        }
        whole
    }

    #[test]
    fn the_boundary_is_a_parameter_of_its_own() {
        for (kind, expected) in [
            ("multipart/form-data; boundary=x", &["x"][..]),
            ("multipart/mixed; xboundary=y; Boundary=x;a=b", &["x"]),
            ("multipart/form-data;\tboundary=x\t", &["x"]),
            ("multipart/form-data; boundary=x, y", &["x", "x, y"]),
            (r#"multipart/form-data; boundary="a\"; \b"; c=d"#, &["a\"; b"]),
            ("multipart/related; boundary=x; boundary=\"y z\"", &["x", "y z"]),
            ("application/x; boundary=x", &[]),
        ] {
            assert_eq!(
                boundaries(kind.as_bytes()),
                expected.iter().map(|it| it.as_bytes()).collect::<Vec<_>>(),
                "{kind}"
            );
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
        let empty = [b"--x\r\n".repeat(PARTS_MAX + 1), form.to_vec()].concat();
        assert_eq!(parts(&empty, b"x")[0].place.clone().unwrap().end, empty.len());
        let many = form.repeat(100);
        let last = parts(&many, b"x").pop().unwrap().place.unwrap();
        assert_eq!((parts(&many, b"x").len(), last.end), (FILES_MAX, many.len()));
        let whole = [&form[..], b"\r\n--x--\r\n"].concat();
        let two = &parts(&whole, b"x")[1];
        assert_eq!(two.size, Some(5));
        assert_eq!(&whole[two.place.clone().unwrap()], b"begun");
    }

    #[test]
    fn forms_in_pieces_are_the_same_as_whole_ones_whatever_they_are_made_of() {
        let words: [&[u8]; 10] =
            [b"--x", b"\r\n", b"\n", b"a: filename=b", b"a", b"-", b"--", b"\r\n\r\n", b"y ", b"x"];
        let mut state = 1_u32;
        for _ in 0..500 {
            let mut body = Vec::new();
            for _ in 0..40 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                body.extend_from_slice(words[(state >> 16) as usize % words.len()]);
            }
            parts(&body, b"x");
        }
    }
}
