//! How much memory flows hold: what a detector's bound on it counts (docs/adr/0279).

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Bytes of the heap that a value keeps for itself, what is inside it included, and itself not.
pub(crate) trait HeapSize {
    fn heap_size(&self) -> usize;

    /// What several of them keep.
    fn heap_size_of<'a>(all: impl Iterator<Item = &'a Self>) -> usize
    where
        Self: Sized + 'a,
    {
        all.map(Self::heap_size).sum()
    }
}

/// `heap_size!(Type { field, other })`: the sum of those fields; the others keep nothing.
macro_rules! heap_size {
    ($type:ty { $($field:ident),* $(,)? }) => {
        impl crate::heap::HeapSize for $type {
            fn heap_size(&self) -> usize {
                0 $(+ crate::heap::HeapSize::heap_size(&self.$field))*
            }
        }
    };
}
/// `no_heap!(Type, Other)`: they keep nothing.
macro_rules! no_heap {
    ($($type:ty),+ $(,)?) => {
        $(impl crate::heap::HeapSize for $type {
            fn heap_size(&self) -> usize {
                0
            }

            // Of a long buffer each byte is not asked.
            fn heap_size_of<'a>(_: impl Iterator<Item = &'a Self>) -> usize {
                0
            }
        })+
    };
}
pub(crate) use {heap_size, no_heap};

no_heap!(bool, u8, u16, u32, u64, i64, usize);

/// What the state of an inflation takes: its window and tables, and what its writer holds back
/// (flate2 1.1).
pub(crate) const INFLATE_SIZE: usize = 80 << 10;

/// What an allocator keeps beside the bytes that it was asked for.
const ALLOCATED: usize = 16;

impl<T: HeapSize> HeapSize for Vec<T> {
    fn heap_size(&self) -> usize {
        let own = self.capacity() * size_of::<T>();
        let own = if own > 0 { own + ALLOCATED } else { 0 };
        own + T::heap_size_of(self.iter())
    }
}

/// Who has it together with others counts a share of it.
impl<T: HeapSize> HeapSize for Arc<Vec<T>> {
    fn heap_size(&self) -> usize {
        (size_of::<Vec<T>>() + (**self).heap_size()) / Arc::strong_count(self)
    }
}

impl<T: HeapSize> HeapSize for VecDeque<T> {
    fn heap_size(&self) -> usize {
        self.capacity() * size_of::<T>() + T::heap_size_of(self.iter())
    }
}

impl<K: HeapSize, V: HeapSize> HeapSize for BTreeMap<K, V> {
    fn heap_size(&self) -> usize {
        self.iter().map(|it| size_of::<(K, V)>() + it.0.heap_size() + it.1.heap_size()).sum()
    }
}

impl<T: HeapSize + ?Sized> HeapSize for Box<T> {
    fn heap_size(&self) -> usize {
        size_of_val(&**self) + ALLOCATED + (**self).heap_size()
    }
}

impl<T: HeapSize> HeapSize for Option<T> {
    fn heap_size(&self) -> usize {
        self.as_ref().map_or(0, T::heap_size)
    }
}

impl<T: HeapSize, const N: usize> HeapSize for [T; N] {
    fn heap_size(&self) -> usize {
        T::heap_size_of(self.iter())
    }
}

impl<A: HeapSize, B: HeapSize> HeapSize for (A, B) {
    fn heap_size(&self) -> usize {
        self.0.heap_size() + self.1.heap_size()
    }
}

impl<A: HeapSize, B: HeapSize, C: HeapSize> HeapSize for (A, B, C) {
    fn heap_size(&self) -> usize {
        self.0.heap_size() + self.1.heap_size() + self.2.heap_size()
    }
}

impl HeapSize for String {
    fn heap_size(&self) -> usize {
        self.capacity()
    }
}

impl HeapSize for Cow<'static, str> {
    fn heap_size(&self) -> usize {
        match self {
            Self::Borrowed(_) => 0,
            Self::Owned(text) => text.heap_size(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Both {
        bytes: Vec<u8>,
        texts: Vec<Option<String>>,
    }
    heap_size!(Both { bytes, texts });

    #[test]
    fn what_is_inside_counts_too() {
        let texts = vec![None, Some("x".repeat(500))];
        let both = Both { bytes: Vec::with_capacity(1000), texts };
        let slots = 2 * size_of::<Option<String>>();
        assert_eq!(both.heap_size(), 1000 + 500 + slots + 2 * ALLOCATED);
        assert_eq!(Box::new(both).heap_size(), 1500 + slots + 3 * ALLOCATED + size_of::<Both>());
        assert_eq!(Vec::<u8>::new().heap_size(), 0);
    }
}
