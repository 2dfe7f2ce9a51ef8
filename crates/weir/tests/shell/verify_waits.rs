//! When `weir verify` looks at what came, and what it tells by then: as Suricata 8.0.7 does it,
//! which was asked. A test whose name ends with `-ips` is inline.

use serde_json::Value;

use crate::verify_settings::failures;

const EVE: &str = "%YAML 1.1\n---\noutputs:\n  - eve-log: {enabled: yes, filename: eve.json, \
                   types: [{alert: {metadata: yes}}, http, flow]}\n";

/// A test with one check for each of these, which is to be there so many times.
fn checks(name: &str, wanted: &[(&str, u32)]) -> String {
    let filters = wanted
        .iter()
        .map(|(what, count)| format!("  - filter: {{count: {count}, match: {{{what}}}}}\n"));
    let inline = if name.ends_with("-ips") { ", --simulate-ips" } else { "" };
    format!("args: [-k none{inline}]\nchecks:\n{}", filters.collect::<String>())
}

fn assert_said(name: &str, said: &str, rules: &str, yaml: &str, wanted: &[(&str, u32)]) {
    let failed = failures(name, said, rules, yaml, &checks(name, wanted));
    assert_eq!(failed, Vec::<Value>::new(), "{name}");
}

const IN_TWO: &str = "tcp 80\n\
    > POST /x HTTP/1.1\\r\\nHost: h\\r\\nContent-Length: 10\\r\\n\\r\\nhello\n\
    > world\n\
    < HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok\n";

#[test]
fn bodies_are_looked_at_when_so_much_has_come_as_settings_say() {
    let rules = "alert http any any -> any any (file.data; content:\"hello\"; sid:1;)\n\
                 alert http any any -> any any (http.request_body; content:!\"zz\"; sid:2;)\n";
    let of_http = |what: &str| {
        format!(
            "{EVE}app-layer:\n  protocols:\n    http:\n      libhtp:\n        \
             default-config: {{{what}}}\n"
        )
    };
    let plain = EVE.to_owned();
    for (name, yaml, at) in [
        ("bodies", &plain, 9),
        ("bodies-early", &of_http("request-body-minimal-inspect-size: 4"), 6),
        ("bodies-inline", &of_http("http-body-inline: yes"), 6),
        // Suricata's program waits inline, too, where no settings say otherwise.
        ("bodies-ips", &plain, 6),
        ("bodies-auto-ips", &of_http("http-body-inline: auto"), 4),
    ] {
        let [one, two] = [1, 2]
            .map(|sid| format!("event_type: alert, alert.signature_id: {sid}, pcap_cnt: {at}"));
        assert_said(name, IN_TWO, rules, yaml, &[(&one, 1), (&two, 1), ("event_type: alert", 2)]);
    }
}

#[test]
fn an_alert_that_waits_tells_what_of_its_files_was_acknowledged_by_then() {
    let rules = "alert http any any -> any any (http.uri; content:\"/x\"; sid:1;)\n";
    let part = "event_type: alert, pcap_cnt: 6, \"files[0].size\": 5, \"files[0].state\": UNKNOWN";
    assert_said("files", IN_TWO, rules, EVE, &[(part, 1)]);
}

#[test]
fn what_is_odd_is_looked_at_by_either_side_when_it_comes_to_that_message() {
    let http = "tcp 80\n> GET /x HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n\n\
                < HTTP/1.1 206 OK\\r\\nContent-Range: bytes 9-5/10\\r\\n\
                Content-Length: 2\\r\\n\\r\\nok\n\
                > GET /y HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n\n\
                < HTTP/1.1 206 OK\\r\\nContent-Range: items 1-2/3\\r\\n\
                Content-Length: 2\\r\\n\\r\\nok\n";
    let pop3 =
        "tcp 110\n< +OK hello\\r\\n\n> FOO\\r\\n\n< -ERR what\\r\\n\n> QUIT\\r\\n\n< +OK\\r\\n\n";
    let of_http = "alert http any any -> any any (app-layer-event:http.range_invalid; sid:1;)\n";
    let of_pop3 = "alert pop3 any any -> any any (app-layer-event:pop3.unknown_command; sid:1;)\n";
    let on = "app-layer:\n  protocols:\n    pop3: {enabled: yes}\n";
    let yaml = format!("{EVE}{on}");
    let at = |packet: u32, direction: &str| {
        format!("event_type: alert, pcap_cnt: {packet}, direction: {direction}")
    };
    let (to_server, to_client) = ("to_server", "to_client");
    for (name, said, rules, wanted) in [
        ("odd-answer", http, of_http, vec![at(7, to_server), at(9, to_client)]),
        // Inline the request was looked at to its end before.
        ("odd-answer-ips", http, of_http, vec![at(6, to_client)]),
        ("odd-request", pop3, of_pop3, vec![at(7, to_client), at(9, to_server)]),
        ("odd-request-ips", pop3, of_pop3, vec![at(6, to_server), at(8, to_client)]),
    ] {
        let mut list: Vec<(&str, u32)> = wanted.iter().map(|it| (it.as_str(), 1)).collect();
        list.push(("event_type: alert", wanted.len() as u32));
        assert_said(name, said, rules, &yaml, &list);
    }
}

