//! Rules about applications that are told in units.

use weir_detect::Direction;

use crate::bench::{Bench, CLIENT, SERVER, refused, udp};

const MAIL: &[(Direction, &str)] = &[
    (Direction::Responder, "220 mail ESMTP\r\n"),
    (Direction::Initiator, "EHLO client.example.net\r\n"),
    (Direction::Responder, "250 ok\r\n"),
    (Direction::Initiator, "MAIL FROM:<a@example.net>\r\n"),
    (Direction::Responder, "250 ok\r\n"),
    (Direction::Initiator, "RCPT TO:<b@example.org>\r\n"),
    (Direction::Responder, "250 ok\r\n"),
    (Direction::Initiator, "DATA\r\n"),
    (Direction::Responder, "354 go on\r\n"),
    (
        Direction::Initiator,
        "Subject: urgent\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n\
         Content-Disposition: attachment; filename=bad.exe\r\n\
         Content-Transfer-Encoding: base64\r\n\r\nZXZpbCBjb250ZW50\r\n--x--\r\n.\r\n",
    ),
];

#[test]
fn mail_is_looked_at_by_its_parts_once_each() {
    for piece in [5, 1000] {
        let mut bench = Bench::new(
            "alert smtp any any -> any any (smtp.helo; content:\"client\"; sid:1;)\n\
             alert smtp any any -> any any (smtp.mail_from; content:\"<a@\"; startswith; \
             smtp.rcpt_to; content:\"b@example.org\"; sid:2;)\n\
             alert smtp any any -> any any (file.data; content:\"evil content\"; \
             fileext:\"exe\"; sid:3;)\n\
             alert smtp any any -> any any (email.subject; content:\"urgent\"; sid:4;)\n\
             alert smtp any any -> any any (filename:\"good\"; sid:5;)\n\
             alert tcp any any -> any any (file.data; content:\"evil\"; filesize:12; sid:6;)",
        );
        bench.server_port = 25;
        bench.connect();
        for (direction, text) in MAIL {
            text.as_bytes().chunks(piece).for_each(|it| _ = bench.data(*direction, it));
        }
        let mut found = bench.alerted();
        found.sort_unstable();
        assert_eq!(found, [1, 2, 3, 4, 6], "{piece}");
    }
}

/// A server that knows no chunks answers at once, and waits for no byte of one.
#[test]
fn a_chunk_that_a_server_refuses_hides_no_mail() {
    let alerted = |answer: &[u8]| {
        let mut bench =
            Bench::new("alert smtp any any -> any any (smtp.mail_from; content:\"<a@\"; sid:4;)");
        bench.server_port = 25;
        bench.connect();
        for (direction, text) in &MAIL[..3] {
            bench.data(*direction, text.as_bytes());
        }
        bench.client(b"BDAT 18446744073709551615\r\n");
        bench.server(answer);
        for (direction, text) in &MAIL[3..] {
            bench.data(*direction, text.as_bytes());
        }
        bench.alerted()
    };
    assert_eq!(alerted(b"500 what?\r\n"), [4]);
    assert_eq!(alerted(b"250 ok\r\n"), [], "all that comes is the chunk");
}

/// As in Suricata 8.0.7: the first that is known, wherever it stands in the line.
#[test]
fn commands_of_ftp_are_found_within_lines() {
    let rules = "\
        alert ftp any any -> any any (ftp.command; content:\"RETR\"; sid:1;)\n\
        alert ftp any any -> any any (ftp.command; content:\"MKD\"; sid:2;)\n\
        alert ftp any any -> any any (app-layer-event:ftp.file_before_port; sid:3;)\n\
        alert ftp any any -> any any (app-layer-event:ftp.file_without_name; sid:4;)\n\
        alert ftp any any -> any any (ftp.command; content:\"XYZ\"; sid:5;)";
    for (line, found) in [
        ("RETRshadow", [1, 3].as_slice()),
        ("qretr a", &[1, 3]),
        ("RETR", &[1, 4]),
        ("MKD RETR", &[2]),
        ("LIST", &[3]),
        ("APPE a", &[3]),
        ("XYZ a", &[5]),
    ] {
        let mut bench = Bench::new(rules);
        bench.connect();
        bench.server(b"220 (ftp)\r\n");
        bench.client(format!("{line}\r\n").as_bytes());
        let mut alerted = bench.alerted();
        alerted.sort_unstable();
        assert_eq!(alerted, found, "{line}");
    }
}

