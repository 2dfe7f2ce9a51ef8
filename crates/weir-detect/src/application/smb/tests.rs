//! Conversations of SMB.

use super::*;

fn record(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_be_bytes(), message].concat()
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// A message of version 2.
fn two(command: u16, is_answer: bool, number: u64, tree: u32, body: &[u8]) -> Vec<u8> {
    let mut message = b"\xfeSMB\x40\0\0\0\0\0\0\0".to_vec();
    message.extend(command.to_le_bytes());
    message.extend([0, 0]);
    message.extend(u32::from(is_answer).to_le_bytes());
    message.extend([0; 4]);
    message.extend(number.to_le_bytes());
    message.extend([0; 4]);
    message.extend(tree.to_le_bytes());
    message.extend([0; 24]);
    message.extend(body);
    record(&message)
}

fn tree_connect(name: &str, kind: u8) -> [Vec<u8>; 2] {
    let name = utf16(name);
    let request = [&[9, 0, 0, 0, 72, 0, name.len() as u8, 0], name.as_slice()].concat();
    let answer = [&[16, 0, kind, 0][..], &[0; 12]].concat();
    [two(3, false, 1, 0, &request), two(3, true, 1, 5, &answer)]
}

fn create(name: &str) -> [Vec<u8>; 2] {
    let name = utf16(name);
    let mut request = vec![0; 56];
    (request[0], request[36], request[44], request[46]) = (57, 1, 120, name.len() as u8);
    request.extend(name);
    let mut answer = vec![0; 88];
    (answer[0], answer[64]) = (89, 7);
    [two(5, false, 2, 5, &request), two(5, true, 2, 5, &answer)]
}

fn said(lines: &[(usize, Vec<u8>)]) -> Said {
    let (mut smb, mut said) = (Smb::default(), Said::default());
    for (side, bytes) in lines {
        bytes.chunks(50).for_each(|it| smb.take(*side, it, &mut said));
    }
    said
}

#[test]
fn files_of_shares_are_told_by_name_and_content() {
    let [connect, connected] = tree_connect("\\\\s\\c$", 1);
    let [open, opened] = create("a.exe");
    let mut write = vec![0; 48];
    (write[0], write[2], write[4], write[16]) = (49, 112, 4, 7);
    write.extend(b"evil");
    let said = said(&[
        (0, connect),
        (1, connected),
        (0, open),
        (1, opened),
        (0, two(9, false, 3, 5, &write)),
    ]);
    assert!(said.units[0].each(Buffer::SmbShare, &mut |it| it == b"\\\\s\\c$"));
    let last = said.units.last().unwrap();
    assert!(last.each(Buffer::FileData, &mut |it| it == b"evil"));
    assert!(last.each(Buffer::FileName, &mut |it| it == b"a.exe"));
    let [tree, file] = &said.records[..] else { panic!("{said:?}") };
    assert_eq!(tree.objects[0].1.value("share_type"), Some(&"FILE".into()));
    assert_eq!(file.objects[0].1.value("filename"), Some(&"a.exe".into()));
}

#[test]
fn calls_go_over_pipes() {
    let [connect, connected] = tree_connect("\\\\s\\IPC$", 2);
    let [open, opened] = create("svcctl");
    let call = b"\x05\0\0\x03\x10\0\0\0\x1c\0\0\0\x01\0\0\0\0\0\0\0\0\0\x0f\0stub";
    let mut ioctl = vec![0; 56];
    (ioctl[0], ioctl[8], ioctl[24], ioctl[28]) = (57, 7, 120, call.len() as u8);
    ioctl[4..8].copy_from_slice(&0x0011_c017_u32.to_le_bytes());
    ioctl.extend(call);
    let said = said(&[
        (0, connect),
        (1, connected),
        (0, open),
        (1, opened),
        (0, two(11, false, 3, 5, &ioctl)),
    ]);
    assert!(said.units[1].each(Buffer::SmbPipe, &mut |it| it == b"\\\\s\\IPC$"));
    let last = said.units.last().unwrap();
    assert!(last.each(Buffer::DcerpcStub, &mut |it| it == b"stub"));
    assert_eq!(last.numbers(Field::DcerpcOpnum).next(), Some(15));
}

