//! What goes on where HTTP was spoken before.

use super::Application;
use crate::application::Parser;
use crate::application::unit::Said;
use crate::application::websocket::Websocket;
use crate::buffers::http::{self, Upgrade};

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
