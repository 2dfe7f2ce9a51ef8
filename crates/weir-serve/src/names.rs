//! What `[[label]]` calls addresses, as the API says it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

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

    /// Of the address of an endpoint, `192.0.2.7:4500`; none where there is no address in it.
    pub fn of_endpoint(labels: &sqlite::Labels, endpoint: Option<&str>) -> Self {
        let address = endpoint.and_then(address_of);
        address.map_or_else(Self::default, |it| Self::of(labels, it))
    }

    /// What both are called.
    pub fn shared(self, other: &Self) -> Self {
        let same = |own: Option<String>, other: &Option<String>| {
            own.filter(|own| Some(own) == other.as_ref())
        };
        Self {
            host: same(self.host, &other.host),
            tenant: same(self.tenant, &other.tenant),
            job: same(self.job, &other.job),
            rail: same(self.rail, &other.rail),
        }
    }

    /// Whether one of these names is the one that is wanted.
    pub fn fit(&self, wanted: &sqlite::LabelFilter) -> bool {
        let Self { host, tenant, job, rail } = self.clone();
        wanted.fits(&[host, tenant, job, rail])
    }
}

/// The address of an endpoint, as records have it.
fn address_of(endpoint: &str) -> Option<[u8; 16]> {
    let with_port = endpoint.parse::<SocketAddr>().map(|it| it.ip());
    match with_port.or_else(|_| endpoint.parse::<IpAddr>()).ok()? {
        IpAddr::V4(v4) => Some(v4.to_ipv6_mapped().octets()),
        IpAddr::V6(v6) => Some(v6.octets()),
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
