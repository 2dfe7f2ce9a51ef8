//! `weir explain`: what a drop reason means, and what to do about it.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use weir_engine::verdict::DropReason;

use super::{EXIT_USAGE, print_json};

/// The reason of what a guard stops, and what it means.
pub(super) const GUARD: &str = "guard";
pub(super) const SENT_BY_OWN_STACK: &str =
    "Sent by the gateway machine's own network stack, not by a host.";

const HELP: &str = "\
Reasons are those of `weir drops`, of `dropped_by_reason` in `weir status --json`, of the label
`reason` in /metrics, and of `drop.reason` in EVE.

Examples:
  weir explain no_policy
  weir explain 'flow drop'
  weir explain                 all of them

Exit codes:
  0  done
  2  there is no such reason";

/// Arguments of `weir explain`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ExplainArgs {
    /// The reason; absent: all
    pub reason: Option<String>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// Reasons that are no verdict of a gateway, what they mean, and what to do: that of `weir drops`
/// for what a guard stops, and those that only EVE's `drop.reason` has, in Suricata's words.
const OTHERS: [(&str, &str, &str); 7] = [
    (
        GUARD,
        SENT_BY_OWN_STACK,
        "nothing, if the machine's own programs speak there; what they send would go out in clear \
         beside the gateway. `ip addr` and `ip route` show why they use that port.",
    ),
    (
        "flow drop",
        "A rule had dropped a packet of this flow before, and with it the rest of the flow.",
        "see the alert or the drop before, of the same `flow_id`; counted as `rule`.",
    ),
    (
        "rules",
        "A rule dropped it: the alert beside it names it, unless its threshold keeps it silent.",
        "`weir drops` names the rule, which it is counted by.",
    ),
    (
        "applayer error",
        "The parser of its application gave up, and `parser_errors = \"drop\"` is written.",
        "counted as `parser_error`: `weir explain parser_error`.",
    ),
    (
        "exception policy flow drop",
        "Its flow was dropped before for what could not be looked into (`applayer error`).",
        "see the drop before, of the same `flow_id`.",
    ),
    (
        "stream error",
        "What its TCP connection says could not be looked into.",
        "`weir drops` has the count by `stream_unseen`, `stream_gap` and `stream_conflict`.",
    ),
    (
        "stream midstream",
        "Its connection began before it was looked at (of a capture, `weir verify`).",
        "`weir explain stream_unseen`.",
    ),
];

/// A reason in words.
#[derive(Debug, Serialize)]
struct Explained {
    reason: &'static str,
    meaning: &'static str,
    remedy: &'static str,
}

/// Runs `weir explain`.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: &ExplainArgs) -> Result<ExitCode> {
    let is_wanted = |it: &&DropReason| args.reason.as_ref().is_none_or(|name| name == it.name());
    let others = OTHERS.iter().filter(|it| args.reason.as_ref().is_none_or(|name| name == it.0));
    let others = others.map(|it| Explained { reason: it.0, meaning: it.1, remedy: it.2 });
    let explained: Vec<_> =
        DropReason::ALL.iter().filter(is_wanted).map(explain).chain(others).collect();
    if explained.is_empty() {
        let known = DropReason::ALL.iter().map(|it| it.name());
        let known: Vec<_> = known.chain(OTHERS.iter().map(|it| it.0)).collect();
        eprintln!("weir: there is no such reason; there are: {}", known.join(", "));
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    if args.json {
        print_json(&explained)?;
        return Ok(ExitCode::SUCCESS);
    }
    for Explained { reason, meaning, remedy } in explained {
        println!("{reason}\n  {}\n  What to do: {remedy}\n", meaning.trim());
    }
    Ok(ExitCode::SUCCESS)
}

fn explain(reason: &DropReason) -> Explained {
    Explained { reason: reason.name(), meaning: reason.meaning(), remedy: remedy(*reason) }
}

