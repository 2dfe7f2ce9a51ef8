//! Rules about frames: units of a protocol as they lie in the stream.

use weir_detect::Direction;

use crate::bench::{Bench, CLIENT, SERVER, refused, udp};

fn sorted(bench: &mut Bench) -> Vec<u32> {
    let mut found = bench.alerted();
    found.sort_unstable();
    found
}

/// A message of SMB 2 behind its length.
fn smb(body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 64 + body.len() as u8];
    bytes.extend(b"\xfeSMB");
    bytes.resize(68, 0);
    bytes.extend(body);
    bytes
}

#[test]
fn a_part_of_a_unit_is_looked_at_however_the_stream_is_cut() {
    let rules = "alert smb any any -> any any (frame:smb2.data; content:\"meerkat\"; sid:1;)\n\
                 alert tcp any any -> any any (frame:smb.nbss.hdr; content:\"|00 00 00|\"; \
                 startswith; bsize:4; sid:2;)\n\
                 alert smb any any -> any any (frame:smb2.hdr; content:\"meerkat\"; sid:3;)\n\
                 alert smb any any -> any any (flow:to_client; frame:smb2.data; \
                 content:\"meerkat\"; sid:4;)";
    for piece in [1, 7, 50, 500] {
        let mut bench = Bench::new(rules);
        bench.server_port = 445;
        bench.connect();
        let said = smb(b"a vigilant meerkat");
        said.chunks(piece).for_each(|it| _ = bench.client(it));
        assert_eq!(sorted(&mut bench), [1, 2], "in pieces of {piece}");
    }
}

#[test]
fn a_rule_matches_each_frame_once() {
    let mut bench = Bench::new(
        "alert tls any any -> any any (frame:pdu; content:\"|17 03 03|\"; startswith; sid:1;)\n\
         alert tls any any -> any any (frame:alert; content:\"|02|\"; startswith; sid:2;)",
    );
    bench.server_port = 443;
    bench.connect();
    bench.client(b"\x16\x03\x03\x00\x04\x01\x00\x00\x00");
    assert_eq!(sorted(&mut bench), []);
    bench.client(b"\x17\x03\x03\x00\x01a\x17\x03\x03\x00\x02bc");
    assert_eq!(sorted(&mut bench), [1, 1]);
    bench.client(b"\x15\x03\x03\x00\x02\x02\x28");
    assert_eq!(sorted(&mut bench), [2]);
}

#[test]
fn records_of_tls_are_found_when_both_sides_encrypt() {
    let mut bench = Bench::new(
        "alert tls any any -> any any (frame:pdu; content:\"|17 03 03 00 04|\"; startswith; \
         bsize:9; sid:1;)",
    );
    bench.server_port = 443;
    bench.connect();
    bench.client(b"\x16\x03\x03\x00\x04\x01\x00\x00\x00\x14\x03\x03\x00\x01\x01");
    bench.server(b"\x16\x03\x03\x00\x04\x02\x00\x00\x00\x14\x03\x03\x00\x01\x01");
    bench.client(b"\x17\x03\x03\x00\x04ab");
    assert_eq!(sorted(&mut bench), []);
    bench.client(b"cd\x17\x03\x03\x00\x04efgh");
    assert_eq!(sorted(&mut bench), [1, 1]);
}

