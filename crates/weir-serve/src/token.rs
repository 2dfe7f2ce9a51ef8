//! Bearer tokens: one of 256 random bits in a file for its owner alone, and those of a file that
//! says who may do what.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use weir_store::entropy;

/// Bytes of randomness.
const RANDOM_BYTES: usize = 32;

/// Characters of a token, at least: what somebody writes into the file by hand must not be guessed.
const CHARACTERS_MIN: usize = 32;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file.
    #[error("cannot use the token file {path}: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Others can read it.
    #[error("the token file {0} can be read by others: `chmod 600` it, or remove it for a new one")]
    Exposed(PathBuf),
    /// A line of the file of several.
    #[error(
        "{path}, line {line}: write `viewer|operator|admin NAME TOKEN`, names once, tokens of \
             {CHARACTERS_MIN} characters or more"
    )]
    Line {
        /// Which file.
        path: PathBuf,
        /// From 1 on.
        line: usize,
    },
    /// It is no token.
    #[error("{0} holds no token of {CHARACTERS_MIN} characters or more: remove it for a new one")]
    Short(PathBuf),
}

/// What somebody may do; each may what those before may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look.
    Viewer,
    /// Block addresses.
    Operator,
    /// Say who is never blocked.
    Admin,
}

impl Role {
    /// Its name in the file and in the log book.
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Viewer, Self::Operator, Self::Admin].into_iter().find(|role| role.name() == name)
    }
}

/// Who has a token, and what he may do with it.
#[derive(Clone, Debug)]
pub struct Holder {
    /// As the log book names him.
    pub name: String,
    /// What he may do.
    pub role: Role,
    token: Token,
}

impl Holder {
    /// The holder of the one token that the server makes itself.
    pub fn admin(token: Token) -> Self {
        Self { name: "admin".to_owned(), role: Role::Admin, token }
    }

    /// Somebody who shows `token`.
    pub fn new(name: &str, role: Role, token: Token) -> Self {
        Self { name: name.to_owned(), role, token }
    }

    /// The holders in the file at `path`, `ROLE NAME TOKEN` a line; empty lines and those that
    /// begin with `#` say nothing.
    ///
    /// # Errors
    /// [`TokenError`]: the file cannot be read, others can read it, or a line is wrong.
    pub fn read(path: &Path) -> Result<Vec<Self>, TokenError> {
        let failed = |error| TokenError::Io { path: path.to_owned(), error };
        let text = fs::read_to_string(path).map_err(failed)?;
        if fs::metadata(path).map_err(failed)?.permissions().mode() & 0o077 != 0 {
            return Err(TokenError::Exposed(path.to_owned()));
        }
        let mut holders: Vec<Self> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || TokenError::Line { path: path.to_owned(), line: index + 1 };
            let words: Vec<&str> = line.split_whitespace().collect();
            let [role, name, token] = words[..] else { return Err(wrong()) };
            let role = Role::named(role).ok_or_else(wrong)?;
            let token = Token::new(token).ok_or_else(wrong)?;
            let is_taken = holders.iter().any(|it| it.name == name || it.token.is(&token.0));
            if is_taken || name == "admin" {
                return Err(wrong());
            }
            holders.push(Self::new(name, role, token));
        }
        Ok(holders)
    }

    /// Whether `shown` is his token.
    pub fn shows(&self, shown: &str) -> bool {
        self.token.is(shown)
    }
}

/// What a client shows to be let in. Its `Debug` shows nothing.
#[derive(Clone)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// The token in the file at `path`, which is made where there is none.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn read_or_make(path: &Path) -> Result<Self, TokenError> {
        let failed = |error| TokenError::Io { path: path.to_owned(), error };
        match fs::read_to_string(path) {
            Ok(text) => {
                let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
                if mode & 0o077 != 0 {
                    return Err(TokenError::Exposed(path.to_owned()));
                }
                Self::new(text.trim()).ok_or_else(|| TokenError::Short(path.to_owned()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(folder) = path.parent() {
                    fs::create_dir_all(folder).map_err(failed)?;
                }
                let token = Self::random().map_err(failed)?;
                let mut options = OpenOptions::new();
                options.write(true).create_new(true).mode(0o600);
                let mut file = options.open(path).map_err(failed)?;
                writeln!(file, "{}", token.0).map_err(failed)?;
                Ok(token)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// `text` as a token; `None`: too short, or not what an HTTP header can carry.
    pub fn new(text: &str) -> Option<Self> {
        let is_fit = text.len() >= CHARACTERS_MIN && text.bytes().all(|it| it.is_ascii_graphic());
        is_fit.then(|| Self(text.to_owned()))
    }

    fn random() -> io::Result<Self> {
        let bytes = entropy::bytes::<RANDOM_BYTES>()?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The token itself, to be shown to whoever started the server.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `shown` is this token, in a time that does not tell how much of it is.
    pub fn is(&self, shown: &str) -> bool {
        let (own, shown) = (self.0.as_bytes(), shown.as_bytes());
        let different = own.iter().zip(shown).fold(0, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(different) == 0 && own.len() == shown.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_made_once_and_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serve/token");
        let made = Token::read_or_make(&path).unwrap();
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!((made.reveal().len(), mode()), (2 * RANDOM_BYTES, 0o600));
        assert!(made.is(Token::read_or_make(&path).unwrap().reveal()));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Token::read_or_make(&path), Err(TokenError::Exposed(_))));
    }

    #[test]
    fn a_file_says_who_may_do_what() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let (one, other) = ("a".repeat(40), "b".repeat(40));
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Holder::read(&path)
        };
        let good = format!("# who\n\nviewer noc {one}\noperator soc {other}\n");
        let holders = write(&good, 0o600).unwrap();
        let roles: Vec<_> = holders.iter().map(|it| (it.name.as_str(), it.role)).collect();
        assert_eq!(roles, [("noc", Role::Viewer), ("soc", Role::Operator)]);
        assert!(holders[1].shows(&other) && !holders[1].shows(&one));
        assert!(matches!(write(&good, 0o640), Err(TokenError::Exposed(_))));
        for wrong in [
            "viewer noc short".to_owned(),
            format!("root noc {one}"),
            format!("viewer {one}"),
            format!("viewer admin {one}"),
            format!("viewer noc {one}\nviewer noc {other}"),
            format!("viewer noc {one}\nadmin boss {one}"),
        ] {
            assert!(matches!(write(&wrong, 0o600), Err(TokenError::Line { .. })), "{wrong}");
        }
    }

    #[test]
    fn only_the_whole_token_is_it() {
        let token = Token::new(&"a1".repeat(32)).unwrap();
        assert!(token.is(&"a1".repeat(32)));
        for wrong in ["", "a1", &"a1".repeat(31), &"a1".repeat(33), &"a2".repeat(32)] {
            assert!(!token.is(wrong), "{wrong}");
        }
        assert!(Token::new("short").is_none());
        assert!(!format!("{token:?}").contains("a1"));
    }
}
