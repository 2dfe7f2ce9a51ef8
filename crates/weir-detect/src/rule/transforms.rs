//! The keywords of transforms, and what stands behind them.

use std::sync::Arc;

use super::syntax::unquoted;
use super::{Base64Mode, Expression, FromBase64, Transform, content, pcre};

/// Bytes that something compressed becomes, unless a rule says otherwise, and at most.
const INFLATED_LEN: usize = 1024;
const INFLATED_LEN_MAX: usize = 1 << 20;

/// The transform that a keyword names, if it names one.
pub(super) fn parse(name: &str, value: &str) -> Result<Option<Transform>, String> {
    Ok(Some(match name {
        "xor" => {
            let digits = unquoted(value).1;
            let key = content::bytes(&format!("|{digits}|"))?;
            if key.is_empty() {
                return Err("a key of no byte".to_owned());
            }
            Transform::Xor(key.into())
        }
        "dotprefix" => Transform::DotPrefix,
        "strip_whitespace" => Transform::StripWhitespace,
        "compress_whitespace" => Transform::CompressWhitespace,
        "to_lowercase" => Transform::ToLowercase,
        "to_uppercase" => Transform::ToUppercase,
        "url_decode" => Transform::UrlDecode,
        "header_lowercase" => Transform::HeaderLowercase,
        "strip_pseudo_headers" => Transform::StripPseudoHeaders,
        "to_md5" => Transform::Md5,
        "to_sha1" => Transform::Sha1,
        "to_sha256" => Transform::Sha256,
        "from_base64" => Transform::FromBase64(from_base64(value)?),
        "gunzip" => Transform::Gunzip(length(value)?),
        "zlib_deflate" => Transform::ZlibInflate(length(value)?),
        "domain" => Transform::Domain,
        "tld" => Transform::PublicSuffix,
        "pcrexform" => {
            let text = unquoted(value).1;
            let regex = pcre::bounded(text)?;
            if regex.captures_len() != 2 {
                return Err("an expression has one group, which is what is taken".to_owned());
            }
            Transform::Captured(Expression { text: Arc::from(text), regex })
        }
        _ => return Ok(None),
    }))
}

/// `from_base64:bytes 12, offset 1, mode rfc2045`
fn from_base64(value: &str) -> Result<FromBase64, String> {
    let mut from = FromBase64 { bytes: None, offset: 0, mode: Base64Mode::Rfc4648 };
    for part in value.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        let wrong = || format!("`{part}` behind from_base64");
        let (word, argument) = part.split_once(char::is_whitespace).ok_or_else(wrong)?;
        let argument = argument.trim();
        let number = || argument.parse::<u32>().map_err(|_| wrong());
        match word {
            "bytes" => from.bytes = Some(number()?),
            "offset" => from.offset = number()?,
            "mode" => {
                from.mode = match argument {
                    "strict" => Base64Mode::Strict,
                    "rfc4648" => Base64Mode::Rfc4648,
                    "rfc2045" => Base64Mode::Rfc2045,
                    _ => return Err(wrong()),
                };
            }
            _ => return Err(wrong()),
        }
    }
    Ok(from)
}

/// `max-size 2048`, with a unit perhaps.
fn length(value: &str) -> Result<usize, String> {
    let value = value.trim();
    if value.is_empty() {
        return Ok(INFLATED_LEN);
    }
    let wrong = || format!("`{value}`: max-size and a number of bytes, at most {INFLATED_LEN_MAX}");
    let text = value.strip_prefix("max-size").ok_or_else(wrong)?.trim();
    let digits = text.trim_end_matches(|it: char| !it.is_ascii_digit());
    let unit = match text[digits.len()..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" | "kib" => 1 << 10,
        "mb" | "mib" => 1 << 20,
        _ => return Err(wrong()),
    };
    let length = digits.parse::<usize>().ok().and_then(|it| it.checked_mul(unit));
    length.filter(|it| (1..=INFLATED_LEN_MAX).contains(it)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_behind_a_transform_is_read_or_refused() {
        let whole = FromBase64 { bytes: Some(12), offset: 1, mode: Base64Mode::Rfc2045 };
        assert_eq!(from_base64("bytes 12, offset 1, mode rfc2045"), Ok(whole));
        assert!(from_base64("mode odd").is_err() && from_base64("bytes").is_err());
        assert_eq!((length(""), length("max-size 2kib")), (Ok(INFLATED_LEN), Ok(2048)));
        assert!(length("max-size 2gib").is_err() && length("size 2").is_err());
        assert!(parse("pcrexform", "\"a+\"").is_err() && parse("pcrexform", "\"(a\"").is_err());
    }
}
