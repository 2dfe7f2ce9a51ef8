//! What a worker's rules told of, on its way to those who write it down.

use weir_store::datasets::DatasetSender;
use weir_store::sink::AlertSender;

use crate::daemon::pair::relay::Relay;

/// Hands over what rules told of since the last call: alerts and records to their thread, packets
/// to the evidence, whole; what they did to sets to those who keep them.
pub(in crate::daemon) fn pass_on(
    relay: &mut Relay,
    alerts: &AlertSender,
    datasets: &DatasetSender,
) {
    let engine = relay.engine();
    engine.take_alerts(&mut |alert, rules| alerts.send(alert, rules));
    engine.take_detection_records(&mut |record| alerts.tell(record));
    alerts.lose(engine.take_lost_records());
    datasets.send(engine.take_dataset_changes());
    let packets = engine.take_told_packets();
    if let Some(evidence) = &mut relay.bystanders().evidence {
        packets.iter().for_each(|packet| evidence.told(packet));
    }
}
