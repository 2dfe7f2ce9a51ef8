//! Opening: an ESP packet becomes its inner payload, or a reason to drop it (RFC 4303 s3.4).

use weir_wire::frame::Frame;

use super::aead::{Aead, Provider};
use super::nonce::NonceMaker;
use super::replay::{ReplayError, ReplayState, ReplayWindow};
use super::sa::{Fingerprint, SaError, SaParameters, Sequence, Spi};
use super::{ALIGNMENT, BLOCK, HEADER_LEN, ICV_LEN, PADDING, esp_len, next_header, wireguard};
use crate::verdict::DropReason;

/// What an opened packet says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The protocol of the inner payload.
    pub next_header: u8,
    /// Its number.
    pub sequence: Sequence,
}

impl Opened {
    /// Whether it only hides when traffic flows, to be consumed silently (RFC 4303 s2.6).
    pub fn is_dummy(&self) -> bool {
        self.next_header == next_header::DUMMY
    }
}

/// Why a packet was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Too short for ESP, or no multiple of four bytes of text.
    #[error("ESP packet too short or of a length that no sender makes")]
    Malformed,
    /// For another association; the caller looked up the wrong one.
    #[error("ESP packet of another association")]
    WrongSpi,
    /// Left of the anti-replay window.
    #[error("sequence number left of the replay window")]
    ReplayOld,
    /// Accepted before.
    #[error("sequence number accepted before")]
    ReplayDuplicate,
    /// The integrity check failed: forged, damaged, or another key.
    #[error("integrity check failed")]
    Authentication,
    /// Authentic, but its padding is wrong: the sender is broken.
    #[error("padding is not 1, 2, 3.. or longer than the packet")]
    Trailer,
}

impl From<OpenError> for DropReason {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Malformed => DropReason::EspMalformed,
            OpenError::WrongSpi => DropReason::UnknownSpi,
            OpenError::ReplayOld => DropReason::ReplayOld,
            OpenError::ReplayDuplicate => DropReason::ReplayDuplicate,
            OpenError::Authentication => DropReason::Authentication,
            OpenError::Trailer => DropReason::EspTrailer,
        }
    }
}

impl From<ReplayError> for OpenError {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Old => OpenError::ReplayOld,
            ReplayError::Duplicate => OpenError::ReplayDuplicate,
        }
    }
}

/// Proof that the packet of this number passed its integrity check. Only opening makes it.
#[derive(Debug)]
pub struct Authentic(Sequence);

impl Authentic {
    /// The number.
    pub fn sequence(&self) -> Sequence {
        self.0
    }

    #[cfg(test)]
    pub(super) fn for_test(sequence: Sequence) -> Self {
        Self(sequence)
    }
}

/// What must survive a restart on the opening side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpeningState {
    /// The key and salt it belongs to.
    pub fingerprint: Fingerprint,
    /// Which numbers were accepted.
    pub replay: ReplayState,
}

/// One direction's association, on the side that receives.
#[derive(Debug)]
pub struct OpeningSa {
    spi: Spi,
    key: Aead,
    nonces: NonceMaker,
    extended: bool,
    window: ReplayWindow,
    dirty: bool,
    fingerprint: Fingerprint,
    is_wireguard: bool,
}

impl OpeningSa {
    /// An association that goes on where `state` ends, or begins when the key is new (`None`).
    ///
    /// # Errors
    /// [`SaError`]: a window out of bounds, state of another key, or damaged state.
    pub fn new(parameters: &SaParameters, state: Option<&OpeningState>) -> Result<Self, SaError> {
        Self::by(Provider::of_this_machine(), parameters, state)
    }

