// Opens the dashboard in Chromium with answers that are made up, so that every screen has something
// to show: at two widths, light and dark, nothing may be wider than the window, fail, or be found by
// axe. Needs no gateway. Usage: node tests/made.mjs [FOLDER for screenshots]
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

const ASSETS = new URL("../../crates/weir-serve/assets/", import.meta.url);
const TYPES = { html: "text/html", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const folder = process.argv[2];

const now = Date.now();
const ago = (seconds) => new Date(now - 1000 * seconds).toISOString();
const gateway = "gw-a";
const pair = "port0";
const port = (side, received, bypassed, reasons) => {
  const dropped = Object.values(reasons).reduce((sum, it) => sum + it, 0);
  return {
    gateway, pair, side, interface: side === "host" ? "pf0hpf" : "p0", received, bypassed, dropped,
    accepted: received - bypassed - dropped, reasons, port_losses: {}, adds_up: true,
  };
};
const ports = [
  port("host", 8_431_220, 120_433, { no_policy: 310_400, access_denied: 81_007 }),
  port("wire", 7_912_004, 60_101, { rules: 402_119, esp_replayed: 1204, esp_forged: 77 }),
];
const names = (address) => ({
  host: `node-${address.replace(".", "-")}`, tenant: "red", job: "train-4", rail: null,
});
const ends = (source, destination) => ({
  source: `10.0.${source}`, destination: `10.0.${destination}`,
  source_names: names(source), destination_names: names(destination),
});
const counts = (bytes) => ({
  packets: Math.round(bytes / 4000), bytes, reply_packets: Math.round(bytes / 40_000), reply_bytes: bytes / 60,
});
const conversation = (source, destination, bytes, again) => ({
  gateway, pair, last: ago(again), encapsulation: "roce_v2", service: "rc", ...ends(source, destination),
  source_qp: 17 + again, destination_qp: 23, ...counts(bytes), send_bytes: 0, write_bytes: bytes,
  read_bytes: 0, atomic_bytes: 0, retransmissions: again, naks: again, rnr_naks: 0, cnp: 12,
  response_ns: 84_000 * (1 + again), messages: 1200, missing: again, reason: "active",
});
const flow = (source, destination, service, bytes) => ({
  gateway, pair, last: ago(4), protocol: "tcp", ...ends(source, destination), source_port: 40_312,
  destination_port: service, ...counts(bytes),
});
const volume = (source, destination, bytes) => ({
  gateway, ...ends(source, destination), service: null, records: 12, ...counts(bytes), retransmissions: 3,
  naks: 0, response_ns: 91_000,
});
const alert = (sid, severity, action, signature, seconds) => ({
  number: sid, acknowledged: severity === 3, comment: severity === 3 ? "our own scanner" : null,
  suppressed: false, noted_by: severity === 3 ? "api: soc (operator) from 127.0.0.1" : null, gateway, pair, time: ago(seconds), sid, severity, action, signature, category: "Attempted Denial of Service",
  protocol: "UDP", ...ends("0.66", "1.2"), source_port: 51_113, destination_port: 4791,
});
const alerts = [
  alert(9000101, 1, "blocked", "WEIR flood of RDMA requests to one queue pair", 3),
  alert(2001219, 2, "would_block", "ET SCAN Potential SSH Scan", 40),
  alert(9000107, 3, "allowed", "WEIR queue pair numbers are being guessed", 71),
];
const signature = (row, count) => ({
  ...row, alerts: count, blocked: row.action === "blocked" ? count : 0, first: ago(3000), last: row.time,
  suppressed: 0, would_block: row.action === "would_block" ? count : 0, sources: 41, destinations: 2,
});
const slice = (_, index) => ({
  time_s: Math.floor(now / 60_000) * 60 - 60 * (40 - index),
  by_severity: [index > 28 ? 60 * (index - 28) : 0, 90 + 40 * Math.sin(index), 30, index % 7],
});
const point = (_, index) => ({
  gateway, time_ms: now - 1000 * (120 - index), out_bits: 4.1e9 + 4e8 * Math.sin(index / 9),
  in_bits: 3.6e9 + 3e8 * Math.cos(index / 7), out_packets: 131_000, in_packets: 120_000, sealed_share: 0.987, fast_share: 0.412,
  received: 251_000, accepted: 240_000, dropped: 9000, bypassed: 2000, reasons: {}, flows: 812,
  queue_pairs: 64, peers_up: 2, peers: 3, is_healthy: true,
});
const tunnel = (peer, state, mtu, path) => ({
  gateway, pair, peer, state, endpoint: "192.0.2.7:4500", endpoint_names: names("2.7"), sealed_packets: 1e6, sealed_bytes: 4.1e9,
  opened_packets: 9e5, opened_bytes: 3.8e9, sequence_remaining: 4e9, last_seen_seconds: state === "up" ? 0.2 : 611,
  last_handshake_seconds: state === "up" ? 71 : 700, rekeys: 14, unanswered: state === "up" ? 0 : 9,
  refused_because: null, path_mtu: mtu, path_mtu_state: path,
});
const list = (rows) => ({ rows, problems: [] });
const volumes = (rows) => ({ rows, rest_bytes: 0, resolution_s: 60, problems: [] });
const ANSWERS = {
  "/api/v1/status": {
    gateways: [
      {
        name: gateway, is_up: true, is_healthy: true, problems: [], version: "0.1.0", uptime_seconds: 93_000,
        store: null, pairs: [{ name: pair, ports, queue_pairs: 64, flows: 812 }],
      },
    ],
  },
  "/api/v1/talkers": list(
    [1, 2, 3].map((host) => ({
      gateway, address: `10.0.0.${host}`, names: names(`0.${host}`), sent_bytes: 9e9 / host, received_bytes: 4e9 / host, peers: 4,
    })),
  ),
  "/api/v1/flows": list([flow("0.1", "1.2", 443, 8.1e7), flow("0.3", "1.2", 22, 4.4e5)]),
  "/api/v1/conversations": list([0, 1, 2].map((it) => conversation(`0.${it + 1}`, "1.2", 6e9 / (it + 1), it))),
  "/api/v1/volumes": volumes([1, 2, 3, 4].map((it) => volume(`0.${it}`, "1.2", 7e9 / it))),
  "/api/v1/alerts": list(alerts),
  "/api/v1/alerts/summary": {
    signatures: alerts.map((row, index) => signature(row, 12_031 >> (3 * index))),
    resolution_s: 60, slices: Array.from({ length: 40 }, slice), problems: [],
  },
  "/api/v1/tunnels": {
    tunnels: [tunnel("gw-b", "up", 9000, "found"), tunnel("gw-c", "up", 1500, "found"), tunnel("gw-d", "dead", null, "off")],
    changes: [{ gateway, time: ago(600), pair, peer: "gw-d", state: "dead", endpoint: "192.0.2.9:4500", endpoint_names: names("2.9") }],
    problems: [],
  },
  "/api/v1/drops": {
    ports, meanings: { rules: "a rule says drop", no_policy: "no policy covers it", esp_replayed: "seen before" },
  },
};

const text = '[gateway]\nname = "gw-a"\n\n[limits]\nidle_timeout_s = 15\n';
const configuration = {
  gateway, epoch: 4, state: "confirmed", path: "/etc/weir/gw-a.toml", seconds_left: null,
  rolled_back_because: "configuration 3 was taken back: nobody confirmed it within 60 s", text, problems: null,
  difference: null,
};
ANSWERS["/api/v1/config"] = list([configuration]);
ANSWERS["/api/v1/alerts/suppressions"] = list([
  {
    gateway, sid: 2013504, source: "10.0.0.7/32", source_names: { host: null, tenant: "red", job: null, rail: null }, since: ago(600), until: ago(-86_400),
    who: "api: soc (operator) from 127.0.0.1", reason: "our own <i>package mirror</i>",
  },
]);
ANSWERS["/api/v1/exporters"] = list([
  {
    gateway: "collector", exporter: "192.0.2.7", domain: "domain 7", last: ago(3), messages: 412, records: 9120, lost: 4,
    late: 1, restarts: 0, without_template: 0, malformed: 0, undecoded: 2,
  },
]);
const period = (factor) => ({
  host_bytes: 1e12 * factor, wire_bytes: 9e11 * factor, host_packets: 1, wire_packets: 1, dropped: 7000 / factor,
});
ANSWERS["/api/v1/periods"] = list([{ gateway, seconds: 3600, now: period(1.2), before: period(1) }]);
ANSWERS["/api/v1/access"] = list(
  [["storage", "allow", 1], ["trainers", "allow", 2], ["rest", "reject", 3], ["default", "deny", 0]].map(
    ([name, action, place]) => ({ gateway, pair, place, name, action, messages: 9000, packets: 12_000, bytes: 4.1e8 }),
  ),
);

// Writes a configuration, looks at what differs, tries it and keeps it; by keyboard alone.
async function configure(page, changes) {
  changes.length = 0;
  await page.getByLabel("As written").fill(text.replace("15", "20"));
  await page.getByRole("button", { name: "Compare and check" }).press("Enter");
  await page.getByText("+idle_timeout_s = 20").waitFor();
  await page.getByRole("button", { name: "Try it" }).press("Enter");
  await page.getByText("On trial: confirm it in time").waitFor();
  await page.getByText("unconfirmed").waitFor();
  await page.getByRole("button", { name: "Confirm", exact: true }).press("Enter");
  await page.getByText("It is kept").waitFor();
  const next = text.replace("15", "20");
  const wanted = [
    ["/api/v1/config/check", { gateway, text: next }],
    ["/api/v1/config/try", { gateway, text: next, within_seconds: 60 }],
    ["/api/v1/config/confirm", { gateway }],
  ];
  if (JSON.stringify(changes) !== JSON.stringify(wanted)) findings.push(`changes: ${JSON.stringify(changes)}`);
  await page.getByLabel("As written").fill(next);
  await page.getByRole("button", { name: "Compare and check" }).press("Enter");
  await page.getByText("+idle_timeout_s = 20").waitFor();
}

// Takes the packets of an alert as a file.
async function evidence(page) {
  const begun = page.waitForEvent("download");
  await page.getByRole("button", { name: "Packets (pcapng)" }).press("Enter");
  const name = (await begun).suggestedFilename();
  if (name !== "alert-9000101.pcapng") findings.push(`the packets are called ${name}`);
}

// Blocks who an alert is of and says so, by keyboard alone.
async function act(page, changes) {
  await page.getByRole("button", { name: "Act on alert 9000101" }).press("Enter");
  await page.getByLabel("Block for").selectOption("600");
  await page.getByRole("button", { name: "Block 10.0.0.66" }).press("Enter");
  await page.getByText("10.0.0.66 is blocked").waitFor();
  await page.getByRole("button", { name: "Allow 10.0.1.2" }).press("Enter");
  await page.getByText("10.0.1.2 is allowed").waitFor();
  await page.getByLabel("Acknowledged", { exact: true }).press("Space");
  await page.getByLabel("Comment").fill("a <b>scanner</b>");
  await page.getByLabel("Comment").press("Enter");
  await page.getByText("kept", { exact: true }).waitFor();
  await page.getByLabel("Suppress rule 9000101 for").selectOption("604800");
  await page.getByLabel("Why").fill("a drill");
  await page.getByRole("button", { name: "Suppress", exact: true }).press("Enter");
  await page.getByText("rule 9000101 is suppressed").waitFor();
  await page.getByRole("button", { name: "Show again: rule 2013504 from 10.0.0.7/32" }).press("Enter");
  await page.getByText("rule 2013504 is shown again").waitFor();
  const reason = "alert of rule 9000101";
  await evidence(page);
  const wanted = [
    ["/api/v1/blocks", { gateway, prefix: "10.0.0.66", reason, seconds: 600 }],
    ["/api/v1/blocks", { gateway, list: "allow", prefix: "10.0.1.2", reason }],
    ["/api/v1/alerts/notes", { gateway, alert: 9000101, acknowledged: true, comment: "a <b>scanner</b>" }],
    ["/api/v1/alerts/suppressions", { gateway, sid: 9000101, source: "10.0.0.66", seconds: 604800, reason: "a drill" }],
    ["DELETE /api/v1/alerts/suppressions?gateway=gw-a&sid=2013504&source=10.0.0.7%2F32", {}],
  ];
  if (JSON.stringify(changes) !== JSON.stringify(wanted)) findings.push(`changes: ${JSON.stringify(changes)}`);
  const rows = page.locator("section[aria-labelledby=latest] tbody tr");
  const before = await rows.count();
  await page.getByLabel("hide acknowledged").check();
  if ((await rows.count()) !== before - 1) findings.push("an acknowledged alert is not hidden");
}

// Who asks for one name is told what is of all; the name is kept from screen to screen.
async function named(page) {
  await page.getByLabel("Named").fill("tenant=red");
  await page.getByLabel("Named").press("Enter");
  await page.getByText("these counts are of all, not of tenant=red").waitFor();
  await page.getByRole("button", { name: "Home", exact: true }).click();
  await page.getByText("Talkers and attacks are those of tenant=red").waitFor();
  await page.getByRole("button", { name: "Drops", exact: true }).click();
  await page.getByText("these counts are of all, not of tenant=red").waitFor();
}

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const findings = [];
for (const [width, colorScheme] of [[1280, "light"], [400, "dark"], [1280, "dark"], [400, "light"]]) {
  const context = await browser.newContext({ viewport: { width, height: 800 }, colorScheme });
  const page = await context.newPage();
  const changes = [];
  let standing = configuration;
  page.on("pageerror", (error) => findings.push(`error: ${error.message}`));
  await page.route("http://weir.test/**", (route) => {
    const { pathname } = new URL(route.request().url());
    if (pathname === "/api/v1/live") {
      const history = JSON.stringify(Array.from({ length: 120 }, point));
      return route.fulfill({ contentType: "text/event-stream", body: `event: history\ndata: ${history}\n\n` });
    }
    if (route.request().method() === "DELETE") {
      const { pathname, search } = new URL(route.request().url());
      changes.push([`DELETE ${pathname}${search}`, route.request().postDataJSON()]);
      return route.fulfill({ json: {} });
    }
    if (route.request().method() === "POST") {
      changes.push([pathname, route.request().postDataJSON()]);
      if (!pathname.startsWith("/api/v1/config/")) return route.fulfill({ json: {} });
      const what = pathname.split("/").pop();
      const sent = route.request().postDataJSON().text;
      const state = what === "try" ? "unconfirmed" : what === "check" ? standing.state : "confirmed";
      standing = { ...standing, state, seconds_left: state === "unconfirmed" ? 58.2 : null };
      const difference = sent && sent !== text ? "@@ -3 +3 @@\n [limits]\n-idle_timeout_s = 15\n+idle_timeout_s = 20\n" : null;
      return route.fulfill({ json: { ...standing, difference } });
    }
    if (pathname === "/api/v1/config") return route.fulfill({ json: list([standing]) });
    if (pathname === "/api/v1/evidence/cut") {
      return route.fulfill({ contentType: "application/octet-stream", body: "packets" });
    }
    if (pathname.startsWith("/api/")) return route.fulfill({ json: ANSWERS[pathname] });
    const file = pathname === "/" ? "index.html" : pathname.slice(1);
    const body = readFileSync(fileURLToPath(new URL(file, ASSETS)));
    return route.fulfill({ contentType: TYPES[file.split(".").pop()], body });
  });
  await page.goto("http://weir.test/#token=0123456789abcdef0123456789abcdef");
  for (const screen of ["Home", "Flows", "Groups", "Exporters", "Alerts", "Tunnels", "Drops", "Settings"]) {
    const group = { Groups: "ends", Exporters: "exporter" }[screen];
    if (group) await page.getByLabel("Group by").selectOption(group);
    else await page.getByRole("button", { name: screen, exact: true }).click();
    await page.waitForSelector("main tbody tr td + td");
    if (screen === "Home") {
      await page.getByText("hour: +20 % to the one before").first().waitFor();
      await page.getByText("WEIR flood of RDMA requests to one queue pair: 12,031 alerts from 41 sources").waitFor();
    }
    if (screen === "Flows") {
      await page.getByRole("button", { name: "records of queue pair 23" }).first().click();
      await page.waitForSelector("#timeline");
    }
    if (screen === "Groups") await page.waitForSelector(".matrix .m5");
    if (screen === "Exporters") await page.getByText("192.0.2.7").waitFor();
    if (screen === "Alerts") await act(page, changes);
    if (screen === "Settings") await configure(page, changes);
    if (screen === "Drops") await named(page);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
    if (wide) findings.push(`${screen} at ${width}: wider than the window`);
    if (folder) {
      const path = `${folder}/${screen.toLowerCase()}-${width}-${colorScheme}.png`;
      await page.screenshot({ path, fullPage: true });
    }
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => globalThis.axe.run());
    for (const { id, nodes } of violations) {
      findings.push(`axe ${screen} ${width} ${colorScheme}: ${id}: ${nodes.map((it) => it.html).slice(0, 2)}`);
    }
  }
  await context.close();
}
await browser.close();
findings.forEach((finding) => console.log(finding));
console.log(`${findings.length} findings`);
process.exit(findings.length ? 1 : 0);
