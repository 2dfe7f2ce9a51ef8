//! What this machine's network looks like from the process's network namespace: links, addresses,
//! routes (rtnetlink), ssh sessions (/proc/net/tcp). Read once, changed never.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp, Prop,
    XdpAttached,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Messages of one answer, at most: a machine with more links than that is no gateway.
const MESSAGES_MAX: usize = 100_000;

/// The routing table that packets take unless a rule says otherwise (`ip route`).
const TABLE_MAIN: u32 = 254;

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its number in this namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its other names (`ip link property add altname`).
    pub other_names: Vec<String>,
    /// `veth`, `bridge`, `bond`, ...; absent for hardware.
    pub kind: Option<String>,
    /// Largest IP packet, bytes.
    pub mtu_bytes: u32,
    /// Ethernet address; absent for other links.
    pub mac: Option<[u8; 6]>,
    /// Whether it is switched on.
    pub up: bool,
    /// Whether there is a signal.
    pub carrier: bool,
    /// The bridge, bond or switch that it is a member of.
    pub controller: Option<u32>,
    /// The device that it stands on (VLAN, macvlan, VXLAN, ...) in the same namespace.
    pub stands_on: Option<u32>,
    /// Queues towards the wire.
    pub send_queues: u32,
    /// Queues from the wire.
    pub receive_queues: u32,
    /// Whether an XDP program is attached.
    pub has_xdp: bool,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// A route of the main table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    network: IpAddr,
    length_bits: u8,
    link: u32,
}

/// The machine at one moment.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Its interfaces.
    pub links: Vec<Link>,
    routes: Vec<Route>,
    ssh_clients: Vec<IpAddr>,
}

impl Machine {
    /// Reads it all.
    ///
    /// # Errors
    /// The kernel does not answer rtnetlink.
    pub fn read() -> io::Result<Self> {
        let mut machine = Self { ssh_clients: ssh_clients(), ..Self::read_links()? };
        for message in dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))? {
            if let RouteNetlinkMessage::NewAddress(address) = message {
                machine.add_address(address);
            }
        }
        for message in dump(RouteNetlinkMessage::GetRoute(RouteMessage::default()))? {
            if let RouteNetlinkMessage::NewRoute(route) = message {
                machine.add_routes(route);
            }
        }
        Ok(machine)
    }

    /// Reads its links alone.
    ///
    /// # Errors
    /// The kernel does not answer rtnetlink.
    pub fn read_links() -> io::Result<Self> {
        let answer = dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        let links = answer.into_iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some(read_link(link)),
            _ => None,
        });
        Ok(Self::with_links(links.collect()))
    }

    /// A machine with these links, no routes and no ssh session.
    pub fn with_links(links: Vec<Link>) -> Self {
        Self { links, ..Self::default() }
    }

    /// The interface `name`, which may be one of its other names.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links
            .iter()
            .find(|link| link.name == name || link.other_names.iter().any(|it| it == name))
    }

    /// The interface with number `index`.
    pub fn link_by_index(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    /// The links that a frame sent by `link` may leave by: itself, what it stands on, and the
    /// members of a bridge or bond, all the way down. Where it is routed to is not asked.
    pub fn ways_out<'m>(&'m self, link: &'m Link) -> Vec<&'m Link> {
        let mut found = vec![link];
        let mut next = 0;
        while let Some(upper) = found.get(next).copied() {
            next += 1;
            let is_below = |it: &&Link| {
                upper.stands_on == Some(it.index) || it.controller == Some(upper.index)
            };
            for lower in self.links.iter().filter(is_below) {
                if !found.iter().any(|it| it.index == lower.index) {
                    found.push(lower);
                }
            }
        }
        found
    }

    /// Whether a default route leaves by `link`.
    pub fn carries_default_route(&self, link: &Link) -> bool {
        self.routes.iter().any(|route| route.length_bits == 0 && route.link == link.index)
    }

    /// The client of an ssh session whose packets leave by `link`, or that an address of `link`
    /// serves.
    pub fn ssh_client_of(&self, link: &Link) -> Option<IpAddr> {
        self.ssh_clients.iter().copied().find(|client| self.leaves_by(*client) == Some(link.index))
    }

    /// The link of the longest matching route.
    fn leaves_by(&self, address: IpAddr) -> Option<u32> {
        let matching = |route: &&Route| within(address, route.network, route.length_bits);
        self.routes.iter().filter(matching).max_by_key(|route| route.length_bits).map(|it| it.link)
    }

    fn add_address(&mut self, message: AddressMessage) {
        let Some(link) = self.links.iter_mut().find(|link| link.index == message.header.index)
        else {
            return;
        };
        // A point-to-point link's `Address` is the other end; `Local` is always ours.
        let local = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        });
        let any = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        });
        link.addresses.extend(local.or(any));
    }

    fn add_routes(&mut self, message: RouteMessage) {
        let length_bits = message.header.destination_prefix_length;
        let v4 = message.header.address_family == netlink_packet_route::AddressFamily::Inet;
        let mut table = u32::from(message.header.table);
        let mut network =
            if v4 { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
        let mut links = Vec::new();
        for attribute in message.attributes {
            match attribute {
                RouteAttribute::Table(number) => table = number,
                RouteAttribute::Destination(RouteAddress::Inet(address)) => {
                    network = IpAddr::V4(address);
                }
                RouteAttribute::Destination(RouteAddress::Inet6(address)) => {
                    network = IpAddr::V6(address);
                }
                RouteAttribute::Oif(link) => links.push(link),
                RouteAttribute::MultiPath(hops) => {
                    links.extend(hops.iter().map(|hop| hop.interface_index));
                }
                _ => {}
            }
        }
        if table == TABLE_MAIN {
            let routes = links.into_iter().map(|link| Route { network, length_bits, link });
            self.routes.extend(routes);
        }
    }
}