#[test]
fn an_answer_of_a_pipe_may_come_in_parts() {
    let mut ioctl = vec![0; 56];
    let asked = call(0, b"\0\0\0\0\0\0\x0f\0stub");
    (ioctl[0], ioctl[24], ioctl[28]) = (57, 120, asked.len() as u8);
    ioctl[4..8].copy_from_slice(&0x0011_c017_u32.to_le_bytes());
    ioctl[8..24].copy_from_slice(&OPENED);
    ioctl.extend(asked);
    let whole = call(2, b"\0\0\0\0\0\0\0\0answer");
    let (first, rest) = whole.split_at(27);
    let mut part = vec![0; 48];
    (part[0], part[32], part[36]) = (49, 112, first.len() as u8);
    part.extend(first);
    let mut part = two(11, true, 3, 5, &part);
    // There is more (STATUS_BUFFER_OVERFLOW).
    part[4 + 8..4 + 12].copy_from_slice(&0x8000_0005_u32.to_le_bytes());
    let mut read = vec![0; 48];
    (read[0], read[4]) = (49, rest.len() as u8);
    read[16..32].copy_from_slice(&OPENED);
    let mut last = vec![0; 16];
    (last[0], last[2], last[4]) = (17, 80, rest.len() as u8);
    last.extend(rest);
    let told = said(&[
        (0, two(11, false, 3, 5, &ioctl)),
        (1, part),
        (0, two(8, false, 4, 5, &read)),
        (1, two(8, true, 4, 5, &last)),
    ]);
    assert!(told.units.iter().any(|it| has(it, Buffer::DcerpcStub, b"answer")), "{told:?}");
}

#[test]
fn who_logs_in_is_told() {
    let mut token = b"NTLMSSP\0\x03\0\0\0".to_vec();
    token.resize(64, 0);
    token[60] = 1;
    for (at, text) in [(28, "dom"), (36, "me"), (44, "host")] {
        let (text, place) = (utf16(text), token.len() as u8);
        (token[at], token[at + 4]) = (text.len() as u8, place);
        token.extend(text);
    }
    let mut setup = vec![0; 24];
    (setup[0], setup[12], setup[14]) = (25, 88, token.len() as u8);
    setup.extend(token);
    let said = said(&[(0, two(1, false, 1, 0, &setup))]);
    assert!(said.units[0].each(Buffer::SmbUser, &mut |it| it == b"me"));
    assert!(said.units[0].each(Buffer::SmbDomain, &mut |it| it == b"dom"));
}

#[test]
fn what_is_cut_or_goes_the_wrong_way_is_odd() {
    let lines = [
        (1, two(1, false, 1, 0, &[0; 24])),
        (0, two(1, true, 1, 0, &[0; 24])),
        (0, record(b"\xfeSMB\x40")),
    ];
    let found: Vec<_> = said(&lines).units.iter().map(|it| it.events.as_slice().to_vec()).collect();
    use AppEvent::*;
    assert_eq!(found, [[SmbRequestToClient], [SmbResponseToServer], [SmbMalformed]]);
}

#[test]
fn pieces_of_a_file_that_lie_ahead_are_counted() {
    let [connect, connected] = tree_connect("\\\\s\\c$", 1);
    let [open, opened] = create("a");
    let write = |at: u8| {
        let mut body = vec![0; 48];
        (body[0], body[2], body[4], body[8], body[16]) = (49, 112, 1, at, 7);
        body.push(b'x');
        two(9, false, 3, 5, &body)
    };
    let odd = |count: u8| {
        let mut lines = vec![
            (0, connect.clone()),
            (1, connected.clone()),
            (0, open.clone()),
            (1, opened.clone()),
        ];
        lines.extend((0..count).map(|it| (0, write(2 + 2 * it))));
        let said = said(&lines);
        let is_odd = |it: &&Unit| it.events.has(AppEvent::SmbWriteQueueCount);
        said.units.iter().filter(is_odd).count()
    };
    assert_eq!(odd(64), 0);
    assert_eq!(odd(66), 1, "once");
}

