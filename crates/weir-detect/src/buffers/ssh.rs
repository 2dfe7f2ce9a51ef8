//! SSH's identification lines (RFC 4253 s4.2): `SSH-2.0-OpenSSH_9.6 comment`.

/// Bytes of a line, at most; a longer one is none.
const LINE_LEN_MAX: usize = 255;

/// What a side says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Banner {
    held: Vec<u8>,
    is_done: bool,
    pub(crate) protocol: Vec<u8>,
    pub(crate) software: Vec<u8>,
}

impl Banner {
    /// Takes in a side's next bytes; whether they told what it is.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> bool {
        if self.is_done {
            return false;
        }
        self.held.extend_from_slice(bytes);
        while let Some(end) = self.held.iter().position(|it| *it == b'\n') {
            let line: Vec<u8> = self.held.drain(..=end).collect();
            let line = line.trim_ascii_end();
            // Servers may say other things before.
            let Some(rest) = line.strip_prefix(b"SSH-") else { continue };
            self.is_done = true;
            self.held = Vec::new();
            let Some(dash) = rest.iter().position(|it| *it == b'-') else { return false };
            self.protocol = rest[..dash].to_vec();
            let software = rest[dash + 1..].split(|it| *it == b' ').next();
            self.software = software.unwrap_or_default().to_vec();
            return true;
        }
        self.is_done = self.held.len() > LINE_LEN_MAX;
        if self.is_done {
            self.held = Vec::new();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart_however_it_is_cut() {
        let line = b"hello\r\nSSH-2.0-OpenSSH_9.6p1 Debian\r\n\0\0binary\n";
        for piece in 1..line.len() {
            let mut banner = Banner::default();
            let told = line.chunks(piece).filter(|it| banner.take(it)).count();
            assert_eq!(told, 1);
            assert_eq!(banner.protocol, b"2.0");
            assert_eq!(banner.software, b"OpenSSH_9.6p1");
        }
        let mut banner = Banner::default();
        assert!(!banner.take(&[b'x'; 300]) && !banner.take(b"\nSSH-2.0-a\n"));
    }
}
