//! How far what is said has come (`app-layer-state`, hooks), and what is odd about records of TLS.
//! Judged by Suricata 8.0.7, which tells the same rules with the same packets first, but for ends:
//! it tells of a server's when the flow is over.

use weir_detect::{Decision, Direction};

use crate::bench::Bench;
use crate::sessions_in_clear::{certificate, chain, handshake, hello};

use Direction::{Initiator, Responder};

const FIN: u8 = 17;

/// What is said, and what is told of it first.
type Step = (Direction, Vec<u8>, String);

fn step(direction: Direction, said: impl Into<Vec<u8>>, told: &str) -> Step {
    (direction, said.into(), told.to_owned())
}

/// Rules that ask for each of these states of a protocol, and what each of them asks.
fn rules(protocol: &str, hooks: &[&str], states: &[&str]) -> (String, Vec<String>) {
    let hooks = hooks.iter().map(|it| (it.to_string(), format!("{protocol}:{it}"), String::new()));
    let asked = states.iter().flat_map(|it| ["<", ">", "="].map(|sign| format!("{sign}{it}")));
    let asked = asked.map(|it| {
        let value = it.strip_prefix('=').unwrap_or(&it);
        (it.clone(), protocol.to_owned(), format!("app-layer-state:{value};"))
    });
    let mut text = String::new();
    let mut names = Vec::new();
    for (sid, (name, header, option)) in (1..).zip(hooks.chain(asked)) {
        text += &format!("alert {header} any any -> any any ({option} sid:{sid};)\n");
        names.push(name);
    }
    (text, names)
}

/// Has both sides say this, and compares what is told with each packet and was not before.
#[track_caller]
fn expect((text, names): (String, Vec<String>), port: u16, steps: &[Step]) {
    let mut bench = Bench::new(&text);
    bench.server_port = port;
    bench.connect();
    let mut known = Vec::new();
    for (number, (direction, said, wanted)) in steps.iter().enumerate() {
        match said.is_empty() {
            true => bench.tcp(*direction, FIN, b""),
            false => bench.data(*direction, said),
        };
        let mut told: Vec<&str> = Vec::new();
        for sid in bench.alerted() {
            let name = names[sid as usize - 1].as_str();
            // Who asks for a state by keyword is told as by the hook.
            if !known.contains(&sid) && !name.starts_with('=') {
                told.push(name);
            }
            known.push(sid);
        }
        let mut wanted: Vec<&str> = wanted.split_whitespace().collect();
        told.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(told, wanted, "step {number}");
    }
    let is_known = |name: &str| {
        let sid = names.iter().position(|it| it == name).unwrap() as u32 + 1;
        known.contains(&sid)
    };
    for name in names.iter().filter_map(|it| it.strip_prefix('=')) {
        assert_eq!(is_known(&format!("={name}")), is_known(name), "{name}");
    }
}

fn tls() -> (String, Vec<String>) {
    let client = ["in_progress", "hello_done", "cert_done", "handshake_done", "finished"]
        .map(|it| format!("client_{it}"));
    let server = ["in_progress", "hello", "cert_done", "hello_done", "handshake_done", "finished"]
        .map(|it| format!("server_{it}"));
    let states: Vec<&str> = client.iter().chain(&server).map(String::as_str).collect();
    let ends = ["request_started", "request_complete", "response_started", "response_complete"];
    rules("tls", &[states.as_slice(), &ends].concat(), &states)
}

const BEGUN: &str = "request_started client_in_progress <client_hello_done <client_cert_done \
                     <client_handshake_done <client_finished";
const CLIENT_HELLO: &str = "client_hello_done >client_in_progress";
const SERVER_HELLO: &str = "response_started server_in_progress server_hello >server_in_progress";
const SERVER_BEHIND: &str = "<server_cert_done <server_hello_done <server_handshake_done";
const CLIENT_SHAKEN: &str =
    "client_cert_done client_handshake_done >client_hello_done >client_cert_done";
const SERVER_SHAKEN: &str = "server_cert_done server_hello_done server_handshake_done \
                             >server_hello >server_cert_done >server_hello_done";
const CLIENT_OVER: &str = "client_finished request_complete >client_handshake_done";
const SERVER_OVER: &str = "server_finished response_complete >server_handshake_done";

fn change_cipher() -> Vec<u8> {
    vec![20, 3, 3, 0, 1, 1]
}

fn data() -> Vec<u8> {
    [&[23, 3, 3, 0, 50][..], &[0x88; 50]].concat()
}

fn encrypted() -> Vec<u8> {
    [&[22, 3, 3, 0, 40][..], &[0x77; 40]].concat()
}

