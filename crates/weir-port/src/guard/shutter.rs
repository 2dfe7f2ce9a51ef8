//! A guard at hand for a port that has none: an interface that was made anew under a port's name,
//! or one that somebody took the guard from. Nothing passes it; the gateway's next guard replaces
//! it.

use aya::{Ebpf, EbpfLoader};

use super::{GuardError, HANDLE, OBJECT, SIDES, attach, attach_error, classifier};

/// The guard's programs, loaded already: what is left to do takes a few messages to the kernel.
pub struct Shutter {
    object: Ebpf,
}

impl std::fmt::Debug for Shutter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shutter").finish_non_exhaustive()
    }
}

impl Shutter {
    /// Loads the programs. They know no port: what comes by any is dropped.
    ///
    /// # Errors
    /// The kernel refuses them.
    pub fn load() -> Result<Self, GuardError> {
        let mut object =
            EbpfLoader::new().override_global("own_mark", &crate::GUARD_MARK, true).load(OBJECT)?;
        for (_, name) in SIDES {
            classifier(&mut object, name)
                .and_then(|program| program.load())
                .map_err(|e| attach_error("the guard", e))?;
        }
        Ok(Self { object })
    }

    /// Shuts `interface`, in the calling thread's network namespace.
    ///
    /// # Errors
    /// It is gone again, or the kernel refuses.
    pub fn shut(&mut self, interface: &str) -> Result<(), GuardError> {
        // What the machine itself would say is the more urgent side.
        for (side, name) in SIDES.into_iter().rev() {
            classifier(&mut self.object, name)
                .and_then(|program| attach(program, interface, side, HANDLE))
                .map_err(|e| attach_error(interface, e))?;
        }
        Ok(())
    }
}
