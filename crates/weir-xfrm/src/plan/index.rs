//! What a plan asks of the databases, found by what is asked for. A look at all associations for
//! each policy, and the other way about, costs their product: most of a second with 4,000 tunnels.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use weir_engine::policy::Prefix;

use super::{Name, mapped};
use crate::policy::{Policy, accepts, wants};
use crate::state::{State, ip};
use crate::uapi::*;

/// Associations by what a template asks for.
#[derive(Debug, Default)]
pub(super) struct ByTemplate {
    /// By protocol, request and destination.
    tunnels: HashMap<(u8, u32, IpAddr), Vec<usize>>,
    /// By protocol and request; then by destination, which a policy has many of.
    transports: HashMap<(u8, u32), BTreeMap<u128, Vec<usize>>>,
}

impl ByTemplate {
    pub(super) fn of(states: &[State]) -> Self {
        let mut all = Self::default();
        for (place, state) in states.iter().enumerate() {
            let (protocol, request) = (state.info.id.protocol, state.info.request);
            let destination = state.destination();
            let places = match state.info.mode {
                MODE_TUNNEL => all.tunnels.entry((protocol, request, destination)).or_default(),
                _ => {
                    let of_request = all.transports.entry((protocol, request)).or_default();
                    of_request.entry(u128::from_be_bytes(mapped(destination))).or_default()
                }
            };
            places.push(place);
        }
        all
    }

    /// Places of the associations that a tunnel's template asks for, in their order.
    pub(super) fn of_tunnel<'a>(
        &'a self,
        states: &'a [State],
        template: &'a Template,
    ) -> impl Iterator<Item = usize> + 'a {
        let destination = ip(&template.id.destination, template.family);
        let places = self.tunnels.get(&(template.id.protocol, template.request, destination));
        let all = places.into_iter().flatten().copied();
        all.filter(|place| wants(template, &states[*place].info))
    }

    /// Places of the associations that a template in transport mode asks for and that lead to
    /// `far`: those of each destination together, the oldest destination first.
    pub(super) fn of_transport(
        &self,
        states: &[State],
        template: &Template,
        far: Prefix,
    ) -> Vec<Vec<usize>> {
        let key = (template.id.protocol, template.request);
        let Some(by_destination) = self.transports.get(&key) else { return Vec::new() };
        let last = far.first() | u128::MAX.checked_shr(far.prefix_len()).unwrap_or(0);
        let inside = by_destination.range(far.first()..=last);
        let wanted = |places: &Vec<usize>| -> Vec<usize> {
            let is_wanted = |place: &usize| {
                let state = &states[*place];
                wants(template, &state.info) && far.contains(&mapped(state.destination()))
            };
            places.iter().copied().filter(is_wanted).collect()
        };
        let mut found: Vec<Vec<usize>> = inside.map(|(_, places)| wanted(places)).collect();
        found.retain(|places| !places.is_empty());
        found.sort_by_key(|places| places[0]);
        found
    }
}

/// Policies of what comes in, by the associations that they accept. Requests of 0 accept any.
#[derive(Debug, Default)]
pub(super) struct Accepting {
    /// By protocol, request, destination and source; of no source: from anywhere.
    tunnels: HashMap<(u8, u32, IpAddr, Option<IpAddr>), Vec<usize>>,
    /// By protocol, request and what lies behind.
    transports: HashMap<(u8, u32, Prefix), Vec<usize>>,
    /// Lengths of those prefixes.
    lengths: BTreeSet<u8>,
}

impl Accepting {
    pub(super) fn of(policies: &[Policy]) -> Self {
        let mut all = Self::default();
        for (place, policy) in policies.iter().enumerate() {
            let Some(template) = policy.template else { continue };
            if policy.info.direction == DIRECTION_OUT {
                continue;
            }
            let (protocol, request) = (template.id.protocol, template.request);
            let places = match template.mode {
                MODE_TUNNEL => {
                    let end = |bytes: &Address| ip(bytes, template.family);
                    let source = (template.source != [0; 16]).then(|| end(&template.source));
                    let key = (protocol, request, end(&template.id.destination), source);
                    all.tunnels.entry(key).or_default()
                }
                _ => {
                    let far = policy.far();
                    all.lengths.insert(far.prefix_len() as u8);
                    all.transports.entry((protocol, request, far)).or_default()
                }
            };
            places.push(place);
        }
        all
    }

    /// Places of the policies that accept what comes by `state`, in their order.
    pub(super) fn of_state(&self, policies: &[Policy], state: &State) -> Vec<usize> {
        let protocol = state.info.id.protocol;
        let requests = BTreeSet::from([state.info.request, 0]);
        let is_tunnel = state.info.mode == MODE_TUNNEL;
        let mut found: Vec<usize> = Vec::new();
        for request in requests {
            if is_tunnel {
                for source in [Some(state.source()), None] {
                    let key = (protocol, request, state.destination(), source);
                    found.extend(self.tunnels.get(&key).into_iter().flatten());
                }
                continue;
            }
            let source = IpAddr::from(mapped(state.source()));
            for length in &self.lengths {
                let key = (protocol, request, Prefix::new(source, *length));
                found.extend(self.transports.get(&key).into_iter().flatten());
            }
        }
        let is_from = |it: &Policy| is_tunnel || it.far().contains(&mapped(state.source()));
        found.retain(|place| {
            let policy = &policies[*place];
            policy.template.is_some_and(|it| accepts(&it, &state.info)) && is_from(policy)
        });
        found.sort_unstable();
        found
    }
}

