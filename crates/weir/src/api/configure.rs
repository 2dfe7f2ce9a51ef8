//! A configuration that is sent instead of written into the file: told, checked, tried, kept.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What to do with the configuration. Answered by `Response::Configured`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "what", rename_all = "lowercase", deny_unknown_fields)]
pub enum ConfigureRequest {
    /// Say what is in force.
    Show,
    /// Say what is wrong with a text, and change nothing.
    Check {
        /// The whole file.
        text: String,
    },
    /// Take a text on trial.
    Try {
        /// The whole file.
        text: String,
        /// It is taken back after so many seconds unless it is confirmed.
        within_s: u64,
    },
    /// Keep what is on trial, and write it into the gateway's file.
    Confirm,
    /// Take back what is on trial.
    Rollback,
}

impl fmt::Display for ConfigureRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Show => write!(f, "configuration show"),
            Self::Check { .. } => write!(f, "configuration check"),
            Self::Try { within_s, .. } => write!(f, "configuration try for {within_s} s"),
            Self::Confirm => write!(f, "confirm"),
            Self::Rollback => write!(f, "rollback"),
        }
    }
}

/// What is in force, and what was said of a text.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct RunningConfiguration {
    /// How it stands.
    pub configuration: ConfigurationSnapshot,
    /// As written; absent where a key stands in it, which leaves the gateway for nobody.
    pub text: Option<String>,
    /// What is wrong with the text that was sent, with the places; nothing was changed.
    pub problems: Option<String>,
}

/// The configuration in force.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ConfigurationSnapshot {
    /// Its number; each accepted configuration raises it.
    pub epoch: u32,
    /// How it stands.
    pub state: ConfigurationState,
    /// Where it was read: the file of `weir up`, or the last confirmed one in the state directory.
    pub path: PathBuf,
    /// Where its relative paths begin.
    pub directory: PathBuf,
    /// Seconds until it is taken back, while it is unconfirmed.
    pub seconds_left: Option<f64>,
    /// Configurations taken back since the start.
    pub rollbacks: u64,
    /// Why the last one was; absent once another was accepted.
    pub rolled_back_because: Option<String>,
    /// Detection rules that do not run.
    pub rules_refused: u64,
    /// What was warned of when the rules were read.
    pub rules_warnings: Vec<String>,
}

/// How the configuration in force stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfigurationState {
    /// It stays.
    #[default]
    Confirmed,
    /// It is taken back unless somebody confirms it.
    Unconfirmed,
    /// It was taken back; the gateway starts again with the last confirmed one.
    Restarting,
    /// It was taken back; there is none before it, and the gateway ends.
    Stopping,
}
