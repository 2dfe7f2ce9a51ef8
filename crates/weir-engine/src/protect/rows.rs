//! What each protector needs, and what it does not go with: one row each, and one for what stands
//! beside the engine.
//!
//! `weir check` refuses by these rows, the guide's table (docs/guide/modes.md) is printed from
//! them, and a test walks over all of them. What is in no row goes together.

use super::{clear, esp, kernel, nic, tag, wireguard};

/// Something about a peer or its pair that not every row goes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Given {
    /// The peer's mode is another than "tunnel".
    NoTunnel,
    /// Its keys are in files.
    KeysInFiles,
    /// It has no `endpoint`, or the pair no `address`.
    Borrowed,
    /// It protects something else than prefixes.
    Everything,
    /// Its networks are of another family than its endpoint, or the endpoint is in one of them.
    EndpointInside,
    /// Its ESP travels in UDP.
    InUdp,
    /// Its traffic may pass in clear.
    MayBeClear,
    /// Its sequence numbers have 32 bits.
    ShortSequence,
    /// Its replay window is wider than the kernel's.
    WindowOverKernel,
    /// Its replay window is wider than a NIC's.
    WindowOverNic,
    /// The pair's driver is AF_XDP.
    Xdp,
    /// What no peer protects is sealed to this one.
    DefaultSeal,
    /// Outer frames carry a VLAN tag.
    Vlan,
    /// Classes of traffic are mapped.
    ClassMaps,
    /// Front ends may install associations and policies.
    FrontEnd,
    /// The pair has several workers.
    Workers,
    /// The pair has no `address`.
    NoAddress,
    /// Another than Weir does its ESP.
    Offload,
    /// Its handshakes are hybrid, with ML-KEM.
    MlKem,
    /// The pair has peers.
    Peers,
}

impl Given {
    /// All of them.
    pub const ALL: [Given; 20] = [
        Self::NoTunnel,
        Self::KeysInFiles,
        Self::Borrowed,
        Self::Everything,
        Self::EndpointInside,
        Self::InUdp,
        Self::MayBeClear,
        Self::ShortSequence,
        Self::WindowOverKernel,
        Self::WindowOverNic,
        Self::Xdp,
        Self::DefaultSeal,
        Self::Vlan,
        Self::ClassMaps,
        Self::FrontEnd,
        Self::Workers,
        Self::NoAddress,
        Self::Offload,
        Self::MlKem,
        Self::Peers,
    ];
}

/// A setting that a row does not combine with, and what it needs instead: words that fit behind
/// "needs", both in a refusal and in the guide.
pub type Cannot = (Given, &'static str);

/// One protector, or one thing beside the engine.
#[derive(Debug)]
pub struct Row {
    /// As the configuration writes it.
    pub name: &'static str,
    /// What it does: a sentence, without its first capital and its end.
    pub what: &'static str,
    /// What it does not go with, in the order in which it is told.
    pub cannot: &'static [Cannot],
    /// Another row: what that does not go with, this one does not either.
    pub like: Option<&'static Row>,
}

impl Row {
    /// All that it does not go with: what is its own first.
    pub fn refusals(&self) -> impl Iterator<Item = &'static Cannot> {
        let others = self.like.map(|it| it.cannot).unwrap_or_default();
        self.cannot.iter().chain(others)
    }

    /// What it needs where `given` holds; `None`: it goes with that.
    pub fn needs(&self, given: Given) -> Option<&'static str> {
        self.refusals().find(|(it, _)| *it == given).map(|(_, needs)| *needs)
    }
}

/// The kernel's fast path, beside the engine.
const FAST_PATH: Row = Row {
    name: "fastpath = \"tc\"",
    what: "the kernel carries flows once their verdict is settled",
    cannot: &[
        (
            Given::Xdp,
            "driver = \"packet\", because AF_XDP takes all frames before tc could carry any",
        ),
        (
            Given::Peers,
            "a pair without peers, because no traffic of a pair that seals takes the fast path",
        ),
    ],
    like: None,
};

/// Several workers of a pair.
const WORKERS: Row = Row {
    name: "workers = 2 to 16",
    what: "several threads share the flows of a pair",
    cannot: &[],
    like: None,
};

/// All rows: protectors first.
pub const ROWS: [&Row; 9] = [
    &clear::ROW,
    &esp::ROW,
    &wireguard::ROW,
    &tag::ROW,
    &kernel::ROW,
    &nic::CRYPTO,
    &nic::PACKET,
    &FAST_PATH,
    &WORKERS,
];

/// The row of this name.
pub fn row(name: &str) -> Option<&'static Row> {
    ROWS.into_iter().find(|it| it.name == name)
}

/// The table of docs/guide/modes.md.
pub fn table() -> String {
    let mut lines = String::from("| what | what it does | what it needs |\n|---|---|---|\n");
    for row in ROWS {
        let mut needs: Vec<_> = row.cannot.iter().map(|(_, it)| format!("Needs {it}.")).collect();
        needs.extend(row.like.map(|other| format!("Needs all that `{}` needs.", other.name)));
        if needs.is_empty() {
            needs.push("Needs nothing else.".to_owned());
        }
        lines += &format!("| `{}` | {} | {} |\n", row.name, sentence(row.what), needs.join(" "));
    }
    lines
}

fn sentence(words: &str) -> String {
    let (first, rest) = words.split_at_checked(1).unwrap_or_default();
    format!("{}{rest}.", first.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `UPDATE=1 cargo test -p weir-engine the_guides_table` writes it.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "the guide is a file")]
    fn the_guides_table_is_what_the_rows_give() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/modes.md");
        let guide = std::fs::read_to_string(path).unwrap();
        let at = guide.find("| what | what it does").unwrap();
        let end = guide[at..].find("\n\n").map_or(guide.len(), |end| at + end + 1);
        if std::env::var("UPDATE").is_ok() {
            std::fs::write(path, [&guide[..at], &table(), &guide[end..]].concat()).unwrap();
            return;
        }
        assert_eq!(guide[at..end], table(), "run this test with UPDATE=1");
    }

    #[test]
    fn a_row_says_each_thing_once_and_every_thing_is_in_some_row() {
        for row in ROWS {
            for given in Given::ALL {
                let said = row.refusals().filter(|(it, _)| *it == given).count();
                assert!(said <= 1, "{} {given:?}", row.name);
            }
        }
        for given in Given::ALL {
            assert!(ROWS.iter().any(|row| row.needs(given).is_some()), "{given:?}");
        }
    }
}