#[test]
fn who_passes_with_a_packet_that_waits_for_nothing_passes_from_there_on() {
    let said = "tcp 80\n> GET /x HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n\n\
                < HTTP/1.1 200 OK\\r\\nA: 1\\r\\nA: 2\\r\\nContent-Length: 2\\r\\n\\r\\nok\n\
                > GET /y HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n\n\
                < HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok\n";
    let rules = "pass http any any -> any any (flow:to_server; \
                 app-layer-event:http.response_header_repetition; sid:1;)\n\
                 alert http any any -> any any (http.uri; content:\"/y\"; sid:2;)\n";
    assert_said("passes", said, rules, EVE, &[("event_type: alert", 0)]);
}

#[test]
fn captured_texts_and_integers_are_told_with_all_events_of_a_flow_once_they_take_effect() {
    let rules = "alert http any any -> any any (http.method; pcre:\"/^(\\w)/, flow:first\"; \
                 noalert; sid:1;)\n\
                 alert http any any -> any any (http.uri; content:\"/x\"; sid:2;)\n\
                 alert http any any -> any any (http.uri; content:\"/x\"; flowint:count,+,1; \
                 noalert; sid:3;)\n";
    let text = "\"metadata.flowvars[0].first\": P";
    let wanted = |packet: u32| {
        [
            format!("event_type: alert, pcap_cnt: {packet}, {text}, metadata.flowints.count: 1"),
            format!("event_type: http, {text}, metadata.flowints.count: 1"),
            format!("event_type: flow, {text}, metadata.flowints.count: 1"),
        ]
    };
    for (name, packet) in [("captured", 6), ("captured-ips", 4)] {
        let wanted = wanted(packet);
        let list: Vec<(&str, u32)> = wanted.iter().map(|it| (it.as_str(), 1)).collect();
        assert_said(name, IN_TWO, rules, EVE, &list);
    }
}

#[test]
fn who_cannot_be_read_is_dropped_inline_and_gets_no_further() {
    let said = "tcp 53\n\
        > \\x00\\x1d\\x00\\x01\\x01\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00\
        \\x03www\\x07example\\x00\\x00\\x01\\x00\\x01\n\
        > \\x00\\x10\\x00\\x02\\x01\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00?www\n\
        < \\x00\\x0c\\x00\\x01\\x81\\x80\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\n";
    let rules = "alert dns any any -> any any (dns.query; content:\"www\"; sid:1;)\n";
    let flow = "event_type: flow, flow.action: drop, flow.state: established, \
                tcp.state: established";
    assert_said("unreadable-ips", said, rules, EVE, &[(flow, 1), ("event_type: alert", 1)]);
    let flow = "event_type: flow, flow.state: closed, tcp.state: closed";
    assert_said("unreadable", said, rules, EVE, &[(flow, 1), ("event_type: alert", 1)]);
}