fn read_link(message: LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        up: message.header.flags.contains(LinkFlags::Up),
        carrier: message.header.flags.contains(LinkFlags::LowerUp),
        ..Link::default()
    };
    let (mut below, mut is_elsewhere, mut is_cable) = (None, false, false);
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::PropList(properties) => {
                let names = properties.into_iter().filter_map(|property| match property {
                    Prop::AltIfName(name) => Some(name),
                    _ => None,
                });
                link.other_names.extend(names);
            }
            LinkAttribute::Link(index) => below = below.or(Some(index)),
            LinkAttribute::LinkNetNsId(_) => is_elsewhere = true,
            LinkAttribute::Mtu(mtu) => link.mtu_bytes = mtu,
            LinkAttribute::Address(bytes) => link.mac = bytes.try_into().ok(),
            LinkAttribute::Controller(index) => link.controller = Some(index),
            LinkAttribute::NumTxQueues(count) => link.send_queues = count,
            LinkAttribute::NumRxQueues(count) => link.receive_queues = count,
            LinkAttribute::Xdp(attributes) => {
                link.has_xdp = attributes.iter().any(|attribute| {
                    matches!(attribute, LinkXdp::Attached(how) if *how != XdpAttached::None)
                });
            }
            LinkAttribute::LinkInfo(infos) => {
                // Of these it is the other end that the kernel names.
                is_cable = infos
                    .iter()
                    .any(|info| matches!(info, LinkInfo::Kind(InfoKind::Veth | InfoKind::Netkit)));
                below = infos.iter().find_map(vxlan_device).or(below);
                link.kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(InfoKind::Other(name)) => Some(name.clone()),
                    LinkInfo::Kind(kind) => Some(format!("{kind:?}").to_lowercase()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    link.stands_on = below.filter(|it| *it > 0 && *it != link.index && !is_elsewhere && !is_cable);
    link
}

/// The device that a VXLAN is bound to, which the kernel tells nowhere else.
fn vxlan_device(info: &LinkInfo) -> Option<u32> {
    let LinkInfo::Data(InfoData::Vxlan(attributes)) = info else { return None };
    attributes.iter().find_map(|attribute| match attribute {
        InfoVxlan::Link(index) => Some(*index),
        _ => None,
    })
}

/// Asks for all objects of a kind.
fn dump(request: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut request = NetlinkMessage::new(header, NetlinkPayload::from(request));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;

    let mut messages = Vec::new();
    while messages.len() < MESSAGES_MAX {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = &datagram[..];
        while !rest.is_empty() {
            let length = rest.first_chunk().map_or(0, |it| u32::from_ne_bytes(*it)) as usize;
            if length < 16 || length > rest.len() {
                return Err(io::Error::other("the kernel's rtnetlink answer is damaged"));
            }
            // Attributes that this library does not know come from kernels younger than it.
            if let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest) {
                match message.payload {
                    NetlinkPayload::InnerMessage(inner) => messages.push(inner),
                    NetlinkPayload::Error(error) if error.code.is_some() => {
                        return Err(error.to_io());
                    }
                    _ => return Ok(messages),
                }
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
    Ok(messages)
}

/// Remote ends of established connections to local port 22, and of the session that the process
/// runs in.
fn ssh_clients() -> Vec<IpAddr> {
    let mut clients: Vec<IpAddr> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .flat_map(|text| text.lines().filter_map(ssh_client).collect::<Vec<_>>())
        .collect();
    let session = std::env::var("SSH_CONNECTION").ok();
    let client: Option<IpAddr> =
        session.and_then(|text| text.split_whitespace().next()?.parse().ok());
    clients.extend(client);
    clients.retain(|client| !client.is_loopback());
    clients
}

/// `  1: 0100007F:0016 0200007F:CF2C 01 ...`: local, remote, state, all hex, addresses in memory
/// order.
fn ssh_client(line: &str) -> Option<IpAddr> {
    let mut fields = line.split_whitespace().skip(1);
    let (_, port) = fields.next()?.split_once(':')?;
    let (address, _) = fields.next()?.split_once(':')?;
    if u16::from_str_radix(port, 16) != Ok(22) || fields.next()? != "01" {
        return None;
    }
    let words: Vec<u8> = (0..address.len() / 8)
        .filter_map(|word| address.get(word * 8..word * 8 + 8))
        .filter_map(|word| u32::from_str_radix(word, 16).ok())
        .flat_map(u32::to_ne_bytes)
        .collect();
    match words.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(words).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(words).ok()?).to_canonical()),
        _ => None,
    }
}