/// A server's certificate.
fn one() -> Vec<u8> {
    chain(&[certificate("a.example", "b.example", "2015", "2035", "c.example")])
}

fn from_client() -> Vec<u8> {
    hello(1, &[0, 2, 0x13, 1, 1, 0], "h2")
}

fn from_server() -> Vec<u8> {
    hello(2, &[0xc0, 0x2f, 0], "h2")
}

#[test]
fn a_handshake_comes_through_its_states() {
    let client = from_client();
    let (begin, rest) = client.split_at(40);
    let steps = [
        step(Initiator, begin.to_vec(), BEGUN),
        step(Initiator, rest.to_vec(), CLIENT_HELLO),
        step(Responder, from_server(), &format!("{SERVER_HELLO} {SERVER_BEHIND} <server_finished")),
        step(Responder, one(), SERVER_SHAKEN),
        step(Responder, handshake(14, b""), ""),
        step(Initiator, handshake(16, &[4; 66]), CLIENT_SHAKEN),
        step(Initiator, [change_cipher(), encrypted()].concat(), ""),
        step(Responder, [change_cipher(), encrypted()].concat(), ""),
        step(Initiator, data(), ""),
        step(Responder, data(), ""),
        step(Initiator, Vec::new(), CLIENT_OVER),
        step(Responder, Vec::new(), SERVER_OVER),
    ];
    expect(tls(), 443, &steps);
}

#[test]
fn a_handshake_without_a_certificate_is_over_with_data() {
    let behind = "server_cert_done server_hello_done >server_hello >server_cert_done";
    let last = "server_handshake_done >server_hello_done";
    let hello = format!("{SERVER_HELLO} {SERVER_BEHIND} <server_finished");
    let client = "<client_cert_done <client_handshake_done <client_finished request_started \
                  client_in_progress client_hello_done >client_in_progress";
    let steps = [
        step(Initiator, from_client(), client),
        step(Responder, from_server(), &hello),
        step(Responder, handshake(12, &[4; 69]), ""),
        step(Responder, handshake(14, b""), behind),
        step(Initiator, handshake(16, &[4; 66]), ""),
        step(Initiator, change_cipher(), CLIENT_SHAKEN),
        step(Responder, [change_cipher(), encrypted()].concat(), ""),
        // From here on nobody looks into what is said.
        step(Responder, data()[..7].to_vec(), last),
        step(Responder, data()[7..].to_vec(), ""),
    ];
    expect(tls(), 443, &steps);
    let steps = [
        step(Initiator, from_client(), client),
        step(Responder, from_server(), &hello),
        step(Responder, vec![21, 3, 3, 0, 2, 1, 0], ""),
        step(Initiator, vec![21, 3, 3, 0, 2, 2, 40], &format!("{CLIENT_SHAKEN} {CLIENT_OVER}")),
        step(Responder, vec![21, 3, 3, 0, 2, 2, 40], &format!("{SERVER_SHAKEN} {SERVER_OVER}")),
    ];
    expect(tls(), 443, &steps);
}

#[test]
fn a_state_goes_with_a_buffer() {
    let mut bench = Bench::new(
        "alert tls any any -> any any \
           (app-layer-state:>server_hello; tls.cert_subject; content:\"a.example\"; sid:1;)\n\
         alert tls any any -> any any \
           (app-layer-state:<client_cert_done; tls.alpn; content:\"h2\"; sid:2;)\n\
         drop tls:client_handshake_done any any -> any any (sid:3;)\n",
    );
    bench.server_port = 443;
    bench.connect();
    assert_eq!((bench.client(&from_client()), bench.alerted()), (Decision::Pass, vec![2]));
    assert_eq!((bench.server(&from_server()), bench.alerted()), (Decision::Pass, vec![]));
    assert_eq!((bench.server(&one()), bench.alerted()), (Decision::Pass, vec![1]));
    assert_ne!(bench.client(&change_cipher()), Decision::Pass);
    assert_eq!(bench.alerted(), [3]);
}

