#!/usr/bin/env node
// The command `keyfence`: in the project its source, in a package the JavaScript that `npm pack` made of it.
import { existsSync } from 'node:fs';

const NODE_MAJOR_MIN = 24;
if (Number(process.versions.node.split('.')[0]) < NODE_MAJOR_MIN) {
  console.error(
    `keyfence: needs Node ${NODE_MAJOR_MIN}, this is ${process.version}; npx keyfence brings it along`,
  );
  process.exit(78);
}
const source = new URL('./main.ts', import.meta.url);
const built = new URL('../../build/control-plane/cli/main.js', import.meta.url);
await import(existsSync(source) ? source.href : built.href);
