//! Where in a flow, or in a transaction, a rule matches: `alert http1:request_headers ...`,
//! `alert tcp:flow_start ...`, `app-layer-state:>request_line`.

use super::keywords::Refused;
use super::{Buffer, Protocol, Rule};
use crate::buffers::http;

/// States of a request and of a response of HTTP/1, in the order of [`HttpPlace`].
pub(crate) const OF_HTTP: [&[&str]; 2] = [
    &[
        "request_started",
        "request_line",
        "request_headers",
        "request_body",
        "request_trailer",
        "request_complete",
    ],
    &[
        "response_started",
        "response_line",
        "response_headers",
        "response_body",
        "response_trailer",
        "response_complete",
    ],
];

/// How far a request or response of HTTP/1 has come, by its place among its states; who is in the
/// trailer is still in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpPlace {
    Started,
    Line,
    Headers,
    Body,
    Complete = 5,
}

/// Of SSH's beginning.
const OF_SSH: &[&str] = &["in_progress", "banner_wait_eol", "banner_done", "finished"];
/// Of a mail.
const OF_SMTP: &[&str] = &["started", "data", "complete"];
/// Of messages that are whole when they are told.
const OF_MESSAGES: &[&str] = &["started", "complete"];
/// Of a handshake of TLS: the client's, and the server's.
pub(crate) const OF_TLS: [&[&str]; 2] = [
    &[
        "client_in_progress",
        "client_hello_done",
        "client_cert_done",
        "client_handshake_done",
        "client_finished",
    ],
    &[
        "server_in_progress",
        "server_hello",
        "server_cert_done",
        "server_hello_done",
        "server_handshake_done",
        "server_finished",
    ],
];

/// When a rule is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// With the first packet of a side.
    FlowStart,
    /// With each packet. No rule keeps it: see [`settle`].
    Packet,
    /// When a message comes into a state, or through it.
    State(State),
    /// When a message is beyond a state, or before it.
    Compared { state: State, is_beyond: bool },
}

/// A state of what a side says, by its place among those of its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) side: usize,
    pub(crate) place: usize,
}

impl Hook {
    /// Whether it is so of a message that has come from the first of these states to the last.
    pub(crate) fn holds(self, (from, to): (usize, usize)) -> bool {
        match self {
            Self::FlowStart | Self::Packet => true,
            Self::State(state) => (from..=to).contains(&state.place),
            Self::Compared { state, is_beyond: true } => to > state.place,
            Self::Compared { state, is_beyond: false } => to < state.place,
        }
    }

    fn side(self) -> Option<usize> {
        match self {
            Self::FlowStart | Self::Packet => None,
            Self::State(state) | Self::Compared { state, .. } => Some(state.side),
        }
    }
}

/// What a rule's header says behind its action: `tcp`, `tcp:flow_start`, `dns:request_complete`.
pub(super) fn parse(text: &str) -> Result<(Protocol, Option<Hook>), Refused> {
    let refused = |why: &str| Refused::new(&format!("protocol:{text}"), why);
    let (name, hook) = text.split_once(':').map_or((text, None), |it| (it.0, Some(it.1)));
    let unknown = || refused("this protocol is not known here");
    let protocol = Protocol::from_name(name).ok_or_else(unknown)?;
    let hook = match hook {
        None => None,
        Some("flow_start") if !protocol.is_application() => Some(Hook::FlowStart),
        Some("all") if !protocol.is_application() => Some(Hook::Packet),
        Some(name) => {
            let state = state(protocol, name, true);
            let state = state.ok_or_else(|| refused("no such state is known"))?;
            Some(Hook::State(state))
        }
    };
    Ok((protocol, hook))
}

/// `app-layer-state:>request_line`, or as a hook `app-layer-state:request_line`; of applications
/// whose messages come in pieces.
pub(super) fn asked(protocol: Option<Protocol>, value: &str) -> Result<Hook, String> {
    let value = value.trim();
    let (is_beyond, name) = match (value.strip_prefix('>'), value.strip_prefix('<')) {
        (Some(name), _) => (Some(true), name),
        (_, Some(name)) => (Some(false), name),
        _ => (None, value),
    };
    use Protocol as P;
    let Some(protocol @ (P::Http1 | P::Tls | P::Ssh | P::Smtp)) = protocol else {
        const WHOSE: &str = "how far messages have come is known of `http1`, `tls`, `ssh`, `smtp`";
        return Err(WHOSE.to_owned());
    };
    let state = state(protocol, name, false);
    let state = state.ok_or_else(|| format!("`{name}` is no state of {}", protocol.name()))?;
    Ok(match is_beyond {
        Some(is_beyond) => Hook::Compared { state, is_beyond },
        None => Hook::State(state),
    })
}

/// The state of that name; hooks also name the first and the last `has_ends`.
fn state(protocol: Protocol, name: &str, has_ends: bool) -> Option<State> {
    (0..2).find_map(|side| {
        let names = names(protocol, side)?;
        let behind = name.strip_prefix(["request_", "response_"][side]);
        let own = match protocol {
            Protocol::Tls | Protocol::Http1 => Some(name),
            _ => behind,
        };
        let place = names.iter().position(|it| Some(*it) == own);
        let end = match behind {
            Some("started") if has_ends => Some(0),
            Some("complete") if has_ends => Some(names.len() - 1),
            _ => None,
        };
        Some(State { side, place: place.or(end)? })
    })
}

