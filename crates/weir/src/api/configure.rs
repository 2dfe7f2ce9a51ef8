//! A configuration that is sent instead of written into the file: told, checked, tried, kept.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::dto::ConfigurationSnapshot;

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