#[test]
fn bytes_that_are_others_in_the_end_take_back_what_is_told_of_them_alone() {
    let rules = "alert http any any -> any any (http.uri; content:\"/evil\"; sid:1;)\n\
                 alert tcp-stream any any -> any any (content:\"EVIL\"; sid:2;)\n\
                 alert tcp-stream any any -> any any (content:\"aaaa\"; sid:3;)\n";
    let get = "GET /evil HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n";
    // Of two segments far behind a request the second counts where both are.
    let said = format!("tcp 80\n+0 {get}\n+5000 aaaa\n+4998 bbbbbb\n> {get}\n");
    let of = |sid: u32| format!("event_type: alert, alert.signature_id: {sid}");
    assert_said("others-behind", &said, rules, EVE, &[(&of(1), 1), (&of(3), 0)]);
    // So it is behind what nobody has acknowledged yet, and rules see what it has then.
    let said = "tcp 8080\n+0 hello\n+100 aaaa\n+98 xxEVIL\n> hello\n";
    assert_said("others-unheard", said, rules, EVE, &[(&of(2), 1), (&of(3), 0)]);
    // A byte that is another late takes back nothing that is before it.
    let said = "tcp 8080\n+0 EVIL\n+4 aaaa\n+4 bbbb\n> EVILbbbb\n";
    let yaml = format!("{EVE}host-os-policy: {{hpux11: [0.0.0.0/0]}}\n");
    assert_said("others-late", said, rules, &yaml, &[(&of(2), 1), (&of(3), 0)]);
}

#[test]
fn who_watches_hears_no_more_of_a_flow_that_a_rule_would_drop() {
    let question = |name: char| {
        let head = "\\x00\\x01\\x01\\x00\\x00\\x01".to_owned() + &"\\x00".repeat(6);
        format!("> {head}\\x01{name}\\x00\\x00\\x01\\x00\\x01\n")
    };
    let said = format!("udp 53\n{}{}", question('a'), question('b'));
    let yaml = EVE.replace("http, flow", "dns, flow");
    for (action, count) in [("alert", 2), ("drop", 1)] {
        let rules = format!("{action} ip any any -> any any (sid:1;)\n");
        assert_said("heard", &said, &rules, &yaml, &[("event_type: dns", count)]);
    }
}

#[test]
fn flows_name_the_addresses_that_their_frames_had() {
    let yaml = EVE.replace("filename:", "ethernet: yes, filename:").replace("flow]", "netflow]");
    let mac = "\"ether.src_macs[0]\": \"02:00:00:00:00:02\"";
    let of = |end: &str| format!("event_type: netflow, {end}: 5353, {mac}");
    let wanted = [(&*of("dest_port"), 1), (&*of("src_port"), 0)];
    assert_said("ethernet", "udp 5353\n> a\n< b\n", "", &yaml, &wanted);
}

#[test]
fn alerts_that_waited_and_those_of_the_packet_that_tells_them_share_its_room() {
    let rules = "alert tcp any any -> any any (flow:established,to_server; sid:1;)\n\
                 alert http any any -> any any (http.uri; content:\"/x\"; sid:2;)\n";
    let of = |sid: u32| format!("event_type: alert, alert.signature_id: {sid}");
    let few = format!("{EVE}packet-alert-max: 1\n");
    assert_said("room", IN_TWO, rules, &few, &[(&of(2), 0)]);
    let more = format!("{EVE}packet-alert-max: 2\n");
    assert_said("more-room", IN_TWO, rules, &more, &[(&of(2), 1)]);
}

#[test]
fn behind_its_handshake_streams_of_rfb_are_looked_at_in_chunks() {
    let server = format!("\\x04\\x00\\x03\\x00{}\\x00\\x00\\x00\\x01a\n", "\\x01".repeat(16));
    let said = format!(
        "tcp 5900\n< RFB 003.008\\n\n> RFB 003.008\\n\n< \\x01\\x01\n> \\x01\n\
         < \\x00\\x00\\x00\\x00\n> \\x01\n< {server}< picture\n> key\n"
    );
    let rules = "alert tcp-stream any any -> any any (content:\"picture\"; sid:1;)\n\
                 alert tcp-stream any any -> any any (content:\"RFB\"; sid:2;)\n";
    let each = |sid: u32, at: &str| format!("event_type: alert, alert.signature_id: {sid}{at}");
    // When the client closes.
    let wanted = [(each(1, ", pcap_cnt: 23"), 1), (each(2, ", pcap_cnt: 7"), 1), (each(2, ""), 2)];
    let wanted: Vec<(&str, u32)> = wanted.iter().map(|it| (it.0.as_str(), it.1)).collect();
    assert_said("chunks-of-rfb", &said, rules, EVE, &wanted);
}