#[test]
fn ssh_comes_through_its_states() {
    let states = ["in_progress", "banner_wait_eol", "banner_done", "finished"];
    let both: Vec<String> = ["request", "response"]
        .iter()
        .flat_map(|side| states.map(|it| format!("{side}_{it}")))
        .collect();
    let states: Vec<&str> = both.iter().map(String::as_str).collect();
    let ends = ["request_started", "request_complete", "response_started", "response_complete"];
    let packet = |code: u8, length: u8| {
        [&[0, 0, 0, length + 2, 4, code][..], &vec![7; usize::from(length)]].concat()
    };
    let begun = "request_started request_in_progress <request_banner_wait_eol \
                 <request_banner_done <request_finished";
    let banner = "request_banner_wait_eol request_banner_done >request_in_progress \
                  >request_banner_wait_eol";
    let other = "response_started response_in_progress response_banner_wait_eol \
                 response_banner_done <response_finished >response_in_progress \
                 >response_banner_wait_eol";
    let over = |side: &str| format!("{side}_finished {side}_complete >{side}_banner_done");
    let steps = [
        step(Initiator, "SSH-2.0-Cl", begun),
        step(Initiator, "ient_1\r\n", banner),
        step(Responder, "SSH-2.0-Server_2\r\n", other),
        step(Initiator, packet(30, 32), ""),
        step(Responder, packet(31, 64), ""),
        step(Responder, packet(21, 4), ""),
        step(Initiator, packet(21, 4), &over("request")),
        step(Initiator, vec![0x99; 40], ""),
        step(Responder, vec![0x88; 40], &over("response")),
    ];
    expect(rules("ssh", &[states.as_slice(), &ends].concat(), &states), 22, &steps);
}

#[test]
fn mails_come_through_their_states() {
    let states = [
        "request_started",
        "request_data",
        "request_complete",
        "response_started",
        "response_data",
        "response_complete",
    ];
    let begun = |side: &str| format!("{side}_started <{side}_data <{side}_complete");
    let data = |side: &str| format!("{side}_data >{side}_started");
    let complete = |side: &str| format!("{side}_complete >{side}_data");
    let steps = [
        step(Responder, "220 mail\r\n", ""),
        step(Initiator, "EHLO me\r\n", &begun("request")),
        step(Responder, "250 ok\r\n", &begun("response")),
        step(Initiator, "MAIL FROM:<a@b>\r\n", ""),
        step(Responder, "250 ok\r\n", ""),
        step(Initiator, "RCPT TO:<c@d>\r\n", ""),
        step(Responder, "250 ok\r\n", ""),
        step(Initiator, "DATA\r\n", &data("request")),
        step(Responder, "354 go\r\n", &data("response")),
        step(Initiator, "From: a@b\r\n\r\nhello\r\n", ""),
        step(Initiator, ".\r\n", &complete("request")),
        step(Responder, "250 ok\r\n", &complete("response")),
    ];
    expect(rules("smtp", &states, &states), 25, &steps);
    let mut bench = Bench::new(
        "alert smtp any any -> any any \
           (app-layer-state:>request_started; smtp.mail_from; content:\"a@\"; sid:1;)\n\
         alert smtp:request_data any any -> any any (sid:2;)\n",
    );
    bench.server_port = 25;
    bench.connect();
    bench.server(b"220 mail\r\n");
    for (said, told) in [
        ("EHLO me\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\n", vec![]),
        ("DATA\r\n", vec![1, 2]),
        ("From: a@b\r\n\r\n.\r\nMAIL FROM:<a@c>\r\nRCPT TO:<c@d>\r\n", vec![]),
        ("DATA\r\n", vec![1, 2]),
    ] {
        bench.client(said.as_bytes());
        assert_eq!(bench.alerted(), told, "{said}");
    }
}

#[test]
fn whoever_does_not_tell_how_far_it_has_come_is_not_asked() {
    let runs = |rule: &str| crate::bench::load(rule).1.runnable == 1;
    let rule = |protocol: &str, value: &str| {
        format!("alert {protocol} any any -> any any (app-layer-state:{value}; sid:1;)")
    };
    for (protocol, value) in [
        ("tls", ">client_hello_done"),
        ("tls", "client_hello_done"),
        ("tls", "<server_finished"),
        ("ssh", ">request_banner_done"),
        ("ssh", ">request_finished"),
        ("smtp", ">request_started"),
        ("http1", "request_line"),
    ] {
        assert!(runs(&rule(protocol, value)), "{protocol} {value}");
    }
    for (protocol, value) in [
        ("tls", ">request_started"),
        ("tls", "<request_complete"),
        ("ssh", ">request_started"),
        ("dns", ">request_started"),
        ("http", ">request_line"),
        ("smb", ">request_started"),
        ("ftp", ">request_started"),
        ("http2", ">request_started"),
        ("tcp", ">request_started"),
    ] {
        assert!(!runs(&rule(protocol, value)), "{protocol} {value}");
    }
}

