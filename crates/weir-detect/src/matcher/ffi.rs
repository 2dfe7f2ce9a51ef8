//! Hyperscan (`hs.h`) by its C interface: the one place of this crate with unsafe code.
//!
//! A [`Patterns`] owns a database that no scan changes, so that threads share it; a [`Scratch`]
//! belongs to one scan at a time, which `&mut` makes sure of.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::{self, NonNull};

use super::Pattern;

/// `HS_FLAG_CASELESS`
const CASELESS: c_uint = 1;
/// `HS_FLAG_DOTALL`
const DOTALL: c_uint = 2;
/// `HS_FLAG_SINGLEMATCH`: each pattern is reported once a scan.
const SINGLE_MATCH: c_uint = 8;
/// `HS_MODE_BLOCK`
const BLOCK: c_uint = 1;
/// `HS_SUCCESS`
const SUCCESS: c_int = 0;
/// Patterns of one database, at most: identifiers are 32 bits.
const PATTERNS_MAX: usize = 1 << 24;

/// `hs_database_t`
#[repr(C)]
struct Database {
    _opaque: [u8; 0],
}

/// `hs_scratch_t`
#[repr(C)]
struct RawScratch {
    _opaque: [u8; 0],
}

/// `hs_compile_error_t`
#[repr(C)]
struct CompileError {
    message: *const c_char,
    expression: c_int,
}

type OnMatch = unsafe extern "C" fn(c_uint, c_ulonglong, c_ulonglong, c_uint, *mut c_void) -> c_int;

// Signatures of hs_compile.h and hs_runtime.h, version 5.4.
unsafe extern "C" {
    fn hs_compile_multi(
        expressions: *const *const c_char,
        flags: *const c_uint,
        ids: *const c_uint,
        elements: c_uint,
        mode: c_uint,
        platform: *const c_void,
        database: *mut *mut Database,
        error: *mut *mut CompileError,
    ) -> c_int;
    fn hs_free_compile_error(error: *mut CompileError) -> c_int;
    fn hs_free_database(database: *mut Database) -> c_int;
    fn hs_database_size(database: *const Database, size: *mut usize) -> c_int;
    fn hs_alloc_scratch(database: *const Database, scratch: *mut *mut RawScratch) -> c_int;
    fn hs_free_scratch(scratch: *mut RawScratch) -> c_int;
    fn hs_scan(
        database: *const Database,
        data: *const c_char,
        length: c_uint,
        flags: c_uint,
        scratch: *mut RawScratch,
        on_event: OnMatch,
        context: *mut c_void,
    ) -> c_int;
}

/// The matcher refuses, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatcherError {
    /// Patterns that cannot be compiled.
    #[error("the patterns cannot be compiled: {0}")]
    Compile(String),
    /// No memory for a scan.
    #[error("no memory for the matcher (error {0})")]
    Scratch(i32),
    /// The library does not find what is there (docs/adr/0258).
    #[error(
        "the pattern matcher that this program was built with misses patterns: build it with \
         Hyperscan (libhyperscan-dev) instead of this version of Vectorscan"
    )]
    Misses,
}

/// Compiled patterns; each has its index as its name.
#[derive(Debug)]
pub struct Patterns {
    /// `None`: there is no pattern.
    database: Option<NonNull<Database>>,
}

// SAFETY: Hyperscan's databases are read-only once compiled: "can be shared between threads".
unsafe impl Send for Patterns {}
// SAFETY: as above; every function here that takes `&self` only reads.
unsafe impl Sync for Patterns {}

impl Patterns {
    /// Compiles `patterns`. Takes about a second for thirty thousand.
    ///
    /// # Errors
    /// A pattern is empty or far too long, or memory ran out.
    pub fn compile(patterns: &[Pattern]) -> Result<Self, MatcherError> {
        if patterns.is_empty() {
            return Ok(Self { database: None });
        }
        if patterns.len() > PATTERNS_MAX {
            return Err(MatcherError::Compile(format!("more than {PATTERNS_MAX} patterns")));
        }
        let texts: Vec<CString> = patterns
            .iter()
            .map(|it| CString::new(it.expression()).expect("hex has no NUL"))
            .collect();
        let pointers: Vec<*const c_char> = texts.iter().map(|it| it.as_ptr()).collect();
        let flags: Vec<c_uint> = patterns
            .iter()
            .map(|it| SINGLE_MATCH | DOTALL | if it.is_nocase { CASELESS } else { 0 })
            .collect();
        let ids: Vec<c_uint> = (0..patterns.len() as c_uint).collect();
        let (mut database, mut error) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the three arrays have `patterns.len()` elements each and outlive the call, as do
        // the strings that the first points to; a null platform means this machine.
        let code = unsafe {
            hs_compile_multi(
                pointers.as_ptr(),
                flags.as_ptr(),
                ids.as_ptr(),
                patterns.len() as c_uint,
                BLOCK,
                ptr::null(),
                &mut database,
                &mut error,
            )
        };
        match NonNull::new(database) {
            Some(database) if code == SUCCESS => Ok(Self { database: Some(database) }),
            _ => Err(MatcherError::Compile(take_message(error, code))),
        }
    }

