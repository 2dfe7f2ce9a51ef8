use super::*;
use crate::rule::{Buffer, Field};

fn call(procedure: u8, arguments: &[u8]) -> Vec<u8> {
    let head = [0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xa3, 0, 0, 0, 3];
    let unix = b"\0\0\0\x01\0\0\0\x14\0\0\0\0\0\0\0\x02me\0\0\0\0\x03\xe8\0\0\0\x64";
    let mut bytes = [&head[..], &[0, 0, 0, procedure], unix, &[0; 8], arguments].concat();
    // The credentials' length.
    let length = unix.len() as u8 - 8;
    bytes[31] = length;
    bytes
}

#[test]
fn calls_are_told_by_the_file_that_they_name() {
    let lookup = call(3, b"\0\0\0\x04root\0\0\0\x05a.txt\0\0\0");
    let found = b"\0\0\0\x09\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x04file";
    let read = call(6, b"\0\0\0\x04file\0\0\0\0\0\0\0\0\0\0\0\x10");
    let (mut nfs, mut said) = (Nfs::of_datagrams(), Said::default());
    nfs.take(0, &lookup, &mut said);
    nfs.take(1, found, &mut said);
    nfs.take(0, &read, &mut said);
    let object = &said.records[0].objects[1].1;
    assert_eq!(object.value("procedure"), Some(&"LOOKUP".into()));
    assert_eq!(object.value("filename"), Some(&"a.txt".into()));
    assert_eq!(object.value("status"), Some(&"OK".into()));
    assert_eq!(said.units[2].numbers(Field::NfsProcedure).next(), Some(6));
    let read = &said.units[2].objects[1].1;
    assert_eq!(read.value("filename"), Some(&"a.txt".into()));
}

/// A call and its answer, that give `data` of the file from `at` on.
fn reading(number: u8, at: u8, data: &[u8], is_last: bool) -> [(usize, Vec<u8>); 2] {
    let place = [0, 0, 0, 0, 0, 0, 0, at, 0, 0, 0, 64];
    let mut asked = call(6, &[&b"\0\0\0\x04file"[..], &place].concat());
    asked[3] = number;
    let length = data.len() as u8;
    let head = [0, 0, 0, number, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let facts = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, length, 0, 0, 0, is_last.into()];
    let answer = [&head[..], &facts, &[0, 0, 0, length], data].concat();
    [(0, asked), (1, answer)]
}

#[test]
fn what_is_read_lies_where_it_lies_in_its_file_in_whatever_order_it_comes() {
    let pieces = [reading(1, 0, b"evil", false), reading(2, 4, b"file", true)];
    let [[a, b], [c, d]] = &pieces;
    for order in [[a, b, c, d], [a, c, d, b]] {
        let (mut nfs, mut said) = (Nfs::of_datagrams(), Said::default());
        for (side, bytes) in order {
            nfs.take(*side, bytes, &mut said);
        }
        let is_found = |it: &Unit| it.each(Buffer::FileData, &mut |it| it == b"evilfile");
        assert!(is_found(said.units.last().unwrap()), "{said:?}");
    }
}

#[test]
fn a_file_that_is_read_is_one_transaction_that_is_told_with_its_last_piece() {
    let (mut nfs, mut said) = (Nfs::of_datagrams(), Said::default());
    let pieces = [reading(1, 0, b"evil", false), reading(2, 4, b"file", true)];
    for (side, bytes) in pieces.iter().flatten() {
        nfs.take(*side, bytes, &mut said);
    }
    let [file, told] = &said.records[..] else { panic!("{said:?}") };
    assert_eq!(file.objects.last().unwrap().1.value("size"), Some(&8_u64.into()));
    assert_eq!((told.number, nfs.count), (Some(0), 1));
    assert_eq!(told.objects[0].1.value("xid"), Some(&1_u32.into()));
    let chunks = Object::default().with("first", true).with("last", true).with("last_xid", 2_u32);
    assert_eq!(told.objects[1].1.value("read"), Some(&chunks.with("chunks", 2_u32).into()));
}

