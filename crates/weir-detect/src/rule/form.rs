//! What is wrong with options whatever their keywords mean: one said twice, a value where none
//! belongs, text that is no text.

use super::Buffer;
use super::keywords::Refused;
use super::syntax::Setting;

/// Keywords that a rule says once.
const ONCE: [&str; 3] = ["msg", "sid", "rev"];
/// Keywords with nothing behind them, beside those that name a content's buffer.
const BARE: [&str; 22] = [
    "noalert",
    "bypass",
    "nocase",
    "rawbytes",
    "startswith",
    "endswith",
    "sameip",
    "prefilter",
    "base64_data",
    "dotprefix",
    "strip_whitespace",
    "compress_whitespace",
    "to_lowercase",
    "to_uppercase",
    "url_decode",
    "header_lowercase",
    "strip_pseudo_headers",
    "to_md5",
    "to_sha1",
    "to_sha256",
    "domain",
    "tld",
];
/// Keywords whose value Suricata refuses in quotes.
const UNQUOTED: [&str; 16] = [
    "id",
    "ttl",
    "seq",
    "ack",
    "itype",
    "icode",
    "icmp_id",
    "icmp_seq",
    "tcp.mss",
    "tcp.wscale",
    "tls.version",
    "tls_cert_notafter",
    "tls_cert_notbefore",
    "classtype",
    "metadata",
    "reference",
];
/// Keywords that nothing is compared with: old rules have Latin-1 in them.
const TOLD: [&str; 3] = ["msg", "reference", "metadata"];

/// Whether an option of a rule has a right form, behind those before it.
pub(super) fn check(before: &[Setting<'_>], option: &Setting<'_>) -> Result<(), Refused> {
    let Setting { name, value } = *option;
    let refused = |why: &str| Err(Refused::new(name, why));
    if ONCE.contains(&name) && before.iter().any(|it| it.name == name) {
        return refused("a rule says it once");
    }
    let is_place = name.starts_with("http_") && Buffer::from_modifier(name).is_some();
    if !value.is_empty() && (BARE.contains(&name) || is_place) {
        return refused("nothing stands behind it");
    }
    if value.trim_start().starts_with('"') && UNQUOTED.contains(&name) {
        return refused("it takes no quotes");
    }
    // What is not UTF-8 was read as that letter: the bytes that were meant are lost.
    if value.contains(char::REPLACEMENT_CHARACTER) && !TOLD.contains(&name) {
        return refused("it is not UTF-8: write its bytes in hex between bars");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_right(options: &[(&'static str, &'static str)]) -> bool {
        let options: Vec<Setting<'_>> =
            options.iter().map(|(name, value)| Setting { name, value }).collect();
        let (last, before) = options.split_last().unwrap();
        check(before, last).is_ok()
    }

    #[test]
    fn what_is_said_twice_is_refused() {
        assert!(is_right(&[("gid", "1"), ("content", "\"a\""), ("content", "\"a\"")]));
        for name in ["msg", "sid", "rev"] {
            assert!(is_right(&[(name, "1")]) && !is_right(&[(name, "1"), (name, "2")]), "{name}");
        }
    }

    #[test]
    fn keywords_without_a_value_have_none() {
        for name in ["noalert", "bypass", "nocase", "endswith", "sameip", "http_uri"] {
            assert!(is_right(&[(name, "")]) && !is_right(&[(name, "1")]), "{name}");
        }
        assert!(is_right(&[("uricontent", "\"a\"")]), "a content, for all that it names a buffer");
    }

    #[test]
    fn some_take_no_quotes() {
        assert!(is_right(&[("ttl", "5")]) && !is_right(&[("ttl", "\"5\"")]));
        assert!(is_right(&[("tos", "\"5\"")]) && is_right(&[("metadata", "a \"b\"")]));
    }

    #[test]
    fn what_is_compared_is_utf_8() {
        assert!(is_right(&[("msg", "\"caf\u{fffd}\"")]) && is_right(&[("content", "\"café\"")]));
        assert!(!is_right(&[("content", "\"caf\u{fffd}\"")]));
        assert!(!is_right(&[("pcre", "\"/caf\u{fffd}/\"")]));
    }
}
