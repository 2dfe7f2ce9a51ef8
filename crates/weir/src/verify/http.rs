//! What a test's settings say of HTTP.

use serde_json::Value;
use weir_detect::AsSuricata;

use super::case::Case;
use super::run::{PROTOCOLS, is_yes, settings, size};

/// Bytes of a body that Suricata keeps where no settings say so.
const BODY_UNSAID: usize = 4096;

/// Bytes of a body where its kept length has no limit.
const BODY_MOST: usize = 16 << 20;

/// Bytes of HTTP's bodies that are kept; 0 is all.
pub(super) fn bodies(case: &Case) -> [usize; 2] {
    let limit = |who| {
        let most = size(&of_http(case, &format!("{who}-body-limit"))?)?;
        usize::try_from(most).ok().map(|it| if it == 0 { BODY_MOST } else { it })
    };
    // Suricata's own settings say more than its program has where none do.
    let unsaid = if case.has_settings { BODY_UNSAID } else { AsSuricata::default().bodies[0] };
    [limit("request").unwrap_or(unsaid), limit("response").unwrap_or(unsaid)]
}

/// Bytes of a request's and a response's body from which on rules look at it.
pub(super) fn bodies_from(case: &Case) -> [u64; 2] {
    let is_inline = case.is_inline || case.is_on("stream.inline", false);
    let said = of_http(case, "http-body-inline");
    let waits = match said.as_deref() {
        Some("auto") => !is_inline,
        Some("yes" | "true" | "on" | "1") => false,
        Some(_) => true,
        // Suricata's own settings say `auto`, its program does not.
        None => case.has_settings || !is_inline,
    };
    let unsaid = if case.has_settings { [32 << 10; 2] } else { [32 << 10, 40 << 10] };
    let from = |(who, unsaid): (&str, u64)| {
        let said = of_http(case, &format!("{who}-body-minimal-inspect-size"));
        said.and_then(|it| size(&it)).unwrap_or(unsaid)
    };
    match waits {
        true => [from(("request", unsaid[0])), from(("response", unsaid[1]))],
        false => [0; 2],
    }
}

/// A setting of HTTP.
fn of_http(case: &Case, name: &str) -> Option<String> {
    case.setting(&format!("{PROTOCOLS}.http.libhtp.default-config.{name}"))
}

/// Whether separators in paths stay as they are: Suricata's own settings name a server that it
/// takes for all (`personality: IDS`), its program does not.
pub(super) fn keeps_separators(case: &Case) -> bool {
    match of_http(case, "personality").as_deref() {
        Some(server) => server == "Minimal",
        None => case.has_settings,
    }
}

/// Whether of requests and responses the least is told.
pub(super) fn is_brief(types: Option<&[Value]>) -> bool {
    types.is_some() && !settings(types, "http", "extended").is_some_and(is_yes)
}

/// Whether alerts tell bodies.
pub(super) fn tells_bodies(types: Option<&[Value]>) -> bool {
    let is_told = |it: &&str| settings(types, "alert", it).is_some_and(is_yes);
    ["http-body", "http-body-printable"].iter().any(is_told)
}
