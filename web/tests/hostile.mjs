// Every string that a packet, a peer or a name can set is shown as text and never becomes a part of
// the page. Needs no gateway: the API's answers are made up here. Usage: node tests/hostile.mjs
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

const HOSTILE = `"><img src=x onerror="window.wasRun=1"><script>window.wasRun=1</script>{{7*7}}javascript:alert(1)`;
const ASSETS = new URL("../../crates/weir-serve/assets/", import.meta.url);
const FILES = ["index.html", "assets/index.js", "assets/index.css", "assets/icon.svg"];
const TYPES = { html: "text/html", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };

const port = {
  gateway: HOSTILE, pair: HOSTILE, side: HOSTILE, interface: HOSTILE, received: 3, accepted: 1,
  bypassed: 1, dropped: 1, reasons: { [HOSTILE]: 1 }, port_losses: { [HOSTILE]: 1 }, adds_up: true,
};
const named = { host: HOSTILE, tenant: HOSTILE, job: HOSTILE, rail: HOSTILE };
const row = {
  number: 1, acknowledged: true, comment: HOSTILE, noted_by: HOSTILE, messages: 1, missing: 0, reason: HOSTILE,
  names: named, source_names: named, destination_names: named,
  gateway: HOSTILE, pair: HOSTILE, last: HOSTILE, encapsulation: HOSTILE, service: HOSTILE,
  source: HOSTILE, destination: HOSTILE, source_qp: 1, destination_qp: 2, protocol: HOSTILE,
  source_port: 1, destination_port: 2, packets: 1, bytes: 1, reply_packets: 1, reply_bytes: 1,
  send_bytes: 1, write_bytes: 0, read_bytes: 0, atomic_bytes: 0, retransmissions: 0, naks: 0,
  rnr_naks: 0, cnp: 0, response_ns: null, address: HOSTILE, sent_bytes: 1, received_bytes: 1,
  peers: 1, records: 1, time: HOSTILE, sid: 1, severity: 1, action: HOSTILE, signature: HOSTILE,
  category: HOSTILE, peer: HOSTILE, state: HOSTILE, endpoint: HOSTILE,
};
const list = { rows: [row], problems: [HOSTILE] };
const ANSWERS = {
  status: {
    gateways: [
      {
        name: HOSTILE, is_up: true, is_healthy: false, problems: [HOSTILE], version: HOSTILE,
        uptime_seconds: 1, store: null, pairs: [{ name: HOSTILE, ports: [port], queue_pairs: 1, flows: 1 }],
      },
      { name: "gw-b", is_up: false, is_healthy: false, problems: [], version: "", uptime_seconds: 0, pairs: [], store: null },
    ],
  },
  talkers: list,
  flows: list,
  conversations: list,
  volumes: list,
  alerts: list,
  summary: {
    signatures: [
      {
        gateway: HOSTILE, sid: 1, signature: HOSTILE, category: HOSTILE, severity: 1, alerts: 1,
        blocked: 1, would_block: 0, first: HOSTILE, last: HOSTILE, sources: 1, destinations: 1,
      },
    ],
    resolution_s: 1, slices: [{ time_s: 1, by_severity: [1, 0, 0, 0] }], problems: [HOSTILE],
  },
  tunnels: {
    tunnels: [
      {
        gateway: HOSTILE, pair: HOSTILE, peer: HOSTILE, state: HOSTILE, endpoint: HOSTILE, endpoint_names: named,
        sealed_packets: 1, sealed_bytes: 1, opened_packets: 1, opened_bytes: 1, last_seen_seconds: 1,
        last_handshake_seconds: 1, sequence_remaining: 1, rekeys: 0, unanswered: 0,
        refused_because: HOSTILE, path_mtu: 1500, path_mtu_state: HOSTILE,
      },
    ],
    changes: [row], problems: [],
  },
  access: {
    rows: [
      { gateway: HOSTILE, pair: HOSTILE, place: 1, name: HOSTILE, action: HOSTILE, messages: 1, packets: 1, bytes: 1 },
    ],
    problems: [HOSTILE],
  },
  config: {
    rows: [
      {
        gateway: HOSTILE, epoch: 1, state: HOSTILE, path: HOSTILE, seconds_left: 1, rolled_back_because: HOSTILE,
        text: HOSTILE, problems: null, difference: null,
      },
    ],
    problems: [HOSTILE],
  },
  periods: { rows: [], problems: [HOSTILE] },
  drops: { ports: [port], meanings: { [HOSTILE]: HOSTILE } },
};

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
// Without the content policy: the page must not need it.
const page = await browser.newPage();
const findings = [];
page.on("dialog", (dialog) => findings.push(`dialog: ${dialog.message()}`) && dialog.dismiss());
page.on("pageerror", (error) => findings.push(`error: ${error.message}`));
await page.route("http://weir.test/**", (route) => {
  const { pathname } = new URL(route.request().url());
  if (pathname === "/api/v1/live") {
    return route.fulfill({ contentType: "text/event-stream", body: "event: history\ndata: []\n\n" });
  }
  const answer = ANSWERS[pathname.split("/").pop()];
  if (pathname.startsWith("/api/")) return route.fulfill({ json: answer });
  const file = pathname === "/" ? "index.html" : pathname.slice(1);
  if (!FILES.includes(file)) {
    findings.push(`asked for ${file}`);
    return route.abort();
  }
  const body = readFileSync(fileURLToPath(new URL(file, ASSETS)));
  return route.fulfill({ contentType: TYPES[file.split(".").pop()], body });
});
await page.goto("http://weir.test/#token=0123456789abcdef0123456789abcdef");
for (const screen of ["Home", "Flows", "Groups", "Alerts", "Tunnels", "Drops", "Settings"]) {
  if (screen === "Groups") await page.getByLabel("Group by").selectOption("ends");
  else await page.getByRole("button", { name: screen, exact: true }).click();
  if (screen === "Alerts") await page.getByRole("button", { name: "Act on alert 1" }).click();
  if (screen === "Flows") await page.getByRole("button", { name: "records of queue pair 2" }).click();
  await page.waitForFunction(
    (text) => [...document.querySelectorAll("main td, main article")].some((it) => it.innerText.includes(text)),
    HOSTILE.slice(0, 30),
  );
  const found = await page.evaluate(() => ({
    wasRun: "wasRun" in window,
    images: document.querySelectorAll("main img").length,
    scripts: document.querySelectorAll("body script").length,
  }));
  if (found.wasRun || found.images || found.scripts) findings.push(`${screen}: ${JSON.stringify(found)}`);
}
await browser.close();
findings.forEach((finding) => console.log(finding));
console.log(`${findings.length} findings`);
process.exit(findings.length ? 1 : 0);
