//! `[[label]]`: what people call addresses.
//!
//! ```toml
//! [[label]]                       # names for addresses; several allowed; needs [store]
//! of = "10.0.1.0/24"              # prefix, address, GID, MAC (for its fe80:: GID) or `lid 0x1f`
//! host = "node17"                 # at least one of host, tenant, job and rail is required
//! tenant = "red"
//! job = "train-4"
//! rail = "2"
//! ```
//!
//! Of labels that hold the same address, the longest prefix counts, name by name.

use std::net::Ipv6Addr;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use weir_serve::query;
use weir_store::sqlite::{LABELS_MAX, Label};

use super::problem::Problems;

/// Characters of a name: what a column of a table holds.
const NAME_CHARS_MAX: usize = 64;

/// `[[label]]`, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the format above")]
pub struct Written {
    pub of: Spanned<String>,
    pub host: Option<Spanned<String>>,
    pub tenant: Option<Spanned<String>>,
    pub job: Option<Spanned<String>>,
    pub rail: Option<Spanned<String>>,
}

/// The labels of a file.
pub(super) fn resolve(
    written: &[(Range<usize>, Written)],
    has_store: bool,
    problems: &mut Problems,
) -> Vec<Label> {
    if let (Some((span, _)), false) = (written.first(), has_store) {
        let remedy = "add a table [store]: names are shown beside what is remembered";
        problems.error(span.clone(), "[[label]] without [store]", remedy);
    }
    if let Some((span, _)) = written.get(LABELS_MAX) {
        let what = format!("{} tables [[label]]", written.len());
        problems.error(span.clone(), what, format!("at most {LABELS_MAX} are possible"));
    }
    let mut labels: Vec<Label> = Vec::new();
    for (span, table) in written {
        let Some((first, last)) = range(&table.of, problems) else { continue };
        if labels.iter().any(|it| (it.first, it.last) == (first, last)) {
            let what = format!("a second [[label]] of {}", table.of.get_ref());
            problems.error(table.of.span(), what, "put all its names into one table");
        }
        let kinds = [&table.host, &table.tenant, &table.job, &table.rail];
        if kinds.iter().all(|it| it.is_none()) {
            let remedy = "add `host`, `tenant`, `job` or `rail`";
            problems.error(span.clone(), "a [[label]] that names nothing", remedy);
        }
        for name in kinds.into_iter().flatten() {
            check(name, problems);
        }
        let names = kinds.map(|it| it.as_ref().map(|name| name.get_ref().clone()));
        labels.push(Label { first, last, names });
    }
    labels
}

fn check(name: &Spanned<String>, problems: &mut Problems) {
    let text = name.get_ref();
    let is_fit = (1..=NAME_CHARS_MAX).contains(&text.chars().count());
    if !is_fit || text.contains(char::is_control) {
        let remedy = format!("write 1 to {NAME_CHARS_MAX} characters that can be shown");
        problems.error(name.span(), "a name that does not fit a table", remedy);
    }
}

fn range(of: &Spanned<String>, problems: &mut Problems) -> Option<([u8; 16], [u8; 16])> {
    if let Some(mac) = mac(of.get_ref()) {
        let gid = link_local(mac).octets();
        return Some((gid, gid));
    }
    let found = query::addresses(of.get_ref());
    if found.is_err() {
        let what = format!("`{}` is no address", of.get_ref());
        problems.error(of.span(), what, "write a prefix, an address, a GID, a MAC or `lid 0x1f`");
    }
    found.ok()
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Vec<&str> = text.split(':').collect();
    let is_byte = |it: &&str| it.len() == 2 && u8::from_str_radix(it, 16).is_ok();
    let fits = bytes.len() == 6 && bytes.iter().all(is_byte);
    let mut read = bytes.iter().map(|it| u8::from_str_radix(it, 16).unwrap_or_default());
    fits.then(|| std::array::from_fn(|_| read.next().unwrap_or_default()))
}

/// The address that a port of this MAC gives itself, which is its first GID (RFC 4291 appendix A).
fn link_local([a, b, c, d, e, f]: [u8; 6]) -> Ipv6Addr {
    let interface = [a ^ 2, b, c, 0xff, 0xfe, d, e, f];
    Ipv6Addr::from(0xfe80_u128 << 112 | u128::from(u64::from_be_bytes(interface)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_stands_for_its_link_local_gid() {
        let mac = mac("b8:59:9f:aa:bb:cc").unwrap();
        assert_eq!(link_local(mac).to_string(), "fe80::ba59:9fff:feaa:bbcc");
        for wrong in ["b8:59:9f:aa:bb", "2001:db8:1:2:3:4", "b8:59:9f:aa:bb:zz"] {
            assert!(super::mac(wrong).is_none(), "{wrong}");
        }
    }
}
