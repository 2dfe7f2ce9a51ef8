//! The way of a peer's packets to the kernel's own ESP and from there to the wire: an xfrm
//! interface (Linux 4.19), and a routing table of one route that its sealed packets alone take
//! (docs/adr/0024). By rtnetlink(7): linux/if_link.h, fib_rules.h, rtnetlink.h, neighbour.h.
//!
//! ```text
//!   packet socket --> xfrm interface, if_id N --> sealed, mark N --> rule: mark N --> table N
//!        --> one route: the peer by the wire port --> permanent neighbour
//! ```
//!
//! The number N names all of it, and ends with 16 bits that are free at the time. What a killed
//! gateway left is found by it: interfaces first made and last removed, their wire port ours.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use crate::interface::Interface;
use crate::netlink::{
    FLAG_CREATE_NEW, FLAG_CREATE_REPLACE, FLAG_DUMP, Netlink, RTM_DELLINK, RTM_GETLINK, attribute,
    push_attribute, u32_at,
};

const RTM_NEWLINK: u16 = 16;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;

const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_XFRM_LINK: u16 = 1;
const IFLA_XFRM_IF_ID: u16 = 2;
/// `struct ifinfomsg`.
const LINK_HEADER_LEN: usize = 16;
/// `struct rtmsg`.
const ROUTE_HEADER_LEN: usize = 12;
/// `struct ndmsg`.
const NEIGHBOUR_HEADER_LEN: usize = 12;

/// Who made a route, rule or neighbour (`rtm_protocol`): "W", which nobody has registered.
const PROTOCOL: u8 = b'W';
/// Our rules come before the main table's (32766) and after the local one's (0).
const RULE_PRIORITY: u32 = 0x5765;
const NEIGHBOUR_PERMANENT: u16 = 0x80;

/// The upper half of our numbers. "We" in ASCII.
const NUMBERS: u32 = 0x5765_0000;
const NUMBERS_MAX: u32 = 0xffff;

/// The families of addresses that a gateway may have.
const FAMILIES: [u8; 2] = [libc::AF_INET as u8, libc::AF_INET6 as u8];

/// Where a peer's sealed packets go. All three are of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Our own address, which some interface has.
    pub source: IpAddr,
    /// The peer's.
    pub destination: IpAddr,
    /// Whose MAC address they get: the peer's, or the next hop's.
    pub hop: IpAddr,
}

/// An xfrm interface of ours. It stays when this is dropped; [`XfrmInterface::remove_all`] removes
/// it.
#[derive(Debug)]
pub struct XfrmInterface {
    name: String,
    number: u32,
}

