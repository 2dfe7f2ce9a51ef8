//! Floods at the joint, as hostile senders have them: nobody's are hidden by another's connections,
//! nobody is dropped for longer than what is sent in his name.

use super::inline::{SYN_FLOOD, VICTIM, flood, gateway, ipv4, syn, udp_payload};
use super::*;

use weir_wire::checksum::pseudo_header_v4;

/// A fast flood empties its bucket before much is known of its senders.
#[test]
fn a_fast_flood_of_few_hosts_is_theirs_alone() {
    for (bots, per_ms) in [(1, 100), (40, 10), (40, 200), (100, 100)] {
        let mut gateway = gateway(SYN_FLOOD, |_| ());
        let mut floods = Vec::new();
        for number in 0..per_ms * 200_u32 {
            gateway.clock = gateway.clock.plus_ns(1_000_000 / u64::from(per_ms));
            let bot = [10, 66, 0, (number % bots) as u8];
            gateway.receive(Side::Wire, &[syn(bot, VICTIM, number)]);
            gateway.engine.take_floods(&mut |flood| floods.push(flood));
        }
        let whole = floods.iter().filter(|it| it.talker.is_none()).count();
        assert_eq!(whole, 0, "{bots} hosts, {per_ms} a ms: {} floods", floods.len());
        assert!(floods.len() as u32 >= bots - bots / 10, "{bots}: {}", floods.len());
    }
}

/// Whose address was used for a moment is heard again while others go on.
#[test]
fn a_talker_that_is_silent_is_let_go_before_the_flood_is_over() {
    let mut gateway = gateway(SYN_FLOOD, |_| ());
    let mut floods = Vec::new();
    for number in 0..20_000_u32 {
        gateway.clock = gateway.clock.plus_ns(100_000);
        let bot = [10, 66, 0, (number % 10) as u8];
        gateway.receive(Side::Wire, &[syn(bot, VICTIM, number)]);
        gateway.engine.take_floods(&mut |flood| floods.push(flood));
    }
    assert_eq!(floods.len(), 10);
    let [silent, others @ ..] = &floods[..] else { unreachable!() };
    for tick in 0..80 {
        gateway.clock = gateway.clock.plus_ns(100_000_000);
        let now = gateway.clock;
        for flood in others {
            assert!(gateway.engine.flood_goes_on(now, flood, 100), "{tick}");
        }
        if !gateway.engine.flood_goes_on(now, silent, 0) {
            assert!((5..=30).contains(&tick), "{tick}");
            return;
        }
    }
    panic!("it is held as long as the flood lasts");
}

/// A segment of TCP without data, with its checksum.
fn segment(from: [u8; 4], to: [u8; 4], ports: [u16; 2], numbers: [u32; 2], flags: u8) -> Vec<u8> {
    let mut tcp = ports.map(u16::to_be_bytes).concat();
    tcp.extend(numbers.map(u32::to_be_bytes).concat());
    tcp.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    let checksum = pseudo_header_v4(from, to, 6, 20).with(&tcp).checksum();
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    ipv4(from, to, 6, 0, &tcp)
}

/// A client's SYN, sent so often, and what sets its connection up, if one got through; how many
/// did.
fn connect(gateway: &mut Gateway, number: u32, syns: u32) -> usize {
    let (client, ports) = ([10, 68, (number >> 8) as u8, number as u8], [1024, 80]);
    let isn = number.wrapping_mul(2_654_435_761);
    let first = segment(client, VICTIM, ports, [isn, 0], 2);
    let mut through = 0;
    for _ in 0..syns {
        through += gateway.receive(Side::Wire, std::slice::from_ref(&first)).len();
    }
    if through > 0 {
        let next = isn.wrapping_add(1);
        let answer = segment(VICTIM, client, [80, 1024], [9, next], 0x12);
        assert_eq!(gateway.receive(Side::Host, &[answer]).len(), 1);
        let third = segment(client, VICTIM, ports, [next, 10], 0x10);
        assert_eq!(gateway.receive(Side::Wire, &[third]).len(), 1);
    }
    through
}

const HALF_OPEN: &str =
    "drop tcp any any -> any any (flood:half_open, by_dst, rate 1000, hold 3; sid:9;)";

/// Who sets up connections, or sends SYNs again, pays for his own and for no other.
#[test]
fn connections_of_one_hide_no_half_open_ones_of_another() {
    let mut gateway = gateway(HALF_OPEN, |_| ());
    flood(&mut gateway, VICTIM, 10_000, 1000);
    let mut through = 0;
    for second in 0..10_u32 {
        for number in 0..800 {
            through += flood(&mut gateway, VICTIM, 1, 1);
            connect(&mut gateway, second * 800 + number, 2);
        }
        gateway.clock = gateway.clock.plus_ns(200_000_000);
    }
    assert!(through < 1200, "of 8,000, a trickle: {through}");
}

