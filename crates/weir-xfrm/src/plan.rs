//! From the two databases to what the engine takes: peers, selectors, associations.
//!
//! A peer of the engine is what one kind of outward template leads to: an outer destination, a
//! mode, a request number. An outward association belongs to the peer whose template asks for it
//! (the newest that is not dying seals); an inward one to the peer that its source is.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use weir_engine::policy::{Encapsulation, Mode, Peer, Prefix, Route, Sealing};

use crate::database::Xfrm;
use crate::policy::Policy;
use crate::refusal::{Errno, Refusal, refuse};
use crate::state::{Stage, State, ip};
use crate::uapi::*;

use index::{Accepting, ByTemplate, Names};

mod index;

/// What a gateway is to its front ends.
#[derive(Clone, Debug, Default)]
pub struct GatewayAddresses {
    /// Its own outer addresses; none: a bump in the wire.
    pub own: Vec<IpAddr>,
    /// SPIs of associations that its configuration holds.
    pub taken_spis: BTreeSet<u32>,
}

impl GatewayAddresses {
    /// Whether `address` is the gateway's own.
    pub fn is_here(&self, address: IpAddr) -> bool {
        self.own.contains(&address)
    }

    /// Whether the outer addresses of a policy's template can be carried out.
    ///
    /// # Errors
    /// They are not the gateway's.
    pub fn check(&self, policy: &Policy) -> Result<(), Refusal> {
        let Some(template) = policy.template.filter(|it| it.mode == MODE_TUNNEL) else {
            return Ok(());
        };
        let source = ip(&template.source, template.family);
        let destination = ip(&template.id.destination, template.family);
        let (local, remote) = match policy.info.direction {
            DIRECTION_OUT => (source, destination),
            DIRECTION_IN => (destination, source),
            _ => return Ok(()),
        };
        if remote.is_unspecified() && policy.info.direction == DIRECTION_OUT {
            return refuse(Errno::EINVAL, "the tunnel leads nowhere; give the template a dst");
        }
        if self.own.is_empty() {
            return match policy.is_between(source, destination) {
                true => Ok(()),
                false => refuse(
                    Errno::EADDRNOTAVAIL,
                    "the pair has no `address`: tunnels end at the hosts themselves",
                ),
            };
        }
        let usable = |own: &IpAddr| own.is_ipv4() == remote.is_ipv4();
        if self.own.iter().any(|own| usable(own) && (*own == local || local.is_unspecified())) {
            return Ok(());
        }
        refuse(Errno::EADDRNOTAVAIL, "the tunnel's near end is no `address` of the pair")
    }
}

/// What the engine is to do for the front ends.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The peers.
    pub peers: Vec<Peer>,
    /// What decides, in order; indices are into `peers`.
    pub selectors: Vec<(Prefix, Route)>,
    /// For each peer: the policy (by index) to acquire an association for when it has none.
    pub acquire_for: Vec<Option<u32>>,
    /// Places in [`Xfrm::states`] of the associations that seal, as the peers name them.
    pub sealing: Vec<usize>,
    /// Likewise of those that open.
    pub opening: Vec<usize>,
}

impl Plan {
    /// The same without some associations (places in `states`): their peers lack them.
    pub fn without(&self, states: &[State], some: &BTreeSet<usize>) -> Self {
        let spis = |places: &[usize]| -> BTreeSet<u32> {
            places.iter().filter(|it| some.contains(it)).map(|it| states[*it].spi()).collect()
        };
        let (sealing, opening) = (spis(&self.sealing), spis(&self.opening));
        let mut plan = self.clone();
        for peer in &mut plan.peers {
            peer.seal_spi.take_if(|spi| sealing.contains(spi));
            peer.open_spis.retain(|spi| !opening.contains(spi));
        }
        plan.sealing.retain(|it| !some.contains(it));
        plan.opening.retain(|it| !some.contains(it));
        plan
    }
}

