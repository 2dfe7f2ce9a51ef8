//! Blocks that somebody asks for while the gateway runs, and who asked.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Gateway;
use crate::api::blocks::BlocksRequest;
use crate::api::dto::Response;
use crate::api::suppress::{REASON_MAX, SuppressRequest};

/// How the log book names root, who alone asks by the control socket or a signal.
pub(super) const CONTROL: &str = "control socket or signal";

/// How long a change of blocks may take to be in force in the kernel; then it follows by itself.
const PATIENCE: Duration = Duration::from_secs(1);
/// Characters of a comment.
const COMMENT_MAX: usize = 500;

impl Gateway {
    /// Does what is asked, and writes into the log book for whom.
    pub(super) fn block(&mut self, by: &str, request: &BlocksRequest) -> Result<Response> {
        let all = match request {
            BlocksRequest::All { requests } => requests.as_slice(),
            one => std::slice::from_ref(one),
        };
        for request in all {
            use BlocksRequest::{Allow, Block};
            if let Block { reason, .. } | Allow { reason, .. } = request {
                check_reason(reason)?;
            }
        }
        let done = self.store.blocks.answer(request);
        if *request != BlocksRequest::List {
            // The answer means that the change is in force.
            self.store.blocks.wait_until_in_force(PATIENCE);
            let outcome = done.as_ref().map_or_else(|it| format!("{it:#}"), |_| "done".to_owned());
            self.alerts.note(by, &request.to_string(), &outcome);
            if let Some(recorder) = &self.recorder {
                recorder.note(by, &request.to_string(), &outcome);
            }
        }
        done.map(Response::Blocks)
    }

    /// Keeps what is said of an alert, and writes into the log book who said it.
    pub(super) fn remark(
        &mut self,
        by: &str,
        alert: u64,
        is_acknowledged: bool,
        comment: &str,
    ) -> Result<Response> {
        let recorder = self.recorder.as_ref().context("there is no table [store]")?;
        let is_fit = comment.chars().count() <= COMMENT_MAX && !comment.contains(char::is_control);
        ensure!(
            is_fit,
            "comment: write at most {COMMENT_MAX} characters of text, none of them a control \
             character"
        );
        recorder.remark(by, alert, is_acknowledged, comment);
        let state = if is_acknowledged { "acknowledged" } else { "open" };
        let what = format!("alert {alert} {state}: {comment}");
        self.alerts.note(by, &what, "done");
        recorder.note(by, &what, "done");
        Ok(Response::Noted(alert))
    }

    /// Suppresses alerts or shows them again, and writes into the log book for whom.
    pub(super) fn suppress(&mut self, by: &str, request: &SuppressRequest) -> Result<Response> {
        let recorder = self.recorder.as_ref().context("there is no table [store]")?;
        if let SuppressRequest::Begin { seconds, reason, .. } = request {
            check_reason(reason)?;
            let seconds_max = weir_serve::suppressions::SECONDS_MAX;
            ensure!((1..=seconds_max).contains(seconds), "seconds: write 1 to {seconds_max}");
        }
        recorder.suppress(by, request)?;
        self.alerts.note(by, &request.to_string(), "done");
        recorder.note(by, &request.to_string(), "done");
        Ok(Response::Suppressed)
    }
}

fn check_reason(reason: &str) -> Result<()> {
    let is_fit = reason.chars().count() <= REASON_MAX && !reason.contains(char::is_control);
    ensure!(
        is_fit,
        "reason: write at most {REASON_MAX} characters of text, none of them a control \
             character"
    );
    Ok(())
}