#[test]
fn messages_that_move_more_than_they_may_are_odd() {
    let answer = |read: u32, write: u32| {
        let mut body = vec![0; 64];
        body[32..36].copy_from_slice(&read.to_le_bytes());
        body[36..40].copy_from_slice(&write.to_le_bytes());
        two(0, true, 0, 0, &body)
    };
    let [connect, connected] = tree_connect("\\\\s\\c$", 1);
    let [open, opened] = create("a");
    // So many bytes at that place, with a length that may be another.
    let write = |at: u8, data: &[u8], length: u8| {
        let mut body = vec![0; 48];
        (body[0], body[2], body[4], body[8], body[16]) = (49, 112, length, at, 7);
        body.extend(data);
        two(9, false, 3, 5, &body)
    };
    let mut lines = vec![(1, answer(MOVED_MAX + 1, 8)), (0, connect), (1, connected), (0, open)];
    lines.extend([(1, opened), (0, write(0, b"12345678", 8)), (0, write(8, b"123456789", 9))]);
    lines.extend([(0, write(17, b"1", 5)), (0, write(2, b"1", 1))]);
    let mut read = [0; 16];
    (read[0], read[2], read[4]) = (17, 80, 9);
    let mut asked = vec![0; 48];
    (asked[0], asked[16]) = (49, 7);
    lines.extend([(1, answer(8, 0)), (0, two(8, false, 9, 5, &asked))]);
    lines.push((1, two(8, true, 9, 5, &[&read[..], b"123456789"].concat())));
    let events = |it: &Unit| it.events.as_slice().to_vec();
    let found: Vec<AppEvent> = said(&lines).units.iter().flat_map(events).collect();
    use AppEvent::*;
    let expected = [SmbReadSizeMax, SmbWriteSize, SmbWriteSize, SmbOverlap, SmbReadSize];
    assert_eq!(found, expected);
}

#[test]
fn dialects_of_version_1_are_chosen_from_what_was_offered() {
    let head = |command: u8, flags: u8| {
        let mut head = b"\xffSMB".to_vec();
        head.extend([command, 0, 0, 0, 0, flags, 0, 0]);
        head.resize(32, 0);
        head
    };
    let offer = [head(0x72, 0), b"\0\x0c\0\x02NT LM 0.12\0".to_vec()].concat();
    let choice = [head(0x72, 0x80), [&[17, 0, 0][..], &[0; 34]].concat()].concat();
    let said = said(&[(0, record(&offer)), (1, record(&choice))]);
    let object = &said.records[0].objects[0].1;
    assert_eq!(object.value("dialect"), Some(&"NT LM 0.12".into()));
    assert_eq!(object.value("client_dialects"), Some(&vec!["NT LM 0.12"].into()));
}

/// A WRITE to a file, from `at` on.
fn write(file: [u8; 16], at: u8, data: &[u8]) -> Vec<u8> {
    let mut write = vec![0; 48];
    (write[0], write[2], write[4], write[8]) = (49, 112, data.len() as u8, at);
    write[16..32].copy_from_slice(&file);
    write.extend(data);
    two(9, false, 3, 5, &write)
}

