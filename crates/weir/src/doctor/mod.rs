//! What this machine can do for a gateway: kernel, ports, ways past the gateway, speed of the
//! cipher. Every finding that is not well says what to change. Nothing is changed here.

pub mod kernel;
pub mod ports;
pub mod speed;

use std::io;

use serde::Serialize;

use crate::machine::Machine;

/// How well it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// As it should be, or only a fact.
    Good,
    /// It works, and could be better or safer.
    Advice,
    /// A gateway cannot run, or can be passed by.
    Problem,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// `kernel`, `ways past`, `speed`, or the interface.
    pub area: String,
    /// What was looked at.
    pub name: String,
    /// What was found.
    pub found: String,
    /// How well that is.
    pub grade: Grade,
    /// What to change.
    pub change: Option<String>,
}

impl Finding {
    /// Something as it should be, or a fact.
    pub fn good(area: &str, name: &str, found: impl Into<String>) -> Self {
        Self::new(area, name, found, Grade::Good, None)
    }

    /// Something to change.
    pub fn change(
        area: &str,
        name: &str,
        found: impl Into<String>,
        grade: Grade,
        change: impl Into<String>,
    ) -> Self {
        Self::new(area, name, found, grade, Some(change.into()))
    }

    fn new(
        area: &str,
        name: &str,
        found: impl Into<String>,
        grade: Grade,
        change: Option<String>,
    ) -> Self {
        Self { area: area.into(), name: name.into(), found: found.into(), grade, change }
    }
}

/// Looks at everything; at the named interfaces, or at all that could be ports.
///
/// # Errors
/// The kernel does not tell its interfaces.
pub fn examine(interfaces: &[String]) -> io::Result<Vec<Finding>> {
    let machine = Machine::read()?;
    let mut findings = kernel::examine();
    findings.extend(ports::examine(&machine, interfaces));
    findings.extend(ports::ways_past(&machine));
    findings.extend(speed::examine());
    Ok(findings)
}
