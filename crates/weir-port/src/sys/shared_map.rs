//! A kernel map's memory, shared with kernel programs that change it meanwhile.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// An array map with `BPF_F_MMAPABLE`: elements of one type behind each other.
#[derive(Debug)]
pub(crate) struct SharedMap {
    memory: NonNull<u8>,
    len: usize,
    element_len: usize,
    elements: usize,
}

// SAFETY: the mapping belongs to this value alone, is valid in every thread, and is accessed by
// atomic operations only.
unsafe impl Send for SharedMap {}

impl SharedMap {
    /// Maps `elements` values of `element_len` bytes each (a multiple of 8) of the map behind `fd`.
    pub(crate) fn new(fd: BorrowedFd<'_>, elements: usize, element_len: usize) -> io::Result<Self> {
        assert!(element_len.is_multiple_of(8), "the kernel pads elements to words");
        let len = elements * element_len;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { memory, len, element_len, elements })
    }

    /// The element as it is, word by word: counters that change meanwhile are each whole.
    pub(crate) fn read<T: FromBytes + IntoBytes>(&self, element: usize) -> T {
        assert_eq!(size_of::<T>(), self.element_len, "the element's own type");
        let mut value = T::new_zeroed();
        for (index, bytes) in value.as_mut_bytes().chunks_exact_mut(8).enumerate() {
            let word = self.word_u64(element, index * 8).load(Ordering::Relaxed);
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        value
    }

    /// Sets the element, its first word last.
    pub(crate) fn write<T: IntoBytes + Immutable>(&self, element: usize, value: &T) {
        assert_eq!(size_of::<T>(), self.element_len, "the element's own type");
        for (index, bytes) in value.as_bytes().chunks_exact(8).enumerate().rev() {
            let word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            self.word_u64(element, index * 8).store(word, Ordering::Release);
        }
    }

    /// The eight-byte word at `offset` of an element.
    pub(crate) fn word_u64(&self, element: usize, offset: usize) -> &AtomicU64 {
        let place = self.place(element, offset, 8);
        // SAFETY: `place` is inside the mapping and aligned, and only atomic accesses are made to
        // it on our side while the mapping lives.
        unsafe { AtomicU64::from_ptr(place.cast().as_ptr()) }
    }

    /// The four-byte word at `offset` of an element.
    pub(crate) fn word_u32(&self, element: usize, offset: usize) -> &AtomicU32 {
        let place = self.place(element, offset, 4);
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(place.cast().as_ptr()) }
    }

    fn place(&self, element: usize, offset: usize, width: usize) -> NonNull<u8> {
        assert!(element < self.elements && offset + width <= self.element_len);
        assert!(offset.is_multiple_of(width), "words are aligned");
        // SAFETY: checked to lie inside the mapping.
        unsafe { self.memory.add(element * self.element_len + offset) }
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping and nothing borrows it any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.len) };
    }
}
