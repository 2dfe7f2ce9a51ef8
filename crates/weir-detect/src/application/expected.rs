//! Connections that others have announced: FTP's for data.

use std::collections::VecDeque;

use super::unit::Announced;
use crate::alert::FlowKey;

/// Connections that are waited for, at most; the oldest are forgotten.
const EXPECTED_MAX: usize = 1024;

/// Where connections are waited for, and which flow has announced each.
#[derive(Debug, Default)]
pub(crate) struct Expected(VecDeque<(Ends, Announced, FlowKey)>);

/// Who opens a connection, and to whom.
pub(crate) type Ends = [[u8; 16]; 2];

impl Expected {
    /// Waits for a connection between `ends`.
    pub(crate) fn add(&mut self, ends: Ends, announced: Announced, parent: FlowKey) {
        self.0.retain(|it| (it.0, it.1.port) != (ends, announced.port));
        if self.0.len() == EXPECTED_MAX {
            self.0.pop_front();
        }
        self.0.push_back((ends, announced, parent));
    }

    /// What was announced about a connection to that port, which begins.
    pub(crate) fn take(&mut self, ends: Ends, port: u16) -> Option<(Announced, FlowKey)> {
        let place = self.0.iter().position(|it| it.0 == ends && it.1.port == port)?;
        self.0.remove(place).map(|(_, announced, parent)| (announced, parent))
    }
}