#[test]
fn messages_of_http_are_frames_to_their_ends() {
    let mut bench = Bench::new(
        "alert http1 any any -> any any (frame:request; content:\"POST /a\"; startswith; \
         content:\"body\"; endswith; sid:1;)\n\
         alert http any any -> any any (frame:http1.request; content:\"GET /b\"; startswith; \
         sid:2;)\n\
         alert http any any -> any any (frame:http1.response; content:\"HTTP/1.1 200\"; \
         startswith; content:\"the end\"; endswith; sid:3;)\n\
         alert http any any -> any any (frame:http1.response; strip_whitespace; \
         content:\"HTTP/1.1404\"; startswith; sid:4;)",
    );
    bench.connect();
    let post = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n";
    bench.client(post);
    assert_eq!(sorted(&mut bench), [], "its body is still to come");
    bench.client(b"bodyGET /b HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(sorted(&mut bench), [1, 2]);
    bench.server(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(sorted(&mut bench), [4]);
    // This one lasts to the connection's end.
    bench.server(b"HTTP/1.1 200 OK\r\n\r\nthis is ");
    bench.server(b"the end");
    assert_eq!(sorted(&mut bench), []);
    const FIN_ACK: u8 = 17;
    bench.tcp(Direction::Responder, FIN_ACK, b"");
    assert_eq!(sorted(&mut bench), [3]);
}

#[test]
fn datagrams_are_frames() {
    let query = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x07example\x03org\0\0\x01\0\x01";
    let mut bench =
        Bench::new("alert dns any any -> any any (frame:pdu; content:\"|07|example\"; sid:1;)");
    bench.udp(query);
    assert_eq!(sorted(&mut bench), [1]);
    let mut bench = Bench::new(
        "alert udp any any -> any any (frame:sip.request.headers; content:\"Via:\"; startswith; \
         content:\"b|0d 0a|\"; endswith; sid:2;)\n\
         alert sip any any -> any any (frame:request.body; content:\"v=0\"; startswith; sid:3;)",
    );
    let invite = b"INVITE sip:a SIP/2.0\r\nVia: a\r\nTo: b\r\n\r\nv=0";
    bench.send(Direction::Initiator, &udp(CLIENT, SERVER, 5060, 5060, invite));
    assert_eq!(sorted(&mut bench), [2, 3]);
}

#[test]
fn frames_that_are_asked_for_are_counted_and_tell_of_their_transactions() {
    let said = |rules: &str| {
        let mut bench = Bench::new(rules);
        bench.connect();
        bench.client(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
        bench.server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        bench.client(b"GET /b HTTP/1.1\r\nHost: h\r\n\r\n");
        let told = bench.alerts.drain().map(|it| it.transaction.expect("a frame"));
        told.map(|it| {
            let of = |name: &str| it.objects.iter().find(|it| it.0 == name).unwrap().1.clone();
            let [id, url] = [of("frame").value("id").cloned(), of("http").value("url").cloned()];
            (it.number, id.unwrap(), url.unwrap())
        })
        .collect::<Vec<_>>()
    };
    let request = "alert http1 any any -> any any (frame:request; content:\"GET\"; sid:1;)\n";
    let told = |number, id: u64, url: &str| (Some(number), id.into(), url.into());
    assert_eq!(said(request), [told(0, 1, "/a"), told(1, 2, "/b")]);
    // The stream as a whole is a frame too, and the first.
    let stream = "alert http1 any any -> any any (frame:stream; content:\"nowhere\"; sid:2;)\n";
    assert_eq!(said(&format!("{request}{stream}")), [told(0, 2, "/a"), told(1, 3, "/b")]);
}

/// What alerts tell of their transactions: the number, and a field of an application's object.
fn transactions(bench: &mut Bench, name: &str, field: &str) -> Vec<(Option<u64>, String)> {
    let told = bench.alerts.drain().map(|it| it.transaction.expect("a frame"));
    told.map(|it| {
        let object = it.objects.iter().find(|it| it.0 == name).map(|it| &it.1);
        let value = object.and_then(|it| it.value(field)).map(|it| format!("{it:?}"));
        (it.number, value.unwrap_or_default())
    })
    .collect()
}

#[test]
fn a_frame_tells_of_its_own_message_among_others() {
    let mut bench =
        Bench::new("alert sip any any -> any any (frame:request.body; content:\"hi\"; sid:1;)");
    bench.server_port = 5060;
    bench.connect();
    bench.client(
        b"OPTIONS sip:a SIP/2.0\r\nVia: x\r\n\r\n\
          MESSAGE sip:b SIP/2.0\r\nVia: x\r\nContent-Length: 2\r\n\r\nhi",
    );
    let told = transactions(&mut bench, "sip", "uri");
    assert_eq!(told, [(Some(2), "Text(\"sip:b\")".to_owned())]);

    // A server tells more than it was asked for.
    let mut bench =
        Bench::new("alert http1 any any -> any any (frame:request; content:\"/2\"; sid:1;)");
    bench.connect();
    bench.client(b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\n");
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    bench.server(&answer.repeat(2));
    bench.client(b"GET /2 HTTP/1.1\r\nHost: h\r\n\r\n");
    let told = transactions(&mut bench, "http", "url");
    assert_eq!(told[0].1, "Text(\"/2\")");
}

#[test]
fn frames_go_on_behind_an_upgrade() {
    let mut bench = Bench::new(
        "alert websocket any any -> any any (frame:pdu; content:\"|81 03|abc\"; startswith; \
         bsize:5; sid:1;)\n\
         alert websocket any any -> any any (frame:header; bsize:2; sid:2;)",
    );
    bench.connect();
    bench.client(b"GET /chat HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n");
    bench.server(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\n\r\n\x81\x03ab");
    assert_eq!(sorted(&mut bench), []);
    bench.server(b"c");
    assert_eq!(sorted(&mut bench), [1, 2]);
}

#[test]
fn a_frame_stands_alone_and_belongs_to_its_protocol() {
    for rule in [
        "alert tcp-pkt any any -> any any (frame:tls.pdu; content:\"a\"; sid:1;)",
        "alert udp any any -> any any (frame:tls.pdu; content:\"a\"; sid:1;)",
        "alert smb any any -> any any (frame:tls.pdu; content:\"a\"; sid:1;)",
        "alert tcp any any -> any any (frame:tls; content:\"a\"; sid:1;)",
        "alert tls any any -> any any (content:\"abc\"; frame:tls.pdu; content:\"a\"; sid:1;)",
        "alert tls any any -> any any (tls.version:1.0; frame:tls.pdu; content:\"a\"; sid:1;)",
        "alert tls any any -> any any (frame:smb1.pdu; content:\"a\"; sid:1;)",
    ] {
        assert_eq!(refused(rule), "frame", "{rule}");
    }
}

#[test]
fn a_stream_is_looked_at_from_its_beginning_as_it_grows() {
    let mut bench = Bench::new(
        "alert smtp any any -> any any (frame:smtp.stream; content:\"MAIL\"; \
           content:\"RCPT\"; distance:0; sid:1;)\n\
         alert smtp any any -> any any (frame:stream; content:\"220\"; startswith; sid:2;)\n\
         alert tcp any any -> any any (frame:smtp.stream; content:\"EHLO\"; depth:4; sid:3;)\n\
         alert smtp any any -> any any (frame:smtp.stream; content:\"RCPT\"; startswith; sid:4;)\n\
         alert smtp any any -> any any (frame:smtp.stream; content:\"RCPT TO|0d 0a|\"; endswith; \
           sid:5;)\n\
         alert tls any any -> any any (frame:tls.stream; content:\"MAIL\"; sid:6;)",
    );
    bench.server_port = 25;
    bench.connect();
    let mut told = Vec::new();
    bench.server(b"220 mail\r\n");
    told.extend(bench.alerted());
    bench.client(b"EHLO me\r\n");
    told.extend(bench.alerted());
    bench.server(b"250 ok\r\n");
    told.extend(bench.alerted());
    told.sort_unstable();
    assert_eq!(told, [2, 3]);
    bench.client(b"MAIL FROM:<a@b>\r\n");
    assert_eq!(bench.alerted(), []);
    bench.client(b"RCPT TO\r\n");
    let mut told = bench.alerted();
    told.sort_unstable();
    assert_eq!(told, [1, 5]);
}
