//! What is spoken is told although something comes before it that receivers pass over.

use crate::bench::Bench;

#[test]
fn a_hello_request_before_the_hello_does_not_hide_the_server_name() {
    let rule = "alert tls any any -> any any (tls.sni; content:\"evil\"; sid:1;)";
    let mut hello = vec![1, 0, 0, 56, 3, 3];
    hello.extend([0; 32]);
    hello.extend([0, 0, 2, 0x13, 1, 1, 0, 0, 13, 0, 0, 0, 9, 0, 7, 0, 0, 4]);
    hello.extend(b"evil");
    let record = |message: &[u8]| [&[22, 3, 1, 0, message.len() as u8], message].concat();
    let in_own = [record(&[0; 4]), record(&hello)].concat();
    let in_one = record(&[&[0; 4], hello.as_slice()].concat());
    for bytes in [in_own, in_one] {
        for piece in [1, 5, 1000] {
            let mut bench = Bench::new(rule);
            bench.connect();
            bytes.chunks(piece).for_each(|it| _ = bench.client(it));
            assert_eq!(bench.alerted(), [1], "{piece}");
        }
    }
}
