//! Test hosts, traffic and measurements.
