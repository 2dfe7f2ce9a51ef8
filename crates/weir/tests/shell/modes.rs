//! What goes with what: a walk over the rows of the engine's protectors and of what stands beside
//! it. Whatever a row does not go with is refused with the row's reason; everything else that a
//! peer or a pair may say is accepted.

use std::collections::BTreeMap;
use std::path::Path;

use weir::config::problem::Severity;
use weir::config::{self, Problems};
use weir_engine::protect::rows::{Given, ROWS, Row};

const PUBLIC: &str = "\"B6N8vBQgk8i3Vdwb4QMstCY3StFqqFPtC9+wsrhtHHw=\"";

/// A configuration, key by key.
#[derive(Clone, Default)]
struct Text {
    pair: BTreeMap<&'static str, String>,
    /// None: the pair has no peer.
    peer: Option<BTreeMap<&'static str, String>>,
}

impl Text {
    fn pair(mut self, key: &'static str, value: &str) -> Self {
        self.pair.insert(key, value.to_owned());
        self
    }

    fn peer(mut self, key: &'static str, value: &str) -> Self {
        self.peer.get_or_insert_default().insert(key, value.to_owned());
        self
    }

    fn without(mut self, key: &str) -> Self {
        self.pair.remove(key);
        self.peer.as_mut().map(|peer| peer.remove(key));
        self
    }

    fn keys_in_files(self) -> Self {
        self.without("public_key")
            .peer("seal", "{ spi = 0x1000, key_file = \"b.out\" }")
            .peer("open", "{ spi = 0x2000, key_file = \"b.in\" }")
    }

    fn problems(&self) -> Problems {
        let lines = |keys: &BTreeMap<&str, String>| {
            keys.iter().map(|(key, value)| format!("{key} = {value}\n")).collect::<String>()
        };
        let mut text = format!("[gateway]\nname = \"gw\"\n[[pair]]\n{}", lines(&self.pair));
        if let Some(peer) = &self.peer {
            text += &format!("[[peer]]\n{}", lines(peer));
            if peer.contains_key("public_key") {
                text += "[keying]\nidentity_file = \"gw.identity\"\n";
            }
        }
        let mut problems = Problems::new(Path::new("weir.toml"), &text);
        config::understand(&text, Path::new("/etc/weir"), &mut problems);
        problems
    }
}

/// What the row is about, with nothing that it does not go with.
fn base(row: &Row) -> Text {
    let pair = Text::default().pair("host", "\"h\"").pair("wire", "\"w\"");
    let pair = pair.pair("address", "\"192.0.2.1/24\"");
    let tunnel = pair
        .clone()
        .peer("name", "\"b\"")
        .peer("mode", "\"tunnel\"")
        .peer("endpoint", "\"192.0.2.2\"")
        .peer("protects", "\"10.2.0.0/24\"")
        .peer("public_key", PUBLIC);
    let (key, value) = row.name.split_once(" = ").unwrap();
    match key {
        "fastpath" => pair.pair("fastpath", value),
        "workers" => tunnel.pair("workers", "2"),
        "offload" => tunnel.peer("offload", value),
        "sealing" => tunnel.peer("sealing", value),
        _ if value.contains("icrc-tag") => {
            tunnel.without("endpoint").peer("mode", value).peer("weaker_than_esp", "true")
        }
        _ if value.contains("wireguard") => tunnel.peer("mode", value),
        _ => tunnel,
    }
}

/// `text` with what `given` says; `None`: that has no meaning for it, or other rules than the rows
/// decide (a tag has no ESP to say anything about, WireGuard one form of it).
fn with(row: &Row, given: Given, text: Text) -> Option<Text> {
    use Given::*;
    let is_offload = row.name.starts_with("offload");
    let is_esp = is_offload || row.name.contains("transport") || row.name.contains("observe");
    let has_outer = !row.name.contains("icrc-tag") && !row.name.contains("wireguard");
    let has_peer = text.peer.is_some();
    let of_peer = match given {
        NoTunnel => is_esp.then(|| text.clone().peer("mode", "\"ethernet\"")),
        KeysInFiles => {
            let is_tag = row.name.contains("icrc-tag");
            (!is_tag).then(|| text.clone().keys_in_files())
        }
        Borrowed => is_offload.then(|| text.clone().without("endpoint")),
        Everything => has_outer.then(|| text.clone().peer("protects", "\"everything\"")),
        EndpointInside => is_esp.then(|| text.clone().peer("protects", "\"192.0.2.0/24\"")),
        InUdp => is_esp.then(|| text.clone().peer("encapsulation", "\"udp\"")),
        MayBeClear => Some(text.clone().peer("sealing", "\"prefer\"")),
        ShortSequence => is_offload.then(|| text.clone().peer("extended_sequence", "false")),
        WindowOverKernel => is_esp.then(|| text.clone().peer("replay_window", "8192")),
        WindowOverNic => is_esp.then(|| text.clone().peer("replay_window", "512")),
        Offload => {
            let is_other = !is_offload && !row.name.starts_with("sealing");
            let may = is_other && (is_esp || row.name.contains("wireguard"));
            may.then(|| text.clone().peer("offload", "\"kernel\""))
        }
        MlKem => Some(text.clone().peer("ml_kem", "true")),
        _ => None,
    };
    if has_peer && of_peer.is_some() {
        return of_peer;
    }
    match given {
        Xdp => Some(text.pair("driver", "\"xdp\"")),
        DefaultSeal if has_peer => Some(text.pair("default", "\"seal\"")),
        Vlan => Some(text.pair("vlan", "7")),
        ClassMaps if has_peer && has_outer => Some(text.pair("dscp_map", "{ \"26\" = 34 }")),
        FrontEnd => Some(text.pair("xfrm", "true")),
        Workers if row.name.starts_with("workers") => None,
        Workers => Some(text.pair("workers", "2")),
        NoAddress if row.name.contains("wireguard") => Some(text.without("address")),
        Peers if !has_peer => Some(text.with_a_peer()),
        _ => None,
    }
}

impl Text {
    fn with_a_peer(self) -> Self {
        self.peer("name", "\"b\"")
            .peer("mode", "\"ethernet\"")
            .peer("endpoint", "\"192.0.2.2\"")
            .peer("protects", "\"10.2.0.0/24\"")
            .keys_in_files()
    }
}

#[test]
fn whatever_a_row_does_not_go_with_is_refused_with_its_reason_and_the_rest_is_accepted() {
    let (mut refused, mut accepted, mut wrong) = (0, 0, Vec::new());
    for row in ROWS {
        let text = base(row);
        let problems = text.problems();
        assert!(!problems.refused(), "{}:\n{problems}", row.name);
        for given in Given::ALL {
            let needs = row.needs(given);
            let Some(text) = with(row, given, text.clone()) else {
                assert!(needs.is_none(), "{}: nothing shows {given:?}", row.name);
                continue;
            };
            let problems = text.problems();
            let is_right = match needs {
                Some(needs) => problems.refused() && problems.to_string().contains(needs),
                None => problems.count(Severity::Error) == 0,
            };
            refused += usize::from(needs.is_some());
            accepted += usize::from(needs.is_none());
            if !is_right {
                wrong.push(format!("{} with {given:?}:\n{problems}", row.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(refused > 40 && accepted > 40, "{refused} refused, {accepted} accepted");
}
