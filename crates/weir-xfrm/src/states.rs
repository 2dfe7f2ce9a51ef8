//! What is asked of the association database.

use weir_engine::esp::sa::Spi;

use crate::answer::Exchange;
use crate::database::{Outside, STATES_MAX, Xfrm, read};
use crate::netlink::{Writer, attributes};
use crate::refusal::{Errno, Refusal, refuse};
use crate::state::{Stage, State, fixed, same};
use crate::uapi::*;

/// Attempts to find a free SPI in a range.
const SPI_ATTEMPTS: usize = 64;

/// Attributes of the answer to `XFRM_MSG_GETSADINFO`.
const SAD_COUNT: u16 = 1;
const SAD_HASH: u16 = 2;

impl Xfrm {
    pub(crate) fn new_state(
        &mut self,
        exchange: &mut Exchange<'_>,
        body: &[u8],
        outside: &mut dyn Outside,
        update: bool,
    ) -> Result<(), Refusal> {
        let state = State::read(body, exchange.now)?;
        let place = self.find(&state.info.id, state.info.family);
        let known = place.map(|place| self.states[place].stage);
        match (update, known) {
            (false, Some(_)) => return refuse(Errno::EEXIST, "the association is there already"),
            (true, None) => return refuse(Errno::ESRCH, "there is no such association"),
            (true, Some(Stage::Valid | Stage::Dying)) => {
                let old = &mut self.states[place.unwrap_or_default()];
                if old.fingerprint() != state.fingerprint() {
                    return refuse(Errno::EINVAL, "a key does not change; install another");
                }
                old.update(state);
            }
            (_, Some(Stage::Larval) | None) => {
                self.refuse_taken_spi(&state)?;
                if place.is_none() && self.states.len() >= STATES_MAX {
                    return refuse(Errno::ENOBUFS, "there are 8192 associations already");
                }
                self.refuse_taken_key(&state, outside)?;
                if let Some(place) = place {
                    self.states.remove(place);
                }
                self.end_acquire(&state);
                self.states.push(state);
            }
        }
        let kind = if update { kind::UPD_SA } else { kind::NEW_SA };
        let info: (SaInfo, _) = read(body)?;
        if let Some(place) = self.find(&info.0.id, info.0.family) {
            let told = self.states[place].write(exchange.header(kind));
            exchange.notify(group::SA, told);
        }
        Ok(())
    }

    /// Weir finds associations by SPI alone, those of its configuration too.
    fn refuse_taken_spi(&self, state: &State) -> Result<(), Refusal> {
        let spi = state.spi();
        let id = &state.info.id;
        let inward = |it: &State| self.place.is_here(it.destination());
        let other = |it: &State| {
            let is_back = it.source() == state.destination() && it.destination() == state.source();
            it.spi() == spi
                && it.parameters.is_some()
                && !is_back
                && inward(it) == inward(state)
                && !it.is(&id.destination, id.spi, id.protocol, state.info.family)
        };
        if self.place.taken_spis.contains(&spi) || self.states.iter().any(other) {
            return refuse(
                Errno::EEXIST,
                "another association of this gateway has the SPI; Weir tells them by SPI alone",
            );
        }
        Ok(())
    }

    /// Two associations of one key would use its numbers twice, whichever way they go: the far end
    /// seals with the one, if not we with both.
    fn refuse_taken_key(&self, state: &State, outside: &mut dyn Outside) -> Result<(), Refusal> {
        let Some(key) = state.fingerprint() else { return Ok(()) };
        if self.states.iter().any(|it| it.fingerprint() == Some(key)) {
            return refuse(
                Errno::EEXIST,
                "another association has this key, and AES-GCM dies of a number used twice; give \
                 each association, and each direction, a key of its own",
            );
        }
        outside.admit(key)
    }

    /// An association that a packet asked for has come.
    fn end_acquire(&mut self, new: &State) {
        self.states.retain(|it| {
            let is_answered = it.stage == Stage::Larval
                && it.acquired_for.is_some()
                && it.info.family == new.info.family
                && it.info.mode == new.info.mode
                && it.info.request == new.info.request
                && same(&it.info.id.destination, &new.info.id.destination, new.info.family);
            !is_answered
        });
    }

    /// The place of an association with an SPI.
    pub(crate) fn find(&self, id: &Id, family: u16) -> Option<usize> {
        let wanted = |it: &State| it.is(&id.destination, id.spi, id.protocol, family);
        self.states.iter().position(|it| it.spi() != 0 && wanted(it))
    }

    fn find_by_id(&self, id: &SaId) -> Result<usize, Refusal> {
        let full =
            Id { destination: id.destination, spi: id.spi, protocol: id.protocol, ..Id::default() };
        let found = self.find(&full, id.family);
        found.ok_or_else(|| Refusal::new(Errno::ESRCH, "there is no such association"))
    }

