// An hour of updates in Chromium, at accelerated time, screen by screen: what the page keeps after
// that is what it kept after five minutes. Needs no gateway. Usage: node tests/leak.mjs [MINUTES]
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

const ASSETS = new URL("../../crates/weir-serve/assets/", import.meta.url);
const TYPES = { html: "text/html", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };
const MINUTES = Number(process.argv[2] ?? 60);
const WARM_MINUTES = 5;
// What garbage collection leaves differs by so much from time to time.
const BYTES_MORE = 3e6;
const NODES_MORE = 300;

const gateway = "gw-a";
const names = { host: "node", tenant: null, job: null, rail: null };
const record = (index) => ({
  gateway, pair: "port0", last: new Date().toISOString(), encapsulation: "roce_v2", service: "rc", protocol: "tcp",
  source: `10.0.0.${index}`, destination: "10.0.1.1", source_names: names, destination_names: names,
  address: `10.0.0.${index}`, names, source_port: 1, destination_port: 2, source_qp: index, destination_qp: 1,
  packets: Math.random() * 1e6, bytes: Math.random() * 1e9, reply_packets: 1, reply_bytes: 1, send_bytes: 1, write_bytes: 1,
  read_bytes: 0, atomic_bytes: 0, retransmissions: 1, naks: 0, rnr_naks: 0, cnp: 0, response_ns: 5e4, messages: 1,
  missing: 0, reason: "active", sent_bytes: Math.random() * 1e9, received_bytes: 1, peers: 1, number: index, time: new Date().toISOString(),
  sid: index, severity: 2, action: "allowed", signature: `signature ${Math.random()}`, category: "", acknowledged: false,
  comment: null, noted_by: null,
});
const rows = () => ({ rows: Array.from({ length: 100 }, (_, index) => record(index)), problems: [] });
const port = { gateway, pair: "port0", side: "host", interface: "p0", received: 2, accepted: 2, dropped: 0, bypassed: 0, reasons: {}, port_losses: {}, adds_up: true };
const ANSWERS = {
  status: () => ({
    gateways: [{ name: gateway, is_up: true, is_healthy: true, problems: [], version: "1", uptime_seconds: 1, store: null, pairs: [{ name: "port0", ports: [port], queue_pairs: 1, flows: 1 }] }],
  }),
  summary: () => ({ signatures: [], resolution_s: 60, slices: [], problems: [] }),
  drops: () => ({ ports: [port], meanings: {} }),
  tunnels: () => ({ tunnels: [], changes: [], problems: [] }),
  periods: () => ({ rows: [], problems: [] }),
};
let points = 0;
const point = () => {
  points += 1;
  return {
    gateway, time_ms: 1e12 + 1000 * points, out_bits: Math.random() * 1e9, in_bits: 1e9, out_packets: 1, in_packets: 1,
    sealed_share: 1, fast_share: 0, received: 1, accepted: 1, dropped: 0, bypassed: 0, reasons: {}, flows: 1, queue_pairs: 1, peers_up: 1,
    peers: 1, is_healthy: true,
  };
};

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const page = await browser.newPage();
const findings = [];
page.on("pageerror", (error) => findings.push(`error: ${error.message}`));
await page.route("http://weir.test/**", (route) => {
  const { pathname } = new URL(route.request().url());
  if (pathname === "/api/v1/live") {
    const body = Array.from({ length: 60 }, () => `event: point\ndata: ${JSON.stringify(point())}\n\n`).join("");
    return route.fulfill({ contentType: "text/event-stream", body: `event: history\ndata: []\n\n${body}` });
  }
  if (pathname.startsWith("/api/")) return route.fulfill({ json: (ANSWERS[pathname.split("/").pop()] ?? rows)() });
  const file = pathname === "/" ? "index.html" : pathname.slice(1);
  const body = readFileSync(fileURLToPath(new URL(file, ASSETS)));
  return route.fulfill({ contentType: TYPES[file.split(".").pop()], body });
});
const inspector = await page.context().newCDPSession(page);
async function kept() {
  await inspector.send("HeapProfiler.collectGarbage");
  const { usedSize } = await inspector.send("Runtime.getHeapUsage");
  const { nodes, jsEventListeners } = await inspector.send("Memory.getDOMCounters");
  return { bytes: usedSize, nodes, listeners: jsEventListeners };
}
await page.clock.install();
await page.goto("http://weir.test/#token=0123456789abcdef0123456789abcdef");
let before;
for (let minute = 0; minute < MINUTES; minute += 1) {
  const screen = ["Flows", "Alerts", "Drops", "Home"][minute % 4];
  await page.getByRole("button", { name: screen, exact: true }).click();
  for (let step = 0; step < 30; step += 1) {
    await page.clock.runFor(2000);
    // For the answers, which come at real time.
    await page.evaluate(() => new Promise((done) => requestIdleCallback(done)));
  }
  // At the same screen each time.
  if (minute + 1 === 4 * Math.ceil(WARM_MINUTES / 4)) before = await kept();
}
const after = await kept();
console.log(JSON.stringify({ minutes: MINUTES, points, before, after }));
if (points < MINUTES * 60) findings.push(`only ${points} points came`);
if (after.bytes > before.bytes + BYTES_MORE) findings.push("the heap grows");
if (after.nodes > before.nodes + NODES_MORE) findings.push("the document grows");
if (after.listeners > before.listeners + NODES_MORE) findings.push("listeners are left behind");
await browser.close();
findings.forEach((finding) => console.log(finding));
console.log(`${findings.length} findings`);
process.exit(findings.length ? 1 : 0);