/// What is told of such events.
fn odd(name: &str, said: &[(Direction, Vec<u8>)]) -> Vec<u32> {
    let rule = format!("alert tls any any -> any any (app-layer-event:tls.{name}; sid:1;)");
    let mut bench = Bench::new(&rule);
    bench.server_port = 443;
    bench.connect();
    let mut told = Vec::new();
    for (number, (direction, said)) in (1..).zip(said) {
        for piece in said.chunks(1400) {
            bench.data(*direction, piece);
        }
        told.extend(bench.alerted().iter().map(|_| number));
    }
    told
}

#[test]
fn a_heartbeat_that_comes_back_longer_is_a_leak() {
    let begun = || {
        vec![
            (Initiator, from_client()),
            (Responder, [from_server(), one()].concat()),
            (Initiator, [change_cipher(), encrypted()].concat()),
        ]
    };
    let other = || (Responder, [change_cipher(), encrypted()].concat());
    let beat = |length: u8| [&[24, 3, 3, 0, length][..], &vec![0x5a; usize::from(length)]].concat();
    let leak = "dataleak_heartbeat_mismatch";
    let with = |is_mutual: bool, beats: &[(Direction, Vec<u8>)]| {
        let mut all = begun();
        all.push(if is_mutual { other() } else { (Responder, data()) });
        all.extend_from_slice(beats);
        all
    };
    for is_mutual in [true, false] {
        let told = |beats: &[(Direction, Vec<u8>)]| odd(leak, &with(is_mutual, beats));
        assert_eq!(told(&[(Initiator, beat(40)), (Responder, beat(200))]), [6]);
        assert_eq!(told(&[(Responder, beat(40)), (Initiator, beat(200))]), [6]);
        assert_eq!(told(&[(Initiator, beat(40)), (Responder, beat(40))]), []);
        assert_eq!(told(&[(Initiator, beat(40)), (Responder, beat(39))]), []);
        assert_eq!(told(&[(Responder, beat(200))]), []);
        assert_eq!(told(&[(Initiator, beat(2)), (Responder, beat(200))]), []);
        let twice = [(40, Initiator), (40, Responder), (40, Initiator), (200, Responder)];
        assert_eq!(told(&twice.map(|(length, by)| (by, beat(length)))), [8]);
        let between = [(Initiator, data()), (Responder, data()), (Responder, beat(200))];
        assert_eq!(told(&[&[(Initiator, beat(40))], &between[..]].concat()), [8]);
    }
    // Two that nobody has answered are not as they should be, and none is a leak.
    let twice =
        with(true, &[(Initiator, beat(40)), (Initiator, beat(200)), (Responder, beat(100))]);
    assert_eq!((odd(leak, &twice), odd("invalid_heartbeat_message", &twice)), (vec![], vec![6, 7]));
    // What is in clear says its length itself.
    let clear = |kind: u8| [&[24, 3, 3, 0, 40, kind, 0, 16][..], &[b'a'; 37]].concat();
    let in_clear = [(Initiator, from_client()), (Initiator, clear(1)), (Responder, clear(2))];
    assert_eq!(odd(leak, &in_clear), []);
    assert_eq!(odd("invalid_heartbeat_message", &in_clear), []);
}

#[test]
fn records_of_ssl_2_are_odd_without_a_length_and_in_great_number() {
    let mut hello = vec![0x80, 46, 1, 0, 2, 0, 21, 0, 0, 0, 16];
    hello.extend([7; 37]);
    let said = |what: &[u8]| [(Initiator, hello.clone()), (Initiator, what.to_vec())];
    for (what, header, record, many) in [
        (&[0x80, 0, 1, 2, 3, 4][..], 1, 1, 0),
        (&[0x80, 0, 1], 0, 0, 0),
        (&[0x80, 1, 1].repeat(200), 0, 1, 0),
        (&[0x80, 1, 3].repeat(400), 0, 0, 1),
        (&[0x80, 9, 3].repeat(4), 0, 0, 0),
    ] {
        let counts = ["invalid_sslv2_header", "invalid_ssl_record", "too_many_records_in_packet"]
            .map(|it| odd(it, &said(what)).len());
        assert_eq!(counts, [header, record, many], "{what:?}");
    }
    assert_eq!(odd("too_many_records_in_packet", &[(Initiator, [23, 3, 3, 0, 0].repeat(280))]), []);
}

#[test]
fn a_certificate_may_have_too_many_names() {
    let of = |count: usize| {
        let names = "a,".repeat(count);
        let one = certificate("a", "b", "2015", "2035", names.trim_end_matches(','));
        let said =
            [(Initiator, from_client()), (Responder, from_server()), (Responder, chain(&[one]))];
        odd("too_many_subject_alternative_names", &said).len()
    };
    assert_eq!([of(1), of(4095), of(4096)], [0, 0, 1]);
}
