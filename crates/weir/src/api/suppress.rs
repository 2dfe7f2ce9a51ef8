//! Which alerts nobody wants to see for a while, as it is asked for.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::address::Prefix;

/// Characters of a reason, of a suppression as of a block.
pub const REASON_MAX: usize = 200;

/// What to do. Answered by `Response::Suppressed`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "what", rename_all = "lowercase", deny_unknown_fields)]
pub enum SuppressRequest {
    /// Suppress the alerts of a signature.
    Begin {
        /// The rule's number.
        sid: u32,
        /// Only what comes from here.
        source: Option<Prefix>,
        /// For so many seconds.
        seconds: u64,
        /// Why, in the operator's words.
        reason: String,
    },
    /// Show them again.
    End {
        /// The rule's number.
        sid: u32,
        /// As it was suppressed.
        source: Option<Prefix>,
    },
}

impl fmt::Display for SuppressRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Begin { sid, source, .. } | Self::End { sid, source }) = self;
        let from = source.map(|it| format!(" from {it}")).unwrap_or_default();
        match self {
            Self::Begin { seconds, reason, .. } => {
                write!(f, "alerts of rule {sid}{from} suppressed for {seconds} s: {reason}")
            }
            Self::End { .. } => write!(f, "alerts of rule {sid}{from} shown again"),
        }
    }
}
