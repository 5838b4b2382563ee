// Ends with what to do where the Node that would run Keyfence is too old. Plain JavaScript, which an old one can read.
import { readFileSync } from 'node:fs';

const { engines } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
const NEEDED = Number.parseInt(engines.node.replace('>=', ''), 10);

if (Number(process.versions.node.split('.')[0]) < NEEDED) {
  console.error(
    `Keyfence runs on Node ${NEEDED} or newer; this is ${process.versions.node}. On Linux (x64, arm64) npm brings it, unless ` +
      `optional dependencies are left out: run npm ci. Elsewhere install it, on macOS with: brew install node@${NEEDED}`,
  );
  process.exit(1);
}
