//! Ctrl-C as a flag that every wait of the lab looks at, so that guards clean up on the way out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// How often a wait looks at what it waits for, where a look costs little.
pub(crate) const POLL: Duration = Duration::from_millis(5);
/// One that takes long, as a program that is asked, is followed by a pause so many times as long,
/// and no longer than so: a wait is to leave the processor to who is waited for.
const PAUSE_LOOKS: u32 = 4;
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// From here on SIGINT, SIGTERM and SIGHUP end the lab's waits instead of the process.
///
/// # Errors
/// The handlers cannot be installed.
pub fn watch() -> Result<()> {
    if REQUESTED.get().is_some() {
        return Ok(());
    }
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    let _ = REQUESTED.set(flag);
    Ok(())
}

/// Whether such a signal has come.
pub fn requested() -> bool {
    REQUESTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// An error when such a signal has come, for `?`.
///
/// # Errors
/// It has come.
pub fn check() -> Result<()> {
    if requested() {
        bail!("interrupted");
    }
    Ok(())
}

/// Waits for `duration`.
///
/// # Errors
/// A signal came first.
pub fn sleep(duration: Duration) -> Result<()> {
    until("the pause's end", duration + duration, {
        let end = Instant::now() + duration;
        move || Ok(Instant::now() >= end)
    })
}

/// Waits until `ready` says so, at most for `limit`. A machine that stops meanwhile charges that to
/// nobody.
///
/// # Errors
/// A signal came, the limit passed (`what` names what was awaited), or `ready` failed.
pub fn until(what: &str, limit: Duration, mut ready: impl FnMut() -> Result<bool>) -> Result<()> {
    let mut left = limit;
    loop {
        check()?;
        let asked = Instant::now();
        if ready()? {
            return Ok(());
        }
        if left.is_zero() {
            bail!("no {what} within {} s", limit.as_secs_f32());
        }
        let answered = Instant::now();
        let look = answered - asked;
        let pause = (look * PAUSE_LOOKS).clamp(POLL, PAUSE_MAX);
        thread::sleep(pause);
        left = left.saturating_sub(look + answered.elapsed().min(pause + 9 * POLL));
    }
}
