//! Public suffixes of domain names, by Mozilla's list (publicsuffix.org) as package `psl` has it.
//!
//! A crate of its own because that list is 11,600 generic functions, which are compiled in every
//! crate that asks: here once, and not optimised except in a release (docs/adr/0229).

#![forbid(unsafe_code)]

/// What somebody registered: a public suffix and one label before it, as `example.co.uk`. Empty
/// where there is none.
#[inline(never)]
pub fn domain(name: &[u8]) -> &[u8] {
    psl::domain(name).map_or(&[], |it| it.as_bytes())
}

/// The suffix in the list below which names are registered, as `co.uk`. Empty where the list has
/// none for this name.
#[inline(never)]
pub fn public_suffix(name: &[u8]) -> &[u8] {
    psl::suffix(name).filter(|it| it.is_known()).map_or(&[], |it| it.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_apart_from_the_suffix_that_it_is_registered_below() {
        let of = |name: &'static str| (domain(name.as_bytes()), public_suffix(name.as_bytes()));
        assert_eq!(of("www.example.co.uk"), (&b"example.co.uk"[..], &b"co.uk"[..]));
        assert_eq!(of("co.uk"), (&b""[..], &b"co.uk"[..]));
        assert_eq!(of("host.lan"), (&b"host.lan"[..], &b""[..]), "of no list");
    }
}
