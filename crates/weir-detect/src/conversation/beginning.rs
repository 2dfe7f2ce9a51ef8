//! Which application a stream begins.

use super::{Application, Change, Conversation};
use crate::application::{self, Beginning, TransportProtocol};
use crate::buffers::{dns, http, http::http2, ssh, tls};
use crate::rule::Protocol;

/// First bytes of a stream after which an application that was not told is none that is known.
const TELLING_LEN: usize = 32;
/// Length and header of a DNS message over TCP.
const DNS_BEGINNING_LEN: usize = 14;
/// Blanks before a client's first word that are kept, at most.
const BLANKS_MAX: usize = 1024;
const PORT_FTP: u16 = 21;
const PORT_HTTPS: u16 = 443;
const PORT_LDAP: u16 = 389;
const PORTS_SMTP: [u16; 2] = [25, 587];
/// What an answer of HTTP/1 begins with.
const HTTP_VERSION: &[u8] = b"HTTP/1.";

/// Whether these may be a client's first bytes, and whether they may be a server's, as far as
/// Suricata goes by them where a connection's beginning was not seen. `ports` are the server's, if
/// it is the one, or the other.
pub(crate) fn begins_as(bytes: &[u8], ports: [u16; 2]) -> [bool; 2] {
    const SIP_VERSION: &[u8] = b"SIP/2.0";
    let told =
        |side: usize| application::beginning(TransportProtocol::Tcp, side, bytes, ports[side]);
    let is_request = || http::begins(http::behind_blanks(bytes)) || http2::begins(bytes);
    let is_client = matches!(told(0), Beginning::Is(_)) || tls::begins(0, bytes) || is_request();
    let greets = PORTS_SMTP.contains(&ports[1]);
    let is_server = match told(1) {
        Beginning::Is(protocol) => {
            matches!(protocol, Protocol::Smb | Protocol::Dcerpc | Protocol::Ldap)
        }
        _ => {
            bytes.starts_with(HTTP_VERSION)
                || (greets && matches!(bytes, [b'2', b'2', b'0', b' ' | b'-', ..]))
        }
    };
    let is_sip = bytes.starts_with(SIP_VERSION);
    [is_client && !is_sip, is_server || is_sip]
}

impl Conversation {
    /// What a side's bytes so far tell.
    pub(super) fn told_by_beginning(
        &mut self,
        side: usize,
        is_dns: bool,
        port: u16,
    ) -> Application {
        if side == 0 {
            self.pass_blanks(is_dns);
        }
        let Some(window) = self.since(side) else { return Application::Unknown };
        let request = http::behind_blanks(window);
        let words = if side == 0 && port == PORT_FTP { request } else { window };
        match application::beginning(TransportProtocol::Tcp, side, words, port) {
            Beginning::Is(protocol) => return other(protocol),
            Beginning::Open => return Application::Unknown,
            Beginning::Other => {}
        }
        if (side == 0 && http::begins(request)) || (side == 1 && window.starts_with(HTTP_VERSION)) {
            return Application::Http(Box::default());
        }
        if side == 0 && http2::begins(window) {
            return Application::Http2(Box::new(http2::Connection::new()));
        }
        if tls::begins(side, window) {
            return Application::Tls(Box::default());
        }
        if ssh::begins(window) {
            return Application::Ssh(Box::default());
        }
        // At its port, but others speak there too who want to be taken for it.
        if is_dns && !request.is_empty() {
            match window.first_chunk::<DNS_BEGINNING_LEN>() {
                None => return Application::Unknown,
                Some([high, low, header @ ..]) => {
                    let length = usize::from(u16::from_be_bytes([*high, *low]));
                    if dns::may_begin(header, length) {
                        return Application::Dns(Box::default());
                    }
                }
            }
        }
        // At its port a server of FTP is known by its greeting.
        let is_line = window.contains(&b'\n');
        if side == 1 && port == PORT_FTP && is_line && self.is_greeted_by_ftp(port) {
            return other(Protocol::Ftp);
        }
        // Servers may speak first, at length: the client tells.
        let of_http = if side == 0 { http::begins_with_any_method(request) } else { Some(false) };
        match of_http {
            Some(true) => Application::Http(Box::default()),
            _ if side == 0 && request.contains(&b'\n') && self.is_greeted_by_ftp(port) => {
                other(Protocol::Ftp)
            }
            _ if side == 0 && request.contains(&b'\n') && self.is_greeted_by_smtp(port) => {
                other(Protocol::Smtp)
            }
            Some(false) if side == 0 && request.len() >= TELLING_LEN => Application::None,
            _ => Application::Unknown,
        }
    }

