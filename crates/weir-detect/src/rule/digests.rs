//! `filemd5`, `filesha1`, `filesha256`: lists of digests that files are compared with.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::syntax::unquoted;
use super::units::UnitTest;
use crate::dataset::{hexadecimal, leads_out};
use crate::digest::{Digests, FileDigests};

/// Digests of a list, at most; a longer one has its rule refused.
const DIGESTS_MAX: usize = 4_000_000;

/// Digests of one kind, in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DigestList {
    /// Bytes of each.
    width: usize,
    bytes: Vec<u8>,
}

/// Lists that rules have named so far, each read once.
#[derive(Debug, Default)]
pub(super) struct DigestLists(BTreeMap<(usize, String), Arc<DigestList>>);

impl DigestLists {
    /// What `filemd5:VALUE` and its like ask for; `None`: no such keyword.
    pub(super) fn test(
        &mut self,
        keyword: &str,
        value: &str,
        files: &BTreeMap<String, String>,
    ) -> Option<Result<UnitTest, String>> {
        let width = match keyword {
            "filemd5" => 16,
            "filesha1" => 20,
            "filesha256" => 32,
            _ => return None,
        };
        let (is_negated, name) = unquoted(value);
        if value.contains('"') {
            return Some(Err("the list's name stands without quotes".to_owned()));
        }
        let name = name.trim();
        if leads_out(name) {
            return Some(Err(format!("{name} leads out of the folder of the rule's file")));
        }
        let key = (width, name.to_owned());
        let known = self.0.get(&key).cloned().map(Ok);
        let list = known.unwrap_or_else(|| {
            let text = files.get(name).ok_or_else(|| format!("the file {name} cannot be read"))?;
            let list = Arc::new(DigestList::read(name, text, width)?);
            self.0.insert(key, Arc::clone(&list));
            Ok(list)
        });
        Some(list.map(|list| UnitTest::Digest { list, is_negated }))
    }
}

impl DigestList {
    /// A digest at the beginning of each line, in hexadecimal digits; what is behind a space does
    /// not count.
    fn read(name: &str, text: &str, width: usize) -> Result<Self, String> {
        let mut digests = Vec::new();
        let lines = text.lines().map(str::trim).zip(1..);
        for (line, number) in lines.filter(|it| !it.0.is_empty() && !it.0.starts_with('#')) {
            let word = line.split_whitespace().next().unwrap_or_default();
            let digest = hexadecimal(word, width)
                .ok_or_else(|| format!("line {number} of {name} is no digest of {width} bytes"))?;
            digests.push(digest);
            if digests.len() > DIGESTS_MAX {
                return Err(format!("{name} has more than {DIGESTS_MAX} digests"));
            }
        }
        if digests.is_empty() {
            return Err(format!("{name} has no digest"));
        }
        digests.sort_unstable();
        digests.dedup();
        Ok(Self { width, bytes: digests.concat() })
    }

    /// The digest that it is of.
    pub(crate) fn kind(&self) -> FileDigests {
        let none = FileDigests::default();
        match self.width {
            16 => FileDigests { md5: true, ..none },
            20 => FileDigests { sha1: true, ..none },
            _ => FileDigests { sha256: true, ..none },
        }
    }

    /// Whether it has a file's digest; `None`: that is not known.
    pub(crate) fn has(&self, digests: &Digests) -> Option<bool> {
        match self.width {
            16 => digests.md5.map(|it| self.has_bytes(&it)),
            20 => digests.sha1.map(|it| self.has_bytes(&it)),
            _ => digests.sha256.map(|it| self.has_bytes(&it)),
        }
    }

    fn has_bytes(&self, digest: &[u8]) -> bool {
        let (mut first, mut behind) = (0, self.bytes.len() / self.width);
        while first < behind {
            let middle = first.midpoint(behind);
            let known = &self.bytes[middle * self.width..][..self.width];
            match known.cmp(digest) {
                std::cmp::Ordering::Equal => return true,
                std::cmp::Ordering::Less => first = middle + 1,
                std::cmp::Ordering::Greater => behind = middle,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::md5;

    fn digests(text: &[u8]) -> Digests {
        Digests { md5: Some(md5(text)), ..Digests::default() }
    }

    #[test]
    fn a_list_has_what_is_at_the_beginning_of_its_lines() {
        let text = "# known\n900150983cd24fb0d6963f7d28e17f72  abc.txt\n\n\
                    D41D8CD98F00B204E9800998ECF8427E\n900150983cd24fb0d6963f7d28e17f72\n";
        let list = DigestList::read("list", text, 16).unwrap();
        assert_eq!(list.bytes.len(), 32);
        assert_eq!(list.has(&digests(b"abc")), Some(true));
        assert_eq!(list.has(&digests(b"")), Some(true));
        assert_eq!(list.has(&digests(b"abd")), Some(false));
        assert_eq!(list.has(&Digests::default()), None);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for wrong in ["", "# none\n", "900150983cd24fb0\n", "zz0150983cd24fb0d6963f7d28e17f72"] {
            let why = DigestList::read("list", wrong, 16).unwrap_err();
            assert!(!why.contains("0150"), "what the file says is told nobody: {why}");
        }
        let mut lists = DigestLists::default();
        assert!(lists.test("filemd5", "nowhere", &BTreeMap::new()).unwrap().is_err());
        assert!(lists.test("filename", "x", &BTreeMap::new()).is_none());
    }

    #[test]
    fn a_list_lies_below_the_folder_of_its_rule() {
        let digest = "900150983cd24fb0d6963f7d28e17f72";
        let names = ["lists/a", "./a", "/etc/shadow", "../a", "lists/../../a"];
        let files = names.map(|it| (it.to_owned(), digest.to_owned())).into();
        let mut lists = DigestLists::default();
        let loaded = names.map(|it| lists.test("filemd5", it, &files).unwrap().is_ok());
        assert_eq!(loaded, [true, true, false, false, false]);
    }
}
