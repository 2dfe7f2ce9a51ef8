//! Whether a peer that is sealed to when it can be is reached at present: falls at once when it is
//! dead, and rises slowly, so that a peer that comes and goes does not take its traffic along.

use super::peer::PeerState;

const SECOND_NS: u64 = 1_000_000_000;

/// How long a peer that was dead must be up before it is sealed to again; doubled with each fall.
const RISE_NS: u64 = 10 * SECOND_NS;
const DOUBLED_MAX: u32 = 5;

/// After so long without a fall, the earlier ones are forgotten.
const FORGET_NS: u64 = 600 * SECOND_NS;

/// What is known of one peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reach {
    was_up: bool,
    is_held: bool,
    falls: u32,
    up_since_ns: Option<u64>,
}

impl Reach {
    /// Takes in the state at `now_ns`. `Some(true)`: from now on it does not answer; `Some(false)`:
    /// it can be relied on again. Nothing is held of a peer that never was up: it has no keys.
    pub fn update(&mut self, now_ns: u64, state: PeerState) -> Option<bool> {
        if state != PeerState::Up {
            self.up_since_ns = None;
            if state != PeerState::Dead || self.is_held || !self.was_up {
                return None;
            }
            self.falls += 1;
            self.is_held = true;
            return Some(true);
        }
        self.was_up = true;
        let up_ns = now_ns.saturating_sub(*self.up_since_ns.get_or_insert(now_ns));
        if self.is_held && up_ns >= RISE_NS << (self.falls - 1).min(DOUBLED_MAX) {
            self.is_held = false;
            return Some(false);
        }
        if !self.is_held && up_ns >= FORGET_NS {
            self.falls = 0;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which something changed, with each second's state from `states`.
    fn changes(states: impl IntoIterator<Item = PeerState>) -> Vec<(u64, bool)> {
        let mut reach = Reach::default();
        (0..)
            .zip(states)
            .filter_map(|(at, state)| Some((at, reach.update(at * SECOND_NS, state)?)))
            .collect()
    }

    #[test]
    fn a_peer_that_never_was_up_is_not_held() {
        let connecting = [PeerState::Connecting, PeerState::Dead, PeerState::Idle, PeerState::Dead];
        assert_eq!(changes(connecting.repeat(10)), []);
        assert_eq!(changes([PeerState::Dead, PeerState::Up, PeerState::Up]), [], "nor delayed");
    }

    #[test]
    fn a_dead_peer_falls_at_once_and_rises_after_ten_seconds() {
        let states = [vec![PeerState::Up; 3], vec![PeerState::Dead; 4], vec![PeerState::Up; 20]];
        assert_eq!(changes(states.concat()), [(3, true), (17, false)]);
    }

    #[test]
    fn a_peer_that_flaps_stays_in_clear_and_each_fall_doubles_the_wait() {
        let flap = [vec![PeerState::Up; 5], vec![PeerState::Dead; 2]].concat();
        assert_eq!(changes(flap.repeat(100)), [(5, true)]);
        let slow = [vec![PeerState::Up; 41], vec![PeerState::Dead; 1]].concat();
        let falls_and_rises = changes(slow.repeat(4));
        let rises = falls_and_rises.iter().filter(|it| !it.1).map(|it| it.0 % 42);
        assert_eq!(rises.collect::<Vec<_>>(), [10, 20, 40]);
    }

    #[test]
    fn ten_quiet_minutes_forget_earlier_falls() {
        let fall = |up: usize| [vec![PeerState::Dead; 1], vec![PeerState::Up; up]].concat();
        let states = [vec![PeerState::Up; 1], fall(15), fall(700), fall(100)].concat();
        let rises: Vec<u64> =
            changes(states).into_iter().filter(|it| !it.1).map(|it| it.0).collect();
        assert_eq!(rises, [12, 38, 729]);
    }
}