#[test]
fn how_long_a_file_is_is_told_where_it_is_to_be_kept() {
    let size = |stable: u8| {
        let place = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, stable, 0, 0, 0, 4];
        let write = call(7, &[&b"\0\0\0\x04file"[..], &place, b"evil"].concat());
        let (mut nfs, mut said) = (Nfs::of_datagrams(), Said::default());
        nfs.take(0, &write, &mut said);
        said.units[0].numbers(Field::FileSize).next()
    };
    assert_eq!([0, 1, 2].map(size), [None, None, Some(4)]);
}

/// What is told of a call of that version and procedure when its stream ends.
fn left(version: u8, procedure: u8, arguments: &[u8]) -> Option<Object> {
    let mut bytes = call(procedure, arguments);
    bytes[19] = version;
    let mut record = (0x8000_0000 | bytes.len() as u32).to_be_bytes().to_vec();
    record.append(&mut bytes);
    let (mut nfs, mut said) = (Nfs::of_streams(), Said::default());
    nfs.take(0, &record, &mut said);
    nfs.end(&mut said);
    said.records.first().map(|it| it.objects[1].1.clone())
}

#[test]
fn calls_without_an_answer_are_told_when_their_stream_ends_but_not_how_files_are() {
    let handle = b"\0\0\0\x08FILEHDL2";
    let access = left(3, 4, &[&handle[..], &[0; 4]].concat()).unwrap();
    assert_eq!(access.value("procedure"), Some(&"ACCESS".into()));
    assert_eq!(access.value("status"), Some(&"OK".into()));
    assert_eq!(access.value("hhash"), Some(&"ee23dc0".into()), "without zeros before it");
    assert!(left(3, 6, handle).unwrap().value("read").is_some());
    assert_eq!([left(3, 1, handle), left(3, 21, handle)], [None, None]);
}

#[test]
fn what_is_left_of_datagrams_is_not_told() {
    let (mut nfs, mut said) = (Nfs::of_datagrams(), Said::default());
    nfs.take(0, &call(4, b"\0\0\0\x04file"), &mut said);
    nfs.end(&mut said);
    assert!(said.records.is_empty());
}

#[test]
fn links_have_neither_a_name_nor_a_handle() {
    let arguments = b"\0\0\0\x04root\0\0\0\x02ln\0\0";
    for procedure in [2, 5, 10, 11, 15, 16, 18, 19, 20] {
        let object = left(3, procedure, arguments).unwrap();
        assert_eq!(object.value("filename"), Some(&"".into()), "{procedure}");
        assert_eq!(object.value("hhash"), None, "{procedure}");
    }
}

#[test]
fn version_2_has_names_of_its_own() {
    let name = |procedure| left(2, procedure, b"").unwrap().value("procedure").cloned();
    for (procedure, told) in [(4, "LOOKUP"), (8, "WRITE"), (16, "READDIR"), (99, "99")] {
        assert_eq!(name(procedure), Some(told.into()));
    }
}

/// A record's fragment.
fn fragment(bytes: &[u8], is_last: bool) -> Vec<u8> {
    let mark = u32::from(is_last) << 31 | bytes.len() as u32;
    [&mark.to_be_bytes()[..], bytes].concat()
}

#[test]
fn fragments_are_put_together_and_bounded() {
    let call = call(4, b"\0\0\0\x04file\0\0\0\x1f");
    for at in 0..=call.len() {
        let (mut nfs, mut said) = (Nfs::of_streams(), Said::default());
        nfs.take(0, &fragment(&call[..at], false), &mut said);
        nfs.take(0, &fragment(&call[at..], true), &mut said);
        assert_eq!(said.units.len(), 1, "{at}");
        assert_eq!(said.units[0].numbers(Field::NfsProcedure).next(), Some(4));
    }
    let (mut nfs, mut said) = (Nfs::of_streams(), Said::default());
    for _ in 0..100 {
        nfs.take(0, &fragment(&[0; 10_000], false), &mut said);
    }
    assert!(nfs.parts[0].len() <= RECORD_LEN_MAX);
}

#[test]
fn calls_of_the_server_and_answers_to_them_end_nothing() {
    let (mut nfs, mut said) = (Nfs::of_streams(), Said::default());
    let access = call(4, b"\0\0\0\x04file\0\0\0\x1f");
    nfs.take(1, &fragment(&access, true), &mut said);
    nfs.take(0, &fragment(&answer(&[]), true), &mut said);
    nfs.take(0, &fragment(&access, true), &mut said);
    assert!(!said.has_failed);
    assert_eq!(said.units.len(), 1);
    nfs.take(0, &fragment(&[0, 0, 0, 9, 0, 0, 0, 2], true), &mut said);
    assert!(said.has_failed, "that is no message");
}

