// The API of `weir serve`: the types that are used here, and how to ask.

export interface PortAccount {
  gateway: string;
  pair: string;
  side: string;
  interface: string;
  received: number;
  accepted: number;
  bypassed: number;
  dropped: number;
  reasons: Record<string, number>;
  port_losses: Record<string, number>;
  adds_up: boolean;
}

export interface GatewayStatus {
  name: string;
  is_up: boolean;
  is_healthy: boolean;
  problems: string[];
  version: string;
  uptime_seconds: number;
  pairs: { name: string; ports: PortAccount[]; queue_pairs: number; flows: number; rdma_losses?: Losses }[];
  store: { written: number; overflowed: number; bytes: number; bytes_max: number } | null;
}

/** RDMA packets that were lost, by whose side. */
export interface Losses {
  host_side: number;
  gateway: number;
  wire_side: number;
}

/** What `[[label]]` calls an address. */
export interface Names {
  host: string | null;
  tenant: string | null;
  job: string | null;
  rail: string | null;
}

export interface Conversation {
  /** Who told `weir collect` of it. */
  exporter?: string;
  gateway: string;
  pair: string;
  last: string;
  encapsulation: string;
  service: string;
  source: string;
  source_qp: number | null;
  destination: string;
  source_names: Names;
  destination_names: Names;
  destination_qp: number;
  packets: number;
  bytes: number;
  reply_packets: number;
  reply_bytes: number;
  send_bytes: number;
  write_bytes: number;
  read_bytes: number;
  atomic_bytes: number;
  retransmissions: number;
  naks: number;
  rnr_naks: number;
  cnp: number;
  messages: number;
  missing: number;
  reason: string;
  response_ns: number | null;
}

export interface Flow {
  /** Who told `weir collect` of it. */
  exporter?: string;
  gateway: string;
  pair: string;
  last: string;
  protocol: string;
  source: string;
  source_port: number;
  destination: string;
  source_names: Names;
  destination_names: Names;
  destination_port: number;
  packets: number;
  bytes: number;
  reply_packets: number;
  reply_bytes: number;
}

export interface Talker {
  gateway: string;
  address: string;
  names: Names;
  sent_bytes: number;
  sent_packets: number;
  received_bytes: number;
  received_packets: number;
  peers: number;
}

export interface Tunnel {
  gateway: string;
  pair: string;
  peer: string;
  state: string;
  endpoint: string | null;
  endpoint_names: Names;
  sealed_packets: number;
  sealed_bytes: number;
  opened_packets: number;
  opened_bytes: number;
  last_seen_seconds: number | null;
  last_handshake_seconds: number | null;
  sequence_remaining: number;
  rekeys: number;
  unanswered: number;
  refused_because: string | null;
  path_mtu: number | null;
  path_mtu_state: string | null;
}

export interface TunnelChange {
  gateway: string;
  time: string;
  pair: string;
  peer: string;
  state: string;
  endpoint: string | null;
  endpoint_names: Names;
}

export interface Alert {
  gateway: string;
  number: number;
  acknowledged: boolean;
  comment: string | null;
  noted_by: string | null;
  suppressed: boolean;
  pair: string;
  time: string;
  sid: number;
  severity: number;
  action: string;
  signature: string;
  category: string;
  protocol: string;
  source: string;
  source_port: number;
  destination: string;
  source_names: Names;
  destination_names: Names;
  destination_port: number;
}

export interface Signature {
  gateway: string;
  sid: number;
  signature: string;
  category: string;
  severity: number;
  alerts: number;
  blocked: number;
  would_block: number;
  suppressed: number;
  first: string;
  last: string;
  sources: number;
  destinations: number;
}

export interface Suppression {
  gateway: string;
  sid: number;
  source: string | null;
  source_names: Names;
  since: string;
  until: string;
  who: string;
  reason: string;
}

export interface AlertSummary {
  signatures: Signature[];
  resolution_s: number;
  slices: { time_s: number; by_severity: number[] }[];
  problems: string[];
}

