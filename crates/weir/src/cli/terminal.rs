//! Text of strangers - names, signatures, what packets carry - on a terminal: it is shown, and
//! steers nothing.

/// Whether a terminal acts on `letter` in the place of showing it: controls, and marks that turn
/// the direction of writing or cannot be seen.
fn steers(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        )
}

/// `text` with a replacement character for each letter that would steer a terminal.
pub(super) fn shown(text: &str) -> String {
    text.chars().map(|letter| if steers(letter) { '\u{fffd}' } else { letter }).collect()
}

/// JSON that says the same, with such letters as escapes; line feeds stand between its values.
pub(super) fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter != '\n' && steers(letter) {
            let mut halves = [0; 2];
            letter.encode_utf16(&mut halves).iter().for_each(|it| out += &format!("\\u{it:04x}"));
        } else {
            out.push(letter);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clears the screen, names the window, hides a command behind another direction.
    const HOSTILE: &str = "\u{1b}[2J\u{9b}2J\u{1b}]0;owned\u{7}a\u{202e}b\u{200b}\r\n\u{7f}";

    #[test]
    fn nothing_steers_a_terminal() {
        assert_eq!(shown(HOSTILE), "?[2J?2J?]0;owned?a?b????".replace('?', "\u{fffd}"));
        assert_eq!(shown("Grüße, 你好 🦀"), "Grüße, 你好 🦀");
    }

    #[test]
    fn escaped_json_says_the_same() {
        let value = serde_json::json!({ HOSTILE: [HOSTILE, "Grüße"] });
        let text = json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!text.chars().any(|it| it != '\n' && steers(it)), "{text:?}");
        assert!(text.contains("Grüße"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
