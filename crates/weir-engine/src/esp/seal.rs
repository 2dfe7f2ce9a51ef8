//! Sealing: an inner payload becomes an ESP packet (RFC 4303 s3.3, RFC 4106).
//!
//! In place where the payload lies in a frame with room around it; from one buffer into another in
//! the same pass over memory where a super-packet is cut.

use weir_wire::frame::Frame;

use super::aead::{Aead, Provider};
use super::nonce::{NonceMaker, SequenceCounter};
use super::sa::{Fingerprint, SaError, SaParameters, Sequence, Spi};
use super::{
    HEADER_LEN, ICV_LEN, PADDING, TRAILER_LEN, block_padding_len, esp_len, padding_len, wireguard,
};
use crate::verdict::DropReason;

/// Why a packet was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Every number that the disk knows of is used; extend the reservation.
    #[error("no sequence number is reserved; write a new mark to disk and extend the reservation")]
    NotReserved,
    /// The association has used all its numbers; it needs a new key.
    #[error("the association's sequence numbers are used up; install a new key")]
    Exhausted,
    /// The buffer lacks room before or behind the payload.
    #[error("no room for the ESP header or trailer around the packet")]
    NoRoom,
    /// The cipher library refused.
    #[error("the cipher library refused to seal")]
    Cipher,
}

impl From<SealError> for DropReason {
    fn from(error: SealError) -> Self {
        match error {
            SealError::NotReserved => DropReason::SequenceNotReserved,
            SealError::Exhausted => DropReason::SequenceExhausted,
            SealError::NoRoom => DropReason::NoRoom,
            SealError::Cipher => DropReason::CipherRefused,
        }
    }
}

/// What must survive a restart on the sealing side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealingState {
    /// The key and salt it belongs to.
    pub fingerprint: Fingerprint,
    /// Numbers below this one may have been used.
    pub reserved_until: u64,
}

/// One direction's association, on the side that sends.
#[derive(Debug)]
pub struct SealingSa {
    spi: Spi,
    key: Aead,
    nonces: NonceMaker,
    counter: SequenceCounter,
    fingerprint: Fingerprint,
    is_wireguard: bool,
    /// See [`SealingSa::set_text_max`].
    text_max: usize,
}

impl SealingSa {
    /// An association that goes on where `state` ends, or begins when the key is new (`None`).
    ///
    /// No number is reserved yet: ask [`SealingSa::reservation_needed`], write, then
    /// [`SealingSa::extend_reservation`].
    ///
    /// # Errors
    /// [`SaError::StateForeign`] when the state was kept for another key.
    pub fn new(parameters: &SaParameters, state: Option<&SealingState>) -> Result<Self, SaError> {
        Self::by(Provider::of_this_machine(), parameters, state)
    }

    /// The same by a provider of one's choice.
    ///
    /// # Errors
    /// As [`SealingSa::new`].
    pub fn by(
        provider: Provider,
        parameters: &SaParameters,
        state: Option<&SealingState>,
    ) -> Result<Self, SaError> {
        let fingerprint = parameters.fingerprint();
        let start = match state {
            Some(state) if state.fingerprint == fingerprint => state.reserved_until,
            Some(state) => {
                let found = state.fingerprint;
                return Err(SaError::StateForeign { found, expected: fingerprint });
            }
            None => 0,
        };
        Ok(Self {
            spi: parameters.spi,
            key: parameters.key.expand(provider)?,
            nonces: NonceMaker::new(parameters),
            counter: SequenceCounter::new(start, parameters.sequence_end()),
            fingerprint,
            is_wireguard: parameters.is_wireguard(),
            text_max: 0,
        })
    }

    /// How the receiver finds the association.
    pub fn spi(&self) -> Spi {
        self.spi
    }

    /// The state to write to disk before more numbers are used; `Some` when less than half a
    /// [`super::nonce::RESERVATION_BLOCK`] is left.
    pub fn reservation_needed(&self) -> Option<SealingState> {
        let reserved_until = self.counter.reservation_needed()?;
        Some(SealingState { fingerprint: self.fingerprint, reserved_until })
    }

    /// Allows the numbers below `state.reserved_until`. Call only when `state` is on disk: after a
    /// crash numbers start from what the disk says.
    pub fn extend_reservation(&mut self, state: &SealingState) {
        debug_assert_eq!(state.fingerprint, self.fingerprint, "the state of this association");
        self.counter.extend_reservation(state.reserved_until);
    }

