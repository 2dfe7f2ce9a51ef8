//! The rule language's form: lines of a rule file to statements, nothing of their meaning.
//!
//! ```text
//! action protocol source ports -> destination ports (name: value; name; ...)
//! ```

/// The longest rule, in bytes; a longer one is refused.
pub const RULE_LEN_MAX: usize = 64 * 1024;
/// Options of a rule, at most; a rule with more is refused.
pub const OPTIONS_MAX: usize = 1024;

/// One rule in a file, perhaps over several lines that end in a backslash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where it begins, from 1.
    pub number: usize,
    /// The rule's text.
    pub text: String,
    /// Whether it is commented out.
    pub is_disabled: bool,
}

/// A rule's parts as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement<'a> {
    /// Such as `alert`.
    pub action: &'a str,
    /// Such as `tcp`.
    pub protocol: &'a str,
    /// Addresses on the left.
    pub source: &'a str,
    /// Ports on the left.
    pub source_ports: &'a str,
    /// `->` (false) or `<>` (true).
    pub is_both_ways: bool,
    /// Both sides of a transaction are meant together (`=>`).
    pub is_transactional: bool,
    /// Addresses on the right.
    pub destination: &'a str,
    /// Ports on the right.
    pub destination_ports: &'a str,
    /// In the order written.
    pub options: Vec<Setting<'a>>,
}

/// `name: value;`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting<'a> {
    /// The keyword.
    pub name: &'a str,
    /// What stands behind the colon, quotes and escapes as they are; empty if nothing does.
    pub value: &'a str,
}

/// The rules of a file, those that are commented out too.
pub fn lines(text: &str) -> Vec<Line> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, first)) = lines.next() {
        let mut text = first.trim().to_owned();
        while text.ends_with('\\') && may_continue(&text) {
            text.pop();
            let Some((_, next)) = lines.next() else { break };
            // Blanks that begin a line may be a content's.
            text.push_str(next.trim_end());
        }
        let bare = text.trim_start_matches(['#', ' ', '\t']);
        let is_disabled = text.starts_with('#');
        if bare.is_empty() || (is_disabled && !looks_like_a_rule(bare)) {
            continue;
        }
        let text = if is_disabled { bare.to_owned() } else { text };
        found.push(Line { number: index + 1, text, is_disabled });
    }
    found
}

/// A comment that ends in a backslash ends there: it must not take the next rule with it. A rule
/// that was commented out goes on as it did, until its end.
fn may_continue(text: &str) -> bool {
    let bare = text.trim_start_matches(['#', ' ', '\t']);
    let action = bare.split_whitespace().next().unwrap_or_default();
    let is_whole = bare.trim_end_matches(['\\', ' ', '\t']).ends_with(')');
    !text.starts_with('#') || (super::Action::from_word(action).is_some() && !is_whole)
}

fn looks_like_a_rule(text: &str) -> bool {
    let action = text.split_whitespace().next().unwrap_or_default();
    super::Action::from_word(action).is_some() && text.contains('(') && text.contains("sid")
}

/// A rule's parts.
///
/// # Errors
/// What is wrong with its form.
pub fn parse(text: &str) -> Result<Statement<'_>, String> {
    if text.len() > RULE_LEN_MAX {
        return Err(format!("longer than {RULE_LEN_MAX} bytes"));
    }
    if let Some(byte) = text.bytes().find(|it| it.is_ascii_control() && !b"\t\r\n".contains(it)) {
        return Err(format!("a control character: {byte:#04x}"));
    }
    let (header, body) = text.split_once('(').ok_or("no options: `(` is missing")?;
    let body = body.trim_end().strip_suffix(')').ok_or("no end: `)` is missing")?;
    let [action, protocol, rest] = words(header)?;
    let (source, rest) = group(rest)?;
    let (source_ports, rest) = group(rest)?;
    let (direction, rest) = group(rest)?;
    let (destination, rest) = group(rest)?;
    let (destination_ports, rest) = group(rest)?;
    if !rest.trim().is_empty() {
        return Err(format!("`{}` before the options", rest.trim()));
    }
    if !matches!(direction, "->" | "<>" | "=>") {
        return Err(format!("`{direction}` where `->`, `<>` or `=>` is expected"));
    }
    Ok(Statement {
        action,
        protocol,
        source,
        source_ports,
        is_both_ways: direction == "<>",
        is_transactional: direction == "=>",
        destination,
        destination_ports,
        options: options(body)?,
    })
}

fn words(header: &str) -> Result<[&str; 3], String> {
    let header = header.trim_start();
    let (action, rest) = header.split_once(char::is_whitespace).ok_or("no protocol")?;
    let rest = rest.trim_start();
    let (protocol, rest) = rest.split_once(char::is_whitespace).ok_or("no addresses")?;
    Ok([action, protocol, rest])
}

/// A word, or a group in brackets with spaces in it; and what follows.
fn group(text: &str) -> Result<(&str, &str), String> {
    let text = text.trim_start();
    let mut depth = 0_usize;
    for (index, character) in text.char_indices() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1).ok_or("`]` without `[`")?,
            _ if character.is_whitespace() && depth == 0 => {
                return Ok((&text[..index], &text[index..]));
            }
            _ => {}
        }
    }
    match (depth, text) {
        (0, "") => Err("the header has addresses and ports on both sides of `->`".to_owned()),
        (0, _) => Ok((text, "")),
        _ => Err("`[` without `]`".to_owned()),
    }
}