/// What to do about a packet or its place in the policy, for an operator.
fn remedy(reason: DropReason) -> &'static str {
    use DropReason::*;
    match reason {
        Malformed => {
            "look at the packets (`weir evidence cut --dropped`); a few are a scan or a faulty \
             NIC, many from one sender are an attack."
        }
        NotSealed => {
            "the sender is no gateway, or its policy lets this pass in clear. In a roll-out write \
             sealing = \"prefer\" for the peer until both ends seal."
        }
        NoPolicy => {
            "name the address in `protects` of a [[peer]], or decide about the rest with `default`."
        }
        LinkProtocol | Multicast => {
            "if hosts need it, allow its kind in [pair.frames]: \"seal\" where a peer carries \
             whole Ethernet frames, else \"clear\"."
        }
        TooBig => {
            "raise the wire's MTU by the overhead, or lower the hosts'; `weir doctor` says by how \
             much. For RDMA set `roce_mtu`."
        }
        NeighbourUnknown => {
            "the peer's endpoint or `next_hop`, or the host that the packet is for, answers no ARP \
             or neighbour discovery: check cable, VLAN and address. A few at the start are normal."
        }
        Fragment => "lower the hosts' MTU so that they do not fragment.",
        ArenaFull => {
            "a burst of super-packets; if it goes on, report it with `weir status --json`."
        }
        NoRoom => "report it with `weir status --json`: buffers are made with room.",
        NotForUs => "normal on a port that shares its segment with others.",
        CongestionUnheard => "the sender does not speak ECN: enable it there, or not on the path.",
        _ => remedy_of_seal(reason),
    }
}

/// The same of what has to do with keys, seals and tags.
fn remedy_of_seal(reason: DropReason) -> &'static str {
    use DropReason::*;
    match reason {
        UnknownSpi => {
            "the other gateway seals with keys that this one does not have: compare `weir status` \
             of both, the SPIs in their configurations, and reload the older one. Of a WireGuard \
             client: its session is of before the gateway started, and it soon begins another."
        }
        EspMalformed => "something on the path changes or cuts packets; check its MTU.",
        ReplayOld => {
            "packets overtake each other by more than the window: raise `replay_window` (to \
             8192). If the path has one way only, somebody sends old packets again."
        }
        ReplayDuplicate => "the network doubles packets, or somebody sends them again: no harm.",
        Authentication => {
            "the two ends have different keys for this SPI, or somebody forges. Compare the \
             fingerprints of the keys; if they agree, look for the sender."
        }
        EspTrailer => "the other end is no Weir, or faulty: compare `mode` at both ends.",
        SelectorMismatch => {
            "the peer sends what its `protects` here does not cover: correct `protects` at one end."
        }
        SequenceExhausted => "make new keys, or let gateways agree on them ([keying]).",
        SequenceNotReserved => {
            "the disk of `state_dir` is too slow, full or failed; see the log. Nothing is sealed \
             without a reserved number."
        }
        NoAssociation => {
            "the handshake has not come to keys: see the peer in `weir status`, UDP port 51840 on \
             the path, and both public keys."
        }
        KeyingBusy => {
            "a flood of handshakes: find its sender; gateways that know each other get through by \
             cookies."
        }
        CipherRefused => "run `weir doctor`; the machine or the build is broken.",
        IcrcBad => "the host's NIC or memory damages packets, or something rewrites them.",
        TagNotRoce => "write tag = { other = \"clear\" } for the peer if it should pass in clear.",
        TagForeign => "the sender does not tag: configure the same peer at its gateway.",
        TagForged => "both ends need the same tag key; if they have it, somebody forges.",
        TagOldEpoch => "set both gateways' clocks (NTP, PTP).",
        TagFailureLimit => "too many wrong tags for this queue pair: see `tag_forged`.",
        KernelEsp => "restart the gateway; somebody flushed the kernel's states (`ip xfrm`).",
        Blocked => "`weir block list` says why; `weir block remove` or `weir allow add` end it.",
        NatProtocol => "[pair.vpn] without `masquerade`, and a route on the host, lets it through.",
        NatFull => "free ports return with time; `weir status` shows which client sends most.",
        NatNoMapping => "the host speaks first; with `masquerade`, only clients can.",
        PeerReach => {
            "`weir vpn show` has the client's list of access; `weir vpn reach` changes it."
        }
        RateLimit => "`weir vpn limit` changes what the client may send and be sent.",
        TunnelTooDeep => {
            "no honest host nests so many tunnels: see who sends it. `layers = \"pass\"` in \
             [rules.exceptions] lets such packets go on unlooked at; those with more than two VLAN \
             tags, `conflicts = \"pass\"`."
        }
        FlowQueueFull => {
            "many fragmented datagrams at once for one worker: see who sends them, or have hosts \
             send datagrams that fit the MTU."
        }
        Rule => "`weir drops` names the rule; with mode = \"watch\" in [rules] it only tells.",
        StreamUnseen | StreamGap | StreamConflict | ParserError | FragmentConflict
        | FragmentsFull | FragmentsLate => remedy_of_stream(reason),
        _ => remedy_of_access(reason),
    }
}