    /// What the disk holds by now.
    pub fn state(&self) -> SealingState {
        let reserved_until = self.counter.reserved_until();
        SealingState { fingerprint: self.fingerprint, reserved_until }
    }

    /// The number that the next packet will carry.
    pub fn next_sequence(&self) -> Sequence {
        Sequence(self.counter.next())
    }

    /// Numbers left before the association needs a new key.
    pub fn remaining(&self) -> u64 {
        self.counter.remaining()
    }

    /// Lets [`SealingSa::seal`] pad text up to so many bytes, trailer included, to whole cipher
    /// blocks; 0, as it begins: never.
    pub fn set_text_max(&mut self, bytes: usize) {
        self.text_max = bytes;
    }

    /// Seals in place: `frame` holds the inner payload (an IP packet, an EtherIP header and a
    /// frame, or a transport payload) and afterwards the ESP packet, header through ICV. Takes 16
    /// bytes of headroom and 18 to 33 of tailroom.
    ///
    /// # Errors
    /// [`SealError`]. After `NoRoom`, `NotReserved` and `Exhausted` the frame is as it was.
    #[inline]
    pub fn seal(&mut self, frame: &mut Frame<'_>, next_header: u8) -> Result<(), SealError> {
        if self.is_wireguard {
            return self.seal_data(frame);
        }
        let inner_len = frame.len();
        let padding = block_padding_len(inner_len, self.text_max);
        let behind = padding + TRAILER_LEN + ICV_LEN;
        if frame.headroom() < HEADER_LEN || frame.tailroom() < behind {
            return Err(SealError::NoRoom);
        }
        let sequence = self.counter.take()?;
        frame.append(behind).ok_or(SealError::NoRoom)?;
        let packet = frame.prepend(HEADER_LEN).ok_or(SealError::NoRoom)?;
        // All of the longest padding, as one store: the ICV will stand where the last bytes fall.
        let trailer = &mut packet[HEADER_LEN + inner_len..];
        trailer[..PADDING.len()].copy_from_slice(&PADDING);
        trailer[padding..padding + TRAILER_LEN].copy_from_slice(&[padding as u8, next_header]);
        self.finish(sequence, packet)
    }

    /// Gathers `pieces` behind each other into `out` and seals them there. Returns the length of
    /// the ESP packet, [`esp_len`] of the pieces' sum.
    ///
    /// # Errors
    /// [`SealError`]; `NoRoom` when `out` is too short.
    #[inline]
    pub fn seal_pieces(
        &mut self,
        pieces: &[&[u8]],
        next_header: u8,
        out: &mut [u8],
    ) -> Result<usize, SealError> {
        let inner_len = pieces.iter().map(|piece| piece.len()).sum();
        let packet = out.get_mut(..esp_len(inner_len)).ok_or(SealError::NoRoom)?;
        let sequence = self.counter.take()?;
        let mut end = HEADER_LEN;
        let trailer = Trailer::new(inner_len, next_header);
        for piece in pieces.iter().copied().chain([trailer.bytes()]) {
            packet[end..end + piece.len()].copy_from_slice(piece);
            end += piece.len();
        }
        self.finish(sequence, packet)?;
        Ok(esp_len(inner_len))
    }

    /// Seals `inner` into `out` in one pass over memory; `inner` stays as it is. Returns the length
    /// of the ESP packet.
    ///
    /// # Errors
    /// [`SealError`]; `NoRoom` when `out` is too short.
    #[inline]
    pub fn seal_to(
        &mut self,
        inner: &[u8],
        next_header: u8,
        out: &mut [u8],
    ) -> Result<usize, SealError> {
        if self.is_wireguard {
            return self.seal_data_to(inner, out);
        }
        if !self.key.seals_from_elsewhere() {
            return self.seal_pieces(&[inner], next_header, out);
        }
        let packet = out.get_mut(..esp_len(inner.len())).ok_or(SealError::NoRoom)?;
        let sequence = self.counter.take()?;
        let (header, rest) = packet.split_at_mut(HEADER_LEN);
        let iv = self.write_header(sequence, header);
        let (text, rest) = rest.split_at_mut(inner.len());
        let trailer = Trailer::new(inner.len(), next_header);
        let authenticated = self.nonces.authenticated(sequence);
        let nonce = self.nonces.nonce(&iv);
        let from = (inner, trailer.bytes());
        self.key
            .seal_to(nonce, authenticated.as_ref(), from, (text, rest))
            .map_err(|_| SealError::Cipher)?;
        Ok(esp_len(inner.len()))
    }