export interface Configuration {
  gateway: string;
  epoch: number;
  state: string;
  path: string;
  seconds_left: number | null;
  rolled_back_because: string | null;
  text: string | null;
  problems: string | null;
  difference: string | null;
}

export interface AccessLine {
  gateway: string;
  pair: string;
  place: number;
  name: string;
  action: string;
  messages: number;
  packets: number;
  bytes: number;
}

export interface Period {
  host_bytes: number;
  wire_bytes: number;
  host_packets: number;
  wire_packets: number;
  dropped: number;
}

export interface Periods {
  gateway: string;
  seconds: number;
  now: Period;
  before: Period;
}

export interface Exporter {
  gateway: string;
  exporter: string;
  domain: string;
  last: string;
  messages: number;
  records: number;
  lost: number;
  late: number;
  restarts: number;
  without_template: number;
  malformed: number;
  undecoded: number;
}

export interface Volume {
  gateway: string;
  source: string | null;
  destination: string | null;
  source_names: Names;
  destination_names: Names;
  source_qp: number | null;
  destination_qp: number | null;
  service: string | null;
  exporter: string | null;
  label: string | null;
  records: number;
  packets: number;
  bytes: number;
  reply_packets: number;
  reply_bytes: number;
  retransmissions: number;
  naks: number;
  response_ns: number | null;
}

export interface VolumeList {
  rows: Volume[];
  /** Bytes of those that are not named. */
  rest_bytes: number;
  problems: string[];
}

export interface Drops {
  ports: PortAccount[];
  meanings: Record<string, string>;
}

export interface Rows<T> {
  rows: T[];
  problems: string[];
}

export interface Point {
  gateway: string;
  time_ms: number;
  out_bits: number;
  in_bits: number;
  out_packets: number;
  in_packets: number;
  sealed_share: number | null;
  fast_share: number | null;
  received: number;
  accepted: number;
  dropped: number;
  bypassed: number;
  reasons: Record<string, number>;
  flows: number;
  queue_pairs: number;
  peers_up: number;
  peers: number;
  is_healthy: boolean;
}

const TOKEN = "weir-token";

/** The token of the link that was opened, kept for this tab alone and taken out of the address. */
export function token(): string | null {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(TOKEN, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(TOKEN);
}

export function remember(given: string): void {
  sessionStorage.setItem(TOKEN, given);
}

export class Refused extends Error {}

async function request(path: string, more: RequestInit = {}): Promise<Response> {
  const headers = { Authorization: `Bearer ${token() ?? ""}`, ...more.headers };
  const response = await fetch(path, { ...more, headers, cache: "no-store" });
  if (response.status === 401) throw new Refused("the token is not right");
  if (!response.ok) {
    const body = await response.json().catch(() => ({ error: response.statusText }));
    throw new Error(body.error);
  }
  return response;
}

export async function get<T>(path: string): Promise<T> {
  return (await request(path)).json();
}

/** Asks for a change; who may not is told so. */
export async function change(method: "POST" | "DELETE", path: string, body: object): Promise<void> {
  await request(path, { method, body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
}

/** Asks for a change that has an answer. */
export async function ask<T>(path: string, body: object): Promise<T> {
  const headers = { "Content-Type": "application/json" };
  return (await request(path, { method: "POST", body: JSON.stringify(body), headers })).json();
}

/** Gives a file to the browser under `name`. */
export async function download(path: string, name: string): Promise<void> {
  const address = URL.createObjectURL(await (await request(path)).blob());
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
  URL.revokeObjectURL(address);
}

/** Reads the live stream until `signal` ends it or the connection does. */
export async function listen(
  onHistory: (points: Point[]) => void,
  onPoint: (point: Point) => void,
  signal: AbortSignal,
): Promise<void> {
  const response = await request("/api/v1/live", { signal });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const message = text.slice(0, end);
      text = text.slice(end + 2);
      const field = (name: string) =>
        message.split("\n").find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      const data = field("data");
      if (!data) continue;
      if (field("event") === "history") onHistory(JSON.parse(data));
      else onPoint(JSON.parse(data));
    }
  }
}