    /// The same by a provider of one's choice.
    ///
    /// # Errors
    /// As [`OpeningSa::new`].
    pub fn by(
        provider: Provider,
        parameters: &SaParameters,
        state: Option<&OpeningState>,
    ) -> Result<Self, SaError> {
        let expected = parameters.fingerprint();
        let window = match state {
            Some(state) if state.fingerprint == expected => {
                ReplayWindow::restore(parameters.replay_window, &state.replay)?
            }
            Some(state) => {
                return Err(SaError::StateForeign { found: state.fingerprint, expected });
            }
            None => ReplayWindow::new(parameters.replay_window)?,
        };
        Ok(Self {
            spi: parameters.spi,
            key: parameters.key.expand(provider)?,
            nonces: NonceMaker::new(parameters),
            extended: parameters.extended_sequence,
            window,
            dirty: false,
            fingerprint: expected,
            is_wireguard: parameters.is_wireguard(),
        })
    }

    /// How a packet finds the association.
    pub fn spi(&self) -> Spi {
        self.spi
    }

    /// The highest number accepted.
    pub fn highest(&self) -> Sequence {
        self.window.highest()
    }

    /// Whether a packet was accepted since the last [`OpeningSa::snapshot`]. A packet may leave the
    /// gateway only when the snapshot that knows it is kept, or a restart would accept it again.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// The state to keep. Allocates nothing when `state` comes from an earlier snapshot.
    pub fn snapshot(&mut self, state: &mut OpeningState) {
        state.fingerprint = self.fingerprint;
        self.window.snapshot(&mut state.replay);
        self.dirty = false;
    }

    /// An empty state of this association, to hand to [`OpeningSa::snapshot`].
    pub fn empty_state(&self) -> OpeningState {
        OpeningState { fingerprint: self.fingerprint, replay: ReplayState::default() }
    }

    /// Opens in place: `frame` holds an ESP packet, SPI through ICV, and afterwards the inner
    /// payload without padding.
    ///
    /// # Errors
    /// [`OpenError`]. After `Authentication` the bytes of the frame are undefined; drop it.
    #[inline]
    pub fn open(&mut self, frame: &mut Frame<'_>) -> Result<Opened, OpenError> {
        if self.is_wireguard {
            return self.open_data(frame);
        }
        let len = frame.len();
        if len < esp_len(0) || !(len - HEADER_LEN - ICV_LEN).is_multiple_of(ALIGNMENT) {
            return Err(OpenError::Malformed);
        }
        let (header, rest) =
            frame.bytes_mut().split_first_chunk_mut::<HEADER_LEN>().ok_or(OpenError::Malformed)?;
        let (text, icv) = rest.split_last_chunk_mut::<ICV_LEN>().ok_or(OpenError::Malformed)?;
        let [spi @ .., _, _, _, _, _, _, _, _, _, _, _, _] = *header;
        if u32::from_be_bytes(spi) != self.spi.value() {
            return Err(OpenError::WrongSpi);
        }
        let authentic = self.decrypt(header, text, icv)?;
        let sequence = authentic.sequence();
        self.window.mark(authentic);
        self.dirty = true;
        let (inner_len, next_header) = split_trailer(text)?;
        frame.trim_front(HEADER_LEN);
        frame.truncate(inner_len);
        Ok(Opened { next_header, sequence })
    }

    /// [`OpeningSa::open`] of a data message of WireGuard.
    fn open_data(&mut self, frame: &mut Frame<'_>) -> Result<Opened, OpenError> {
        let (header, rest) =
            frame.bytes_mut().split_first_chunk_mut::<HEADER_LEN>().ok_or(OpenError::Malformed)?;
        let (text, tag) = rest.split_last_chunk_mut::<ICV_LEN>().ok_or(OpenError::Malformed)?;
        let sequence = wireguard::sequence(self.spi, header).ok_or(OpenError::WrongSpi)?;
        self.window.check(sequence)?;
        self.key
            .open(wireguard::nonce(sequence), &[], tag, text)
            .map_err(|_| OpenError::Authentication)?;
        self.window.mark(Authentic(sequence));
        self.dirty = true;
        let (inner_len, next_header) = wireguard::inner_packet(text).ok_or(OpenError::Trailer)?;
        frame.trim_front(HEADER_LEN);
        frame.truncate(inner_len);
        Ok(Opened { next_header, sequence })
    }

