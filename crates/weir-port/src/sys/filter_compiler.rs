//! libpcap's filter compiler, loaded when it is first needed: a gateway that filters nothing needs
//! no libpcap, neither to build nor to run.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::{NonNull, null_mut};

use super::socket::FilterInstruction;

/// Debian and its children, then everybody else.
const LIBRARY_NAMES: [&CStr; 3] = [c"libpcap.so.0.8", c"libpcap.so.1", c"libpcap.so"];
/// `PCAP_ERRBUF_SIZE`.
const ERROR_LEN: usize = 256;
/// `PCAP_NETMASK_UNKNOWN`.
const NETMASK_UNKNOWN: u32 = u32::MAX;

/// What went wrong, in the words of the loader or of libpcap.
#[derive(Debug)]
pub(crate) enum CompilerError {
    Library(String),
    Interface(String),
    Expression(String),
}

/// `struct bpf_program` (pcap/bpf.h); its instructions have `struct sock_filter`'s layout.
#[repr(C)]
struct Program {
    len: u32,
    instructions: *mut FilterInstruction,
}

type Create = unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_void;
type OpenDead = unsafe extern "C" fn(c_int, c_int) -> *mut c_void;
type Activate = unsafe extern "C" fn(*mut c_void) -> c_int;
type Compile = unsafe extern "C" fn(*mut c_void, *mut Program, *const c_char, c_int, u32) -> c_int;
type FreeCode = unsafe extern "C" fn(*mut Program);
type ErrorText = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type Close = unsafe extern "C" fn(*mut c_void);

/// The functions used of `pcap/pcap.h`; `pcap_t` is opaque.
struct Library {
    create: Create,
    open_dead: OpenDead,
    activate: Activate,
    compile: Compile,
    free_code: FreeCode,
    error: ErrorText,
    close: Close,
}

impl Library {
    fn load() -> Result<Self, CompilerError> {
        let opened = LIBRARY_NAMES.iter().find_map(|name| {
            // SAFETY: a library of this name is libpcap, whose constructors have no conditions.
            NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) })
        });
        let library = opened.ok_or_else(|| CompilerError::Library(loader_error()))?;
        let find = |name: &CStr| {
            // SAFETY: the library was opened and is never closed.
            NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) })
                .map(NonNull::as_ptr)
                .ok_or_else(|| CompilerError::Library(loader_error()))
        };
        // SAFETY: these are the prototypes of pcap(3PCAP), unchanged since libpcap 1.0.
        unsafe {
            Ok(Self {
                create: transmute::<*mut c_void, Create>(find(c"pcap_create")?),
                open_dead: transmute::<*mut c_void, OpenDead>(find(c"pcap_open_dead")?),
                activate: transmute::<*mut c_void, Activate>(find(c"pcap_activate")?),
                compile: transmute::<*mut c_void, Compile>(find(c"pcap_compile")?),
                free_code: transmute::<*mut c_void, FreeCode>(find(c"pcap_freecode")?),
                error: transmute::<*mut c_void, ErrorText>(find(c"pcap_geterr")?),
                close: transmute::<*mut c_void, Close>(find(c"pcap_close")?),
            })
        }
    }
}

/// An open `pcap_t`.
struct Handle<'l> {
    library: &'l Library,
    pointer: NonNull<c_void>,
}

impl Handle<'_> {
    fn error(&self) -> String {
        // SAFETY: the handle is open, and its error text lives as long as it does.
        unsafe { text((self.library.error)(self.pointer.as_ptr())) }
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is open and nobody uses it any more.
        unsafe { (self.library.close)(self.pointer.as_ptr()) }
    }
}

/// Compiles `expression` for a live capture on `interface`.
pub(crate) fn compile(
    interface: &str,
    expression: &str,
) -> Result<Vec<FilterInstruction>, CompilerError> {
    let zero = |_| CompilerError::Expression("a zero byte cannot stand in it".to_owned());
    let expression = CString::new(expression).map_err(zero)?;
    let name = CString::new(interface).map_err(zero)?;
    let library = Library::load()?;
    let mut error = [0 as c_char; ERROR_LEN];
    // SAFETY: a closed string and a buffer of the size that libpcap asks for.
    let pointer = unsafe { (library.create)(name.as_ptr(), error.as_mut_ptr()) };
    let Some(pointer) = NonNull::new(pointer) else {
        // SAFETY: libpcap has written a closed string there.
        return Err(CompilerError::Interface(unsafe { text(error.as_ptr()) }));
    };
    let handle = Handle { library: &library, pointer };
    // SAFETY: the handle was created and not yet activated.
    if unsafe { (library.activate)(pointer.as_ptr()) } < 0 {
        return Err(CompilerError::Interface(handle.error()));
    }
    compile_with(&handle, &expression)
}

/// Compiles `expression` for whole Ethernet frames in memory, their VLAN tags in place.
pub(crate) fn compile_for_frames(
    expression: &str,
) -> Result<Vec<FilterInstruction>, CompilerError> {
    const ETHERNET: c_int = 1;
    const FRAME_LEN_MAX: c_int = 262_144;
    let zero = |_| CompilerError::Expression("a zero byte cannot stand in it".to_owned());
    let expression = CString::new(expression).map_err(zero)?;
    let library = Library::load()?;
    // SAFETY: two numbers; libpcap makes a handle that no interface stands behind.
    let pointer = unsafe { (library.open_dead)(ETHERNET, FRAME_LEN_MAX) };
    let no_memory = || CompilerError::Library("libpcap has no memory".to_owned());
    let pointer = NonNull::new(pointer).ok_or_else(no_memory)?;
    compile_with(&Handle { library: &library, pointer }, &expression)
}

fn compile_with(
    handle: &Handle<'_>,
    expression: &CStr,
) -> Result<Vec<FilterInstruction>, CompilerError> {
    let (library, pointer) = (handle.library, handle.pointer);
    let mut program = Program { len: 0, instructions: null_mut() };
    const OPTIMIZE: c_int = 1;
    // SAFETY: a handle that is active or dead, a program to fill and a closed string.
    let result = unsafe {
        let (pointer, expression) = (pointer.as_ptr(), expression.as_ptr());
        (library.compile)(pointer, &mut program, expression, OPTIMIZE, NETMASK_UNKNOWN)
    };
    if result < 0 {
        return Err(CompilerError::Expression(handle.error()));
    }
    // SAFETY: a compiled program holds `len` instructions; it is freed once, after the copy.
    unsafe {
        let instructions = std::slice::from_raw_parts(program.instructions, program.len as usize);
        let copy = instructions.to_vec();
        (library.free_code)(&mut program);
        Ok(copy)
    }
}

fn loader_error() -> String {
    // SAFETY: dlerror gives a closed string that lives until the next loader call, or null.
    unsafe { text(libc::dlerror()) }
}

/// # Safety
/// `pointer` is null or points to a closed string.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