impl Plan {
    /// The peers whose associations differ in `next`; `None` where anything else does, or an
    /// association has become another peer's.
    pub fn changed_peers(&self, next: &Self) -> Option<ChangedPeers> {
        let is_alike = self.peers.len() == next.peers.len()
            && self.selectors == next.selectors
            && self.acquire_for == next.acquire_for;
        if !is_alike {
            return None;
        }
        let mut changed = ChangedPeers::default();
        let (mut unsealed, mut unopened) = (Vec::new(), Vec::new());
        let pairs = self.peers.iter().zip(&next.peers).enumerate();
        for (index, (before, after)) in pairs.filter(|(_, (before, after))| before != after) {
            let (seal_spi, open_spis) = (before.seal_spi, before.open_spis.clone());
            if *before != (Peer { seal_spi, open_spis, ..after.clone() }) {
                return None;
            }
            changed.peers.push(index);
            if before.seal_spi != after.seal_spi {
                unsealed.extend(before.seal_spi);
                changed.sealing.extend(after.seal_spi.map(|spi| (spi, index)));
            }
            let [old, new] = [&before.open_spis, &after.open_spis];
            unopened.extend(old.iter().copied().filter(|spi| !new.contains(spi)));
            let gained = new.iter().filter(|spi| !old.contains(spi));
            changed.opening.extend(gained.map(|spi| (*spi, index)));
        }
        let has_moved = unsealed.iter().any(|spi| changed.sealing.contains_key(spi))
            || unopened.iter().any(|spi| changed.opening.contains_key(spi));
        (!has_moved).then_some(changed)
    }
}

/// Peers that are to have other associations, by index in [`Plan::peers`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedPeers {
    /// They, in their order.
    pub peers: Vec<usize>,
    /// Whose new SPIs these are, of associations that seal.
    pub sealing: HashMap<u32, usize>,
    /// Of those that open.
    pub opening: HashMap<u32, usize>,
}

/// What an association does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It is not used.
    Idle,
    /// It seals to a peer.
    Sealing,
    /// It opens what a peer sends.
    Opening,
}

/// What tells peers apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Name {
    mode: u8,
    /// Unspecified: whoever.
    local: IpAddr,
    remote: IpAddr,
    request: u32,
}

struct Draft<'a> {
    xfrm: &'a Xfrm,
    by_template: ByTemplate,
    accepting: Accepting,
    names: Names,
    /// What peers protect already, and what is selected.
    protected: HashSet<(usize, Prefix)>,
    selected: HashSet<Prefix>,
    /// By the associations' places; and SPIs of those that open.
    roles: Vec<Role>,
    opening: HashSet<u32>,
    plan: Plan,
}

impl Xfrm {
    /// What follows from the databases as they are. Notes for each association what it does.
    pub fn plan(&mut self) -> Plan {
        let mut draft = Draft {
            xfrm: self,
            by_template: ByTemplate::of(&self.states),
            accepting: Accepting::of(&self.policies),
            names: Names::default(),
            protected: HashSet::new(),
            selected: HashSet::new(),
            roles: vec![Role::Idle; self.states.len()],
            opening: HashSet::new(),
            plan: Plan::default(),
        };
        let outward = |it: &&Policy| it.info.direction == DIRECTION_OUT && !it.is_for_neighbours();
        for policy in self.policies.iter().filter(outward) {
            draft.add_outward(policy);
        }
        for (place, state) in self.states.iter().enumerate() {
            draft.add_inward(place, state);
        }
        let Draft { plan, roles, .. } = draft;
        for (state, role) in self.states.iter_mut().zip(roles) {
            state.role = role;
        }
        plan
    }
}

