//! By which devices a mirror's copies leave, and whether they may: never by a host's port, nor by
//! the sealed wire, under whatever name and whatever stands between.
//!
//! ```text
//!   port = "mon0", "altname-of-p0", "p0.5", "macvlan0", "bond0", ...
//!             '-> itself, what it stands on, its members: none of these is forbidden, and
//!                 none has a guard, whoever attached it
//! ```
//!
//! Asked by `weir check`, at every start and reload, and whenever a port is opened again. What
//! changes later, or is routed, the guard stops: copies go through tc and carry no mark
//! (docs/adr/0039).

use weir_port::Guard;

use super::Settings;
use crate::config::settings::{Forbidden, ForbiddenPort};
use crate::machine::{Link, Machine};

/// Why no copy may leave by `mirror`'s port; `None`: they may, or it is not there.
pub fn refusal(mirror: &Settings, machine: &Machine) -> Option<String> {
    // Without an answer nobody says that it is open.
    refusal_where(mirror, machine, |link| Guard::is_attached(&link.name).unwrap_or(true))
}

fn refusal_where(
    mirror: &Settings,
    machine: &Machine,
    has_guard: impl Fn(&Link) -> bool,
) -> Option<String> {
    let port = machine.link(&mirror.port)?;
    let ways = machine.ways_out(port);
    let named = |link: &Link| match link.name == mirror.port {
        true => format!("a mirror to {}", mirror.port),
        false if link.index == port.index => {
            format!("a mirror to {}, which is {}", mirror.port, link.name)
        }
        false => format!("a mirror to {}, which leads to {}", mirror.port, link.name),
    };
    for ForbiddenPort { port: name, because } in &mirror.forbidden {
        let Some(forbidden) = machine.link(name) else { continue };
        let others = match because {
            // Of a wire that stands on a device, the cable is that device's.
            Forbidden::SealedWire => machine.ways_out(forbidden),
            Forbidden::Host | Forbidden::OwnKernel => vec![forbidden],
        };
        let shared = ways.iter().find(|way| others.iter().any(|it| it.index == way.index));
        let Some(shared) = shared else { continue };
        let why = match because {
            Forbidden::Host => "a host port: the host would hear itself twice",
            Forbidden::OwnKernel => "by which the gateway's own kernel speaks",
            Forbidden::SealedWire => "the wire of a gateway that seals, would leak plaintext",
        };
        return Some(format!("{}, {why}", named(shared)));
    }
    let guarded = ways.into_iter().find(|link| !mirror.passes_guards && has_guard(link))?;
    Some(format!("{}, a port that a guard shuts (`weir guard --help`)", named(guarded)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::MirrorDirection;

    fn mirror(port: &str) -> Settings {
        let forbid = |port: &str, because| ForbiddenPort { port: port.to_owned(), because };
        Settings {
            name: "ids".into(),
            pair: "p".into(),
            port: port.into(),
            direction: MirrorDirection::Both,
            filter: None,
            queue_pairs: Vec::new(),
            snap_bytes: None,
            tunnel: None,
            forbidden: vec![
                forbid("host0", Forbidden::Host),
                forbid("weir-p", Forbidden::OwnKernel),
                forbid("p0.7", Forbidden::SealedWire),
            ],
            passes_guards: false,
        }
    }

    /// The wire is a VLAN on p0, which has another name.
    fn machine() -> Machine {
        let link = |index, name: &str, stands_on, controller| Link {
            index,
            name: name.into(),
            stands_on,
            controller,
            ..Link::default()
        };
        let other_names = vec!["enp3s0f0np0".into()];
        Machine::with_links(vec![
            link(1, "host0", None, None),
            Link { other_names, ..link(2, "p0", None, Some(6)) },
            link(3, "p0.7", Some(2), None),
            link(4, "p0.9", Some(2), None),
            link(5, "over-host0", Some(1), None),
            link(6, "bond0", None, None),
            link(7, "mon0", None, None),
            link(8, "weir-p", None, None),
            link(9, "over-mon0", Some(7), None),
        ])
    }

    #[test]
    fn every_way_to_the_sealed_wire_or_a_host_is_refused_and_no_other() {
        let of = |port| refusal_where(&mirror(port), &machine(), |_| false);
        for (port, words) in [
            ("p0.7", "a mirror to p0.7, the wire of a gateway that seals, would leak plaintext"),
            ("p0", "a mirror to p0, the wire of"),
            ("enp3s0f0np0", "a mirror to enp3s0f0np0, which is p0, the wire of"),
            ("p0.9", "a mirror to p0.9, which leads to p0, the wire of"),
            ("bond0", "a mirror to bond0, which leads to p0, the wire of"),
            ("over-host0", "which leads to host0, a host port"),
            ("weir-p", "by which the gateway's own kernel speaks"),
        ] {
            let refused = of(port).unwrap_or_default();
            assert!(refused.contains(words), "{port}: {refused}");
        }
        assert_eq!(of("mon0"), None);
        assert_eq!(of("over-mon0"), None);
        assert_eq!(of("away0"), None);
    }

    #[test]
    fn a_port_under_which_anybody_has_a_guard_is_refused_unless_guards_are_to_let_pass() {
        let guarded = |link: &Link| link.name == "mon0";
        let refused = refusal_where(&mirror("over-mon0"), &machine(), guarded).unwrap();
        assert!(refused.contains("leads to mon0, a port that a guard shuts"), "{refused}");
        let passes = Settings { passes_guards: true, ..mirror("over-mon0") };
        assert_eq!(refusal_where(&passes, &machine(), guarded), None);
    }
}
