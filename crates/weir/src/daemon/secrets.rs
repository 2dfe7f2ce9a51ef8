//! The keys of associations, told to who asks for them by the control socket, which only the
//! gateway's owner may open. Nothing else in the gateway tells a key.

use weir_engine::esp::sa::SaParameters;

use super::keying::AgreedKeys;
use super::prepare::Running;
use crate::api::dto::AssociationKey;
use crate::config::policy::PeerAssociations;

/// The keys of pair `pair`: those of its configuration that are `running`, and those agreed.
pub fn of_pair(
    pair: &str,
    configured: &[PeerAssociations],
    running: &[Running],
    agreed: &[AgreedKeys],
) -> Vec<AssociationKey> {
    let in_use: Vec<_> = running.iter().flat_map(Running::fingerprints).collect();
    let configured = configured
        .iter()
        .flat_map(|it| [(&it.peer, "seal", &it.seal), (&it.peer, "open", &it.open)])
        .filter(|(_, _, parameters)| in_use.contains(&parameters.fingerprint()));
    let agreed =
        agreed.iter().flat_map(|it| [(&it.peer, "seal", &it.seal), (&it.peer, "open", &it.open)]);
    configured
        .chain(agreed)
        .map(|(peer, direction, parameters)| association(pair, peer, direction, parameters))
        .collect()
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
