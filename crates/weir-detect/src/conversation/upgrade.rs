//! What goes on where HTTP was spoken before.

use super::{Application, Change, Conversation};
use crate::application::Parser;
use crate::application::unit::Said;
use crate::application::websocket::Websocket;
use crate::buffers::http::{self, Upgrade};
use crate::rule::Protocol;

impl Conversation {
    /// Notes that `before` was spoken, if it is another application by now, or is to be `to`.
    pub(super) fn goes_on(&mut self, before: Option<Protocol>, to: Option<Protocol>) {
        let Some(from) = before else { return };
        if to.is_some() {
            self.change(Change { from, to }, [0; 2]);
        } else if self.application.protocol().is_some_and(|it| it != from) {
            // HTTP that was upgraded, and HTTP/2 that carries DNS.
            self.change.get_or_insert(Change { from, to });
        }
    }

    /// Another application begins, of which the last bytes of each side are.
    pub(super) fn change(&mut self, change: Change, known: [usize; 2]) {
        self.change = Some(change);
        self.agreement.change();
        self.is_decided = [false; 2];
        self.begins = [0, 1].map(|side| {
            let (window, before) = self.streams[side].window();
            before + window.len().saturating_sub(known[side]) as u64
        });
    }
}

/// What a connection of HTTP is upgraded to, with what came behind that.
pub(super) fn upgraded(
    connection: &mut Box<http::Connection>,
    side: usize,
    numbers: &mut Vec<u64>,
    said: &mut Said,
) -> Option<Application> {
    Some(match connection.take_upgrade()? {
        (Upgrade::Http2, behind) => {
            let mut upgraded = connection.take_http2();
            upgraded.take(side, &behind, numbers);
            Application::Http2(Box::new(upgraded))
        }
        (Upgrade::Websocket { deflates }, behind) => {
            let mut upgraded = Box::new(Websocket::new(deflates));
            upgraded.take(side, &behind, said);
            Application::Websocket(std::mem::take(connection), upgraded)
        }
    })
}
