//! Several detectors of one pair count together (docs/adr/0221).

use std::sync::Arc;

use weir_detect::{Direction, FlowSlot};

use crate::bench::{Bench, CLIENT, SERVER, load, udp};

/// Workers take new rules one after another; what they count meanwhile holds for all.
#[test]
fn what_workers_count_while_rules_change_is_told() {
    const RULES: &str = "\
        alert udp any any -> any 1 (xbits:set,seen,track ip_src,expire 300; noalert; sid:1;)\n\
        alert udp any any -> any 2 (xbits:isset,seen,track ip_src; sid:2;)\n\
        alert udp any any -> any 3 (threshold:type limit,track by_src,count 1,seconds 60; sid:3;)\n\
        alert udp any any -> any 4 (ip.src; dataset:set,hosts,type ip; noalert; sid:4;)\n\
        alert udp any any -> any 5 (ip.src; dataset:isset,hosts,type ip; sid:5;)\n";
    let before = Arc::new(load(RULES).0);
    let after = Arc::new(load(&format!("alert tcp any any -> any 9 (sid:9;)\n{RULES}")).0);
    for (swaps_first, tells_late) in [(0, false), (0, true), (1, false), (1, true)] {
        let mut both = [Bench::new(RULES), Bench::new(RULES)];
        for bench in &mut both {
            bench.detector.swap(Arc::clone(&before)).unwrap();
            bench.detector.share();
        }
        both[swaps_first].detector.swap(Arc::clone(&after)).unwrap();
        let say = |bench: &mut Bench, port| {
            bench.slot = FlowSlot::default();
            bench.send(Direction::Initiator, &udp(CLIENT, SERVER, 4000 + port, port, b"w"));
        };
        for port in [1, 3, 4] {
            say(&mut both[0], port);
        }
        if tells_late {
            both[0].detector.swap(Arc::clone(&after)).unwrap();
        }
        let shared = both[0].detector.take_shared().unwrap();
        let now = both[1].now;
        both[1].detector.add_shared(now, &shared);
        for bench in &mut both {
            bench.detector.swap(Arc::clone(&after)).unwrap();
        }
        both[1].alerted();
        for port in [2, 3, 5] {
            say(&mut both[1], port);
        }
        assert_eq!(both[1].alerted(), [2, 5], "{swaps_first} {tells_late}");
    }
}
