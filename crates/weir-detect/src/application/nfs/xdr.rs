//! Numbers and opaque data as ONC RPC writes them (RFC 4506).

/// Bytes of a handle (RFC 7530 s2.1) and of a name that are looked at, at most.
const HANDLE_LEN_MAX: usize = 128;
const NAME_LEN_MAX: usize = 4096;

/// What is left to read.
#[derive(Clone, Copy)]
pub(super) struct Xdr<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Xdr<'a> {
    pub(super) fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u32::from_be_bytes(*number))
    }

    pub(super) fn wide(&mut self) -> Option<u64> {
        let (number, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u64::from_be_bytes(*number))
    }

    pub(super) fn opaque(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let bytes = self.rest.get(..length)?;
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(bytes)
    }

    pub(super) fn handle(&mut self) -> Option<&'a [u8]> {
        self.opaque().map(|it| &it[..it.len().min(HANDLE_LEN_MAX)])
    }

    pub(super) fn name(&mut self) -> Option<&'a [u8]> {
        self.opaque().map(|it| &it[..it.len().min(NAME_LEN_MAX)])
    }

    /// How many bytes of data there are, and those that were kept of them.
    pub(super) fn data(&mut self) -> Option<(u64, &'a [u8])> {
        let length = self.number()?;
        let kept = self.rest.len().min(usize::try_from(length).ok()?);
        let data = &self.rest[..kept];
        self.rest = self.rest.get(kept.next_multiple_of(4)..).unwrap_or_default();
        Some((length.into(), data))
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let bytes = self.rest.get(..count)?;
        self.rest = &self.rest[count..];
        Some(bytes)
    }

    pub(super) fn pass(&mut self, count: usize) -> Option<()> {
        self.bytes(count).map(drop)
    }

    /// Passes over so many words as the first says.
    pub(super) fn words(&mut self) -> Option<()> {
        let count = usize::try_from(self.number()?).ok()?;
        self.pass(count.checked_mul(4)?)
    }

    /// Passes over which attributes there are, and over them (RFC 7530 s3.2).
    pub(super) fn attributes(&mut self) -> Option<()> {
        self.words()?;
        self.opaque().map(drop)
    }
}
