//! What `[[label]]` calls addresses, as the API says it.

use std::fmt;

use serde::Serialize;
use utoipa::ToSchema;
use weir_store::sqlite;

/// What an address is called; what has no name is null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the kinds of names")]
pub struct Names {
    pub host: Option<String>,
    pub tenant: Option<String>,
    pub job: Option<String>,
    pub rail: Option<String>,
}

impl Names {
    /// Of an address in a store.
    pub fn of(labels: &sqlite::Labels, address: [u8; 16]) -> Self {
        let [host, tenant, job, rail] = labels.names(address);
        Self { host, tenant, job, rail }
    }
}

impl fmt::Display for Names {
    /// `h1 (tenant red, job 7)`; nothing where there is no name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [("tenant", &self.tenant), ("job", &self.job), ("rail", &self.rail)];
        let more: Vec<String> = kinds
            .iter()
            .filter_map(|(kind, name)| Some(format!("{kind} {}", name.as_ref()?)))
            .collect();
        match (&self.host, more.is_empty()) {
            (Some(host), true) => f.write_str(host),
            (Some(host), false) => write!(f, "{host} ({})", more.join(", ")),
            (None, _) => f.write_str(&more.join(", ")),
        }
    }
}
