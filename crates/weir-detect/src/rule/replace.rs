//! `replace`: what is written over a content in the packet that it is found in.

use super::keywords::{Collected, Refused};
use super::step::{Content, Step};
use super::syntax::{quoted, unquoted};
use super::{Buffer, BufferTest, Protocol, Rule, content};

impl Collected {
    /// Takes `replace` in: of the payload's last content, whatever came since.
    pub(super) fn replace(&mut self, value: &str) -> Result<(), String> {
        quoted(value).ok_or("a text stands in quotes, with nothing behind them")?;
        let is_plain =
            |it: &&mut BufferTest| it.key.buffer == Buffer::Payload && it.key.transforms.is_empty();
        let payload = self.buffers.iter_mut().find(is_plain);
        let mut steps = payload.into_iter().flat_map(|it| it.steps.iter_mut().rev());
        let last = steps.find_map(|it| match it {
            Step::Content(content) => Some(content),
            _ => None,
        });
        put(last.ok_or("no content of the payload before it")?, value)
    }
}

/// As many bytes as the content has.
fn put(content: &mut Content, value: &str) -> Result<(), String> {
    let (is_negated, text) = unquoted(value);
    if is_negated || content.is_negated {
        return Err("what is not there cannot be replaced".to_owned());
    }
    let bytes = content::bytes(text)?;
    if bytes.len() != content.bytes.len() {
        let (own, other) = (bytes.len(), content.bytes.len());
        return Err(format!("{own} bytes for a content of {other}: they must be as many"));
    }
    content.replacement = Some(bytes.into());
    Ok(())
}

/// Notes whether the rule replaces something, and then is about packets of TCP or UDP: those are
/// rewritten.
pub(super) fn settle(rule: &mut Rule) -> Result<(), Refused> {
    use Protocol as P;
    rule.replaces = rule.buffers.iter().flat_map(|it| &it.steps).any(Step::replaces);
    let why = match rule.protocol() {
        _ if !rule.replaces => return Ok(()),
        P::Rdma => "an ICRC covers what RDMA carries: receivers discard what is replaced",
        P::Icmp | P::Icmpv4 | P::Icmpv6 | P::Sctp => "only what TCP and UDP carry is replaced",
        P::TcpStream => "it is of packets, and the rule is about the stream: write `tcp`",
        _ if rule.flow.only_stream == Some(true) => "it is of packets, not of the stream",
        _ if rule.is_of_messages(false) || rule.frame().is_some() => {
            "it goes with contents of the payload, and with no application's"
        }
        _ => return Ok(()),
    };
    Err(Refused::new("replace", why))
}