impl XfrmInterface {
    /// Makes one over `wire`, in the calling thread's network namespace, switched on and silent.
    ///
    /// # Errors
    /// The kernel has no xfrm interfaces (`CONFIG_XFRM_INTERFACE`), or privilege is missing.
    pub fn create(wire: &str, mtu: u32) -> io::Result<Self> {
        let mut netlink = Netlink::open()?;
        let wire = Interface::find(wire)?.index()?;
        for free in 1..=NUMBERS_MAX {
            let (number, name) = (NUMBERS | free, format!("weirx{free}"));
            let mut data = Vec::new();
            push_attribute(&mut data, IFLA_XFRM_LINK, &wire.to_ne_bytes());
            push_attribute(&mut data, IFLA_XFRM_IF_ID, &number.to_ne_bytes());
            let mut info = Vec::new();
            push_attribute(&mut info, IFLA_INFO_KIND, b"xfrm");
            push_attribute(&mut info, IFLA_INFO_DATA, &data);
            let mut body = vec![0; LINK_HEADER_LEN];
            push_attribute(&mut body, IFLA_IFNAME, format!("{name}\0").as_bytes());
            push_attribute(&mut body, IFLA_MTU, &mtu.to_ne_bytes());
            push_attribute(&mut body, IFLA_LINKINFO, &info);
            match netlink.request(RTM_NEWLINK, FLAG_CREATE_NEW, &body) {
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => continue,
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            let interface = Interface::find(&name)?;
            interface.take_ipv6()?;
            interface.set_up()?;
            return Ok(Self { name, number });
        }
        Err(io::Error::from_raw_os_error(libc::EEXIST))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The `if_id` of its associations and policies, the mark of its sealed packets, the number of
    /// their routing table.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Leads packets with its mark to the wire port, and nowhere else.
    ///
    /// # Errors
    /// The kernel refuses: the source is no own address, or the wire port is down.
    pub fn lead(&self, wire: &str, to: Hop) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        let wire = Interface::find(wire)?.index()?;
        netlink.request(RTM_NEWROUTE, FLAG_CREATE_REPLACE, &route(self.number, wire, to))?;
        netlink.request(RTM_NEWRULE, FLAG_CREATE_NEW, &self.by_mark(to))?;
        for (kind, body) in self.way_in()? {
            let flags = if kind == RTM_NEWROUTE { FLAG_CREATE_REPLACE } else { FLAG_CREATE_NEW };
            // Without IPv6 in the kernel there are no such packets.
            gone(netlink.request(kind, flags, &body))?;
        }
        Ok(())
    }

    /// The rule that leads its sealed packets to its routing table.
    fn by_mark(&self, to: Hop) -> Vec<u8> {
        let mut rule = rule(family(to.destination), self.number);
        push_attribute(&mut rule, FRA_FWMARK, &self.number.to_ne_bytes());
        rule
    }

    /// An IPv6 packet needs some route before it comes to a policy; an IPv4 packet does not: route
    /// and rule for those to the interface.
    fn way_in(&self) -> io::Result<[(u16, Vec<u8>); 2]> {
        let interface = Interface::find(&self.name)?.index()?;
        let mut by_interface = rule(FAMILIES[1], self.number);
        push_attribute(&mut by_interface, FRA_OIFNAME, format!("{}\0", self.name).as_bytes());
        let route = everything_v6(self.number, interface);
        Ok([(RTM_NEWROUTE, route), (RTM_NEWRULE, by_interface)])
    }

    /// The numbers of those that are there over `wire`, or over a port that is gone: whoever has
    /// the wire port may remove them.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn numbers(wire: &str) -> io::Result<Vec<u32>> {
        let found = links(&mut Netlink::open()?, wire)?;
        Ok(found.into_iter().map(|(_, number)| number).collect())
    }

    /// Removes these, with rules, routes and neighbours. Associations and policies are not.
    ///
    /// # Errors
    /// The kernel refuses; what is gone already is no error.
    pub fn remove_all(wire: &str) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        let found = links(&mut netlink, wire)?;
        if found.is_empty() {
            return Ok(());
        }
        let index = Interface::find(wire)?.index()?;
        FAMILIES.into_iter().try_for_each(|it| remove_neighbours(&mut netlink, it, index))?;
        for (index, number) in found {
            for family in FAMILIES {
                for _ in 0..RULES_MAX {
                    gone(netlink.request(RTM_DELRULE, 0, &rule(family, number)))?;
                }
                remove_routes(&mut netlink, family, number)?;
            }
            let mut link = vec![0; LINK_HEADER_LEN];
            link[4..8].copy_from_slice(&index.to_ne_bytes());
            gone(netlink.request(RTM_DELLINK, 0, &link))?;
        }
        Ok(())
    }

    /// Has the kernel send to `hop` on `wire` by this MAC address, without a question.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_neighbour(&self, wire: &str, hop: IpAddr, mac: [u8; 6]) -> io::Result<()> {
        let wire = Interface::find(wire)?.index()?;
        let mut netlink = Netlink::open()?;
        for body in neighbours(self.number, wire, hop, mac) {
            netlink.request(RTM_NEWNEIGH, FLAG_CREATE_REPLACE, &body)?;
        }
        Ok(())
    }

    /// Puts routes, rules and neighbours back where they are gone: they went when a port went down,
    /// or others removed them. What is there stays untouched, and a wire port that is still down is
    /// no error.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn restore(&self, wire: &str, to: Hop, mac: [u8; 6]) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        let mut is_there =
            |kind: u16, body: &[u8]| match netlink.request(kind, FLAG_CREATE_NEW, body) {
                Err(error)
                    if !matches!(error.raw_os_error(), Some(libc::EEXIST | libc::ENETDOWN)) =>
                {
                    Err(error)
                }
                _ => Ok(()),
            };
        Interface::find(&self.name)?.set_up()?;
        for (kind, body) in self.way_in()? {
            gone(is_there(kind, &body))?;
        }
        let wire = Interface::find(wire)?.index()?;
        is_there(RTM_NEWRULE, &self.by_mark(to))?;
        is_there(RTM_NEWROUTE, &route(self.number, wire, to))?;
        neighbours(self.number, wire, to.hop, mac)
            .try_for_each(|body| is_there(RTM_NEWNEIGH, &body))
    }
}

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_TABLE: u16 = 15;

