use super::*;
use crate::value::Value;

fn message(version: u8, exchange: u8, next: u8, payloads: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x11; 16];
    bytes.extend([next, version, exchange, 0, 0, 0, 0, 0]);
    bytes.extend((28 + payloads.len() as u32).to_be_bytes());
    bytes.extend(payloads);
    bytes
}

#[test]
fn what_a_responder_of_version_1_chose_is_told() {
    let transform = b"\0\0\0\x14\x01\x01\0\0\x80\x01\0\x05\x80\x02\0\x02\x80\x04\0\x02";
    let proposal = [b"\0\0\0\x1c\x01\x01\0\x01".as_slice(), transform].concat();
    let association = [b"\x0d\0\0\x28\0\0\0\x01\0\0\0\x01".as_slice(), &proposal].concat();
    let vendor = b"\0\0\0\x08\xaa\xbb\xcc\xdd";
    let bytes = message(0x10, 2, 1, &[association.as_slice(), vendor].concat());
    let (mut ike, mut said) = (Ike::default(), Said::default());
    ike.take(1, &bytes, &mut said);
    let unit = &said.units[0];
    assert_eq!(unit.numbers(Field::IkeEncryption).next(), Some(5));
    assert!(unit.each(Buffer::IkeVendor, &mut |it| it == b"aabbccdd"));
    assert!(unit.each(Buffer::IkeInitiator, &mut |it| it == b"1111111111111111"));
}

#[test]
fn what_has_been_broken_is_odd() {
    let transforms = b"\x03\0\0\x08\x01\0\0\x03\0\0\0\x08\x04\0\0\x02";
    let proposal = [b"\0\0\0\x18\x01\x01\0\x02".as_slice(), transforms].concat();
    let association = [b"\0\0\0\x1c".as_slice(), &proposal].concat();
    let (mut ike, mut said) = (Ike::default(), Said::default());
    ike.take(1, &message(0x20, 34, 33, &association), &mut said);
    assert!(said.units[0].events.has(AppEvent::IkeWeakEncryption));
    assert!(said.units[0].events.has(AppEvent::IkeWeakGroup));
    ike.take(1, b"short", &mut said);
    assert!(said.units[1].events.has(AppEvent::IkeMalformed));
}

#[test]
fn nonces_are_asked_of_version_1_alone() {
    for (version, kind, is_there) in [(0x10, 10, true), (0x20, 40, false)] {
        let (mut ike, mut said) = (Ike::default(), Said::default());
        ike.take(0, &message(version, 34, kind, b"\0\0\0\x08nonc"), &mut said);
        assert_eq!(said.units[0].each(Buffer::IkeNonce, &mut |_| true), is_there);
    }
}

/// A security association with one proposal of those transforms.
fn association(next: u8, transforms: &[[u8; 2]]) -> Vec<u8> {
    let mut inner: Vec<u8> = Vec::new();
    for [kind, number] in transforms {
        inner.extend([3, 0, 0, 8, *kind, 0, 0, *number]);
    }
    let length = 8 + inner.len() as u8;
    let proposal = [0, 0, 0, length, 1, 1, 0, transforms.len() as u8];
    [&[next, 0, 0, 4 + length], &proposal[..], &inner].concat()
}

fn told(ike: &mut Ike, side: usize, next: u8, payloads: &[u8]) -> Unit {
    let mut said = Said::default();
    ike.take(side, &message(0x20, 34, next, payloads), &mut said);
    said.units.remove(0)
}

#[test]
fn a_responder_tells_always_what_it_selected_last() {
    let mut ike = Ike::default();
    let name = |unit: &Unit, name| unit.objects[0].1.value(name).cloned().unwrap();
    let early = told(&mut ike, 1, 41, b"\0\0\0\x0a\0\0\0\x11\0\x0e");
    assert_eq!(name(&early, "alg_enc"), "ENCR_NULL".into());
    assert_eq!(name(&early, "alg_prf"), "PRF_NULL".into());
    assert_eq!(name(&early, "alg_auth"), "NONE".into());
    told(&mut ike, 1, 33, &association(0, &[[1, 12], [2, 5], [3, 12], [4, 14]]));
    let late = told(&mut ike, 1, 53, b"\0\0\0\x08\0\x01\0\x01");
    assert_eq!(name(&late, "alg_enc"), "ENCR_AES_CBC".into());
    assert_eq!(name(&late, "alg_dh"), "Modp2048".into());
    let payloads = vec!["IkePayloadType(53 / 0x35)", "NoNextPayload"];
    assert_eq!(name(&late, "payload"), payloads.into());
}

#[test]
fn notifications_of_errors_are_counted() {
    for (notification, count) in [([0, 14], 1_u8), ([0x40, 4], 0)] {
        let payload = [&b"\0\0\0\x08\0\0"[..], &notification].concat();
        let unit = told(&mut Ike::default(), 1, 41, &payload);
        let Some(Value::Object(inner)) = unit.objects[0].1.value("ikev2") else { panic!() };
        assert_eq!(inner.value("errors"), Some(&count.into()));
    }
}

#[test]
fn what_an_initiator_proposes_is_judged_too() {
    let judged = |transforms: &[[u8; 2]]| {
        let unit = told(&mut Ike::default(), 0, 33, &association(0, transforms));
        unit.events.as_slice().to_vec()
    };
    let weak = judged(&[[1, 3], [2, 1], [3, 1], [4, 2]]);
    assert_eq!(weak.len(), 4);
    let unknown = judged(&[[1, 99], [2, 98], [3, 97], [4, 96], [9, 9]]);
    assert_eq!(unknown, [AppEvent::IkeUnknownProposal]);
    assert_eq!(judged(&[[1, 12], [4, 14]]), [AppEvent::IkeNoAuthentication]);
    assert_eq!(judged(&[[1, 20], [2, 5], [4, 31]]), [], "AEAD authenticates");
}
