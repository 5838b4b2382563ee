/**
 * Prints the CycloneDX bill of materials of the production dependencies: `npm run --silent sbom > sbom.json`.
 * `npm sbom --omit=dev` alone would leave out packages that both production and development need (seen with
 * npm 11.19).
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { scriptArguments } from '../dev/arguments.ts';

scriptArguments('npm run --silent sbom > FILE: prints the bill of materials of what production installs', {});

const manifest = JSON.parse(readFileSync('package.json', 'utf8'));
const lock = JSON.parse(readFileSync('package-lock.json', 'utf8'));
for (const packageEntry of [manifest, lock.packages['']]) {
  delete packageEntry.devDependencies;
  delete packageEntry.optionalDependencies;
}
for (const [path, { dev, optional, devOptional }] of Object.entries<Record<string, unknown>>(lock.packages)) {
  if (dev || optional || devOptional) delete lock.packages[path];
}

const temporary = mkdtempSync(join(tmpdir(), 'keyfence-sbom-'));
try {
  // npm takes the folder's name as the program's name.
  const folder = join(temporary, manifest.name);
  mkdirSync(folder);
  writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest));
  writeFileSync(join(folder, 'package-lock.json'), JSON.stringify(lock));
  const text = execFileSync('npm', ['sbom', '--package-lock-only', '--sbom-format=cyclonedx'], {
    cwd: folder,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const bill = JSON.parse(text);
  // The same packages must give the same bytes: remove the time, and derive the serial number from the
  // content.
  delete bill.metadata.timestamp;
  delete bill.serialNumber;
  const hash = createHash('sha256').update(JSON.stringify(bill)).digest('hex');
  // A UUID of version 8 (RFC 9562 §5.8).
  bill.serialNumber = `urn:uuid:${hash.slice(0, 8)}-${hash.slice(8, 12)}-8${hash.slice(13, 16)}-a${hash.slice(17, 20)}-${hash.slice(20, 32)}`;
  console.log(JSON.stringify(bill, null, 2));
} finally {
  rmSync(temporary, { recursive: true });
}
