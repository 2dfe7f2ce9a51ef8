//! What a pair's `fastpath` may be.

use serde::{Deserialize, Serialize};

use super::combine;
use super::file;
use super::problem::Problems;

/// Whether the kernel carries flows whose verdict is settled and which need no seal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FastPathMode {
    /// Never: every packet is looked at whole.
    #[default]
    Off,
    /// By tc programs; a gateway that cannot have them does not start.
    Tc,
    /// Where it can be had and the policy allows it; `weir status` says whether and why not.
    Auto,
}

impl FastPathMode {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Tc => "tc",
            Self::Auto => "auto",
        }
    }
}

/// `tc` is a demand: it is refused where nothing could ever be carried.
pub(super) fn check(
    pair: &file::Pair,
    peers: &[&file::Peer],
    problems: &mut Problems,
) -> FastPathMode {
    let Some(fastpath) = &pair.fastpath else { return FastPathMode::default() };
    let demanded = *fastpath.get_ref() == FastPathMode::Tc;
    if demanded {
        for needs in combine::pair_lacks("fastpath = \"tc\"", pair, peers) {
            problems.error(
                fastpath.span(),
                format!("fastpath = \"tc\" needs {needs}"),
                "write that, or fastpath = \"off\"; \"auto\" has it whenever it can be had",
            );
        }
    }
    *fastpath.get_ref()
}