    /// Whether a side has begun what Suricata does not know by that alone.
    pub(super) fn is_foreign(&self, side: usize, port: u16) -> bool {
        let Some(said) = self.since(side) else { return false };
        let is_of_ssl = side == 0 && port != PORT_HTTPS && tls::names_later_ssl(said);
        is_of_ssl || (port == PORT_LDAP && application::is_foreign_ldap(said))
    }

    /// Servers answer in HTTP to much that no client says: what a client said is a request then.
    /// So do others whose client nobody has known.
    pub(super) fn hear_server(&mut self, side: usize, new: usize, port: u16) {
        if side != 1 || !matches!(self.application, Application::None) {
            return;
        }
        let said = self.since(1).unwrap_or_default();
        let before = said.len().saturating_sub(new);
        let is_http = || said.starts_with(HTTP_VERSION);
        let is_sealed = || tls::begins(1, said) || ssh::begins(said);
        let is_other = || {
            let told = application::beginning(TransportProtocol::Tcp, 1, said, port);
            matches!(told, Beginning::Is(_))
        };
        if before < HTTP_VERSION.len() && (is_http() || is_sealed() || is_other()) {
            self.application = Application::Unknown;
        }
    }

    /// Whether the client has not begun what its server speaks.
    pub(super) fn is_astray(&self, spoken: Protocol, port: u16) -> bool {
        let said = self.since(0).unwrap_or_default();
        let told = application::beginning(TransportProtocol::Tcp, 0, said, port);
        !said.is_empty() && told != Beginning::Is(spoken)
    }

    /// Behind a tunnel's opening a side says `new` bytes: of what, they tell.
    pub(super) fn enter_tunnel(&mut self, side: usize, new: usize) {
        let Application::Http(connection) = &self.application else { return };
        let Some(behind) = connection.tunnel() else { return };
        let mut known = [0, behind];
        known[side] += new;
        self.application = Application::Unknown;
        self.change(Change { from: Protocol::Http, to: None }, known);
    }

    /// Forgets blanks that a client begins with, so many that its first word would be lost.
    fn pass_blanks(&mut self, is_dns: bool) {
        let Some(window) = self.since(0) else { return };
        // There zeros may be a length.
        let is_kept = is_dns && window.contains(&0);
        if window.len() > BLANKS_MAX && http::behind_blanks(window).is_empty() && !is_kept {
            self.begins[0] += window.len() as u64;
        }
    }

    /// The same of SMTP, at its ports.
    fn is_greeted_by_smtp(&self, port: u16) -> bool {
        let greeting = self.since(1).unwrap_or_default();
        PORTS_SMTP.contains(&port) && matches!(greeting, [b'2', b'2', b'0', b' ' | b'-', ..])
    }

    /// Whether the server has greeted as those of FTP do: their clients may say anything then.
    fn is_greeted_by_ftp(&self, port: u16) -> bool {
        let greeting = self.since(1).unwrap_or_default();
        greeting.starts_with(b"220 (")
            || (port == PORT_FTP
                && (greeting.starts_with(b"220 ") || greeting.starts_with(b"220-")))
    }
}

fn other(protocol: Protocol) -> Application {
    Application::Other(protocol, application::parser(TransportProtocol::Tcp, protocol))
}
