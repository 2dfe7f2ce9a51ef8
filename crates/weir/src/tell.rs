//! Words for people, on standard error.

/// As the standard library's, but where standard error cannot be written nothing is said, and the
/// program goes on: its exit code says what came of it.
macro_rules! eprintln {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

/// The same, without a line's end.
macro_rules! eprint {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stderr(), $($words)*);
    }};
}