    /// Bytes of a packet that carries `inner_len` bytes and is padded no further than it must be.
    #[inline]
    pub fn packet_len(&self, inner_len: usize) -> usize {
        if self.is_wireguard { wireguard::data_len(inner_len) } else { esp_len(inner_len) }
    }

    /// [`SealingSa::seal`] as a data message of WireGuard.
    fn seal_data(&mut self, frame: &mut Frame<'_>) -> Result<(), SealError> {
        let inner_len = frame.len();
        let behind = wireguard::data_len(inner_len) - HEADER_LEN - inner_len;
        if frame.headroom() < HEADER_LEN || frame.tailroom() < behind {
            return Err(SealError::NoRoom);
        }
        let sequence = self.counter.take()?;
        frame.append(behind).ok_or(SealError::NoRoom)?;
        let packet = frame.prepend(HEADER_LEN).ok_or(SealError::NoRoom)?;
        self.finish_data(sequence, inner_len, packet)
    }

    /// [`SealingSa::seal_to`] as a data message of WireGuard.
    fn seal_data_to(&mut self, inner: &[u8], out: &mut [u8]) -> Result<usize, SealError> {
        let len = wireguard::data_len(inner.len());
        let packet = out.get_mut(..len).ok_or(SealError::NoRoom)?;
        let sequence = self.counter.take()?;
        if self.key.seals_from_elsewhere() {
            let (header, rest) = packet.split_at_mut(HEADER_LEN);
            let (text, rest) = rest.split_at_mut(inner.len());
            header.copy_from_slice(&wireguard::header(self.spi, sequence));
            let padding = &[0; wireguard::PADDING][..rest.len() - ICV_LEN];
            let nonce = wireguard::nonce(sequence);
            self.key
                .seal_to(nonce, &[], (inner, padding), (text, rest))
                .map_err(|_| SealError::Cipher)?;
            return Ok(len);
        }
        packet[HEADER_LEN..HEADER_LEN + inner.len()].copy_from_slice(inner);
        self.finish_data(sequence, inner.len(), packet)?;
        Ok(len)
    }

    /// Writes header, padding and tag around the `inner_len` bytes of text in `packet`.
    fn finish_data(
        &self,
        sequence: Sequence,
        inner_len: usize,
        packet: &mut [u8],
    ) -> Result<(), SealError> {
        let (header, rest) = packet.split_at_mut(HEADER_LEN);
        let (text, tag) = rest.split_at_mut(rest.len() - ICV_LEN);
        header.copy_from_slice(&wireguard::header(self.spi, sequence));
        text[inner_len..].fill(0);
        self.key.seal(wireguard::nonce(sequence), &[], text, tag).map_err(|_| SealError::Cipher)
    }

    /// Writes header and ICV around the text that already stands in `packet`, and encrypts it.
    #[inline]
    fn finish(&self, sequence: Sequence, packet: &mut [u8]) -> Result<(), SealError> {
        let (header, rest) = packet.split_at_mut(HEADER_LEN);
        let (text, icv) = rest.split_at_mut(rest.len() - ICV_LEN);
        let iv = self.write_header(sequence, header);
        let authenticated = self.nonces.authenticated(sequence);
        self.key
            .seal(self.nonces.nonce(&iv), authenticated.as_ref(), text, icv)
            .map_err(|_| SealError::Cipher)
    }

    /// Writes SPI, sequence number and explicit IV. The IV is the whole number: unique as long as
    /// the number is (RFC 4106 s3.1).
    #[inline]
    fn write_header(&self, sequence: Sequence, header: &mut [u8]) -> [u8; 8] {
        let iv = sequence.0.to_be_bytes();
        header[..4].copy_from_slice(&self.spi.value().to_be_bytes());
        header[4..8].copy_from_slice(&sequence.low().to_be_bytes());
        header[8..16].copy_from_slice(&iv);
        iv
    }
}

/// The least padding 1, 2, 3.., its length and the next header (RFC 4303 s2.4 to s2.6).
///
/// Made in a register: bytes written one by one and read back as words stall the store buffer.
struct Trailer {
    bytes: [u8; 8],
    len: usize,
}

impl Trailer {
    #[inline]
    fn new(inner_len: usize, next_header: u8) -> Self {
        let padding = padding_len(inner_len);
        let fields = u64::from(next_header) << 8 | padding as u64;
        let word = 0x0003_0201 & !(u64::MAX << (8 * padding)) | fields << (8 * padding);
        Self { bytes: word.to_le_bytes(), len: padding + TRAILER_LEN }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
