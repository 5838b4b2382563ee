#!/usr/bin/env node
// The command `keyfence`: in the project its source, in the package the JavaScript that was made of it.
import { existsSync, readFileSync } from 'node:fs';
// By name it could not be imported where there is none, and the sentence below would not be said.
import module from 'node:module';
import { homedir } from 'node:os';
import { join } from 'node:path';

const NODE_MAJOR_MIN = 24;
if (Number(process.versions.node.split('.')[0]) < NODE_MAJOR_MIN) {
  console.error(
    `keyfence: needs Node ${NODE_MAJOR_MIN}, this is ${process.version}; npx keyfence brings it along`,
  );
  process.exit(78);
}
if (process.argv.slice(2).join() === '--version') {
  // To load the program would take as long again as to start Node.
  console.log(JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8')).version);
  process.exit();
}
try {
  // In the user's own folder: whoever could write into the cache could run code as this user.
  module.enableCompileCache(join(homedir(), '.cache', 'keyfence'));
} catch {
  // This user has no home. Every start then compiles anew.
}
const source = new URL('./main.ts', import.meta.url);
await import(existsSync(source) ? source.href : './main.js');
