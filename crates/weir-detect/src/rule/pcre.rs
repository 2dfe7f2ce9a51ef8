//! `pcre:"/pattern/flags"`: PCRE2, with a limit that a hostile pattern cannot pass.

use pcre2::bytes::RegexBuilder;

use super::Buffer;
use super::bytes::Names;
use super::state::BitNames;
use super::step::{Capture, Pcre};
use super::syntax::unquoted;
use crate::alert::TextScope;

/// Steps of the matcher for one attempt, at most (Suricata's default); an attempt that needs more
/// does not match, and is counted.
const MATCH_LIMIT: u32 = 3500;

/// An expression without flags, with the same limit.
pub(super) fn bounded(pattern: &str) -> Result<pcre2::bytes::Regex, String> {
    let mut builder = RegexBuilder::new();
    let pattern = format!("(*LIMIT_MATCH={MATCH_LIMIT}){pattern}");
    builder.jit_if_available(true).build(&pattern).map_err(|it| it.to_string())
}

/// An expression and the buffer that its own flags name, if they name one.
pub(crate) fn parse(
    value: &str,
    names: &mut Names,
    bits: &mut BitNames,
) -> Result<(Pcre, Option<Buffer>), String> {
    let (mut is_negated, text) = unquoted(value);
    let mut text = text.trim_start();
    // A negation may stand within the quotes.
    if let Some(rest) = text.strip_prefix('!') {
        (is_negated, text) = (true, rest.trim_start());
    }
    let text = text.strip_prefix('/').ok_or("pcre begins with `/`")?;
    let (pattern, rest) = text.rsplit_once('/').ok_or("pcre ends with `/`")?;
    let (flags, variables) = rest.split_once(',').unwrap_or((rest, ""));
    let mut builder = RegexBuilder::new();
    let (mut is_relative, mut buffer, mut prefix) = (false, None, String::new());
    let mut is_end_alone = false;
    for flag in flags.trim_end_matches('"').chars() {
        match flag {
            'i' => _ = builder.caseless(true),
            'm' => _ = builder.multi_line(true),
            's' => _ = builder.dotall(true),
            'x' => _ = builder.extended(true),
            'G' => prefix.push_str("(?U)"),
            'A' => prefix.push_str("\\A"),
            'R' => is_relative = true,
            'E' => is_end_alone = true,
            'B' | 'O' => {}
            other => match buffer_of(other) {
                Some(named) if buffer.is_none() => buffer = Some(named),
                Some(_) => return Err(format!("flags `{flags}`: they name two buffers")),
                None => return Err(format!("flag `{other}`")),
            },
        }
    }
    let pattern = match is_end_alone && !flags.contains('m') {
        true => with_dollars_at_the_end(pattern),
        false => pattern.to_owned(),
    };
    let pattern = if flags.contains('A') {
        format!("(*LIMIT_MATCH={MATCH_LIMIT}){prefix}(?:{pattern})")
    } else {
        format!("(*LIMIT_MATCH={MATCH_LIMIT}){prefix}{pattern}")
    };
    let regex = builder.jit_if_available(true).build(&pattern).map_err(|it| it.to_string())?;
    let mut captures = named_groups(&regex, bits);
    let named = variables.split(',').map(|it| it.trim().trim_end_matches('"'));
    for (place, name) in named.filter(|it| !it.is_empty()).enumerate() {
        let capture = match name.split_once(':') {
            None => Capture::Number(names.define(name)?),
            Some((whose, name)) => Capture::Text(kept(whose)?, bits.text(name)),
        };
        captures.push((place + 1, capture));
    }
    if regex.captures_len() == 1 && captures.iter().all(|it| matches!(it.1, Capture::Text(..))) {
        // Without a group nothing is ever captured.
        captures.clear();
    }
    if captures.iter().any(|it| it.0 >= regex.captures_len()) {
        return Err("more captures than groups".to_owned());
    }
    Ok((Pcre { regex, is_negated, is_relative, leads: false, captures }, buffer))
}

/// The buffer that a flag names.
fn buffer_of(flag: char) -> Option<Buffer> {
    Some(match flag {
        'U' => Buffer::HttpUri,
        'I' => Buffer::HttpUriRaw,
        'P' => Buffer::HttpRequestBody,
        'Q' => Buffer::FileData,
        'H' => Buffer::HttpHeader,
        'D' => Buffer::HttpHeaderRaw,
        'M' => Buffer::HttpMethod,
        'C' => Buffer::HttpCookie,
        'S' => Buffer::HttpStatusCode,
        'Y' => Buffer::HttpStatusMessage,
        'V' => Buffer::HttpUserAgent,
        'W' => Buffer::HttpHost,
        'Z' => Buffer::HttpHostRaw,
        _ => return None,
    })
}

/// The same expression, whose `$` is the very end and not a line's that ends it too (`E`).
fn with_dollars_at_the_end(pattern: &str) -> String {
    let (mut made, mut is_escaped, mut class) = (String::new(), false, None);
    for letter in pattern.chars() {
        match (letter, class) {
            _ if is_escaped => is_escaped = false,
            ('\\', _) => is_escaped = true,
            ('[', None) => class = Some(made.len() + 1),
            // As the first of a class it stands for itself.
            (']', Some(start)) if !matches!(&made[start..], "" | "^") => class = None,
            ('$', None) => {
                made.push_str("\\z");
                continue;
            }
            _ => {}
        }
        made.push(letter);
    }
    made
}

/// Whose text it is that a group fills.
fn kept(whose: &str) -> Result<TextScope, String> {
    match whose.trim() {
        "flow" => Ok(TextScope::Flow),
        "pkt" => Ok(TextScope::Packet),
        "alert" => Ok(TextScope::Alert),
        other => Err(format!("captures into `{other}`")),
    }
}

/// `(?P<flow_name>...)`: groups whose own names say what they fill.
fn named_groups(regex: &pcre2::bytes::Regex, bits: &mut BitNames) -> Vec<(usize, Capture)> {
    let names = regex.capture_names().iter().enumerate();
    let named = names.filter_map(|(group, name)| {
        let (whose, name) = name.as_deref()?.split_once('_')?;
        Some((group, Capture::Text(kept(whose).ok()?, bits.text(name))))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::with_dollars_at_the_end;

    #[test]
    fn a_dollar_is_the_very_end_but_where_it_stands_for_itself() {
        for (pattern, made) in [
            ("a$", "a\\z"),
            ("a$|b$", "a\\z|b\\z"),
            ("a\\$$", "a\\$\\z"),
            ("[$]$", "[$]\\z"),
            ("[]$]$", "[]$]\\z"),
            ("[^]$]$", "[^]$]\\z"),
            ("\\[$", "\\[\\z"),
        ] {
            assert_eq!(with_dollars_at_the_end(pattern), made, "{pattern}");
        }
    }
}