/// The same of streams and datagrams that nobody can look at.
fn remedy_of_stream(reason: DropReason) -> &'static str {
    match reason {
        DropReason::FragmentsFull => {
            "a flood of fragments, or hosts that fragment much: see who sends them. `fragments = \
             \"pass\"` in [rules.exceptions] lets them go on unlooked at."
        }
        DropReason::FragmentsLate => {
            "pieces were lost before they came here: look for loss, or too small an MTU."
        }
        DropReason::StreamUnseen => {
            "the connection is older than the gateway's look at it: its ends have to open a new \
             one. `midstream = \"pass\"` in [rules.exceptions] lets such connections go on."
        }
        DropReason::ParserError => {
            "an application says what its parser cannot read: EVE's `anomaly` (`eve_anomalies`) \
             may say what. `parser_errors = \"pass\"` in [rules.exceptions] lets such flows go on."
        }
        DropReason::FragmentConflict => {
            "pieces of honest senders do not contradict each other; their hops differ where the \
             way of some changed meanwhile. Many are somebody who hides, or a middlebox. \
             `conflicts = \"pass\"` in [rules.exceptions] lets them go on."
        }
        DropReason::StreamConflict => {
            "honest senders repeat what they sent, within the window, hardly one sends urgent \
             data, and none begins eight RDMA messages on one queue pair and ends none: \
             somebody hides, or a middlebox changes data. \
             `conflicts = \"pass\"` in [rules.exceptions] lets it go on."
        }
        _ => {
            "much of a connection came before bytes that are missing: packets are lost, or \
             somebody hides. `gaps = \"pass\"` in [rules.exceptions] looks past the gap."
        }
    }
}

/// The same of lines of access, and of what has no remedy of its own.
fn remedy_of_access(reason: DropReason) -> &'static str {
    use DropReason::*;
    match reason {
        AccessDenied => {
            "`weir access hits` names the line; `weir access explain` says what would pass."
        }
        AccessUnreadable => {
            "look at it (`weir evidence cut --dropped`); senders of RoCE never fragment."
        }
        QpForged => {
            "someone sends with a queue pair number that another address set up: `weir evidence \
             cut --dropped` shows who. A host whose address moved must connect again."
        }
        AccessNoConnection => {
            "access_state = \"strict\" wants a connection by RDMA CM first; write \"learn\" for \
             programs that exchange queue pair numbers by other means."
        }
        AccessTableFull => "more queue pairs than the table holds: look for who makes so many.",
        AccessLimit => {
            "a line's limit was reached: `weir access hits` names it; raise its `limit`."
        }
        AccessPsn => {
            "someone injects into a queue pair, or it was made again without a word: `weir \
             evidence cut --dropped` shows who. access_psn = \"count\" lets such packets pass."
        }
        _ => "see docs/guide, and `weir evidence cut --dropped` for the packets.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_that_the_guide_names_is_explained() {
        let guide = include_str!("../../../../docs/guide/detect.md");
        let rows = guide.lines().skip_while(|it| !it.starts_with("| reason | which packets"));
        let rows = rows.skip(2).take_while(|it| it.starts_with('|'));
        let mut count = 0;
        for row in rows {
            let names = row.split('|').nth(1).unwrap_or_default();
            for name in names.split('`').skip(1).step_by(2) {
                let is_known = DropReason::ALL.iter().any(|it| it.name() == name)
                    || OTHERS.iter().any(|it| it.0 == name);
                assert!(is_known, "{name}");
                count += 1;
            }
        }
        assert!(count > 8, "{count}");
    }

    #[test]
    fn every_reason_has_a_remedy_of_its_own() {
        for reason in DropReason::ALL {
            assert!(!remedy(*reason).starts_with("see docs/guide, and"), "{}", reason.name());
        }
    }
}