#[test]
fn calls_of_other_programs_are_passed_over() {
    let (mut nfs, mut said) = (Nfs::of_streams(), Said::default());
    let access = call(4, b"\0\0\0\x04file\0\0\0\x1f");
    nfs.take(0, &fragment(&access, true), &mut said);
    let mut other = access;
    other[14..16].copy_from_slice(&100_227_u32.to_be_bytes()[2..]);
    nfs.take(0, &fragment(&other, true), &mut said);
    assert!(!said.has_failed);
    assert_eq!(said.units.len(), 1);
}

#[test]
fn tables_are_bounded() {
    let (mut nfs, mut said) = (Nfs::of_streams(), Said::default());
    for number in 0..2000_u32 {
        let handle = [&b"\0\0\0\x04"[..], &number.to_be_bytes()].concat();
        let place = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 4];
        let write = call(7, &[&handle[..], &place, b"evil"].concat());
        nfs.take(0, &fragment(&write, true), &mut said);
    }
    assert_eq!(nfs.transactions.len(), TRANSACTIONS_MAX);
    assert!(nfs.waiting.len() <= WAITING_MAX && nfs.seen.len() <= 64);
}

#[test]
fn rules_see_what_is_kept_at_once_together() {
    let (mut nfs, mut said) = (Nfs::of_streams(), Said::default());
    for (at, data) in [(0, b"evil"), (4, b"file")] {
        let place = [0, 0, 0, 0, 0, 0, 0, at, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 4];
        let write = call(7, &[&b"\0\0\0\x04file"[..], &place, data].concat());
        nfs.take(0, &fragment(&write, true), &mut said);
    }
    let is_found = |it: &Unit| it.each(Buffer::FileData, &mut |it| it == b"evilfile");
    assert!(is_found(said.units.last().unwrap()));
    assert_eq!(said.records.iter().filter(|it| it.kind == "fileinfo").count(), 2);
}

/// A call of version 4, of these operations; and the head of an answer to it, of so many.
fn compound(operations: &[&[u8]]) -> Vec<u8> {
    let mut bytes = call(1, &[&[0; 8][..], &[0, 0, 0, operations.len() as u8]].concat());
    bytes[19] = 4;
    [bytes, operations.concat()].concat()
}

fn answer(operations: &[&[u8]]) -> Vec<u8> {
    let head = [0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let of_compound = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, operations.len() as u8];
    [&head[..], &of_compound, &operations.concat()].concat()
}

const STATE: [u8; 16] = [7; 16];
const PUT_DIRECTORY: &[u8] = b"\0\0\0\x16\0\0\0\x04dire";
const PUT_FILE: &[u8] = b"\0\0\0\x16\0\0\0\x04file";
const PUT_TOLD: &[u8] = &[0, 0, 0, 22, 0, 0, 0, 0];

/// Opens `a.txt` without making it, and asks for its handle.
fn opened() -> [(usize, Vec<u8>); 2] {
    let sequence = [&[0, 0, 0, 53][..], &[0; 32]].concat();
    let open = [
        &[0, 0, 0, 18][..],
        &[0; 20],
        b"\0\0\0\x05owner\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05a.txt\0\0\0",
    ];
    let asked = compound(&[&sequence, PUT_DIRECTORY, &open.concat(), &[0, 0, 0, 10]]);
    let sequence = [&[0, 0, 0, 53, 0, 0, 0, 0][..], &[0; 36]].concat();
    let open = [&[0, 0, 0, 18, 0, 0, 0, 0][..], &[0; 48]].concat();
    let handle = b"\0\0\0\x0a\0\0\0\0\0\0\0\x04file";
    [(0, asked), (1, answer(&[&sequence, PUT_TOLD, &open, handle]))]
}

