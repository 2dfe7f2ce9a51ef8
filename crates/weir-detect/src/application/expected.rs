//! Connections that others have announced: FTP's for data.

use std::collections::VecDeque;

use super::unit::Announced;
use crate::alert::FlowKey;

/// Connections that are waited for, at most; the oldest are forgotten.
const EXPECTED_MAX: usize = 1024;

/// Where connections are waited for, and which flow has announced each.
#[derive(Debug, Default)]
pub(crate) struct Expected(VecDeque<([u8; 16], Announced, FlowKey)>);

impl Expected {
    /// Waits for a connection to a port of `address`.
    pub(crate) fn add(&mut self, address: [u8; 16], announced: Announced, parent: FlowKey) {
        self.0.retain(|it| (it.0, it.1.port) != (address, announced.port));
        if self.0.len() == EXPECTED_MAX {
            self.0.pop_front();
        }
        self.0.push_back((address, announced, parent));
    }

    /// What was announced about a connection to there, which begins.
    pub(crate) fn take(&mut self, address: [u8; 16], port: u16) -> Option<(Announced, FlowKey)> {
        let place = self.0.iter().position(|it| it.0 == address && it.1.port == port)?;
        self.0.remove(place).map(|(_, announced, parent)| (announced, parent))
    }
}