/// A busy server's own connections do not keep a flood alive that the gate holds: they come again.
#[test]
fn a_flood_of_half_open_connections_is_over_at_a_busy_server() {
    let mut gateway = gateway(HALF_OPEN, |_| ());
    let mut floods = Vec::new();
    for _ in 0..2 {
        flood(&mut gateway, VICTIM, 10_000, 1000);
        gateway.engine.take_floods(&mut |flood| floods.push(flood));
    }
    let [told] = floods[..] else { panic!("{floods:?}") };
    assert!(gateway.engine.flood_goes_on(gateway.clock, &told, 0));
    // 8,000 a second: the gate drops each one's first SYN, and lets the second through.
    let mut number = 0;
    for tick in 0..100 {
        for _ in 0..800 {
            gateway.clock = gateway.clock.plus_ns(125_000);
            number += 1;
            connect(&mut gateway, number, 1);
        }
        if !gateway.engine.flood_goes_on(gateway.clock, &told, 800) {
            assert!((29..45).contains(&tick), "{tick}");
            return;
        }
    }
    panic!("it never ends");
}

/// One answer, which costs one packet, is no leave to send any number.
#[test]
fn who_was_answered_before_a_flood_sends_no_more_than_is_none() {
    let rule = "drop udp any any -> any any (flood:udp, by_dst, rate 1000, hold 3; sid:9;)";
    for bots in [20, 200] {
        let mut gateway = gateway(rule, |_| ());
        let bot = |number: u32| [10, 66, 0, (number % bots) as u8];
        let from = |number| ipv4(bot(number), VICTIM, 17, 0, &udp_payload(99, &[7; 20]));
        for number in 0..bots {
            assert_eq!(gateway.receive(Side::Wire, &[from(number)]).len(), 1);
            let mut answer = udp_payload(12_345, b"yes");
            answer[..2].copy_from_slice(&99_u16.to_be_bytes());
            gateway.receive(Side::Host, &[ipv4(VICTIM, bot(number), 17, 0, &answer)]);
        }
        let mut through = 0;
        for number in 0..40_000 {
            gateway.clock = gateway.clock.plus_ns(50_000);
            through += gateway.receive(Side::Wire, &[from(number)]).len();
        }
        // The rate, two bursts, and what is a conversation yet: 16 packets for an answer.
        let most = 2_000 + 2 * 500 + 16 * bots as usize;
        assert!((2_000..=most).contains(&through), "{bots}: {through} in two seconds");
    }
}

#[test]
fn a_flood_that_sends_each_syn_twice_gets_no_more_through_than_four_times_the_rate() {
    let rule = "drop tcp any any -> any any (flood:syn, by_dst, rate 1000; sid:9;)";
    let mut gateway = gateway(rule, |_| ());
    let mut through = 0;
    for number in 0..40_000_u32 {
        gateway.clock = gateway.clock.plus_ns(25_000);
        let source = (0x0b00_0000 + number).to_be_bytes();
        let frame = syn(source, VICTIM, number);
        for _ in 0..2 {
            through += gateway.receive(Side::Wire, std::slice::from_ref(&frame)).len();
        }
    }
    // Half a second and a second of four times the rate, and what came before the flood.
    assert!((4_000..7_500).contains(&through), "{through} of 80,000 in a second");
}

/// Segments of connections that never were, from a port that a server could have.
#[test]
fn first_packets_count_whichever_end_of_their_flow_sends_them() {
    let rule = "drop tcp any any -> any any (flood:new_flow, by_dst, rate 1000, hold 3; sid:9;)";
    let ack = |from: [u8; 4], port: u16| {
        let mut tcp = [port.to_be_bytes(), 40_000_u16.to_be_bytes()].concat();
        tcp.extend([0, 0, 0, 9, 0, 0, 0, 9, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
        ipv4(from, VICTIM, 6, 0, &tcp)
    };
    for port in [80, 50_000] {
        let sees_all = |policy: &mut Policy| policy.rules.as_mut().unwrap().limits.sees_all = true;
        let mut gateway = gateway(rule, sees_all);
        let mut through = 0;
        for number in 0..10_000_u32 {
            gateway.clock = gateway.clock.plus_ns(50_000);
            let from = [10, 66, (number >> 8) as u8, number as u8];
            through += gateway.receive(Side::Wire, &[ack(from, port)]).len();
        }
        assert!(through < 2_000, "from port {port}: {through}");
    }
}

/// Who is asked much answers much, and sends no flood; but replies may also be sent unasked.
#[test]
fn echo_replies_are_a_flood_where_nobody_asked_for_them() {
    let rule = "drop icmp any any -> any any (flood:icmp, by_src, rate 1000, hold 3; sid:9;)";
    let echo = |kind, from, to| ipv4(from, to, 1, 0, &[kind, 0, 0, 0, 0, 1, 0, 1]);
    let replies_of = |requests: u32| {
        let mut gateway = gateway(rule, |_| ());
        let mut through = 0;
        for number in 0..10_000_u32 {
            gateway.clock = gateway.clock.plus_ns(50_000);
            let client = [10, 66, (number >> 8) as u8, number as u8];
            if number < requests {
                gateway.receive(Side::Wire, &[echo(8, client, VICTIM)]);
            }
            through += gateway.receive(Side::Host, &[echo(0, VICTIM, client)]).len();
        }
        through
    };
    assert_eq!(replies_of(10_000), 10_000);
    let (asked, rest) = (1_000, replies_of(1_000) - 1_000);
    assert!(rest < 600, "half a second of the rate behind {asked}: {rest}");
    assert!(replies_of(0) < 600);
}