    /// Bytes of memory that the patterns take.
    pub fn size_bytes(&self) -> usize {
        let Some(database) = self.database else { return 0 };
        let mut size = 0;
        // SAFETY: the database is alive as long as `self`.
        unsafe { hs_database_size(database.as_ptr(), &mut size) };
        size
    }

    /// Calls `found` with the index of every pattern that `data` contains, once each.
    pub fn scan(&self, data: &[u8], scratch: &mut Scratch, found: &mut dyn FnMut(u32)) {
        self.scan_ends(data, scratch, &mut |pattern, _| found(pattern));
    }

    /// Calls `found` with the index of every pattern that `data` contains, once each, and how many
    /// bytes there are to the end of where it stands first.
    pub fn scan_ends(&self, data: &[u8], scratch: &mut Scratch, found: &mut dyn FnMut(u32, u64)) {
        let (Some(database), Some(memory)) = (self.database, scratch.memory) else { return };
        let Ok(length) = c_uint::try_from(data.len()) else { return };
        let mut found = found;
        // SAFETY: database and scratch are alive, the scratch was made for this database and is
        // used by nobody else (`&mut`); `data` has `length` bytes; `context` points to `found`,
        // which outlives the call, and `on_match` takes it for that type.
        unsafe {
            hs_scan(
                database.as_ptr(),
                data.as_ptr().cast(),
                length,
                0,
                memory.as_ptr(),
                on_match,
                (&raw mut found).cast(),
            );
        }
    }
}

impl Drop for Patterns {
    fn drop(&mut self) {
        if let Some(database) = self.database {
            // SAFETY: it came from `hs_compile_multi` and is freed once.
            unsafe { hs_free_database(database.as_ptr()) };
        }
    }
}

unsafe extern "C" fn on_match(
    id: c_uint,
    _from: c_ulonglong,
    to: c_ulonglong,
    _flags: c_uint,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `scan` passes a pointer to its own `found`, which lives through the scan and is
    // used by nothing else meanwhile.
    let found = unsafe { &mut *context.cast::<&mut dyn FnMut(u32, u64)>() };
    found(id, to);
    0
}

/// The error's text; frees it.
fn take_message(error: *mut CompileError, code: c_int) -> String {
    let Some(error) = NonNull::new(error) else { return format!("error {code}") };
    // SAFETY: Hyperscan wrote the error, with a message that ends in NUL; it is freed once, after
    // the message was copied.
    unsafe {
        let message = CStr::from_ptr(error.as_ref().message).to_string_lossy().into_owned();
        let expression = error.as_ref().expression;
        hs_free_compile_error(error.as_ptr());
        format!("{message} (pattern {expression})")
    }
}

/// Memory that one scan at a time needs.
#[derive(Debug)]
pub struct Scratch {
    memory: Option<NonNull<RawScratch>>,
}

// SAFETY: the memory belongs to this value alone, and may be used by any thread, one at a time.
unsafe impl Send for Scratch {}

impl Scratch {
    /// Memory enough for scans of each of `databases`.
    ///
    /// # Errors
    /// There is none.
    pub fn new(databases: &[&Patterns]) -> Result<Self, MatcherError> {
        let mut memory = ptr::null_mut();
        for database in databases.iter().filter_map(|it| it.database) {
            // SAFETY: the database is alive; `memory` is null or what an earlier call made, which
            // this one may replace.
            let code = unsafe { hs_alloc_scratch(database.as_ptr(), &mut memory) };
            if code != SUCCESS {
                drop(Self { memory: NonNull::new(memory) });
                return Err(MatcherError::Scratch(code));
            }
        }
        Ok(Self { memory: NonNull::new(memory) })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(memory) = self.memory {
            // SAFETY: it came from `hs_alloc_scratch` and is freed once.
            unsafe { hs_free_scratch(memory.as_ptr()) };
        }
    }
}
