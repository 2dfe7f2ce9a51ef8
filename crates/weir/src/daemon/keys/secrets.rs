//! The keys of associations, told to who asks for them by the control socket, which only the
//! gateway's owner may open. Nothing else in the gateway tells a key.

use weir_engine::esp::sa::SaParameters;

use crate::api::dto::AssociationKey;
use crate::config::policy::PeerAssociations;
use crate::daemon::keys::keying::AgreedKeys;
use crate::daemon::pair::prepare::Running;

/// The keys of pair `pair` that its configuration names, one worker's, and that are `running`.
pub fn configured<'a>(
    pair: &'a str,
    configured: &'a [PeerAssociations],
    running: &[Running],
) -> impl Iterator<Item = AssociationKey> + 'a {
    let in_use: Vec<_> = running.iter().flat_map(Running::fingerprints).collect();
    configured
        .iter()
        .flat_map(|it| [(&it.peer, "seal", &it.seal), (&it.peer, "open", &it.open)])
        .filter(move |(_, _, parameters)| in_use.contains(&parameters.fingerprint()))
        .map(move |(peer, direction, parameters)| association(pair, peer, direction, parameters))
}

/// The keys of pair `pair` that handshakes agreed on.
pub fn agreed<'a>(
    pair: &'a str,
    agreed: &'a [AgreedKeys],
) -> impl Iterator<Item = AssociationKey> + 'a {
    agreed
        .iter()
        .flat_map(|it| [(&it.peer, "seal", &it.seal), (&it.peer, "open", &it.open)])
        .map(move |(peer, direction, parameters)| association(pair, peer, direction, parameters))
}

fn association(
    pair: &str,
    peer: &str,
    direction: &str,
    parameters: &SaParameters,
) -> AssociationKey {
    let material = parameters.keying_material();
    AssociationKey {
        pair: pair.to_owned(),
        peer: peer.to_owned(),
        direction: direction.to_owned(),
        spi: parameters.spi.value(),
        cipher: parameters.key.algorithm().to_owned(),
        extended_sequence: parameters.extended_sequence,
        keying_material: material.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