impl Draft<'_> {
    fn add_outward(&mut self, policy: &Policy) {
        let far = policy.far();
        let Some(template) = policy.template.filter(|_| policy.info.action == ACTION_ALLOW) else {
            let passes = policy.info.action == ACTION_ALLOW;
            self.select(far, if passes { Route::Clear } else { Route::Drop });
            return;
        };
        let place = |bytes: &Address| ip(bytes, template.family);
        if template.mode == MODE_TUNNEL {
            let (local, remote) = (place(&template.source), place(&template.id.destination));
            let name = Name { mode: MODE_TUNNEL, local, remote, request: template.request };
            let seal = self.best(self.by_template.of_tunnel(&self.xfrm.states, &template));
            self.lead(policy, &template, name, far, seal);
            return;
        }
        // Transport mode: each destination has associations of its own, and the rest has none.
        let groups = self.by_template.of_transport(&self.xfrm.states, &template, far);
        let any = unspecified(template.family);
        let name =
            Name { mode: MODE_TRANSPORT, local: any, remote: any, request: template.request };
        for places in groups {
            let remote = self.xfrm.states[places[0]].destination();
            let seal = self.best(places.into_iter());
            let host = Prefix::new(remote, u8::MAX);
            self.lead(policy, &template, Name { remote, ..name }, host, seal);
        }
        if !self.selected.contains(&far) {
            let remote = match policy.info.selector.destination_len {
                32 | 128 => ip(&policy.info.selector.destination, policy.info.selector.family),
                _ => any,
            };
            self.lead(policy, &template, Name { remote, ..name }, far, None);
        }
    }

    /// Leads packets to `far` to the peer of that name.
    fn lead(
        &mut self,
        policy: &Policy,
        template: &Template,
        name: Name,
        far: Prefix,
        seal: Option<usize>,
    ) {
        let index = self.peer(name, seal);
        self.protect(index, far);
        let peer = &self.plan.peers[index];
        self.plan.acquire_for[index].get_or_insert(policy.info.index);
        let clear = template.optional != 0 && peer.seal_spi.is_none();
        let way = if clear { Route::Clear } else { Route::Peer(index as u32) };
        self.select(far, way);
    }

    fn select(&mut self, far: Prefix, way: Route) {
        self.selected.insert(far);
        self.plan.selectors.push((far, way));
    }

    fn protect(&mut self, index: usize, far: Prefix) {
        if self.protected.insert((index, far)) {
            self.plan.peers[index].protects.push(far);
        }
    }

    /// The association to seal with, of those at `places`: valid before dying, then the newest.
    fn best(&self, places: impl Iterator<Item = usize>) -> Option<usize> {
        let states = places.map(|place| (place, &self.xfrm.states[place]));
        states
            .filter(|(_, it)| it.parameters.is_some())
            .max_by_key(|(place, it)| (it.stage == Stage::Valid, *place))
            .map(|(place, _)| place)
    }

    /// The index of the peer of that name, made when there is none.
    fn peer(&mut self, name: Name, seal: Option<usize>) -> usize {
        if let Some(index) = self.names.find(&name) {
            return index;
        }
        let is_here = |place: IpAddr| self.xfrm.place.is_here(place) || place.is_unspecified();
        let seal = seal.filter(|place| self.roles[*place] == Role::Idle);
        let sealing = seal.map(|place| &self.xfrm.states[place]);
        let placed = name.mode == MODE_TUNNEL && !self.xfrm.place.own.is_empty();
        let Name { local, remote, request, .. } = name;
        let mode = if name.mode == MODE_TUNNEL { Mode::Tunnel } else { Mode::Transport };
        let peer = Peer {
            name: format!("xfrm-{}-{remote}-{request}", format!("{mode:?}").to_lowercase()),
            mode,
            encapsulation: encapsulation(sealing),
            sealing: Sealing::Require,
            endpoint: (placed && is_here(local)).then_some(remote),
            protects: Vec::new(),
            everything: false,
            seal_spi: sealing.map(State::spi),
            open_spis: Vec::new(),
            agreed: None,
            kernel: None,
            rate_limit: None,
            reaches: Vec::new(),
        };
        if let Some(place) = seal {
            self.roles[place] = Role::Sealing;
            self.plan.sealing.push(place);
        }
        self.plan.peers.push(peer);
        self.plan.acquire_for.push(None);
        self.names.push(name)
    }

    fn add_inward(&mut self, place: usize, state: &State) {
        if state.parameters.is_none() || self.roles[place] == Role::Sealing {
            return;
        }
        let accepting = self.accepting.of_state(&self.xfrm.policies, state);
        let Some(index) = self.names.sender(state).or_else(|| {
            let known = !accepting.is_empty();
            known.then(|| self.peer(reverse_name(state), None))
        }) else {
            return;
        };
        // A tunnel's packets must be asked for by a policy; in transport mode the kernel takes
        // what opens (`xfrm_policy_check` without a policy).
        if accepting.is_empty() && state.info.mode == MODE_TUNNEL {
            return;
        }
        if !self.opening.insert(state.spi()) {
            return;
        }
        for policy in accepting {
            self.protect(index, self.xfrm.policies[policy].far());
        }
        self.roles[place] = Role::Opening;
        self.plan.peers[index].open_spis.push(state.spi());
        self.plan.opening.push(place);
    }
}

/// The name of a peer that only sends.
fn reverse_name(state: &State) -> Name {
    let local = match state.info.mode {
        MODE_TUNNEL => state.destination(),
        _ => unspecified(state.info.family),
    };
    let (mode, request) = (state.info.mode, state.info.request);
    Name { mode, local, remote: state.source(), request }
}

fn encapsulation(state: Option<&State>) -> Encapsulation {
    const STANDARD_PORT: u16 = weir_engine::esp::outer::UDP_PORT;
    let Some(found) = state.and_then(|it| it.encapsulation) else { return Encapsulation::Esp };
    let source = u16::from_be_bytes(found.source_port);
    let destination = u16::from_be_bytes(found.destination_port);
    match (source, destination) {
        (STANDARD_PORT, STANDARD_PORT) => Encapsulation::Udp,
        _ => Encapsulation::UdpPorts { source, destination },
    }
}

fn unspecified(family: u16) -> IpAddr {
    ip(&Address::default(), family)
}

fn mapped(address: IpAddr) -> [u8; 16] {
    weir_engine::policy::mapped(address)
}