const OPENED: [u8; 16] = [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn has(unit: &Unit, buffer: Buffer, text: &[u8]) -> bool {
    unit.each(buffer, &mut |it| it == text)
}

#[test]
fn a_file_that_a_record_opens_and_writes_has_its_name() {
    let [open, _] = create("a.exe");
    let mut first = open[4..].to_vec();
    first.resize(first.len().next_multiple_of(8), 0);
    let next = (first.len() as u32).to_le_bytes();
    first[20..24].copy_from_slice(&next);
    let compound = record(&[&first[..], &write([0xff; 16], 0, b"evil")[4..]].concat());
    let said = said(&[(0, compound)]);
    let last = said.units.iter().rfind(|it| has(it, Buffer::FileData, b"evil")).unwrap();
    assert!(has(last, Buffer::FileName, b"a.exe"));
}

#[test]
fn files_that_nobody_saw_opened_are_looked_at_and_pieces_in_their_place() {
    let told = said(&[(0, write(OPENED, 4, b"file")), (0, write(OPENED, 0, b"evil"))]);
    assert!(told.units.iter().any(|it| has(it, Buffer::FileData, b"file")));
    assert!(told.units.iter().any(|it| has(it, Buffer::FileData, b"evilfile")));
}

#[test]
fn records_behind_a_loss_are_read() {
    let [one, two] = [write(OPENED, 0, b"lost"), write(OPENED, 4, b"evil")];
    // Within a record; and so much that nobody knows where the next begins.
    for missing in [one.len() - 20, one.len()] {
        let (mut smb, mut said) = (Smb::default(), Said::default());
        smb.take(0, &one[..20], &mut said);
        assert!(smb.lose(0, missing as u64));
        let rest = if missing == one.len() { &b"what is left"[..] } else { b"" };
        smb.take(0, &[rest, &two].concat(), &mut said);
        assert!(said.units.iter().any(|it| has(it, Buffer::FileData, b"evil")), "{missing}");
    }
}

#[test]
fn how_long_a_file_is_that_was_read_is_its_servers_to_tell() {
    let (mut smb, mut said) = (Smb::default(), Said::default());
    let mut read = vec![0; 48];
    (read[0], read[4]) = (49, 4);
    read[16..32].copy_from_slice(&OPENED);
    let mut answer = vec![0; 16];
    (answer[0], answer[2], answer[4]) = (17, 80, 4);
    answer.extend(b"evil");
    let mut close = vec![0; 24];
    close[0] = 24;
    close[8..24].copy_from_slice(&OPENED);
    smb.take(0, &two(8, false, 3, 5, &read), &mut said);
    smb.take(1, &two(8, true, 3, 5, &answer), &mut said);
    smb.take(0, &two(6, false, 4, 5, &close), &mut said);
    let size = |units: &[Unit]| units.iter().find_map(|it| it.numbers(Field::FileSize).next());
    // With the server's next packet.
    assert_eq!((size(&said.units), size(&said.later)), (None, Some(4)));
}

/// A message of DCE/RPC.
fn call(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (16 + body.len()) as u8;
    [&[5, 0, kind, 3, 0x10, 0, 0, 0, length, 0, 0, 0, 2, 0, 0, 0], body].concat()
}

#[test]
fn who_does_not_wait_for_answers_hides_neither_calls_nor_files() {
    // The client says all that it has to say before it is told what its share is.
    let request = call(0, b"\0\0\0\0\0\0\x0f\0evil");
    let told = said(&[(0, write(OPENED, 0, &request))]);
    assert!(told.units.iter().any(|it| has(it, Buffer::DcerpcStub, b"evil")), "{told:?}");
    let not_known = said(&[(0, write(OPENED, 0, &[&request[..], b"more"].concat()))]);
    assert!(!not_known.units.iter().any(|it| has(it, Buffer::DcerpcStub, b"evil")));

    let mut read = vec![0; 48];
    (read[0], read[4]) = (49, 4);
    read[16..32].copy_from_slice(&OPENED);
    let mut answer = vec![0; 16];
    (answer[0], answer[2], answer[4]) = (17, 80, 4);
    answer.extend(b"evil");
    let mut close = vec![0; 24];
    close[0] = 24;
    close[8..24].copy_from_slice(&OPENED);
    let told = said(&[
        (0, two(8, false, 3, 5, &read)),
        (0, two(6, false, 4, 5, &close)),
        (1, two(8, true, 3, 5, &answer)),
        (1, two(6, true, 4, 5, &[0; 60])),
    ]);
    assert!(told.units.iter().any(|it| it.numbers(Field::FileSize).next() == Some(4)));
}

#[test]
fn what_is_missing_of_a_write_hides_neither_what_is_before_nor_behind_it() {
    let whole = write(OPENED, 0, b"evil, and what is lost, and worse");
    let place = whole.len() - 33;
    let (mut smb, mut said) = (Smb::default(), Said::default());
    smb.take(0, &whole[..place + 4], &mut said);
    assert!(smb.lose(0, 19));
    smb.take(0, &whole[place + 23..], &mut said);
    let last = said.units.last().unwrap();
    for part in [&b"evil"[..], b"and worse"] {
        let holds = |it: &[u8]| memchr::memmem::find(it, part).is_some();
        assert!(last.each(Buffer::FileData, &mut |it| holds(it)), "{said:?}");
    }
}

/// SET_INFO of a file.
fn change(class: u8, file: [u8; 16], data: &[u8]) -> Vec<u8> {
    let mut body = vec![33, 0, 1, class];
    body.extend((data.len() as u32).to_le_bytes());
    body.extend([96, 0, 0, 0, 0, 0, 0, 0]);
    body.extend(file);
    two(17, false, 9, 5, &[&body, data].concat())
}

#[test]
fn what_is_asked_and_not_answered_is_told_at_the_end() {
    let [connect, _] = tree_connect("\\\\s\\c$", 1);
    let [open, _] = create("a.exe");
    let renamed = utf16("b.exe");
    let rename = [&[0; 16][..], &(renamed.len() as u32).to_le_bytes(), &renamed].concat();
    let lines = [connect, open, change(10, [7; 16], &rename), change(13, [7; 16], &[1])];
    let (mut smb, mut said) = (Smb::default(), Said::default());
    // What else is changed of a file is not told.
    let lines = lines.into_iter().chain([change(20, [7; 16], &[0; 8])]);
    lines.for_each(|it| smb.take(0, &it, &mut said));
    smb.end(&mut said);
    let objects: Vec<_> = said.records.iter().map(|it| &it.objects[0].1).collect();
    let [connect, open, rename, end] = objects[..] else { panic!("{said:?}") };
    assert_eq!(connect.value("command"), Some(&"SMB2_COMMAND_TREE_CONNECT".into()));
    assert_eq!(connect.value("share_type"), Some(&"UNKNOWN".into()));
    assert_eq!((open.value("id"), open.value("fuid")), (Some(&2_u64.into()), Some(&"".into())));
    let names = Object::default().with("from", "<unknown>").with("to", "b.exe");
    assert_eq!(rename.value("rename"), Some(&names.into()));
    assert_eq!(end.value("access"), Some(&"delete on close".into()));
}

/// A message of SMB 1: the command, its words, and bytes, with which the message ends.
fn one(command: u8, is_answer: bool, words: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut message = b"\xffSMB".to_vec();
    message.extend([command, 0, 0, 0, 0, if is_answer { 0x98 } else { 0x18 }, 1, 0xc0]);
    message.extend([0; 20]);
    message.push((words.len() / 2) as u8);
    message.extend(words);
    message.extend((bytes.len() as u16).to_le_bytes());
    message.extend(bytes);
    record(&message)
}

/// READ_ANDX of file 7 and its answer, with so many bytes.
fn read_of_seven(count: u32) -> [Vec<u8>; 2] {
    let mut asked = vec![0; 24];
    asked[4] = 7;
    let mut words = vec![0; 24];
    words[10..12].copy_from_slice(&(count as u16).to_le_bytes());
    words[12] = 59;
    words[14..16].copy_from_slice(&((count >> 16) as u16).to_le_bytes());
    [one(0x2e, false, &asked, b""), one(0x2e, true, &words, &vec![b'a'; count as usize])]
}

#[test]
fn reads_of_smb_1_are_as_long_as_both_halves_of_their_length_say() {
    let close = one(4, false, &[7, 0, 0, 0, 0, 0], b"");
    let closed = one(4, true, b"", b"");
    // Of a message that is looked into in part alone the rest counts, and there is no digest.
    for (count, has_digest) in [(5, true), (90_000, true), (256_000, false)] {
        let (mut smb, mut said) = (Smb::default(), Said::default());
        said.wanted.md5 = true;
        let [asked, answer] = read_of_seven(count);
        for (side, bytes) in [(0, &asked), (1, &answer), (0, &close), (1, &closed)] {
            smb.take(side, bytes, &mut said);
        }
        let told = said.records.iter().find(|it| it.kind == "fileinfo").expect("a file");
        let file = &told.objects.last().expect("what is told of it").1;
        assert_eq!(file.value("size"), Some(&u64::from(count).into()));
        assert_eq!(file.value("md5").is_some(), has_digest, "{count}");
        assert_eq!(said.later.len(), 1, "rules look at it once");
    }
}

#[test]
fn a_file_that_takes_the_number_of_one_that_is_being_closed_stays_open() {
    let (mut smb, mut said) = (Smb::default(), Said::default());
    let [asked, answer] = read_of_seven(5);
    let close = one(4, false, &[7, 0, 0, 0, 0, 0], b"");
    for (side, bytes) in [(0, &asked), (1, &answer), (0, &close)] {
        smb.take(side, bytes, &mut said);
    }
    smb.open(7, b"other".to_vec(), &Head::default(), &mut said);
    smb.take(1, &one(4, true, b"", b""), &mut said);
    assert!(smb.files.iter().any(|it| it.name == b"other"));
}

#[test]
fn what_is_written_and_what_is_read_of_a_file_are_told_apart() {
    let (mut smb, mut said) = (Smb::default(), Said::default());
    let mut read = vec![0; 48];
    (read[0], read[4]) = (49, 4);
    read[16..32].copy_from_slice(&OPENED);
    let mut answer = vec![0; 16];
    (answer[0], answer[2], answer[4]) = (17, 80, 4);
    answer.extend(b"read");
    smb.take(0, &write(OPENED, 0, b"written"), &mut said);
    smb.take(0, &two(8, false, 4, 5, &read), &mut said);
    smb.take(1, &two(8, true, 4, 5, &answer), &mut said);
    let stretches = [&b"written"[..], b"read"];
    for (unit, stretch) in said.units.iter().zip(stretches) {
        assert!(has(unit, Buffer::FileData, stretch), "{said:?}");
    }
    assert_eq!(said.units.iter().map(|it| it.number).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn what_no_server_takes_is_looked_at_and_not_told() {
    // More than there is, and within the head.
    let mut lacking = write(OPENED, 0, b"evil");
    lacking[4 + 64 + 4] = 9;
    let mut within = write(OPENED, 0, b"good");
    within[4 + 64 + 2] = 108;
    within[4 + 108..4 + 112].copy_from_slice(b"evil");
    for (message, is_told) in [(lacking, false), (within, true)] {
        let (mut smb, mut said) = (Smb::default(), Said::default());
        smb.take(0, &message, &mut said);
        let found = said.units.iter().find(|it| has(it, Buffer::FileData, b"evil")).unwrap();
        assert!(found.is_aside && found.objects.is_empty());
        smb.end(&mut said);
        assert_eq!(!said.records.is_empty(), is_told);
    }
}

#[test]
fn bytes_lie_together_wherever_in_their_messages_they_are() {
    let shifted = |at: u8, data: &[u8]| {
        let mut write = write(OPENED, at, &[b".", data].concat());
        (write[4 + 64 + 2], write[4 + 64 + 4]) = (113, data.len() as u8);
        write
    };
    let told = said(&[(0, shifted(0, b"ev")), (0, shifted(2, b"il"))]);
    assert!(told.units.iter().any(|it| has(it, Buffer::FileData, b"evil")), "{told:?}");
}

/// Bytes for a pipe, which its client wants answered.
fn transceive(number: u64, data: &[u8]) -> Vec<u8> {
    let mut ioctl = vec![0; 56];
    (ioctl[0], ioctl[24], ioctl[28]) = (57, 120, data.len() as u8);
    ioctl[4..8].copy_from_slice(&0x0011_c017_u32.to_le_bytes());
    ioctl[8..24].copy_from_slice(&OPENED);
    ioctl.extend(data);
    two(11, false, number, 5, &ioctl)
}

/// A server's refusal (STATUS_INVALID_DEVICE_REQUEST).
fn refused(number: u64) -> Vec<u8> {
    let mut answer = two(11, true, number, 5, &[9, 0, 0, 0, 0, 0, 0, 0, 0]);
    answer[4 + 8..4 + 12].copy_from_slice(&0xc000_0010_u32.to_le_bytes());
    answer
}

#[test]
fn a_file_that_its_client_calls_a_pipe_stays_a_file() {
    let [connect, connected] = tree_connect("\\\\s\\c$", 1);
    let [open, opened] = create("a");
    let told = said(&[
        (0, connect),
        (1, connected),
        (0, open),
        (1, opened),
        (0, transceive(8, b"x")),
        (1, refused(8)),
        (0, write(OPENED, 0, b"evil")),
    ]);
    let found = told.units.iter().find(|it| has(it, Buffer::FileData, b"evil")).unwrap();
    assert!(has(found, Buffer::FileName, b"a"));
}

#[test]
fn who_refuses_another_message_does_not_end_a_call() {
    let [connect, connected] = tree_connect("\\\\s\\IPC$", 2);
    let [open, opened] = create("srvsvc");
    let whole = call(0, b"\0\0\0\0\0\0\x0f\0evil");
    let part = |flags: u8, stub: &[u8]| {
        let mut part = call(0, &[b"\0\0\0\0\0\0\x0f\0", stub].concat());
        part[3] = flags;
        part
    };
    assert_eq!(part(3, b"evil"), whole);
    let told = said(&[
        (0, connect),
        (1, connected),
        (0, open),
        (1, opened),
        (0, write(OPENED, 0, &part(1, b"ev"))),
        (0, transceive(8, b"")),
        (1, refused(8)),
        (0, write(OPENED, 0, &part(2, b"il"))),
    ]);
    assert!(told.units.iter().any(|it| has(it, Buffer::DcerpcStub, b"evil")), "{told:?}");
}