/// The names of the states of what a side says; `None`: rules do not name them.
fn names(protocol: Protocol, side: usize) -> Option<&'static [&'static str]> {
    match protocol {
        Protocol::Http1 => Some(OF_HTTP[side]),
        Protocol::Ssh => Some(OF_SSH),
        Protocol::Smtp => Some(OF_SMTP),
        Protocol::Tls => Some(OF_TLS[side]),
        Protocol::Http => None,
        other => other.is_application().then_some(OF_MESSAGES),
    }
}

/// Says which side the rule looks at, and leaves the hook where it is all that the rule asks of
/// what is said: a buffer is looked at when it is there, which the hook can only repeat.
pub(super) fn settle(rule: &mut Rule) -> Result<(), Refused> {
    let Some(hook) = rule.hook else { return Ok(()) };
    let refused = |why: &str| Err(Refused::new("hook", why));
    if hook == Hook::Packet {
        rule.flow.is_of_each_packet = true;
        rule.hook = None;
        return Ok(());
    }
    if let Some(side) = hook.side() {
        if rule.flow.to_server.is_some_and(|it| it != (side == 0)) {
            return refused("by its `flow` the rule looks at the other side");
        }
        rule.flow.to_server = Some(side == 0);
    }
    if matches!(hook, Hook::Compared { .. }) {
        return Ok(());
    }
    let asks_more = !rule.buffers.is_empty()
        || !rule.units.is_empty()
        || !rule.messages.is_empty()
        || !rule.app_events.is_empty();
    let own = rule.header.protocol;
    if let Hook::State(state) = hook {
        let other = rule.buffers.iter().find(|it| {
            let buffer = it.key.buffer;
            crate::buffers::protocol(buffer).is_some() && !is_at(buffer, own, state)
        });
        if let Some(other) = other {
            let why = format!("{} is not looked at in that state", other.key.buffer.name());
            return refused(&why);
        }
    }
    if asks_more {
        rule.hook = None;
    }
    Ok(())
}

/// Whether rules look at the buffer when a message is in that state.
fn is_at(buffer: Buffer, protocol: Protocol, State { side, place }: State) -> bool {
    use Buffer as B;
    let own = names(protocol, side).unwrap_or_default();
    let is_one_of = |names: &[&str]| names.contains(&own[place]);
    match protocol {
        Protocol::Http1 => {
            let at = match buffer {
                _ if http::is_of_line(buffer) => HttpPlace::Line,
                B::HttpHeaderRaw
                | B::HttpRequestBody
                | B::HttpResponseBody
                | B::FileData
                | B::FileName => HttpPlace::Body,
                _ => HttpPlace::Headers,
            };
            place == at as usize
        }
        Protocol::Tls => is_one_of(match buffer {
            B::TlsSni | B::Ja3Hash | B::Ja3String | B::Ja4Hash => &["client_hello_done"],
            B::Ja3sHash | B::Ja3sString => &["server_hello"],
            B::TlsAlpn | B::TlsRandomTime | B::TlsRandomBytes => {
                &["client_hello_done", "server_hello"]
            }
            B::TlsRandom => &["client_in_progress", "server_in_progress"],
            B::TlsAlternativeName => &["server_cert_done"],
            _ => &["client_cert_done", "server_cert_done"],
        }),
        Protocol::Smtp => is_one_of(match buffer {
            B::SmtpHelo | B::SmtpSender | B::SmtpReceiver => &["started"],
            _ => &["data"],
        }),
        Protocol::Ssh => is_one_of(&["banner_done"]),
        Protocol::Dns
        | Protocol::Ftp
        | Protocol::Snmp
        | Protocol::Krb5
        | Protocol::Ike
        | Protocol::Quic
        | Protocol::Ntp
        | Protocol::Mdns => is_one_of(&["complete"]),
        _ => is_one_of(&["started"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_named_by_their_protocol() {
        let at = |text: &str| parse(text).map(|it| it.1);
        assert_eq!(at("tcp"), Ok(None));
        assert_eq!(at("udp:flow_start"), Ok(Some(Hook::FlowStart)));
        assert_eq!(at("tcp:all"), Ok(Some(Hook::Packet)));
        let line = Hook::State(State { side: 1, place: 1 });
        assert_eq!(at("http1:response_line"), Ok(Some(line)));
        let hello = Hook::State(State { side: 0, place: 1 });
        assert_eq!(at("tls:client_hello_done"), Ok(Some(hello)));
        let over = Hook::State(State { side: 1, place: 5 });
        assert_eq!(at("tls:response_complete"), Ok(Some(over)));
        assert_eq!(at("tls:server_finished"), Ok(Some(over)));
        for wrong in ["http:request_line", "dns:request_line", "http1:flow_start", "tcp:pre_flow"] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_message_is_in_every_state_that_it_came_through() {
        let body = State { side: 0, place: 3 };
        assert!(Hook::State(body).holds((0, 5)) && Hook::State(body).holds((3, 3)));
        assert!(!Hook::State(body).holds((0, 2)) && !Hook::State(body).holds((4, 5)));
        let beyond = Hook::Compared { state: body, is_beyond: true };
        assert!(beyond.holds((3, 5)) && !beyond.holds((0, 3)));
        assert!(asked(Some(Protocol::Dns), ">request_started").is_err());
        assert!(asked(Some(Protocol::Ssh), ">request_started").is_err());
        assert!(asked(Some(Protocol::Smtp), ">request_started").is_ok());
        let line = State { side: 0, place: 1 };
        assert_eq!(asked(Some(Protocol::Http1), "request_line"), Ok(Hook::State(line)));
    }
}