fn family(address: IpAddr) -> u8 {
    FAMILIES[usize::from(address.is_ipv6())]
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// `struct rtmsg` and its attributes.
fn route(table: u32, wire: i32, to: Hop) -> Vec<u8> {
    const UNICAST: u8 = 1;
    const ON_LINK: u32 = 4;
    let Hop { source, destination, hop } = to;
    let bytes = octets(destination);
    let length_bits = 8 * bytes.len() as u8;
    let mut body = vec![family(destination), length_bits, 0, 0, 0, PROTOCOL, 0, UNICAST];
    body.extend(ON_LINK.to_ne_bytes());
    push_attribute(&mut body, RTA_DST, &bytes);
    push_attribute(&mut body, RTA_OIF, &wire.to_ne_bytes());
    if source.is_ipv4() {
        // IPv6 wants it on the same port; the association names it anyway.
        push_attribute(&mut body, RTA_PREFSRC, &octets(source));
    }
    push_attribute(&mut body, RTA_TABLE, &table.to_ne_bytes());
    // Named even when it is the destination: of what a NIC seals, the kernel would look for the
    // inner one as a neighbour.
    push_attribute(&mut body, RTA_GATEWAY, &octets(stand_in(table, hop)));
    body
}

/// The same for all IPv6 packets, to an interface without link addresses.
fn everything_v6(table: u32, interface: i32) -> Vec<u8> {
    const UNICAST: u8 = 1;
    let mut body = vec![FAMILIES[1], 0, 0, 0, 0, PROTOCOL, 0, UNICAST, 0, 0, 0, 0];
    push_attribute(&mut body, RTA_OIF, &interface.to_ne_bytes());
    push_attribute(&mut body, RTA_TABLE, &table.to_ne_bytes());
    body
}

const FRA_FWMARK: u16 = 10;
const FRA_OIFNAME: u16 = 17;
/// Rules of one family that lead to one table of ours, at most.
const RULES_MAX: usize = 2;

/// `struct fib_rule_hdr` and attributes: to the table of this number. Which packets, is to be added
/// where it is made.
fn rule(family: u8, number: u32) -> Vec<u8> {
    const TO_TABLE: u8 = 1;
    const FRA_PRIORITY: u16 = 6;
    const FRA_TABLE: u16 = 15;
    const FRA_PROTOCOL: u16 = 21;
    let mut body = vec![family, 0, 0, 0, 0, 0, 0, TO_TABLE, 0, 0, 0, 0];
    push_attribute(&mut body, FRA_PRIORITY, &RULE_PRIORITY.to_ne_bytes());
    push_attribute(&mut body, FRA_TABLE, &number.to_ne_bytes());
    push_attribute(&mut body, FRA_PROTOCOL, &[PROTOCOL]);
    body
}

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_PROTOCOL: u16 = 12;

/// `struct ndmsg` and whose address it is.
fn neighbour(wire: i32, family: u8, hop: &[u8]) -> Vec<u8> {
    let mut body = vec![family, 0, 0, 0];
    body.extend(wire.to_ne_bytes());
    body.extend(NEIGHBOUR_PERMANENT.to_ne_bytes());
    body.extend([0, 0]);
    push_attribute(&mut body, NDA_DST, hop);
    body
}

/// Whoever packets of the interface of this number go to: the hop, and its stand-in in the route.
fn neighbours(number: u32, wire: i32, hop: IpAddr, mac: [u8; 6]) -> impl Iterator<Item = Vec<u8>> {
    let stand_in = Some(stand_in(number, hop)).filter(|it| *it != hop);
    std::iter::once(hop).chain(stand_in).map(move |hop| {
        let mut body = neighbour(wire, family(hop), &octets(hop));
        push_attribute(&mut body, NDA_LLADDR, &mac);
        push_attribute(&mut body, NDA_PROTOCOL, &[PROTOCOL]);
        body
    })
}

/// The gateway of the route to `hop`. For IPv6 a link-local address that nobody has: the kernel
/// takes no other while the own addresses' port has a route to the same network.
fn stand_in(number: u32, hop: IpAddr) -> IpAddr {
    match hop {
        IpAddr::V4(_) => hop,
        IpAddr::V6(_) => {
            let [a, b, c, d] = number.to_be_bytes().map(u16::from);
            Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, a << 8 | b, c << 8 | d).into()
        }
    }
}

