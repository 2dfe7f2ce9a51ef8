//! The rules in `rules/` against attacks and their benign twins: thresholds were chosen by even
//! seeds and are judged here by odd ones, at the usual rate and, where the rate is not what makes
//! the attack, at a tenth of it.

use std::path::Path;
use std::sync::Arc;

use weir_detect::{Alerts, Detector, FlowTable, Limits, Packet, RuleSet};
use weir_lab::play::{self, Outcome};
use weir_lab::thresholds;
use weir_lab::traffic::hostile::{Campaign, Hostile};
use weir_wire::frame::{Link, Time};
use weir_wire::parse::parse;

const SEEDS: [u64; 5] = [1, 3, 5, 7, 9];

/// The rule that tells an attack, the rate of its frames, and how many there are.
struct Case {
    sid: u32,
    rate: u64,
    count: usize,
    /// The attacker's frames that are dropped, of all after the first alert, in percent; 0: the
    /// rule only tells.
    dropped: u64,
}

fn case(hostile: Hostile) -> Case {
    let dropped = match hostile {
        Hostile::KeyGuessing
        | Hostile::AddressGuessing
        | Hostile::XrcKeyGuessing
        | Hostile::QpExhaustion => 45,
        Hostile::DnsFlood | Hostile::HalfOpenFlood => 85,
        Hostile::PkeyGuessing | Hostile::CarpetFlood => 90,
        Hostile::RogueSm => 100,
        Hostile::ForgedCnp => 95,
        Hostile::AckFlood => 0,
        other if other.is_flood() => 95,
        _ => 0,
    };
    let (count, rate) = hostile.usual(false);
    Case { sid: hostile.rule(), rate: rate.into(), count: count as usize, dropped }
}

fn rules() -> Arc<RuleSet> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rules");
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).expect("it is there");
    let [rdma, flood] = ["rdma.rules", "flood.rules"].map(|name| (name, text(name)));
    let files = [(rdma.0, rdma.1.as_str()), (flood.0, flood.1.as_str())];
    let rules = play::load(&files, &text("classification.config")).expect("every rule runs");
    assert!(rules.iter().all(|rule| rule.priority < 3), "every class is known");
    rules
}

fn run(rules: &Arc<RuleSet>, campaign: &Campaign, rate: u64) -> Outcome {
    play::run(rules, campaign, rate).expect("memory")
}

fn campaign(hostile: Hostile, is_benign: bool, count: usize, seed: u64) -> Campaign {
    Campaign { hostile, is_benign, count, sources: 1, seed }
}

#[test]
fn every_attack_is_told_by_its_rule_and_dropped_where_that_says_so() {
    let rules = rules();
    for (name, hostile) in Hostile::ALL {
        let Case { sid, rate, count, dropped } = case(hostile);
        let slow = if hostile.is_by_rate() { 1 } else { 10 };
        for (seed, rate) in SEEDS.into_iter().flat_map(|seed| [(seed, rate), (seed, rate / slow)]) {
            // The large ones once: they differ by their addresses alone.
            if count > 50_000 && seed > 1 {
                continue;
            }
            let outcome = run(&rules, &campaign(hostile, false, count, seed), rate);
            let told = outcome.told.iter().find(|it| it.0 == sid);
            assert!(told.is_some(), "{name}, seed {seed}, {rate}/s: {outcome:?}");
            let share = outcome.dropped * 100 / outcome.behind.max(1);
            assert!(share >= dropped, "{name}, seed {seed}, {rate}/s: {share} % dropped");
            assert_eq!(dropped == 0, outcome.dropped == 0, "{name}, seed {seed}: {outcome:?}");
        }
    }
}

#[test]
fn no_benign_twin_is_taken_for_an_attack() {
    let rules = rules();
    for (name, hostile) in Hostile::ALL {
        let (count, rate) = hostile.usual(true);
        let (count, rate) = (count as usize, rate.into());
        for seed in SEEDS {
            if count > 50_000 && seed > 1 {
                continue;
            }
            let outcome = run(&rules, &campaign(hostile, true, count, seed), rate);
            assert_eq!(outcome.told, [], "{name}, seed {seed}");
            assert_eq!(outcome.dropped, 0, "{name}, seed {seed}");
        }
    }
}

#[test]
fn connections_that_forged_sources_ask_for_are_told_by_whom_they_ask() {
    let rules = rules();
    for seed in SEEDS {
        // Half of what is a flood.
        let asked = Campaign { sources: 0, ..campaign(Hostile::CmFlood, false, 4_000, seed) };
        let outcome = run(&rules, &asked, 1_000);
        assert!(outcome.told.iter().any(|it| it.0 == 3_200_031), "{outcome:?}");
        assert_eq!(outcome.dropped, 0, "whose they are is not known");
    }
}

