// Opens the dashboard in Chromium at two widths, light and dark, on every screen: nothing may be
// refused by its content policy, fail, or be found by axe. Usage: node tests/screens.mjs LINK FOLDER
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import { chromium } from "playwright-core";

const [link, folder] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const findings = [];

for (const [width, colorScheme] of [[1280, "light"], [400, "dark"], [1280, "dark"], [400, "light"]]) {
  // The page may not evaluate scripts; only axe, which the test brings along, may.
  const context = await browser.newContext({
    viewport: { width, height: 900 },
    colorScheme,
    bypassCSP: false,
  });
  const page = await context.newPage();
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) findings.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => findings.push(`error: ${error.message}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(new URL(link).origin)) findings.push(`outside: ${request.url()}`);
  });
  await page.goto(link);
  await page.waitForSelector(".tiles b");
  if (page.url().includes("token")) findings.push("the token stays in the address");
  await page.waitForTimeout(4000);
  for (const screen of ["Home", "Flows", "Alerts", "Tunnels", "Drops", "Settings"]) {
    // By keyboard, as somebody without a mouse does.
    await page.getByRole("button", { name: screen, exact: true }).focus();
    await page.keyboard.press("Enter");
    await page.waitForTimeout(2500);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
    if (wide) findings.push(`${screen} at ${width}: wider than the window`);
    await page.screenshot({ path: `${folder}/${screen}-${width}-${colorScheme}.png`, fullPage: true });
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
