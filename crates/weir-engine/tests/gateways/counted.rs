//! Several workers of one gateway: what rules count over flows holds for all of them together.

use super::inline::{ATTACKER, VICTIM, gateway, ipv4, syn, udp_payload};
use super::*;

const ROUND_NS: u64 = 100_000_000;

/// Two workers of a pair.
struct Both {
    workers: [Gateway; 2],
    tell_each_other: bool,
    told: Time,
}

impl Both {
    fn new(rules: &str, tell_each_other: bool) -> Self {
        let first = gateway(rules, |_| ());
        let set = first.engine.policy().rules.clone();
        let second = gateway(rules, |policy| policy.rules = set);
        let mut workers = [first, second];
        workers.iter_mut().for_each(|it| it.engine.set_one_of_several());
        let told = workers[0].clock;
        Self { workers, tell_each_other, told }
    }

    /// A packet comes to one of them at that time; whether it passes.
    fn receive(&mut self, worker: usize, now: Time, packet: Vec<u8>) -> bool {
        if now.since_ns(self.told) >= ROUND_NS {
            self.told = now;
            self.exchange(now);
        }
        let worker = &mut self.workers[worker];
        worker.clock = now;
        !worker.receive(Side::Wire, &[packet]).is_empty()
    }

    /// What both do ten times a second.
    fn exchange(&mut self, now: Time) {
        if !self.tell_each_other {
            return;
        }
        let told = self.workers.each_mut().map(|it| it.engine.take_counted());
        for (hearer, counted) in self.workers.iter_mut().rev().zip(&told) {
            counted.iter().for_each(|it| hearer.engine.add_counted(it, now));
        }
    }

    /// So many packets a second for two seconds, to both by turns; how many pass.
    fn passing(&mut self, a_second: u64, packet: impl Fn(u32) -> Vec<u8>) -> usize {
        let begun = self.told;
        let at = |number: u64| begun.plus_ns(number * 1_000_000_000 / a_second);
        let mut pass =
            |number: u64| self.receive(number as usize % 2, at(number), packet(number as u32));
        (0..2 * a_second).filter(|number| pass(*number)).count()
    }
}

fn datagram(from: [u8; 4], text: &[u8]) -> Vec<u8> {
    ipv4(from, VICTIM, 17, 0, &udp_payload(99, text))
}

#[test]
fn a_flood_that_no_worker_sees_half_of_is_one_for_both() {
    let rule = "drop tcp any any -> any any (flood:syn, by_src, rate 1000, hold 3; sid:9;)";
    // 800 a second each: less than the rate for either.
    let packet = |number| syn(ATTACKER, VICTIM, number);
    assert_eq!(Both::new(rule, false).passing(1600, packet), 3200);
    let passed = Both::new(rule, true).passing(1600, packet);
    // Half a second's worth of the rate, and what came before that was used up.
    assert!((900..1800).contains(&passed), "{passed}");
}

#[test]
fn a_rate_filter_and_a_detection_filter_hold_for_both() {
    let filter = "drop udp any any -> any 99 (content:\"try\"; \
                  detection_filter:track by_src, count 100, seconds 60; sid:1;)";
    let packet = |_| datagram(ATTACKER, b"try");
    let apart = Both::new(filter, false).passing(100, packet);
    let together = Both::new(filter, true).passing(100, packet);
    assert_eq!(apart, 200, "100 at each");
    assert!((100..=110).contains(&together), "{together}");
}

#[test]
fn a_scan_whose_tries_come_to_both_workers_is_one() {
    let rule = "drop tcp any any -> any any (scan:targets 100, seconds 60; sid:7;)";
    let to = |number: u32| syn(ATTACKER, [10, 2, (number >> 8) as u8, number as u8], 7);
    let apart = Both::new(rule, false).passing(100, to);
    let together = Both::new(rule, true).passing(100, to);
    assert!(apart >= 198, "{apart}");
    assert!((99..=110).contains(&together), "{together}");
}

#[test]
fn a_host_that_one_worker_marked_is_marked_for_the_other() {
    let rules = "alert udp any any -> any 99 (content:\"bad\"; \
                 xbits:set,bad,track ip_src,expire 60; sid:1;)\n\
                 drop udp any any -> any 99 (content:\"more\"; \
                 xbits:isset,bad,track ip_src; sid:2;)";
    let mut both = Both::new(rules, true);
    let mut now = both.told;
    let mut pass = |worker, from, text: &[u8], later_ms: u64| {
        now = now.plus_ns(later_ms * 1_000_000);
        both.receive(worker, now, datagram(from, text))
    };
    assert!(pass(0, ATTACKER, b"bad", 0));
    assert!(!pass(0, ATTACKER, b"more", 1), "at once where it was marked");
    assert!(pass(1, ATTACKER, b"more", 1), "the other has not heard of it");
    assert!(!pass(1, ATTACKER, b"more", 200));
    assert!(pass(1, [192, 0, 2, 67], b"more", 0), "another host");
}

#[test]
fn what_other_rules_counted_is_not_taken_over() {
    let rule = "drop udp any any -> any 99 (content:\"try\"; \
                detection_filter:track by_src, count 10, seconds 60; sid:1;)";
    // Compiled twice: not the same set, as during a reload.
    let [mut one, mut other] = [(); 2].map(|()| {
        let mut worker = gateway(rule, |_| ());
        worker.engine.set_one_of_several();
        worker
    });
    for _ in 0..10 {
        assert_eq!(one.receive(Side::Wire, &[datagram(ATTACKER, b"try")]).len(), 1);
    }
    let counted = one.engine.take_counted().expect("ten matches");
    other.engine.add_counted(&counted, other.clock);
    assert_eq!(other.receive(Side::Wire, &[datagram(ATTACKER, b"try")]).len(), 1);
}