#[test]
fn a_compound_that_reads_tells_the_file_by_the_name_that_opened_it() {
    let (mut nfs, mut said) = (Nfs::of_datagrams(), Said::default());
    let read = |at: u8| [&[0, 0, 0, 25][..], &STATE, &[0; 7], &[at, 0, 0, 0, 4]].concat();
    let came = [
        b"\0\0\0\x19\0\0\0\0\0\0\0\x00\0\0\0\x04evil",
        b"\0\0\0\x19\0\0\0\0\0\0\0\x01\0\0\0\x04file",
    ];
    let asked = compound(&[PUT_FILE, &read(0), &read(4)]);
    let reads = [(0, asked), (1, answer(&[PUT_TOLD, came[0], came[1]]))];
    for (side, bytes) in opened().into_iter().chain(reads) {
        nfs.take(side, &bytes, &mut said);
    }
    assert!(!said.has_failed);
    let [_, unit] = &said.units[..] else { panic!("{said:?}") };
    assert!(unit.each(Buffer::FileData, &mut |it| it == b"evilfile"));
    assert!(unit.each(Buffer::FileName, &mut |it| it == b"a.txt"));
    let kinds: Vec<_> = said.records.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, ["fileinfo", "nfs"]);
    let told = &said.records[1].objects[1].1;
    assert_eq!(told.value("procedure"), Some(&"READ".into()));
    assert_eq!(told.value("filename"), Some(&"a.txt".into()));
}

#[test]
fn a_compound_that_writes_tells_the_file_when_it_is_to_be_kept() {
    let write = |at: u8, stable: u8, data: &[u8]| {
        let place = [0, 0, 0, 0, 0, 0, 0, at, 0, 0, 0, stable, 0, 0, 0, data.len() as u8];
        [&[0, 0, 0, 38][..], &STATE, &place, data].concat()
    };
    let commit = [&[0, 0, 0, 5][..], &[0; 12]].concat();
    let kept_later = [write(4, 0, b"file"), commit].concat();
    for (keeps, is_done) in [(write(4, 2, b"file"), false), (kept_later, true)] {
        let (mut nfs, mut said) = (Nfs::of_datagrams(), Said::default());
        nfs.take(0, &compound(&[PUT_FILE, &write(0, 0, b"evil")]), &mut said);
        assert!(said.records.is_empty(), "more may come");
        let mut bytes = compound(&[PUT_FILE, &keeps]);
        // Two operations are in one of them.
        let count = if keeps.len() > 50 { 3 } else { 2 };
        let at = bytes.len() - keeps.len() - PUT_FILE.len() - 1;
        bytes[at] = count;
        nfs.take(0, &bytes, &mut said);
        let [record] = &said.records[..] else { panic!("{said:?}") };
        assert_eq!(record.kind, "fileinfo");
        assert!(said.units.iter().any(|it| it.each(Buffer::FileData, &mut |it| it == b"evilfile")));
        let told = record.objects[1].1.value("procedure");
        assert_eq!(told, Some(&"WRITE".into()));
        // Rules see all of it. To Suricata what follows is another file, of which nothing lies at
        // its beginning, or comes too late for the first.
        nfs.take(0, &compound(&[PUT_FILE, &write(8, 2, b"more")]), &mut said);
        let unit = said.units.last().unwrap();
        assert!(unit.each(Buffer::FileData, &mut |it| it == b"evilfilemore"));
        let sizes: Vec<_> = said.records.iter().map(|it| it.objects[2].1.value("size")).collect();
        let all = [Some(&8_u8.into()), Some(&0_u8.into())];
        assert_eq!(sizes, all[..1 + usize::from(is_done)]);
        nfs.held = Some(Default::default());
        nfs.end(&mut said);
        let left = &said.records[1 + usize::from(is_done)..];
        assert!(left.iter().all(|it| it.kind == "nfs"), "files were told");
    }
}

/// What rules see of these operations: procedures, and whether anything is odd.
fn seen(operations: &[&[u8]]) -> (Vec<i64>, bool) {
    let (mut nfs, mut said) = (Nfs::of_datagrams(), Said::default());
    nfs.take(0, &call(0, b""), &mut said);
    said = Said::default();
    nfs.take(0, &compound(operations), &mut said);
    assert!(!said.has_failed);
    let is_odd = |it: &Unit| it.events.as_slice().contains(&AppEvent::NfsMalformed);
    let procedures = said.units.iter().filter(|it| !is_odd(it));
    let procedures = procedures.filter_map(|it| it.numbers(Field::NfsProcedure).next());
    (procedures.collect(), said.units.iter().any(is_odd))
}