/// Splits at every semicolon that no backslash precedes.
fn options(mut body: &str) -> Result<Vec<Setting<'_>>, String> {
    let mut found = Vec::new();
    loop {
        body = body.trim_start();
        if body.is_empty() {
            return Ok(found);
        }
        if found.len() == OPTIONS_MAX {
            return Err(format!("more than {OPTIONS_MAX} options"));
        }
        let bytes = body.as_bytes();
        let end = (0..bytes.len())
            .find(|at| bytes[*at] == b';' && (*at == 0 || bytes[*at - 1] != b'\\'))
            .ok_or_else(|| format!("`{}` does not end in `;`", excerpt(body)))?;
        let option = body[..end].trim();
        body = &body[end + 1..];
        if option.is_empty() {
            continue;
        }
        let (name, value) = option.split_once(':').unwrap_or((option, ""));
        found.push(Setting { name: name.trim(), value: value.trim() });
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

/// What stands between the quotes of a value, `!` before them told apart; `None`: it has none, or
/// something behind them.
pub(crate) fn quoted(value: &str) -> Option<(bool, &str)> {
    let value = value.trim();
    let bare = value.strip_prefix('!').map_or(value, str::trim_start);
    let inner = bare.strip_prefix('"')?.strip_suffix('"')?;
    Some((bare.len() < value.len(), inner))
}

/// `"text"` without its quotes, `!` before it told apart; other text as it is.
pub(crate) fn unquoted(value: &str) -> (bool, &str) {
    let value = value.trim();
    let (is_negated, value) = match value.strip_prefix('!') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, value),
    };
    let inner = value.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    (is_negated, inner.unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_falls_into_its_parts() {
        let text = concat!(
            r#"drop tcp [10.0.0.1, !10.0.0.2] any <> $HOME_NET [80,!81] "#,
            r#"(msg:"a\;b \"c\""; content:"x|3b|"; nocase; sid:1;)"#,
        );
        let rule = parse(text).unwrap();
        assert_eq!((rule.action, rule.protocol, rule.is_both_ways), ("drop", "tcp", true));
        assert_eq!((rule.source, rule.source_ports), ("[10.0.0.1, !10.0.0.2]", "any"));
        assert_eq!((rule.destination, rule.destination_ports), ("$HOME_NET", "[80,!81]"));
        let options: Vec<_> = rule.options.iter().map(|it| (it.name, it.value)).collect();
        assert_eq!(
            options,
            [("msg", r#""a\;b \"c\"""#), ("content", r#""x|3b|""#), ("nocase", ""), ("sid", "1")]
        );
    }

    #[test]
    fn wrong_forms_are_refused_and_say_why() {
        for (wrong, says) in [
            ("alert tcp any any -> any any", "`(`"),
            ("alert tcp any any -> any any (sid:1;", "`)`"),
            ("alert tcp any any -> any any (sid:1)", "`;`"),
            ("alert tcp any any any any (sid:1;)", "both sides"),
            ("alert tcp any any == any any (sid:1;)", "`==`"),
            ("alert tcp [any any -> any any (sid:1;)", "`[`"),
            ("alert tcp any any -> any any more (sid:1;)", "`more`"),
            ("alert tcp any any -> any any (content:\"\x01\"; sid:1;)", "0x01"),
            ("alert tcp any any -> any any (content:\"\x7f\"; sid:1;)", "0x7f"),
            ("alert", "`(`"),
        ] {
            assert!(parse(wrong).unwrap_err().contains(says), "{wrong}: {:?}", parse(wrong));
        }
    }

    #[test]
    fn quotes_have_nothing_around_them_but_a_negation() {
        assert_eq!(quoted(" \"a\\\"b\" "), Some((false, "a\\\"b")));
        assert_eq!(quoted("! \"a\""), Some((true, "a")));
        for wrong in ["a", "\"", "\"a", "a\"", "\"a\",nocase", "!!\"a\""] {
            assert_eq!(quoted(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lines_continue_and_comments_are_told_from_rules() {
        let text = "# a comment (sid)\n#alert ip any any -> any any (sid:1;)\n\n\
                    alert ip any any \\\n  -> any any (sid:2;)\n";
        let found = lines(text);
        assert_eq!(found.len(), 2);
        assert!(found[0].is_disabled && !found[1].is_disabled);
        assert_eq!(found[1].number, 4);
        assert!(parse(&found[1].text).is_ok());
    }

    #[test]
    fn a_content_may_go_on_in_the_next_line() {
        let found = lines("alert ip any any -> any any (content:\"ab\\\n  c\"; sid:1;)");
        assert_eq!(found[0].text, "alert ip any any -> any any (content:\"ab  c\"; sid:1;)");
    }

    #[test]
    fn a_comment_that_ends_in_a_backslash_takes_no_rule_with_it() {
        let text = "# lists are in C:\\lists\\\n\
                    alert ip any any -> any any (sid:1;)\n\
                    #alert ip any any -> any any (sid:2;) \\\n\
                    alert ip any any -> any any (sid:3;)\n\
                    #alert ip any any \\\n -> any any (sid:4;)\n";
        let found = lines(text);
        let disabled: Vec<bool> = found.iter().map(|it| it.is_disabled).collect();
        assert_eq!(disabled, [false, true, false, true]);
        assert!(found.iter().all(|it| parse(it.text.trim_end_matches([' ', '\\'])).is_ok()));
    }
}
