// Numbers as people read them.

const STEPS = ["", "k", "M", "G", "T", "P"];

/** 12.3 M; `unit` follows. */
export function scaled(value: number, unit = ""): string {
  let step = 0;
  while (Math.abs(value) >= 999.5 && step < STEPS.length - 1) {
    value /= 1000;
    step += 1;
  }
  const digits = step === 0 && Number.isInteger(value) ? 0 : value >= 99.5 ? 0 : value >= 9.95 ? 1 : 2;
  return `${value.toFixed(digits)} ${STEPS[step]}${unit}`.trimEnd();
}

export function percent(share: number | null): string {
  if (share === null) return "–";
  const value = 100 * share;
  return `${value === 100 || value === 0 ? value : value.toFixed(value > 99 ? 2 : 1)} %`;
}

export function whole(value: number): string {
  return Math.round(value).toLocaleString("en");
}

export function duration(seconds: number): string {
  const days = Math.floor(seconds / 86400);
  const hours = Math.floor((seconds % 86400) / 3600);
  const minutes = Math.floor((seconds % 3600) / 60);
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min` : `${Math.floor(seconds)} s`;
}

export function nanoseconds(value: number | null): string {
  if (value === null) return "–";
  return value < 1e6 ? `${(value / 1e3).toFixed(0)} µs` : `${(value / 1e6).toFixed(1)} ms`;
}

export function clock(rfc3339: string): string {
  return new Date(rfc3339).toLocaleTimeString("en-GB");
}

/** 10.0.0.1:4791, [2001:db8::1]:443; without a port, the address. */
export function end(address: string, port: number): string {
  if (!port) return address;
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}