    #[inline]
    fn decrypt(
        &self,
        header: &[u8; HEADER_LEN],
        text: &mut [u8],
        icv: &[u8; ICV_LEN],
    ) -> Result<Authentic, OpenError> {
        let [_, _, _, _, low @ .., _, _, _, _, _, _, _, _] = *header;
        let [_, _, _, _, _, _, _, _, iv @ ..] = *header;
        let sequence = self.whole_number(u32::from_be_bytes(low), u64::from_be_bytes(iv))?;
        self.window.check(sequence)?;
        let authenticated = self.nonces.authenticated(sequence);
        self.key
            .open(self.nonces.nonce(&iv), authenticated.as_ref(), icv, text)
            .map_err(|_| self.reason_of_failure(sequence, u64::from_be_bytes(iv)))?;
        Ok(Authentic(sequence))
    }

    /// The number of a packet that carries its low half.
    ///
    /// RFC 4303 App. A2 guesses the high half from the window, which goes wrong for ever once 2^32
    /// packets were lost or the window's state was. A sender of ours tells the whole number as its
    /// IV; to believe one that is ahead costs nothing, since the integrity check covers both.
    #[inline]
    fn whole_number(&self, low: u32, iv: u64) -> Result<Sequence, OpenError> {
        let told = Sequence(iv);
        if !self.extended {
            return Ok(Sequence(low.into()));
        }
        if told.low() == low && told > self.window.highest() {
            return Ok(told);
        }
        Ok(self.window.recover(low)?)
    }

    /// With extended numbers, App. A2 takes a packet left of the window for one of the next round,
    /// and so its integrity check fails. Where the IV tells the number, the drop gets its name.
    #[cold]
    fn reason_of_failure(&self, tried: Sequence, iv: u64) -> OpenError {
        let told = Sequence(iv);
        let is_told = self.extended && told != tried && told.low() == tried.low();
        if is_told && self.window.check(told) == Err(ReplayError::Old) {
            OpenError::ReplayOld
        } else {
            OpenError::Authentication
        }
    }
}

/// The length of the inner payload and its protocol, from decrypted text.
#[inline]
fn split_trailer(text: &[u8]) -> Result<(usize, u8), OpenError> {
    let [payload @ .., pad_len, next_header] = text else { return Err(OpenError::Trailer) };
    let inner_len = payload.len().checked_sub(usize::from(*pad_len)).ok_or(OpenError::Trailer)?;
    let is_right = match payload.last_chunk() {
        Some(end) if usize::from(*pad_len) <= BLOCK => {
            // All at once, where padding is what block ciphers need at most.
            let shift = 8 * (BLOCK as u32 - u32::from(*pad_len));
            let expected = u128::from_le_bytes(PADDING).unbounded_shl(shift);
            (u128::from_le_bytes(*end) ^ expected).unbounded_shr(shift) == 0
        }
        _ => payload[inner_len..].iter().zip(1_u8..).all(|(found, expected)| *found == expected),
    };
    if is_right { Ok((inner_len, *next_header)) } else { Err(OpenError::Trailer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_1_2_3_and_so_on_in_text_of_any_length() {
        for (inner_len, pad_len) in (0..40).flat_map(|len| (0..40_u8).map(move |pad| (len, pad))) {
            let mut text = vec![0xee; inner_len];
            text.extend(1..=pad_len);
            text.extend([pad_len, next_header::IPV4]);
            assert_eq!(split_trailer(&text), Ok((inner_len, next_header::IPV4)));
            for place in inner_len..inner_len + usize::from(pad_len) {
                let mut wrong = text.clone();
                wrong[place] ^= 0x10;
                assert_eq!(split_trailer(&wrong), Err(OpenError::Trailer), "{place} {text:?}");
            }
        }
        assert_eq!(split_trailer(&[1, 2, 3, 4]), Err(OpenError::Trailer), "longer than the text");
        assert_eq!(split_trailer(&[4]), Err(OpenError::Trailer), "no trailer");
    }
}
