//! Numbers of SMB by their names, as EVE spells them.

use std::sync::LazyLock;

use crate::value::Object;

/// What was asked for will be answered later.
pub(super) const STATUS_PENDING: u32 = 0x103;

/// Numbers and names, in order.
type Names = LazyLock<Vec<(u32, &'static str)>>;

/// Statuses (MS-ERREF s2.3).
static STATUSES: Names = LazyLock::new(|| names(include_str!("statuses.tsv")));
/// Functions of IOCTL (MS-FSCC s2.3, MS-SMB2 s2.2.31).
static FUNCTIONS: Names = LazyLock::new(|| names(include_str!("functions.tsv")));

fn names(text: &'static str) -> Vec<(u32, &'static str)> {
    let lines = text.lines().filter_map(|it| it.split_once('\t'));
    lines.filter_map(|(number, name)| Some((u32::from_str_radix(number, 16).ok()?, name))).collect()
}

fn name(names: &Names, number: u32) -> String {
    match names.binary_search_by_key(&number, |it| it.0) {
        Ok(place) => names[place].1.to_owned(),
        Err(_) => number.to_string(),
    }
}

pub(super) fn status_name(status: u32) -> String {
    name(&STATUSES, status)
}

pub(super) fn function_name(code: u32) -> String {
    name(&FUNCTIONS, code)
}

/// Puts what a server answered, if it has.
pub(super) fn put_status(object: &mut Object, status: Option<u32>) {
    object.put_some("status", status.map(status_name));
    object.put_some("status_code", status.map(|it| format!("{it:#x}")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        for names in [&STATUSES, &FUNCTIONS] {
            assert!(names.is_sorted_by(|one, other| one.0 < other.0));
        }
        assert_eq!(status_name(0xc000_0022), "STATUS_ACCESS_DENIED");
        assert_eq!(status_name(0xdead_beef), "3735928559");
        assert_eq!(function_name(0x0014_0204), "FSCTL_VALIDATE_NEGOTIATE_INFO");
    }
}