/// Index and number of our interfaces over `wire`, and of those whose port is gone.
fn links(netlink: &mut Netlink, wire: &str) -> io::Result<Vec<(i32, u32)>> {
    let wire = Interface::find(wire)?.index()?;
    let all = netlink.request(RTM_GETLINK, FLAG_DUMP, &[0; LINK_HEADER_LEN])?;
    let index = |body: &[u8]| u32_at(body, 4).unwrap_or_default() as i32;
    let present: Vec<i32> = all.iter().map(|message| index(&message.body)).collect();
    let ours = all.iter().filter_map(|message| {
        let info = attribute(message.body.get(LINK_HEADER_LEN..)?, IFLA_LINKINFO)?;
        if attribute(info, IFLA_INFO_KIND)?.strip_suffix(&[0])? != b"xfrm" {
            return None;
        }
        let data = attribute(info, IFLA_INFO_DATA)?;
        let number = u32_at(attribute(data, IFLA_XFRM_IF_ID)?, 0)?;
        let below = u32_at(attribute(data, IFLA_XFRM_LINK)?, 0)? as i32;
        let is_ours = number & !NUMBERS_MAX == NUMBERS && number & NUMBERS_MAX != 0;
        let is_free = below == wire || !present.contains(&below);
        (is_ours && is_free).then(|| (index(&message.body), number))
    });
    Ok(ours.collect())
}

/// Empties a routing table of ours.
fn remove_routes(netlink: &mut Netlink, family: u8, table: u32) -> io::Result<()> {
    let mut all = vec![0; ROUTE_HEADER_LEN];
    all[0] = family;
    for message in netlink.request(RTM_GETROUTE, FLAG_DUMP, &all)? {
        let Some((header, attributes)) = message.body.split_at_checked(ROUTE_HEADER_LEN) else {
            continue;
        };
        let of = |kind| attribute(attributes, kind);
        if of(RTA_TABLE).and_then(|it| u32_at(it, 0)) != Some(table) {
            continue;
        }
        let mut removal = header.to_vec();
        push_attribute(&mut removal, RTA_DST, of(RTA_DST).unwrap_or_default());
        push_attribute(&mut removal, RTA_TABLE, &table.to_ne_bytes());
        gone(netlink.request(RTM_DELROUTE, 0, &removal))?;
    }
    Ok(())
}

/// Removes the neighbours on `wire` that we made.
fn remove_neighbours(netlink: &mut Netlink, family: u8, wire: i32) -> io::Result<()> {
    let mut all = vec![0; NEIGHBOUR_HEADER_LEN];
    all[0] = family;
    for message in netlink.request(RTM_GETNEIGH, FLAG_DUMP, &all)? {
        let Some(attributes) = message.body.get(NEIGHBOUR_HEADER_LEN..) else { continue };
        let is_ours = attribute(attributes, NDA_PROTOCOL) == Some(&[PROTOCOL]);
        let hop = attribute(attributes, NDA_DST);
        if let Some(hop) = hop.filter(|_| is_ours && u32_at(&message.body, 4) == Some(wire as u32))
        {
            let removal = neighbour(wire, family, hop);
            gone(netlink.request(RTM_DELNEIGH, 0, &removal))?;
        }
    }
    Ok(())
}

/// What is not there any more was removed.
fn gone<T>(result: io::Result<T>) -> io::Result<()> {
    match result {
        Err(error)
            if !matches!(
                error.raw_os_error(),
                Some(
                    libc::ENOENT
                        | libc::ESRCH
                        | libc::ENODEV
                        | libc::EADDRNOTAVAIL
                        | libc::EAFNOSUPPORT
                )
            ) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
}