/// The names of the peers, in their order.
#[derive(Debug, Default)]
pub(super) struct Names {
    all: Vec<Name>,
    by_name: HashMap<Name, usize>,
    /// By mode and remote end, with a request and without.
    by_remote: HashMap<(u8, IpAddr, Option<u32>), Vec<usize>>,
}

impl Names {
    pub(super) fn find(&self, name: &Name) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Appends one that is not there, and returns its index.
    pub(super) fn push(&mut self, name: Name) -> usize {
        let index = self.all.len();
        for request in [Some(name.request), None] {
            self.by_remote.entry((name.mode, name.remote, request)).or_default().push(index);
        }
        self.by_name.insert(name, index);
        self.all.push(name);
        index
    }

    /// The peer that an inward association comes from: of its request, or else any.
    pub(super) fn sender(&self, state: &State) -> Option<usize> {
        let (source, destination) = (state.source(), state.destination());
        let from = |name: &Name| {
            name.mode == state.info.mode
                && (name.remote == source || source.is_unspecified())
                && (name.local == destination || name.local.is_unspecified())
                && name.remote != destination
        };
        if source.is_unspecified() {
            let asked = |name: &Name| from(name) && name.request == state.info.request;
            return self.all.iter().position(asked).or_else(|| self.all.iter().position(from));
        }
        [Some(state.info.request), None].into_iter().find_map(|request| {
            let indices = self.by_remote.get(&(state.info.mode, source, request))?;
            indices.iter().copied().find(|index| from(&self.all[*index]))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::state::address;

    /// An address out of few: a place of 0 is none.
    fn end(place: u8, is_v4: bool) -> IpAddr {
        match is_v4 {
            true => IpAddr::from(if place == 0 { [0; 4] } else { [192, 0, 2, place] }),
            false => IpAddr::from(u128::from(place).to_be_bytes()),
        }
    }

    type Drawn = (u8, u8, u8, u8, bool, bool, u8);

    fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
        let one = (0u8..4, 0u8..4, 0u8..3, 0u8..3, any::<bool>(), any::<bool>(), 0u8..4);
        proptest::collection::vec(one, 0..24)
    }

    fn state((from, to, request, spi, is_tunnel, is_v4, _): Drawn) -> State {
        let ((source, family), (destination, _)) =
            (address(end(from, is_v4)), address(end(to, is_v4)));
        let id = Id { destination, spi: [0, 0, 0, spi], protocol: PROTOCOL_ESP, ..Id::default() };
        let mode = if is_tunnel { MODE_TUNNEL } else { MODE_TRANSPORT };
        let request = request.into();
        State::larval(SaInfo { id, source, family, mode, request, ..SaInfo::default() }, 0)
    }

    fn policy(drawn: Drawn) -> Policy {
        let (from, to, _, _, _, is_v4, direction) = drawn;
        let State { info, .. } = state(drawn);
        let whole = if is_v4 { 32 } else { 128 };
        let selector = Selector {
            destination: info.id.destination,
            source: info.source,
            destination_len: if to == 0 { 0 } else { whole },
            source_len: [0, whole - 2, whole, whole][usize::from(from)],
            family: info.family,
            ..Selector::default()
        };
        let SaInfo { id, source, family, request, mode, .. } = info;
        let template = Template { id, source, family, request, mode, ..Template::default() };
        let info = PolicyInfo { selector, direction: direction % 3, ..PolicyInfo::default() };
        Policy { info, template: (direction != 3).then_some(template), is_dying: false }
    }

    proptest! {
        /// Whatever the databases hold, what is found is what a look at everything finds.
        #[test]
        fn what_is_looked_up_is_what_a_look_at_everything_finds(
            states in drawn(), policies in drawn()
        ) {
            let states: Vec<State> = states.into_iter().map(state).collect();
            let policies: Vec<Policy> = policies.into_iter().map(policy).collect();
            let by_template = ByTemplate::of(&states);
            for policy in &policies {
                let Some(template) = policy.template else { continue };
                let wanted = states.iter().enumerate();
                let wanted = wanted.filter(|(_, it)| wants(&template, &it.info));
                if template.mode == MODE_TUNNEL {
                    let found: Vec<usize> = by_template.of_tunnel(&states, &template).collect();
                    prop_assert_eq!(found, wanted.map(|(place, _)| place).collect::<Vec<_>>());
                    continue;
                }
                let far = policy.far();
                let mut groups: Vec<(IpAddr, Vec<usize>)> = Vec::new();
                for (place, state) in wanted {
                    let destination = state.destination();
                    if !far.contains(&mapped(destination)) {
                        continue;
                    }
                    match groups.iter_mut().find(|(it, _)| *it == destination) {
                        Some((_, places)) => places.push(place),
                        None => groups.push((destination, vec![place])),
                    }
                }
                let groups: Vec<Vec<usize>> = groups.into_iter().map(|(_, it)| it).collect();
                prop_assert_eq!(by_template.of_transport(&states, &template, far), groups);
            }
            let accepting = Accepting::of(&policies);
            for state in &states {
                let accepts_it = |policy: &Policy| {
                    policy.info.direction != DIRECTION_OUT
                        && policy.template.is_some_and(|it| accepts(&it, &state.info))
                        && (state.info.mode == MODE_TUNNEL
                            || policy.far().contains(&mapped(state.source())))
                };
                let all = policies.iter().enumerate();
                let wanted = all.filter(|(_, it)| accepts_it(it)).map(|(place, _)| place);
                let found = accepting.of_state(&policies, state);
                prop_assert_eq!(found, wanted.collect::<Vec<_>>());
            }
        }
    }
}