    pub(crate) fn delete_state(
        &mut self,
        exchange: &mut Exchange<'_>,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let (id, _): (SaId, _) = read(body)?;
        let place = self.find_by_id(&id)?;
        let state = self.states.remove(place);
        self.note_removed(&state);
        let writer = Writer::new(exchange.header(kind::DEL_SA), &id);
        let told = state.write_attributes(writer.with(attribute::SA, &state.told()));
        exchange.notify(group::SA, told);
        Ok(())
    }

    pub(crate) fn tell_state(
        &mut self,
        exchange: &mut Exchange<'_>,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let (id, _): (SaId, _) = read(body)?;
        let state = &self.states[self.find_by_id(&id)?];
        let told = state.write(exchange.header(kind::NEW_SA));
        exchange.reply(told);
        Ok(())
    }

    /// All, or those of a protocol; address filters are read over, as kernels before 3.17 do.
    pub(crate) fn dump_states(
        &mut self,
        exchange: &mut Exchange<'_>,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let protocol = attributes(body).find(|(kind, _)| *kind == attribute::PROTOCOL);
        let protocol = match protocol {
            Some((_, value)) => fixed::<u8>(value)?,
            None => 0,
        };
        let header = exchange.header(kind::NEW_SA);
        let wanted =
            |it: &&State| matches!(protocol, 0 | PROTOCOL_ANY) || it.info.id.protocol == protocol;
        let told: Vec<_> = self.states.iter().filter(wanted).map(|it| it.write(header)).collect();
        exchange.reply_all(told.into_iter());
        Ok(())
    }

    pub(crate) fn allocate_spi(
        &mut self,
        exchange: &mut Exchange<'_>,
        body: &[u8],
        outside: &mut dyn Outside,
    ) -> Result<(), Refusal> {
        let (wanted, _): (SpiRange, _) = read(body)?;
        if wanted.info.id.protocol != PROTOCOL_ESP || wanted.min > wanted.max {
            return refuse(Errno::EINVAL, "SPIs are for ESP, and the range must hold one");
        }
        if !matches!(wanted.info.family, FAMILY_V4 | FAMILY_V6) {
            return refuse(Errno::EINVAL, "the family is neither IPv4 nor IPv6");
        }
        if self.states.len() >= STATES_MAX {
            return refuse(Errno::ENOBUFS, "there are 8192 associations already");
        }
        let span = u64::from(wanted.max - wanted.min) + 1;
        let is_free = |spi: u32| {
            Spi::new(spi).is_ok()
                && !self.place.taken_spis.contains(&spi)
                && self.states.iter().all(|it| it.spi() != spi)
        };
        let mut candidate = || wanted.min + (u64::from(outside.random()) % span) as u32;
        let Some(spi) = (0..SPI_ATTEMPTS).map(|_| candidate()).find(|spi| is_free(*spi)) else {
            return refuse(Errno::ENOENT, "no SPI of the range is free");
        };
        let mut info = wanted.info;
        info.id.spi = spi.to_be_bytes();
        info.limits.hard_add_seconds = crate::notice::LARVAL_SECONDS;
        let state = State::larval(info, exchange.now);
        let told = state.write(exchange.header(kind::NEW_SA));
        self.states.push(state);
        exchange.reply(told);
        Ok(())
    }

    pub(crate) fn flush_states(
        &mut self,
        exchange: &mut Exchange<'_>,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let (protocol, _): (u8, _) = read(body)?;
        if matches!(protocol, PROTOCOL_AH | PROTOCOL_COMP) || self.states.is_empty() {
            return Ok(());
        }
        for state in std::mem::take(&mut self.states) {
            self.note_removed(&state);
        }
        let told = Writer::new(exchange.header(kind::FLUSH_SA), &[protocol, 0, 0, 0]).finish();
        exchange.notify(group::SA, told);
        Ok(())
    }

    pub(crate) fn tell_numbering(
        &mut self,
        exchange: &mut Exchange<'_>,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let (id, _): (EventId, _) = read(body)?;
        let state = &self.states[self.find_by_id(&id.sa)?];
        let event = EventId {
            sa: id.sa,
            source: state.info.source,
            flags: id.flags,
            request: state.info.request,
        };
        let writer = Writer::new(exchange.header(kind::NEW_AE), &event);
        let told = state.write_replay(writer).with(attribute::LIFETIME_VALUE, &state.info.used);
        exchange.reply(told.finish());
        Ok(())
    }

    pub(crate) fn count_states(
        &mut self,
        exchange: &mut Exchange<'_>,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let (flags, _): (u32, _) = read(body)?;
        let count = self.states.len() as u32;
        let hash = HashInfo { now: count, max: STATES_MAX as u32 };
        let writer = Writer::new(exchange.header(kind::NEW_SAD_INFO), &flags);
        exchange.reply(writer.with(SAD_COUNT, &count).with(SAD_HASH, &hash).finish());
        Ok(())
    }
}
