//! Which application a stream begins.

use super::{Application, Conversation};
use crate::application::{self, Beginning, TransportProtocol};
use crate::buffers::{http, http::http2, tls};

/// First bytes of a stream after which an application that was not told is none that is known.
const TELLING_LEN: usize = 32;
/// Length and header of a DNS message over TCP.
const DNS_BEGINNING_LEN: usize = 14;

impl Conversation {
    /// What a side's bytes so far tell.
    pub(super) fn told_by_beginning(&self, side: usize, is_dns: bool, port: u16) -> Application {
        let Some(window) = self.since(side) else { return Application::Unknown };
        let of_others = application::beginning(TransportProtocol::Tcp, side, window, port);
        match of_others {
            Beginning::Is(protocol) => {
                return Application::Other(
                    protocol,
                    application::parser(TransportProtocol::Tcp, protocol),
                );
            }
            Beginning::Open => return Application::Unknown,
            Beginning::Other => {}
        }
        let request = http::behind_blanks(window);
        if (side == 0 && http::begins(request)) || (side == 1 && window.starts_with(b"HTTP/1.")) {
            return Application::Http(Box::default());
        }
        if side == 0 && http2::begins(window) {
            return Application::Http2(Box::new(http2::Connection::new()));
        }
        if tls::begins(window) {
            return Application::Tls(Box::default());
        }
        if window.starts_with(b"SSH-") {
            return Application::Ssh(Box::default());
        }
        // At its port, but others speak there too who want to be taken for it.
        if is_dns {
            return match window.len() < DNS_BEGINNING_LEN {
                true => Application::Unknown,
                false => Application::Dns(Box::default()),
            };
        }
        // Servers may speak first, at length: the client tells.
        let of_http = if side == 0 { http::begins_with_any_method(request) } else { Some(false) };
        match of_http {
            Some(true) => Application::Http(Box::default()),
            Some(false) if side == 0 && request.len() >= TELLING_LEN => Application::None,
            _ => Application::Unknown,
        }
    }
}