#[test]
fn a_compound_with_a_form_that_nobody_knows_is_looked_at_up_to_there() {
    let unknown = [0, 0, 0, 99, 1, 2, 3, 4];
    let remove = b"\0\0\0\x1c\0\0\0\x05a.txt\0\0\0";
    assert_eq!(seen(&[PUT_DIRECTORY, remove, &unknown]), (vec![28], true));
    assert_eq!(seen(&[PUT_DIRECTORY, &unknown, remove]), (vec![], true));
}

#[test]
fn of_a_compound_so_many_operations_are_looked_at_as_servers_take() {
    let remove = &b"\0\0\0\x1c\0\0\0\x05a.txt\0\0\0"[..];
    let [few, many] = [63, 64].map(|it| [vec![PUT_FILE; it], vec![remove]].concat());
    assert_eq!(seen(&few), (vec![28], false));
    assert_eq!(seen(&many), (vec![], false));
}

#[test]
fn what_suricata_alone_does_not_know_is_odd_and_hides_nothing() {
    let remove = b"\0\0\0\x1c\0\0\0\x05a.txt\0\0\0";
    let link = b"\0\0\0\x0b\0\0\0\x05b.txt\0\0\0";
    let lock = [&[0, 0, 0, 12][..], &[0; 24], &[0; 4], &[0; 20]].concat();
    let open = [&[0, 0, 0, 18][..], &[0; 20], b"\0\0\0\x01o\0\0\0", &[0; 4], &[0, 0, 0, 4]];
    for odd in [&link[..], &lock, &open.concat(), b"\0\0\0\x1f"] {
        assert_eq!(seen(&[PUT_DIRECTORY, odd, remove]), (vec![28], true), "{odd:?}");
    }
    assert_eq!(seen(&[PUT_DIRECTORY, b"\0\0\0\x20", remove]), (vec![28], false));
}

#[test]
fn rules_alone_see_the_name_of_a_file_that_nobody_opened() {
    let (mut nfs, mut said) = (Nfs::of_datagrams(), Said::default());
    let lookup = b"\0\0\0\x0f\0\0\0\x05a.txt\0\0\0";
    let found = [0, 0, 0, 15, 0, 0, 0, 0];
    let handle = b"\0\0\0\x0a\0\0\0\0\0\0\0\x04file";
    let read = [&[0, 0, 0, 25][..], &STATE, &[0; 12]].concat();
    let came = b"\0\0\0\x19\0\0\0\0\0\0\0\x01\0\0\0\x04evil";
    nfs.take(0, &compound(&[PUT_DIRECTORY, lookup, &[0, 0, 0, 10]]), &mut said);
    nfs.take(1, &answer(&[PUT_TOLD, &found, handle]), &mut said);
    nfs.take(0, &compound(&[PUT_FILE, &read]), &mut said);
    nfs.take(1, &answer(&[PUT_TOLD, came]), &mut said);
    let unit = said.units.last().unwrap();
    assert!(unit.each(Buffer::FileName, &mut |it| it == b"a.txt"));
    let told = said.records.last().unwrap().objects[1].1.value("filename");
    assert_eq!(told, Some(&"".into()));
}

#[test]
fn compounds_are_read_up_to_what_is_not_known() {
    let put = b"\0\0\0\x16\0\0\0\x04file";
    let write = [&b"\0\0\0\x26"[..], &[0; 27], b"\x02\0\0\0\x04evil"].concat();
    let unknown = b"\xff\xff\xff\xff";
    let (mut nfs, mut said) = (Nfs::of_streams(), Said::default());
    let bytes = compound(&[put, &write, unknown]);
    nfs.take(0, &fragment(&bytes, true), &mut said);
    assert!(said.units[0].each(Buffer::FileData, &mut |it| it == b"evil"), "{said:?}");
    for length in 0..bytes.len() {
        let (mut nfs, mut said) = (Nfs::of_streams(), Said::default());
        nfs.take(0, &fragment(&bytes[..length], true), &mut said);
        nfs.take(1, &fragment(&bytes[..length], true), &mut said);
        nfs.end(&mut said);
    }
}
