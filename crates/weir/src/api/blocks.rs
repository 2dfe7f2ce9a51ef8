//! Who is blocked and who is always let through, as it is asked for and told.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::address::Prefix;

/// What to do with the lists. Answered by `Response::Blocks`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "what", rename_all = "lowercase", deny_unknown_fields)]
pub enum BlocksRequest {
    /// Say how they stand.
    List,
    /// Drop what a prefix sends.
    Block {
        /// Whose packets.
        prefix: Prefix,
        /// For so many seconds; absent: until it is removed.
        ttl_s: Option<u64>,
        /// Why, in the operator's words.
        reason: String,
        /// Whoever it is: all addresses, too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Drop it no longer.
    Unblock {
        /// As it was blocked.
        prefix: Prefix,
    },
    /// Let pass what a prefix sends, whatever blocks and rules say.
    Allow {
        /// Whose packets.
        prefix: Prefix,
        /// Why.
        reason: String,
        /// Whoever it is: all addresses, too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Judge it like others.
    Disallow {
        /// As it was allowed.
        prefix: Prefix,
    },
    /// Several of these at once, or none if one of them is refused.
    All {
        /// None of them `List` or `All`.
        requests: Vec<BlocksRequest>,
    },
}

impl fmt::Display for BlocksRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List => write!(f, "block list"),
            Self::Block { prefix, ttl_s: None, .. } => write!(f, "block add {prefix}"),
            Self::Block { prefix, ttl_s: Some(ttl_s), .. } => {
                write!(f, "block add {prefix} for {ttl_s} s")
            }
            Self::Unblock { prefix } => write!(f, "block remove {prefix}"),
            Self::Allow { prefix, .. } => write!(f, "allow add {prefix}"),
            Self::Disallow { prefix } => write!(f, "allow remove {prefix}"),
            Self::All { requests } => {
                let (first, others) = (requests.first(), requests.len().saturating_sub(1));
                first.map_or(Ok(()), |it| write!(f, "{it}"))?;
                if others > 0 { write!(f, " and {others} others") } else { Ok(()) }
            }
        }
    }
}

/// Both lists.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct BlocksSnapshot {
    /// Whose packets are dropped, the oldest first.
    pub blocks: Vec<BlockEntry>,
    /// Whose are not.
    pub allowed: Vec<AllowedEntry>,
    /// Why the lists are not kept over a restart, where they could not be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// One prefix that is blocked.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct BlockEntry {
    /// Whose packets.
    pub prefix: Prefix,
    /// Since when, nanoseconds since 1970.
    pub since_ns: u64,
    /// Until it is over; absent: until it is removed.
    pub seconds_left: Option<u64>,
    /// Why.
    pub reason: String,
    /// Packets that it dropped since the gateway started.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One prefix that is always let through.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct AllowedEntry {
    /// Whose packets.
    pub prefix: Prefix,
    /// Since when, nanoseconds since 1970.
    pub since_ns: u64,
    /// Why.
    #[serde(default)]
    pub reason: String,
}
