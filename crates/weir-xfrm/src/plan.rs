//! From the two databases to what the engine takes: peers, selectors, associations.
//!
//! A peer of the engine is what one kind of outward template leads to: an outer destination, a
//! mode, a request number. An outward association belongs to the peer whose template asks for it
//! (the newest that is not dying seals); an inward one to the peer that its source is.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_engine::policy::{Encapsulation, Mode, Peer, Prefix, Route, Sealing};

use crate::database::Xfrm;
use crate::policy::{Policy, accepts, wants};
use crate::refusal::{Errno, Refusal, refuse};
use crate::state::{Stage, State, ip};
use crate::uapi::*;

/// What a gateway is to its front ends.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Its own outer addresses; none: a bump in the wire.
    pub own: Vec<IpAddr>,
    /// SPIs of associations that its configuration holds.
    pub taken_spis: BTreeSet<u32>,
}

impl Place {
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
    /// The one peer whose associations differ in `next`, where nothing else does.
    pub fn changed_peer(&self, next: &Self) -> Option<usize> {
        let is_alike = self.peers.len() == next.peers.len()
            && self.selectors == next.selectors
            && self.acquire_for == next.acquire_for;
        let pairs = || self.peers.iter().zip(&next.peers).enumerate();
        let mut others = pairs().filter(|(_, (before, after))| before != after);
        let (index, (before, after)) = others.next().filter(|_| is_alike)?;
        let (seal_spi, open_spis) = (before.seal_spi, before.open_spis.clone());
        let is_only_that = *before == Peer { seal_spi, open_spis, ..after.clone() };
        (is_only_that && others.next().is_none()).then_some(index)
    }
}

/// What an association does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is not used.
    Idle,
    /// It seals to a peer.
    Sealing,
    /// It opens what a peer sends.
    Opening,
}

/// What tells peers apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    mode: u8,
    /// Unspecified: whoever.
    local: IpAddr,
    remote: IpAddr,
    request: u32,
}

struct Draft<'a> {
    xfrm: &'a Xfrm,
    names: Vec<Name>,
    plan: Plan,
}

impl Xfrm {
    /// What follows from the databases as they are. Notes for each association what it does.
    pub fn plan(&mut self) -> Plan {
        let mut draft = Draft { xfrm: self, names: Vec::new(), plan: Plan::default() };
        let outward = |it: &&Policy| it.info.direction == DIRECTION_OUT && !it.is_for_neighbours();
        for policy in self.policies.iter().filter(outward) {
            draft.add_outward(policy);
        }
        for (place, state) in self.states.iter().enumerate() {
            draft.add_inward(place, state);
        }
        let plan = draft.plan;
        for (place, state) in self.states.iter_mut().enumerate() {
            state.role = if plan.sealing.contains(&place) {
                Role::Sealing
            } else if plan.opening.contains(&place) {
                Role::Opening
            } else {
                Role::Idle
            };
        }
        plan
    }
}

impl Draft<'_> {
    fn add_outward(&mut self, policy: &Policy) {
        let far = policy.far();
        let Some(template) = policy.template.filter(|_| policy.info.action == ACTION_ALLOW) else {
            let passes = policy.info.action == ACTION_ALLOW;
            self.plan.selectors.push((far, if passes { Route::Clear } else { Route::Drop }));
            return;
        };
        let place = |bytes: &Address| ip(bytes, template.family);
        if template.mode == MODE_TUNNEL {
            let (local, remote) = (place(&template.source), place(&template.id.destination));
            let name = Name { mode: MODE_TUNNEL, local, remote, request: template.request };
            let seal = self.best(&template, |_| true);
            self.lead(policy, &template, name, far, seal);
            return;
        }
        // Transport mode: each destination has associations of its own, and the rest has none.
        let inside = |state: &State| far.contains(&mapped(state.destination()));
        let mut destinations: Vec<IpAddr> = Vec::new();
        for state in self.xfrm.states.iter().filter(|it| wants(&template, &it.info) && inside(it)) {
            if !destinations.contains(&state.destination()) {
                destinations.push(state.destination());
            }
        }
        let any = unspecified(template.family);
        let name =
            Name { mode: MODE_TRANSPORT, local: any, remote: any, request: template.request };
        for remote in destinations {
            let seal = self.best(&template, |it| it.destination() == remote);
            let host = Prefix::new(remote, u8::MAX);
            self.lead(policy, &template, Name { remote, ..name }, host, seal);
        }
        let covered = self.plan.selectors.iter().any(|(it, _)| *it == far);
        if !covered {
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
        let peer = &mut self.plan.peers[index];
        if !peer.protects.contains(&far) {
            peer.protects.push(far);
        }
        self.plan.acquire_for[index].get_or_insert(policy.info.index);
        let clear = template.optional != 0 && peer.seal_spi.is_none();
        let way = if clear { Route::Clear } else { Route::Peer(index as u32) };
        self.plan.selectors.push((far, way));
    }

    /// The association to seal with: valid before dying, then the newest.
    fn best(&self, template: &Template, also: impl Fn(&State) -> bool) -> Option<usize> {
        let states = self.xfrm.states.iter().enumerate();
        states
            .filter(|(_, it)| it.parameters.is_some() && wants(template, &it.info) && also(it))
            .max_by_key(|(place, it)| (it.stage == Stage::Valid, *place))
            .map(|(place, _)| place)
    }

    /// The index of the peer of that name, made when there is none.
    fn peer(&mut self, name: Name, seal: Option<usize>) -> usize {
        if let Some(index) = self.names.iter().position(|it| *it == name) {
            return index;
        }
        let is_here = |place: IpAddr| self.xfrm.place.is_here(place) || place.is_unspecified();
        let seal = seal.filter(|place| !self.plan.sealing.contains(place));
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
        self.plan.sealing.extend(seal);
        self.names.push(name);
        self.plan.peers.push(peer);
        self.plan.acquire_for.push(None);
        self.names.len() - 1
    }

    fn add_inward(&mut self, place: usize, state: &State) {
        if state.parameters.is_none() || self.plan.sealing.contains(&place) {
            return;
        }
        let inward = |it: &&Policy| it.info.direction != DIRECTION_OUT;
        let accepting: Vec<&Policy> = self
            .xfrm
            .policies
            .iter()
            .filter(inward)
            .filter(|it| it.template.is_some_and(|template| accepts(&template, &state.info)))
            .filter(|it| {
                state.info.mode == MODE_TUNNEL || it.far().contains(&mapped(state.source()))
            })
            .collect();
        let Some(index) = self.sender(state).or_else(|| {
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
        if self.plan.opening.iter().any(|it| self.xfrm.states[*it].spi() == state.spi()) {
            return;
        }
        let peer = &mut self.plan.peers[index];
        for far in accepting.iter().map(|it| it.far()) {
            if !peer.protects.contains(&far) {
                peer.protects.push(far);
            }
        }
        peer.open_spis.push(state.spi());
        self.plan.opening.push(place);
    }

    /// The peer that an inward association comes from.
    fn sender(&self, state: &State) -> Option<usize> {
        let (source, destination) = (state.source(), state.destination());
        let from = |name: &Name| {
            name.mode == state.info.mode
                && (name.remote == source || source.is_unspecified())
                && (name.local == destination || name.local.is_unspecified())
                && name.remote != destination
        };
        let asked = |name: &Name| from(name) && name.request == state.info.request;
        self.names.iter().position(asked).or_else(|| self.names.iter().position(from))
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