#[test]
fn commands_of_ftp_and_their_replies_are_looked_at() {
    let mut bench = Bench::new(
        "alert ftp any any -> any any (ftp.command; content:\"RETR\"; ftp.command_data; \
         content:\"passwd\"; sid:1;)\n\
         alert ftp any any -> any any (ftp.completion_code; content:\"230\"; sid:2;)\n\
         alert ftp any any -> any any (ftpbounce; sid:3;)\n\
         alert ftp any any -> any any (ftp.mode:passive; ftp.dynamic_port:1025; sid:4;)\n\
         alert ftp any any -> any any (app-layer-event:ftp.file_before_port; sid:5;)",
    );
    bench.server_port = 21;
    bench.connect();
    bench.client(b"USER a\r\n");
    bench.server(b"230 in\r\n");
    assert_eq!(bench.alerted(), [2]);
    bench.client(b"PORT 192,0,2,1,4,1\r\n");
    assert_eq!(bench.alerted(), [], "the client's own address");
    bench.server(b"200 ok\r\n");
    bench.client(b"PORT 198,51,100,1,4,1\r\n");
    assert_eq!(bench.alerted(), [3]);
    bench.server(b"200 ok\r\n");
    bench.client(b"PASV\r\n");
    bench.server(b"227 Passive (10,0,0,2,4,1)\r\n");
    assert_eq!(bench.alerted(), [4]);
    bench.client(b"RETR passwd\r\n");
    bench.client(b"RETR passwd\r\n");
    let mut found = bench.alerted();
    found.sort_unstable();
    assert_eq!(found, [1, 1, 4, 5], "the second was not announced");
}

#[test]
fn numbers_in_datagrams_are_compared() {
    const GET: &[u8] = b"\x30\x26\x02\x01\x01\x04\x06public\xa0\x19\x02\x01\x07\x02\x01\x00\x02\
        \x01\x00\x30\x0e\x30\x0c\x06\x08\x2b\x06\x01\x02\x01\x01\x02\x00\x05\x00";
    let mut bench = Bench::new(
        "alert snmp any any -> any any (snmp.version:2; snmp.community; content:\"public\"; \
         sid:1;)\n\
         alert snmp any any -> any any (snmp.pdu_type:set_request; sid:2;)\n\
         alert snmp any any -> any any (snmp.version:<3; sid:3;)\n\
         alert udp any any -> any any (app-layer-protocol:snmp; sid:4;)",
    );
    bench.send(Direction::Initiator, &udp(CLIENT, SERVER, 40_000, 161, GET));
    let mut found = bench.alerted();
    found.sort_unstable();
    assert_eq!(found, [1, 3, 4]);
}

#[test]
fn a_keyword_of_another_application_refuses_the_rule() {
    assert_eq!(refused("alert smtp any any -> any any (snmp.version:2; sid:1;)"), "protocol");
    assert_eq!(
        refused("alert ftp any any -> any any (smtp.helo; content:\"a\"; sid:1;)"),
        "smtp.helo"
    );
    assert_eq!(refused("alert mqtt any any -> any any (mqtt.type:NONE; sid:1;)"), "mqtt.type");
}

#[test]
fn services_of_cip_are_asked_for_with_their_class_and_attribute() {
    const GET: &[u8] = b"\x6f\0\x18\0\x01\0\0\0\0\0\0\0context.\0\0\0\0\
        \0\0\0\0\x05\0\x02\0\0\0\0\0\xb2\0\x08\0\x0e\x03\x20\x01\x24\x01\x30\x03";
    let mut bench = Bench::new(
        "alert enip any any -> any any (cip_service:14; sid:1;)\n\
         alert enip any any -> any any (cip_service:14,1,3; sid:2;)\n\
         alert enip any any -> any any (cip_service:14,2; sid:3;)\n\
         alert enip any any -> any any (enip_command:send_r_r_data; enip.status:success; sid:4;)\n\
         alert tcp any any -> any any (enip.cip_attribute:2-4; enip.cip_class:<2; sid:5;)\n\
         alert enip any any -> any any (app-layer-event:enip.invalid_pdu; sid:6;)",
    );
    bench.server_port = 44_818;
    bench.connect();
    GET.chunks(11).for_each(|it| _ = bench.client(it));
    let mut found = bench.alerted();
    found.sort_unstable();
    assert_eq!(found, [1, 2, 4, 5]);
    assert_eq!(
        refused("alert enip any any -> any any (cip_service:1,2,3,4; sid:1;)"),
        "cip_service"
    );
}