fn within(address: IpAddr, network: IpAddr, length_bits: u8) -> bool {
    let length_bits = u32::from(length_bits);
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => {
            (a.to_bits() ^ n.to_bits()).leading_zeros() >= length_bits.min(32)
        }
        (IpAddr::V6(a), IpAddr::V6(n)) => {
            (a.to_bits() ^ n.to_bits()).leading_zeros() >= length_bits.min(128)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_link_is_found_with_its_address() {
        let machine = Machine::read().unwrap();
        let loopback = machine.link("lo").expect("every namespace has one");
        assert_eq!(loopback.index, 1);
        assert!(loopback.mtu_bytes > 0);
        assert_eq!(machine.link_by_index(1), Some(loopback));
    }

    #[test]
    fn what_a_link_leads_to_is_found_through_every_kind_of_stack() {
        let link = |index, name: &str, stands_on, controller| Link {
            index,
            name: name.into(),
            stands_on,
            controller,
            ..Link::default()
        };
        // A VLAN on a bond of two ports, a macvlan on the VLAN, a bridge with the VLAN in it; a
        // loop, as a damaged answer may have it.
        let machine = Machine::with_links(vec![
            link(1, "port0", None, Some(3)),
            link(2, "port1", None, Some(3)),
            link(3, "bond0", None, None),
            link(4, "bond0.5", Some(3), Some(6)),
            link(5, "macvlan0", Some(4), None),
            link(6, "br0", None, None),
            link(7, "mon0", None, Some(6)),
            link(8, "loop0", Some(9), None),
            link(9, "loop1", Some(8), None),
        ]);
        let names = |name: &str| -> Vec<&str> {
            let ways = machine.ways_out(machine.link(name).unwrap());
            ways.into_iter().map(|link| &*link.name).collect()
        };
        assert_eq!(names("port0"), ["port0"]);
        assert_eq!(names("macvlan0"), ["macvlan0", "bond0.5", "bond0", "port0", "port1"]);
        assert_eq!(names("br0"), ["br0", "bond0.5", "mon0", "bond0", "port0", "port1"]);
        assert_eq!(names("mon0"), ["mon0"], "a member leads not to its bridge");
        assert_eq!(names("loop0"), ["loop0", "loop1"]);
    }

    #[test]
    fn established_connections_to_port_22_are_ssh_sessions() {
        let line = "   1: 0100007F:0016 0202000A:CF2C 01 00000000:00000000 00:00000000 0 0 1";
        assert_eq!(ssh_client(line), Some("10.0.2.2".parse().unwrap()));
        assert_eq!(ssh_client(&line.replace(":0016", ":0050")), None);
        assert_eq!(ssh_client(&line.replace(" 01 ", " 0A ")), None);
        let mapped = "0: 0:0016 0000000000000000FFFF00000202000A:CF2C 01 0";
        assert_eq!(ssh_client(mapped), Some("10.0.2.2".parse().unwrap()));
        for nonsense in ["", "sl local", "1: :0016 : 01", "1: x:0016 y:z 01", "1: 0:0016 é:1 01"] {
            assert_eq!(ssh_client(nonsense), None);
        }
    }

    #[test]
    fn the_longest_route_decides_which_link_a_session_leaves_by() {
        let route = |network: &str, length_bits, link| Route {
            network: network.parse().unwrap(),
            length_bits,
            link,
        };
        let machine = Machine {
            links: [(1, "a"), (2, "b")]
                .map(|(index, name)| Link { index, name: name.into(), ..Link::default() })
                .into(),
            routes: vec![route("0.0.0.0", 0, 1), route("10.0.0.0", 8, 2), route("::", 0, 2)],
            ssh_clients: vec!["10.1.1.1".parse().unwrap()],
        };
        let [a, b] = &machine.links[..] else { panic!() };
        assert!(machine.carries_default_route(a) && machine.carries_default_route(b));
        assert_eq!(machine.ssh_client_of(a), None);
        assert_eq!(machine.ssh_client_of(b), Some("10.1.1.1".parse().unwrap()));
    }
}
