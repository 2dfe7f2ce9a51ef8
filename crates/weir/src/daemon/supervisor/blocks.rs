//! Blocks that somebody asks for while the gateway runs, and who asked.

use anyhow::Result;

use super::Gateway;
use crate::api::blocks::BlocksRequest;
use crate::api::dto::Response;

/// Who asks by the control socket or a signal: root.
pub(super) const CONTROL: &str = "control socket or signal";

impl Gateway {
    /// Does what is asked, and writes into the log book for whom.
    pub(super) fn block(&mut self, by: &str, request: &BlocksRequest) -> Result<Response> {
        let done = self.store.blocks.answer(request);
        if *request != BlocksRequest::List {
            let outcome = done.as_ref().map_or_else(|it| format!("{it:#}"), |_| "done".to_owned());
            self.alerts.note(by, &request.to_string(), &outcome);
            if let Some(recorder) = &self.recorder {
                recorder.note(by, &request.to_string(), &outcome);
            }
        }
        done.map(Response::Blocks)
    }
}