#[test]
fn a_flood_of_forged_sources_is_told_by_whom_it_hits() {
    let rules = rules();
    for (hostile, sid) in [
        (Hostile::SynFlood, 3_200_102),
        (Hostile::UdpFlood, 3_200_104),
        (Hostile::IcmpFlood, 3_200_106),
        (Hostile::DnsFlood, 3_200_107),
        (Hostile::CmFlood, 3_200_019),
        (Hostile::MadFlood, 3_200_028),
        (Hostile::CnpFlood, 3_200_020),
        (Hostile::CnpFlood, 3_200_021),
    ] {
        let Case { rate, count, .. } = case(hostile);
        for seed in SEEDS {
            let flood = Campaign { sources: 0, ..campaign(hostile, false, count, seed) };
            let outcome = run(&rules, &flood, rate);
            let (_, after_ms) = outcome.told.iter().find(|it| it.0 == sid).expect("told");
            assert!(*after_ms < 600, "{hostile:?}: told after {after_ms} ms");
            assert!(outcome.dropped * 100 / outcome.behind >= 85, "{hostile:?}: {outcome:?}");
        }
    }
}

#[test]
fn congestion_notifications_that_nobody_asked_for_are_told_at_once_and_others_are_not() {
    let rules = rules();
    let told = |sid: u32, outcome: &Outcome| outcome.told.iter().find(|it| it.0 == sid).copied();
    for seed in SEEDS {
        // Slower than any rule for honest ones minds.
        let flood = Campaign { sources: 0, ..campaign(Hostile::CnpFlood, false, 8_000, seed) };
        let outcome = run(&rules, &flood, 20_000);
        let (_, after_ms) = told(3_200_021, &outcome).expect("told");
        assert!(after_ms < 300, "told after {after_ms} ms");
        // As many as one congested flow may have, each for data.
        let twin = campaign(Hostile::CnpFlood, true, 40_000, seed);
        let outcome = run(&rules, &twin, 36_000);
        assert_eq!((outcome.told, outcome.dropped), (vec![], 0), "seed {seed}");
    }
}

#[test]
fn an_alert_says_who_sends_a_flood() {
    let rules = rules();
    let sources = |sources: u32| {
        let flood = Campaign { sources, ..campaign(Hostile::SynFlood, false, 20_000, 1) };
        let mut told = Vec::new();
        play::each(&rules, (&flood, &flood.frames()), 20_000, |_, _, alerts| {
            told.extend(alerts.drain().filter_map(|it| it.flood).filter(|it| it.by_destination));
        })
        .expect("memory");
        let flood = told.into_iter().find(|it| it.kind == "syn" && it.bits == 128);
        let flood = flood.expect("it is told of");
        assert_eq!(flood.allowed, 2_000);
        assert!((10_000..=20_000).contains(&flood.rate), "{flood:?}");
        flood.sources.expect("enough packets")
    };
    let forged = sources(0);
    assert!(!forged.are_few && forged.entropy_permille > 900, "{forged:?}");
    let few = sources(30);
    assert!(few.are_few && few.entropy_permille < 700, "{few:?}");
    assert_eq!(few.loudest.len(), 8);
}

/// Who changes a rule or adds an attack makes `docs/thresholds.md` anew: `weir lab thresholds`.
#[test]
fn the_record_of_thresholds_is_of_the_rules_as_they_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/thresholds.md");
    let record = std::fs::read_to_string(path).expect("it is there");
    for (name, hostile) in Hostile::ALL {
        let (option, number) = thresholds::shipped(hostile).expect("a rule with a threshold");
        let row = format!("| {} | {name} | {option} {number} |", hostile.rule());
        assert!(record.contains(&row), "no row begins with {row}");
    }
}

/// A number that is used again without connection management brings other PSNs.
#[test]
fn a_queue_pair_that_was_silent_may_begin_anew() {
    let rules = rules();
    for (silent_s, is_told) in [(61, false), (1, true)] {
        let limits = Limits::default();
        let mut detector = Detector::new(Arc::clone(&rules), limits).expect("memory");
        let (mut flows, mut alerts) = (FlowTable::new(limits), Alerts::new(64));
        let mut now = Time(1_000_000_000_000);
        for seed in [1, 3] {
            for frame in campaign(Hostile::PsnInjection, true, 200, seed).frames() {
                let parsed = parse(&frame.bytes, Link::Ethernet, frame.bytes.len() as u32);
                let packet = Packet {
                    bytes: &frame.bytes,
                    parsed: &parsed,
                    decoded: None,
                    is_rebuilt: false,
                    is_verified: false,
                    icrc: None,
                    port: None,
                };
                let _ = flows.inspect(&mut detector, now, &packet, &mut alerts);
                now = now.plus_ns(1_000_000);
            }
            now = now.plus_ns(silent_s * 1_000_000_000);
        }
        assert_eq!(!alerts.is_empty(), is_told, "after {silent_s} s");
    }
}
